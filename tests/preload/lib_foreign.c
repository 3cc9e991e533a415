/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library that does nothing, under the name of one that matters. */
int lib_foreign = 1;
