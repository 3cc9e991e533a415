/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The two descriptors. A segment is one allocation of the driver's; its blocks tile it without gaps, in address
 * order. Descriptors live in host memory (device memory is never touched) and are recycled, within their pool and
 * after it within its address map, but never freed before that: a stale pointer to one still points to one.
 */

#include <stdatomic.h>

#include "list.h"
#include "tree.h"

struct gp_kind_ops;
struct gp_pool;
struct gp_range;

enum gp_block_state {
	GP_BLOCK_UNUSED,    /* a spare descriptor */
	GP_BLOCK_USED,	    /* the program's */
	GP_BLOCK_FREEING,   /* being freed: belongs to the thread that does it */
	GP_BLOCK_PENDING,   /* freed, waits for a fence */
	GP_BLOCK_CACHED,    /* may be handed out */
	GP_BLOCK_RETURNING, /* on its way back to the driver */
	GP_BLOCK_TCACHED,   /* in a thread's cache; to the pool it is as good as USED */
	GP_BLOCK_HOLE,	    /* of a range: addresses without memory */
	GP_BLOCK_MOVING,    /* of a range: belongs to the thread that took it, to map or unmap memory there */
};

enum {
	GP_BLOCK_LATE = 1,     /* freed without a record of its own: usable on completion only, never on order */
	GP_BLOCK_GUARD = 2,    /* the first bytes of a shared segment, which are never handed out */
	GP_BLOCK_MAPPED = 4,   /* in the address map: it was handed out at this address */
	GP_BLOCK_UNCACHED = 8, /* kind vmm: when it is freed as many bytes are to go back */
	GP_BLOCK_EMPTY = 16,   /* of a range, MOVING: a hole that is being filled */
};

struct gp_block {
	/* One line, and nobody else's: what threads write that hand a block out and free it over and over. */
	uint64_t addr __attribute__((aligned(64)));
	uint64_t size; /* bytes, as addr multiples of GP_ALIGN */
	struct gp_segment *segment;
	/* The state, and above it how often the block was handed out: a claim of an older time fails. */
	_Atomic uint64_t word;
	uint64_t stamp;		    /* fence sequence at the free: see fence.h */
	_Atomic uint64_t requested; /* bytes the program asked for; valid while USED */
	_Atomic uint64_t serial;    /* unique per hand-out in the process, from 1; 0 before the first */
	_Atomic uint32_t caller;    /* what gp_pool_alloc was told; valid while USED */
	uint8_t flags;
	_Atomic bool is_exported; /* of a range: it lies, if only in part, in a retired piece */

	struct gp_block *prev, *next; /* neighbours in the segment */
	struct gp_block *hash_next;   /* addrmap.c, which alone reads and writes it */
	union {
		struct gp_list link;	     /* CACHED in a bin, PENDING, or spare */
		struct gp_tree_node by_size; /* CACHED in a tree */
	};
};

_Static_assert(sizeof(struct gp_block) == 128, "two lines, the first for those threads");

struct gp_segment {
	struct gp_pool *pool; /* stays while the descriptor is one of that pool's, spare or not: descriptor.c */
	uint64_t base, size;  /* bytes */
	const struct gp_kind_ops *kind; /* that its blocks are kept by */
	struct gp_block *first;
	struct gp_list link;	     /* pool->segments, or spare */
	struct gp_list idle_link;    /* pool->idle while wholly cached, oldest first */
	struct gp_tree_node by_addr; /* addrmap.c */
	uint64_t idle_since;	     /* growth of the pool, while wholly cached */
	bool is_small;		     /* kind split: holds small blocks */
	struct gp_range *range;	     /* kind vmm: of its addresses, blocks have memory and holes none */
	bool is_odd;		     /* smaller than its first request's size: memory did not allow that */
	bool is_uncached;	     /* goes back as soon as all of it is free, though it may be used until then */
	_Atomic bool is_retired;     /* nothing in it is handed out again: see gp_pool_export, gp_pool_set_whole */
};

static inline uint64_t gp_block_requested(const struct gp_block *b)
{
	return atomic_load_explicit(&b->requested, memory_order_relaxed);
}

static inline enum gp_block_state gp_block_state(const struct gp_block *b)
{
	return (enum gp_block_state)(atomic_load_explicit(&b->word, memory_order_relaxed) & 0xff);
}

static inline void gp_block_set_state(struct gp_block *b, enum gp_block_state state)
{
	uint64_t word = atomic_load_explicit(&b->word, memory_order_relaxed);

	atomic_store_explicit(&b->word, (word & ~UINT64_C(0xff)) | (uint64_t)state, memory_order_release);
}

static inline bool gp_block_is_exported(const struct gp_block *b)
{
	return atomic_load_explicit(&b->is_exported, memory_order_relaxed);
}

/* Whether nobody may get it again once it is free. */
static inline bool gp_block_is_retired(const struct gp_block *b)
{
	return atomic_load_explicit(&b->segment->is_retired, memory_order_relaxed) || gp_block_is_exported(b);
}

/*
 * Where a block is changes only while its descriptor is nobody's but the writer's, and never while it is USED. A lookup
 * that takes no lock (addrmap.c) may come across it all the same: so the one writes, and the other reads, whole words.
 */
static inline void gp_block_set_place(struct gp_block *b, struct gp_segment *segment, uint64_t addr)
{
	__atomic_store_n(&b->segment, segment, __ATOMIC_RELAXED);
	__atomic_store_n(&b->addr, addr, __ATOMIC_RELAXED);
}

/* Whether the block is all of what the driver gave: only then is its address the segment's base. */
static inline bool gp_block_is_whole(const struct gp_block *b)
{
	return b->size == b->segment->size;
}

/* Whether the program holds nothing of it: all is cached or queued. */
static inline bool gp_segment_is_unused(const struct gp_segment *segment)
{
	if (segment->range)
		return false;
	for (const struct gp_block *b = segment->first; b; b = b->next)
		if (gp_block_state(b) != GP_BLOCK_CACHED && gp_block_state(b) != GP_BLOCK_PENDING)
			return false;
	return true;
}
