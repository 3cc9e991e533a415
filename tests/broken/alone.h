/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A defect: the library never notices that something outside the context may be the first to touch memory. Included
 * before each source of the library (-include).
 */

#ifndef __ASSEMBLER__

#include "shim/base/state.h"

#define gp_state_heeds_completion() false

#endif
