/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Blocks in a thread cache that were freed in stream order (tcache_stream.c). These functions are for its thread. */

#include "tcache.h"

/*
 * Takes a block that was freed on the stream and served a request of the same size and account. Returns its address,
 * or 0.
 * Preserves errno.
 */
uint64_t gp_tcache_take_on(struct gp_tcache *tc, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account);

/*
 * Takes a block that the program frees on the stream, if gp_tcache_take_on has handed it out lately. Returns false if
 * gp_tcache_free_on has to take it. Preserves errno.
 */
bool gp_tcache_put_on(struct gp_tcache *tc, uint64_t addr, uint64_t stream);

/*
 * As gp_tcache_take_on, but then looks in the pool, too. For a large request the cache's large blocks go there first,
 * which may make the pool give memory back.
 */
uint64_t gp_tcache_alloc_on(struct gp_tcache *tc, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account);

/*
 * As gp_pool_free_on, but the cache may keep the block. -ENOENT if the cache's pool does not have it: then
 * gp_pool_free_on has to take it.
 */
int gp_tcache_free_on(struct gp_addrmap *map, uint64_t addr, uint64_t stream, struct gp_tcache *tc);

/* Moves all such blocks into the pool's queue. Requires both locks. Returns their number. */
uint64_t gp_tcache_flush_streams_locked(struct gp_tcache *tc);
