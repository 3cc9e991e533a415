/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The beginning and the end of a thread cache, and its flushes into the pool. */

#include "pool.h"

struct gp_tcache;
struct gp_bin;

/* Creates a cache with a reference to the pool. NULL without host memory, or where the pool's options forbid it. */
struct gp_tcache *gp_tcache_new(struct gp_pool *pool);

/* Frees the cache when the thread ends or the pool is gone: flushes it into the pool. */
void gp_tcache_free(struct gp_tcache *tc);

/* Flushes the cache: moves all its blocks into the pool's queue. */
void gp_tcache_flush(struct gp_tcache *tc);

/*
 * Flushes the older half of a bin, as far as a fence of a free covers it. Returns true if any block went. Call within a
 * free.
 */
bool gp_tcache_spill(struct gp_tcache *tc, struct gp_bin *bin);

/*
 * Moves large blocks into the pool's queue; with the pool's lock. Returns true if no fence of a free covers some of
 * them.
 */
bool gp_tcache_flush_large_locked(struct gp_tcache *tc);
