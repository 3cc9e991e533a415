/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Contiguous host memory, reserved for the largest size that a table can ever need. The kernel provides zeroed pages as
 * they are touched.
 */

#include <stdatomic.h>
#include <stddef.h>

/* Returns the memory, or NULL. The caller frees it with munmap. */
void *gp_reserve(size_t bytes);

/*
 * Reserves memory for the life of the process and stores its address, unless another thread has stored one. Returns 0
 * or -ENOMEM.
 */
int gp_reserve_once(_Atomic(void *) *memory, size_t bytes);
