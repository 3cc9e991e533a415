/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "slow_path.h"

_Atomic unsigned gp_slow_path;
