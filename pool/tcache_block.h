/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The steps of a block through a thread's cache. All that write are for who has the cache's lock. */

#include "tcache_impl.h"

/* The nth, from 0. */
static inline struct gp_block **gp_shelf_at(struct gp_shelf *shelf, unsigned n)
{
	return &shelf->blocks[(shelf->first + n) % GP_TCACHE_DEPTH];
}

static inline struct gp_block *gp_tcache_unshelve(struct gp_tcache *tc, struct gp_shelf *shelf, struct gp_block *b)
{
	shelf->count--;
	tc->bytes -= b->size;
	tc->n_blocks--;
	return b;
}

/* Takes the nth off the shelf. Those before it move up. */
static inline struct gp_block *gp_tcache_take_nth(struct gp_tcache *tc, struct gp_shelf *shelf, unsigned n)
{
	struct gp_block *b = *gp_shelf_at(shelf, n);

	for (; n; n--)
		*gp_shelf_at(shelf, n) = *gp_shelf_at(shelf, n - 1);
	shelf->first++;
	return gp_tcache_unshelve(tc, shelf, b);
}

static inline struct gp_block *gp_tcache_take_newest(struct gp_tcache *tc, struct gp_shelf *shelf)
{
	return gp_tcache_unshelve(tc, shelf, *gp_shelf_at(shelf, shelf->count - 1));
}

/* Later work may touch what has a stamp below this. */
static inline uint64_t gp_tcache_usable_below(const struct gp_tcache *tc)
{
	if (gp_unlikely(gp_pool_is_flag(&tc->pool->completion_only)))
		return gp_fence_completed(tc->fence);
	return gp_fence_ordered(tc->fence);
}

static inline uint64_t gp_tcache_new_serial(struct gp_tcache *tc)
{
	if (gp_unlikely(tc->next_serial == tc->end_serial)) {
		tc->next_serial = atomic_fetch_add_explicit(
			&tc->pool->options.map->serial, GP_TCACHE_SERIALS, memory_order_relaxed);
		tc->end_serial = tc->next_serial + GP_TCACHE_SERIALS;
	}
	return ++tc->next_serial;
}

/* A block that was taken from what the cache holds becomes the program's. */
static inline struct gp_handed gp_tcache_hand_out(
	struct gp_tcache *tc, struct gp_block *block, uint64_t bytes, uint32_t caller)
{
	tc->requested += bytes;
	tc->hits++;
	return gp_block_hand_out(block, bytes, caller, gp_tcache_new_serial(tc));
}

/*
 * Not when the pool is dropped, and not while somebody waits for memory: that is said first, and then each cache is
 * emptied with its lock held.
 */
static inline bool gp_tcache_is_open_locked(const struct gp_tcache *tc)
{
	return gp_likely(!gp_pool_is_flag(&tc->pool->dead) && !gp_pool_is_flag(&tc->pool->rounds_busy));
}

/* Takes a block from the program, unless it is not the program's, or not to be had again. */
static inline bool gp_tcache_claim_locked(struct gp_tcache *tc, const struct gp_recent *recent)
{
	struct gp_block *b = recent->block;

	if (gp_unlikely(!gp_tcache_is_open_locked(tc) || !gp_block_claim_as(b, recent->word, GP_BLOCK_TCACHED)))
		return false;
	if (gp_likely(!gp_block_is_retired(b)))
		return true;
	atomic_store_explicit(&b->word, recent->word, memory_order_release);
	return false;
}

/* Such a block is freed now. */
static inline void gp_tcache_stamp_locked(struct gp_tcache *tc, struct gp_block *block)
{
	block->stamp = gp_fence_stamp(tc->fence);
	tc->newest_stamp = gp_max(tc->newest_stamp, block->stamp);
	tc->n_blocks++;
	tc->requested -= gp_block_requested(block);
}
