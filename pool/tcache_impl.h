/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The parts of a thread cache (tcache.c), and what the pool does with the caches of its threads (tcache_pool.c).
 *
 * Only the owner adds and takes blocks. Other threads flush a cache (when memory has run out, or the pool ends) or
 * count its blocks. They hold the pool's lock and close all caches of the pool. The owner holds the cache's lock for a
 * few instructions, takes no other lock while it does, and makes no driver call.
 */

#include "caches.h"
#include "pool_impl.h"
#include "tcache.h"
#include "tuning.h"

enum {
	GP_BIN_EXACT_BITS = 3,
	GP_BIN_EXACT = 1 << GP_BIN_EXACT_BITS, /* bins of one size, twice; then this many per power of two */
	GP_TCACHE_BINS = GP_BIN_EXACT * 9,     /* bins for sizes up to GP_SMALL_MAX */
	GP_TCACHE_SETS = 1024,
	GP_TCACHE_WAYS = 2,
};

/*
 * A bin: blocks that served requests of about the same size, in the order of their frees. Two bins share a cache line.
 */
struct gp_bin {
	uint8_t first, count;
	uint8_t depth;            /* capacity */
	uint8_t due;              /* number of blocks at which the oldest must get a fence; at most depth */
	uint32_t n_fences;        /* fences recorded because a single block was wanted */
	uint64_t grown_bytes;     /* bytes by which the pool grew for this bin */
	struct gp_block **blocks; /* a ring of GP_TCACHE_DEPTH */
} __attribute__((aligned(32)));

struct gp_recent {
	uint64_t addr; /* of the block; or the key of tcache_stream.c; 0: none */
	uint64_t size; /* of the request, which the block may exceed */
	struct gp_block *block;
	uint64_t word; /* claim token: the block's word at the hand-out */
};

struct gp_large {
	struct gp_block *block;
	uint64_t size; /* size of the request that it served */
};

struct gp_streamed {
	struct gp_block *block;
	uint64_t stream;  /* on which it was freed */
	uint64_t size;    /* of the request that it served, rounded to GP_ALIGN */
	unsigned account; /* for which it counted until then, and will again; or GP_ACCOUNT_NONE */
};

/* Serial numbers of a thread cache: the last used, the last obtained, and how many in all. */
struct gp_serials {
	uint64_t next, end, n;
};

struct gp_tcache {
	struct gp_cache cache; /* first, since every call takes its lock */
	struct gp_pool *pool;
	struct gp_fence *fence; /* the pool's */
	uint64_t bytes_max;     /* limit of bytes held */
	uint64_t size_max;      /* largest block in a bin; a multiple of GP_ALIGN */
	uint64_t newest_seq;    /* newest fence sequence among freed blocks */
	uint64_t published;     /* the last fence seen, recorded by any thread */
	unsigned n_uncovered;   /* blocks freed since then */
	unsigned n_refused;     /* blocks refused for lack of room since the last flush */
	unsigned n_lagged;      /* blocks refused because the GPU lags, since the last call for a fence */
	uint64_t lag_calls;     /* calls for fences as of the last such block */
	uint64_t requested;     /* bytes requested in hand-outs from here, minus what the pool accounts for; wraps */
	struct gp_serials serials, stream_serials; /* of hand-outs; those in stream order have their own, as a count */
	unsigned n_large;
	struct gp_large large[GP_TCACHE_LARGE]; /* in the order of their frees: tcache_large.c */
	unsigned n_streamed;
	struct gp_streamed streamed[GP_TCACHE_STREAMED]; /* in the order of their frees: tcache_stream.c */
	struct gp_bin bins[GP_TCACHE_BINS];
	struct gp_block *blocks[GP_TCACHE_BINS][GP_TCACHE_DEPTH];
	/* One cache line per set; the newer entry first. */
	struct gp_recent recent[GP_TCACHE_SETS][GP_TCACHE_WAYS] __attribute__((aligned(64)));
	void *memory; /* the allocation that holds all of this */
};

_Static_assert(GP_SMALL_MAX / GP_ALIGN == 1 << 11 && GP_TCACHE_BINS == GP_BIN_EXACT * (11 - GP_BIN_EXACT_BITS + 1),
	"there is a bin for each size");

/* Returns the index of the bin for a size. Sizes of one bin differ by less than an eighth. */
static inline unsigned gp_bin_index(uint64_t size)
{
	unsigned units = (unsigned)(size / GP_ALIGN) - 1;
	unsigned power = 31 - (unsigned)__builtin_clz(units | GP_BIN_EXACT) - GP_BIN_EXACT_BITS;

	gp_assert(size >= GP_ALIGN && size <= GP_SMALL_MAX);
	return GP_BIN_EXACT * power + (units >> power);
}

/* Returns the largest size that belongs in a bin. */
static inline uint64_t gp_bin_size_max(unsigned index)
{
	unsigned power = index < 2 * GP_BIN_EXACT ? 0 : index / GP_BIN_EXACT - 1;
	uint64_t units = ((uint64_t)(index - GP_BIN_EXACT * power + 1) << power) - 1;

	return (units + 1) * GP_ALIGN;
}

/*
 * The steps of a block through a thread cache. Functions that write require the cache's lock.
 */

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
	if (gp_unlikely(gp_flag_is_set(&tc->pool->completion_only)))
		return gp_fence_completed(tc->fence);
	return gp_fence_gpu_waited(tc->fence);
}

/* True if the pool can grow for requests. */
static inline bool gp_tcache_can_pool_grow(const struct gp_tcache *tc)
{
	const struct gp_pool *pool = tc->pool;

	return !gp_pool_is_pressed(pool) && !gp_flag_is_set(&pool->is_full) &&
	       gp_budget_left(pool->options.budget) >= tc->bytes_max;
}

/* Returns the set of entries in which a block at that address is remembered. */
static inline struct gp_recent *gp_tcache_recent(struct gp_tcache *tc, uint64_t addr)
{
	return tc->recent[((addr / GP_ALIGN) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

_Static_assert(GP_TCACHE_SETS == 1 << (64 - 54), "the hash fits");

/* Remembers a block that the thread was given just now for a request of that size. key: by which a free finds it. */
static inline void gp_tcache_remember(
	struct gp_tcache *tc, const struct gp_claim_token *token, uint64_t key, uint64_t size)
{
	struct gp_recent *set = gp_tcache_recent(tc, token->addr);

	set[1] = set[0];
	set[0] = (struct gp_recent){
		.addr = key,
		.size = size,
		.block = token->block,
		.word = token->word,
	};
}

static inline uint64_t gp_tcache_new_serial(struct gp_tcache *tc, struct gp_serials *serials)
{
	if (gp_unlikely(serials->next == serials->end)) {
		serials->next = atomic_fetch_add_explicit(
			&tc->pool->options.map->serial, GP_TCACHE_SERIALS, memory_order_relaxed);
		serials->end = serials->next + GP_TCACHE_SERIALS;
		serials->n += GP_TCACHE_SERIALS;
	}
	return ++serials->next;
}

/* Returns the number of blocks handed out with these numbers: each has one. */
static inline uint64_t gp_serials_used(const struct gp_serials *serials)
{
	return serials->n - (serials->end - serials->next);
}

/* Adds the blocks handed out from here to counters of the pool. */
static inline void gp_tcache_add_hits(const struct gp_tcache *tc, struct gp_stats *stats)
{
	uint64_t streamed = gp_serials_used(&tc->stream_serials);

	stats->hits += gp_serials_used(&tc->serials) + streamed;
	stats->steps[GP_STEP_cache].count += gp_serials_used(&tc->serials) + streamed;
	stats->stream_allocs += streamed;
}

/* Returns the bytes held in blocks that were freed in stream order. */
static inline uint64_t gp_tcache_streamed_bytes(const struct gp_tcache *tc)
{
	return atomic_load_explicit(&tc->cache.stream_bytes, memory_order_relaxed) +
	       atomic_load_explicit(&tc->cache.account_bytes, memory_order_relaxed);
}

/* Hands out a block that was taken from the cache. serials: of the cache. */
static inline struct gp_claim_token gp_tcache_hand_out_as(
	struct gp_tcache *tc, struct gp_block *block, uint64_t bytes, uint32_t module, struct gp_serials *serials)
{
	tc->requested += bytes;
	return gp_block_hand_out(block, bytes, module, gp_tcache_new_serial(tc, serials));
}

static inline struct gp_claim_token gp_tcache_hand_out(
	struct gp_tcache *tc, struct gp_block *block, uint64_t bytes, uint32_t module)
{
	return gp_tcache_hand_out_as(tc, block, bytes, module, &tc->serials);
}

/*
 * True if the cache may take blocks: not once the pool is dropped, and not while a thread runs the out-of-memory
 * rounds. Those set their flag first and then empty each cache with its lock held.
 */
static inline bool gp_tcache_is_open_locked(const struct gp_tcache *tc)
{
	return gp_likely(!gp_flag_is_set(&tc->pool->dead) && !gp_flag_is_set(&tc->pool->rounds_busy));
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
