/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Queries of the content of a pool. */

#include "addrmap.h"
#include "block_info.h"
#include "stats.h"

/* Describes the block at or around the address. 0 or GP_E_FOREIGN. */
int gp_pool_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info);

void gp_pool_stats(struct gp_pool *pool, struct gp_stats *ret_stats);

/*
 * The same without waiting, so that even a signal handler may call it. Returns false if a thread holds the pool's lock
 * or is inside its cache. Memory that ended captures had kept reserved still counts as pending.
 */
bool gp_pool_try_stats(struct gp_pool *pool, struct gp_stats *ret_stats);

/*
 * Bytes that the program holds in stream order, and bytes of the pool, now and at most since the high-water marks were
 * last restarted. Some programs ask about these at each allocation, so unlike gp_pool_stats this makes no thread leave
 * its cache. Blocks that other threads allocate or free meanwhile may be left out. gp_pool_restart_highs makes each
 * mark that is asked for what it is now.
 */
struct gp_stream_usage {
	bool is_any_served;                   /* the pool has served a request in stream order that names no account */
	uint64_t used_bytes, used_high_bytes; /* without those of accounts, which have their own */
	uint64_t total_bytes, total_high_bytes;
};
struct gp_stream_usage gp_pool_stream_usage(struct gp_pool *pool);
void gp_pool_restart_highs(struct gp_pool *pool, bool restarts_stream, bool restarts_total);

/*
 * A fence after the number that gp_pool_seq returns covers all that was submitted to the context so far.
 * gp_pool_is_past: true if such a fence has completed.
 */
uint64_t gp_pool_seq(const struct gp_pool *pool);
bool gp_pool_is_past(const struct gp_pool *pool, uint64_t seq);

/* Calls fn for every block that the program holds, with the pool's lock held, until fn returns false. */
void gp_pool_each_used(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg);

/* As gp_pool_each_used, but for free blocks, too: segment by segment, in address order within a segment. */
void gp_pool_each_block(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg);

/*
 * Calls fn, without the lock, for every chunk that is mapped or about to be, of a dropped pool for every chunk with
 * survivors. 0 or -ENOMEM.
 */
int gp_pool_each_chunk(struct gp_pool *pool, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg);

/* Returns the block at or around the address, or NULL if it is not the pool's. The caller holds the pool's lock. */
struct gp_block *gp_pool_block_at_locked(struct gp_pool *pool, uint64_t addr);

/* True if the address lies in memory of the pool that the program does not hold. The caller holds the pool's lock. */
bool gp_pool_is_free_at_locked(struct gp_pool *pool, uint64_t addr);
