/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The steps of a block through a thread cache. Functions that write require the cache's lock. */

#include "tcache_impl.h"

/* Returns the slot of the nth oldest block in the bin, from 0. */
static inline struct gp_block **gp_bin_at(struct gp_bin *bin, unsigned n)
{
	return &bin->blocks[(bin->first + n) % GP_TCACHE_DEPTH];
}

/* Adds to a counter of the cache that other threads read without its lock; wraps. */
static inline void gp_tcache_count(_Atomic uint64_t *counter, uint64_t bytes)
{
	atomic_store_explicit(
		counter, atomic_load_explicit(counter, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static inline uint64_t gp_tcache_bytes(const struct gp_tcache *tc)
{
	return atomic_load_explicit(&tc->cache.bytes, memory_order_relaxed);
}

static inline uint64_t gp_tcache_large_bytes(const struct gp_tcache *tc)
{
	return atomic_load_explicit(&tc->cache.large_bytes, memory_order_relaxed);
}

static inline struct gp_block *gp_tcache_take_from_bin(struct gp_tcache *tc, struct gp_bin *bin, struct gp_block *b)
{
	bin->count--;
	gp_tcache_count(&tc->cache.bytes, -b->size);
	return b;
}

/* Takes the nth oldest block out of the bin and closes the gap. */
static inline struct gp_block *gp_tcache_take_nth(struct gp_tcache *tc, struct gp_bin *bin, unsigned n)
{
	struct gp_block *b = *gp_bin_at(bin, n);

	for (; n; n--)
		*gp_bin_at(bin, n) = *gp_bin_at(bin, n - 1);
	bin->first++;
	return gp_tcache_take_from_bin(tc, bin, b);
}

static inline struct gp_block *gp_tcache_take_newest(struct gp_tcache *tc, struct gp_bin *bin)
{
	return gp_tcache_take_from_bin(tc, bin, *gp_bin_at(bin, bin->count - 1));
}

/* Blocks with a fence sequence below the result may be handed out. */
static inline uint64_t gp_tcache_usable_below(const struct gp_tcache *tc)
{
	if (gp_unlikely(gp_pool_is_flag(&tc->pool->completion_only)))
		return gp_fence_completed(tc->fence);
	return gp_fence_gpu_waited(tc->fence);
}

static inline uint64_t gp_tcache_new_serial(struct gp_tcache *tc)
{
	if (gp_unlikely(tc->next_serial == tc->end_serial)) {
		tc->next_serial = atomic_fetch_add_explicit(
			&tc->pool->options.map->serial, GP_TCACHE_SERIALS, memory_order_relaxed);
		tc->end_serial = tc->next_serial + GP_TCACHE_SERIALS;
		tc->n_serials += GP_TCACHE_SERIALS;
	}
	return ++tc->next_serial;
}

/* Returns the number of blocks handed out from here: each has a serial number. */
static inline uint64_t gp_tcache_hits(const struct gp_tcache *tc)
{
	return tc->n_serials - (tc->end_serial - tc->next_serial);
}

/* Hands out a block that was taken from the cache. */
static inline struct gp_claim_token gp_tcache_hand_out(
	struct gp_tcache *tc, struct gp_block *block, uint64_t bytes, uint32_t module)
{
	tc->requested += bytes;
	return gp_block_hand_out(block, bytes, module, gp_tcache_new_serial(tc));
}

/*
 * True if the cache may take blocks: not once the pool is dropped, and not while a thread runs the out-of-memory
 * rounds. Those set their flag first and then empty each cache with its lock held.
 */
static inline bool gp_tcache_is_open_locked(const struct gp_tcache *tc)
{
	return gp_likely(!gp_pool_is_flag(&tc->pool->dead) && !gp_pool_is_flag(&tc->pool->rounds_busy));
}

/*
 * Claims a freed block for the cache. Returns false if the program does not hold it, or if it must not be handed out
 * again.
 */
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

/* Accounts for a claimed block, which is freed now. */
static inline void gp_tcache_set_seq_locked(struct gp_tcache *tc, struct gp_block *block)
{
	block->seq = gp_fence_seq(tc->fence);
	tc->newest_seq = gp_max(tc->newest_seq, block->seq);
	tc->requested -= gp_block_requested(block);
}
