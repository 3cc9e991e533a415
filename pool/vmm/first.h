/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The first chunk of a pool of the kind vmm, for a backend that maps it ahead of its request. */

#include "pool/pool.h"

/*
 * Returns the size of the first chunk that a pool without memory will create for a request of `bytes`, and the address
 * at which it will map the chunk. For 0 bytes: the smallest chunk. It is a guess: the request may be rounded further,
 * and other requests may come first.
 */
uint64_t gp_pool_first_chunk(const struct gp_pool *pool, uint64_t bytes, uint64_t *ret_addr);
