/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Contiguous host memory, reserved for the largest size that a table can ever need. The kernel provides zeroed pages as
 * they are touched.
 */

#include <stdatomic.h>
#include <stddef.h>

/* Returns the memory, or NULL. Freed with munmap. */
void *gp_reserve(size_t bytes);

/* Reserves memory for the life of the process and stores it, unless another thread has done so. 0 or -ENOMEM. */
int gp_reserve_once(_Atomic(void *) *place, size_t bytes);
