/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Thread caches: small blocks that a thread has freed and will soon allocate again, without a contended lock, a search
 * or a driver call. The pool behind a cache counts its blocks as held by the program.
 *
 * A fence for each free would cost more than all the rest. So fences are shared:
 *
 *   - A cache collects freed blocks of a size in a bin, up to the bin's depth.
 *   - The free that fills the bin records one fence for all of them.
 *   - The cache polls that fence when the next block is wanted. So one record and one query serve as many allocations
 *     as the bin is deep.
 *   - Fences belong to the context, so a fence that any thread recorded serves the caches of all threads.
 *
 * This is worth it while the GPU keeps up. Once it lags, or memory is short, a freeing thread flushes its cache into
 * the pool, which can choose better.
 *
 * In serial mode a few large blocks stay in the cache as well (tcache_large.c).
 *
 * All of these functions are for the cache's own thread.
 */

#include "tcache_pool.h"
#include "tuning.h"

struct gp_tcache;

struct gp_pool *gp_tcache_pool(const struct gp_tcache *tc);

/* True if the pool was dropped. No call of the cache serves anything then. */
bool gp_tcache_is_dead(const struct gp_tcache *tc);

/* As gp_pool_alloc, which it calls if the cache has nothing that fits. */
int gp_tcache_alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t module, uint64_t *ret_addr);

/*
 * As gp_pool_alloc_with, after gp_tcache_take has failed for as many bytes. -EAGAIN: the request's end forbids the
 * growth that is due for its bin, and nothing was tried.
 */
int gp_tcache_alloc_with(
	struct gp_tcache *tc, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr);

/* Takes a block from the cache itself. Returns the address, or 0 if nothing fits or bytes is 0. Preserves errno. */
uint64_t gp_tcache_take(struct gp_tcache *tc, uint64_t bytes, uint32_t module);

/*
 * Takes a block that the program frees, if the thread was given it lately. 0, the driver's error as gp_pool_free, or
 * -ENOENT: then gp_tcache_free_by has to take it. Preserves errno.
 */
int gp_tcache_put(struct gp_tcache *tc, uint64_t addr);

/*
 * As gp_pool_free with GP_FREE_NORMAL, but tc may keep the block, also if another thread allocated it from its pool.
 * tc: NULL if the thread has no cache.
 */
int gp_tcache_free_by(struct gp_addrmap *map, uint64_t addr, struct gp_tcache *tc);
