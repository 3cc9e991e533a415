/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Compiles api_here.c as C++. */
#include "api_here.c"
