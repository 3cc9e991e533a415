/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What a cache of a thread consists of (tcache.c), and what the pool does with those of its threads (tcache_pool.c).
 *
 * Only the owner adds and takes; others empty a cache (memory has run out, the pool ends) or count it, with the pool's
 * lock held, and then all caches of the pool. The owner holds his lock for some instructions, takes no other meanwhile
 * and makes no driver call.
 */

#include "ownlock.h"
#include "pool_impl.h"
#include "tcache.h"

enum {
	GP_SHELF_EXACT_BITS = 3,
	GP_SHELF_EXACT = 1 << GP_SHELF_EXACT_BITS, /* of one size each, twice; then as many for each power of two */
	GP_TCACHE_SHELVES = GP_SHELF_EXACT * 9,	   /* for sizes up to GP_SMALL_MAX */
	GP_TCACHE_DEPTH = 64,			   /* of a shelf, at most */
	GP_TCACHE_LARGE = 8,			   /* blocks that are too large for a shelf */
	GP_TCACHE_SETS = 1024,
	GP_TCACHE_WAYS = 2,
	GP_TCACHE_SERIALS = 256, /* drawn at a time */
};

/* Blocks that served requests of about the same size, in the order of their frees. */
struct gp_shelf {
	unsigned first, count;
	unsigned depth;	   /* how many go there */
	unsigned due;	   /* with so many there is to be a fence for the oldest; at most depth */
	unsigned n_fences; /* for the sake of one block */
	uint64_t grown_bytes; /* the pool, for the sake of this one */
	struct gp_block *blocks[GP_TCACHE_DEPTH];
};

struct gp_recent {
	uint64_t addr, size; /* size: of the request, which a block may exceed */
	struct gp_block *block;
	uint64_t word; /* of the hand-out */
};

struct gp_large {
	struct gp_block *block;
	uint64_t size; /* of the request that it served */
};

struct gp_tcache {
	struct gp_ownlock lock;
	struct gp_pool *pool;
	struct gp_fence *fence; /* the pool's */
	uint64_t bytes_max;	/* that it may hold */
	uint64_t size_max;	/* of a block */
	struct gp_list link;	/* pool->tcaches */
	uint64_t bytes, n_blocks; /* held; bytes: on the shelves */
	uint64_t newest_stamp;	  /* of what was put */
	uint64_t published;	  /* the last fence that was seen, whoever recorded it */
	unsigned n_uncovered;	  /* put since then */
	unsigned n_refused;	  /* for want of room, since all was given back */
	uint64_t hits;
	uint64_t requested; /* asked for in hand-outs from here, less what the pool knows of; wraps */
	uint64_t next_serial, end_serial;
	unsigned n_large;
	uint64_t large_bytes;
	struct gp_large large[GP_TCACHE_LARGE]; /* in the order of their frees: tcache_large.c */
	struct gp_shelf shelves[GP_TCACHE_SHELVES];
	struct gp_recent recent[GP_TCACHE_SETS][GP_TCACHE_WAYS]; /* the newer ones first */
};

_Static_assert(GP_SMALL_MAX / GP_ALIGN == 1 << 11 &&
	GP_TCACHE_SHELVES == GP_SHELF_EXACT * (11 - GP_SHELF_EXACT_BITS + 1),
	"there is a shelf for each size");

/* Of the shelf for a size, from 0. Sizes of one shelf differ by less than an eighth. */
static inline unsigned gp_shelf_index(uint64_t size)
{
	unsigned units = (unsigned)(size / GP_ALIGN) - 1;
	unsigned power = 31 - (unsigned)__builtin_clz(units | GP_SHELF_EXACT) - GP_SHELF_EXACT_BITS;

	return GP_SHELF_EXACT * power + (units >> power);
}

/* The largest size that goes there. */
static inline uint64_t gp_shelf_size_max(unsigned index)
{
	unsigned power = index < 2 * GP_SHELF_EXACT ? 0 : index / GP_SHELF_EXACT - 1;
	uint64_t units = ((uint64_t)(index - GP_SHELF_EXACT * power + 1) << power) - 1;

	return (units + 1) * GP_ALIGN;
}

/* The nth, from 0. */
static inline struct gp_block **gp_shelf_at(struct gp_shelf *shelf, unsigned n)
{
	return &shelf->blocks[(shelf->first + n) % GP_TCACHE_DEPTH];
}

/* Takes the nth off the shelf. Those before it move up. */
static inline struct gp_block *gp_tcache_take_nth(struct gp_tcache *tc, struct gp_shelf *shelf, unsigned n)
{
	struct gp_block *b = *gp_shelf_at(shelf, n);

	for (; n; n--)
		*gp_shelf_at(shelf, n) = *gp_shelf_at(shelf, n - 1);
	shelf->first++;
	shelf->count--;
	tc->bytes -= b->size;
	tc->n_blocks--;
	return b;
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
static inline void gp_tcache_hand_out(
	struct gp_tcache *tc, struct gp_block *block, uint64_t bytes, uint32_t caller)
{
	gp_block_hand_out(block, bytes, caller, gp_tcache_new_serial(tc));
	tc->requested += bytes;
	tc->hits++;
}

/*
 * Takes a block from the program, unless it is not the program's, or not to be had again. Not when the pool is dropped,
 * and not while somebody waits for memory: that is said first, and then each cache is emptied with its lock held.
 */
static inline bool gp_tcache_claim_locked(struct gp_tcache *tc, const struct gp_recent *recent)
{
	struct gp_block *b = recent->block;

	if (gp_unlikely(gp_pool_is_flag(&tc->pool->dead) ||
			gp_pool_is_flag(&tc->pool->rounds_busy) ||
			!gp_block_claim_as(b, recent->word, GP_BLOCK_TCACHED)))
		return false;
	if (gp_likely(!gp_block_is_retired(b)))
		return true;
	atomic_store_explicit(&b->word, recent->word, memory_order_release);
	return false;
}

/* Such a block is freed now. */
static inline void gp_tcache_stamp_locked(struct gp_tcache *tc, struct gp_block *block)
{
	block->stamp = tc->newest_stamp = gp_fence_started(tc->fence);
	tc->n_blocks++;
	tc->requested -= gp_block_requested(block);
}

/* tcache_large.c. The same for sizes that are too large for a shelf. NULL, and false: the pool has to. */
struct gp_block *gp_tcache_take_large(
	struct gp_tcache *tc, uint64_t size, uint64_t bytes, uint32_t caller);
bool gp_tcache_put_large(struct gp_tcache *tc, const struct gp_recent *recent);

/* Brings these into the pool's queue; with the pool's lock. Whether no free's fence covers some. */
bool gp_tcache_flush_large_locked(struct gp_tcache *tc);

/* Brings everything in the cache into the pool's queue. */
void gp_tcache_flush(struct gp_tcache *tc);

/* The same of the older half of a shelf, as far as some free's fence covers it. Whether anything went. From a free. */
bool gp_tcache_spill(struct gp_tcache *tc, struct gp_shelf *shelf);

/* The same for all caches of the pool. How many blocks came. *ret_is_any_late: whether no free's fence covers some. */
uint64_t gp_tcache_flush_all(struct gp_pool *pool, bool *ret_is_any_late);

/* The same, and sees to it that what is done with can be had. Whether anything came. */
bool gp_tcache_recall(struct gp_pool *pool);

/* After this, whoever takes from a cache has seen what was written before it. */
void gp_tcache_quiesce_locked(struct gp_pool *pool);

/* The pool is dropped: forgets what the caches hold. */
void gp_tcache_drop_all_locked(struct gp_pool *pool);

/* Corrects a snapshot of the pool's counters by what its caches know. */
void gp_tcache_count_locked(struct gp_pool *pool, struct gp_stats *stats);
