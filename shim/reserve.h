/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Host memory in one piece, as much as there can ever be need of: the kernel gives it, all zero, as it is touched. */

#include <stdatomic.h>
#include <stddef.h>

/* NULL if there is none. For munmap. */
void *gp_reserve(size_t bytes);

/* For the rest of the process, whichever thread comes first. 0 or -ENOMEM. */
int gp_reserve_once(_Atomic(void *) *place, size_t bytes);
