/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Thread caches: a few small blocks that a thread freed and will have again, without a lock that others want, a search,
 * or a driver call. To the pool behind it they are blocks that the program holds.
 *
 * A fence for each free would cost more than all the rest. So a cache lets blocks of a size come together, up to a
 * depth, has the free that fills it record one fence for all of them, and asks for that when the next is wanted: one
 * record and one query serve as many allocations as it is deep. Fences are the context's, so one that any thread
 * recorded serves the caches of all. This is worth it while the GPU keeps up. Once it falls
 * behind, or memory is short, whoever frees hands all to the pool, which knows better what to do.
 *
 * While the GPU works in order, a few large blocks stay as well (tcache_large.c).
 *
 * All of these are for the cache's own thread.
 */

#include "pool.h"

struct gp_tcache;

/* Of the device's memory, or its limit, a thread keeps that part for itself at most, if nobody says how much. */
enum { GP_TCACHE_SHARE = 1024 };

/* A cache with a reference to the pool; NULL without host memory, or where the pool's options do not allow it. */
struct gp_tcache *gp_tcache_new(struct gp_pool *pool);

/* The thread ends, or the pool is gone: all goes back. */
void gp_tcache_free(struct gp_tcache *tc);

struct gp_pool *gp_tcache_pool(const struct gp_tcache *tc);

/* Whether the pool is gone: then the cache is of no use any more. */
bool gp_tcache_is_dead(const struct gp_tcache *tc);

/* As gp_pool_alloc, which it calls if it has nothing that fits. */
int gp_tcache_alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

/* The same, or as gp_pool_alloc_hit, for who has asked gp_tcache_take for as much, in vain. */
int gp_tcache_alloc_more(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, bool is_hit_only, uint64_t *ret_addr);

/* As gp_pool_alloc_hit. */
int gp_tcache_alloc_hit(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

/* What the cache itself has at hand for such a request: the address, or 0, also for no bytes. errno stays as it is. */
uint64_t gp_tcache_take(struct gp_tcache *tc, uint64_t bytes, uint32_t caller);

/*
 * Takes a block that the program frees, of those that the thread was given lately. 0, the driver's error as
 * gp_pool_free, or -ENOENT: then gp_pool_free_by has to. errno stays as it is.
 */
int gp_tcache_put(struct gp_tcache *tc, uint64_t addr);

/* pool.c: as gp_pool_free of GP_FREE_NORMAL, but the cache may keep what another thread allocated from its pool. */
int gp_pool_free_by(struct gp_addrmap *map, uint64_t addr, struct gp_tcache *tc);
