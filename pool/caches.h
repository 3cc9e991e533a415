/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Caches in front of a pool, such as those of threads: they hold blocks that the pool counts as held by the program.
 * Each registers with the pool. Before the pool works on them, with its lock held, it closes all of them to their
 * owners.
 */

#include "pool_impl.h"

void gp_cache_register(struct gp_pool *pool, struct gp_cache *cache, const struct gp_cache_ops *ops);

/* The caller holds the pool's lock and has flushed the cache. */
void gp_cache_unregister_locked(struct gp_pool *pool, struct gp_cache *cache);

/*
 * Flushes all caches of the pool. Returns the number of blocks. *ret_is_any_unfenced: true if no fence of a free covers
 * some.
 */
uint64_t gp_caches_flush(struct gp_pool *pool, bool *ret_is_any_unfenced);

/* Flushes all caches and makes completed blocks usable. Returns true if any block was flushed. */
bool gp_caches_flush_usable(struct gp_pool *pool);

/*
 * As gp_caches_flush_usable, for a request of that size. Does nothing if flushes were too frequent of late: growing is
 * better then.
 */
bool gp_caches_flush_for(struct gp_pool *pool, uint64_t size);

/* After this call, a thread that takes from its cache has seen everything written before the call. */
void gp_caches_quiesce_locked(struct gp_pool *pool);

/* The pool is dropped: empties the caches without further use of their blocks. */
void gp_caches_drop_locked(struct gp_pool *pool);

/* Corrects a snapshot of the pool's counters by the content of its caches. */
void gp_caches_count_locked(struct gp_pool *pool, struct gp_stats *stats);

/* The same without waiting. Returns false, with the counters as they were, if a thread is inside its cache. */
bool gp_caches_try_count_locked(struct gp_pool *pool, struct gp_stats *stats);
