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

/* Blocks that served requests of about the same size, in the order of their frees. Two of these share a line. */
struct gp_shelf {
	uint8_t first, count;
	uint8_t depth;	   /* how many go there */
	uint8_t due;	   /* with so many there is to be a fence for the oldest; at most depth */
	uint32_t n_fences; /* for the sake of one block */
	uint64_t grown_bytes; /* the pool, for the sake of this one */
	struct gp_block **blocks; /* a ring of GP_TCACHE_DEPTH */
} __attribute__((aligned(32)));

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
	uint64_t size_max;	/* of a block; a multiple of GP_ALIGN */
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
	struct gp_block *blocks[GP_TCACHE_SHELVES][GP_TCACHE_DEPTH];
	/* A line each: the newer one first. */
	struct gp_recent recent[GP_TCACHE_SETS][GP_TCACHE_WAYS] __attribute__((aligned(64)));
	void *memory; /* that all of this lies in */
};

_Static_assert(GP_SMALL_MAX / GP_ALIGN == 1 << 11 &&
	GP_TCACHE_SHELVES == GP_SHELF_EXACT * (11 - GP_SHELF_EXACT_BITS + 1),
	"there is a shelf for each size");

/* Of the shelf for a size, from 0. Sizes of one shelf differ by less than an eighth. */
static inline unsigned gp_shelf_index(uint64_t size)
{
	unsigned units = (unsigned)(size / GP_ALIGN) - 1;
	unsigned power = 31 - (unsigned)__builtin_clz(units | GP_SHELF_EXACT) - GP_SHELF_EXACT_BITS;

	gp_assert(size >= GP_ALIGN && size <= GP_SMALL_MAX);
	return GP_SHELF_EXACT * power + (units >> power);
}

/* The largest size that goes there. */
static inline uint64_t gp_shelf_size_max(unsigned index)
{
	unsigned power = index < 2 * GP_SHELF_EXACT ? 0 : index / GP_SHELF_EXACT - 1;
	uint64_t units = ((uint64_t)(index - GP_SHELF_EXACT * power + 1) << power) - 1;

	return (units + 1) * GP_ALIGN;
}

/* tcache_large.c: takes and puts what is too large for a shelf. None, and false: the pool has to. */
struct gp_handed gp_tcache_take_large(struct gp_tcache *tc, uint64_t size, uint64_t bytes, uint32_t caller);
bool gp_tcache_put_large(struct gp_tcache *tc, const struct gp_recent *recent, bool is_plenty);

/* Brings these into the pool's queue; with the pool's lock. Whether no free's fence covers some. */
bool gp_tcache_flush_large_locked(struct gp_tcache *tc);

/*
 * Keeps a block that was claimed (FREEING) as if the thread had been given it, if it may be had again from here. Many
 * that others allocated need one fence then, as one's own do. *ret_r: as gp_tcache_put's.
 */
bool gp_tcache_keep(struct gp_tcache *tc, struct gp_block *block, int *ret_r);

/* Brings everything in the cache into the pool's queue. */
void gp_tcache_flush(struct gp_tcache *tc);

/* The same of the older half of a shelf, as far as some free's fence covers it. Whether anything went. From a free. */
bool gp_tcache_spill(struct gp_tcache *tc, struct gp_shelf *shelf);

/* The same for all caches of the pool. How many blocks came. *ret_is_any_late: whether no free's fence covers some. */
uint64_t gp_tcache_flush_all(struct gp_pool *pool, bool *ret_is_any_late);

/* The same, and sees to it that what is done with can be had. Whether anything came. */
bool gp_tcache_recall(struct gp_pool *pool);

/* The same for a request of that size, unless that has been done too often of late: then the pool had better grow. */
bool gp_tcache_recall_for(struct gp_pool *pool, uint64_t size);

/* After this, whoever takes from a cache has seen what was written before it. */
void gp_tcache_quiesce_locked(struct gp_pool *pool);

/* The pool is dropped: forgets what the caches hold. */
void gp_tcache_drop_all_locked(struct gp_pool *pool);

/* Corrects a snapshot of the pool's counters by what its caches know. */
void gp_tcache_count_locked(struct gp_pool *pool, struct gp_stats *stats);
