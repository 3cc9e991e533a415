/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The two descriptors. A segment is one driver allocation; its blocks tile it without gaps, in address order.
 * Descriptors live in host memory (the pool never touches device memory). They are recycled, within their pool and
 * after its end within its address map, and are not freed before the map ends: a stale pointer to a descriptor still
 * points to a descriptor.
 */

#include <stdatomic.h>

#include "list.h"
#include "tree.h"

struct gp_kind_ops;
struct gp_pool;
struct gp_arena;
struct gp_retainer;

enum gp_block_state {
	GP_BLOCK_UNUSED,    /* a spare descriptor */
	GP_BLOCK_USED,      /* held by the program */
	GP_BLOCK_FREEING,   /* being freed: owned by the freeing thread */
	GP_BLOCK_PENDING,   /* freed, waits for a fence */
	GP_BLOCK_CACHED,    /* free and ready to be handed out */
	GP_BLOCK_RETURNING, /* on its way back to the driver */
	GP_BLOCK_TCACHED,   /* in a thread cache; the pool counts it as USED */
	GP_BLOCK_RETAINED,  /* freed, but a captured graph may use it: retain.h */
	GP_BLOCK_UNMAPPED,  /* in an arena: addresses without memory */
	GP_BLOCK_MOVING,    /* in an arena: owned by the thread that maps or unmaps memory there */
};

enum {
	GP_BLOCK_UNFENCED = 1, /* unfenced: freed without a fence of its own; reused on completion only */
	GP_BLOCK_GUARD = 2,    /* the first bytes of a shared segment, never handed out */
	GP_BLOCK_IN_MAP = 4,   /* in the address map: was handed out at this address */
	GP_BLOCK_UNCACHED = 8, /* kind vmm: at its free as many bytes must go back to the driver */
	GP_BLOCK_EMPTY = 16,   /* in an arena, MOVING: an unmapped gap that is being filled */
	/* USED: allocated in stream order. PENDING: freed in stream order; then it is also unfenced. */
	GP_BLOCK_STREAM = 32,
	GP_BLOCK_CAPTURED = 64,  /* has a reference to a retainer: handed out or freed during a capture (retain.h) */
	GP_BLOCK_REUSABLE = 128, /* RETAINED, and may be used again within its capture */
};

struct gp_block {
	/* A thread that hands a block out and frees it over and over writes to this cache line only. */
	uint64_t addr __attribute__((aligned(64)));
	uint64_t size; /* bytes; like addr a multiple of GP_ALIGN */
	struct gp_segment *segment;
	/* The state, and above it the number of hand-outs: a claim made with an older number fails. */
	_Atomic uint64_t word;
	uint64_t seq; /* fence sequence at the free: see fence.h */
	union {
		_Atomic uint64_t requested; /* bytes the program asked for; valid while USED */
		_Atomic uint64_t stream;    /* PENDING and GP_BLOCK_STREAM: the stream of the free */
	};
	_Atomic uint64_t serial; /* unique per hand-out in the process, from 1; 0 before the first */
	_Atomic uint32_t module; /* the calling module, as passed to gp_pool_alloc; valid while USED */
	uint8_t flags;
	_Atomic bool is_exported; /* in an arena: lies in a retired chunk, at least in part */
	/*
	 * The account that it counts for (account.h), or for which it did before it was freed into a thread cache; or
	 * none. Changes with the pool's lock held.
	 */
	_Atomic uint8_t account;

	struct gp_block *prev, *next; /* neighbours in the segment */
	struct gp_block *hash_next;   /* used by addrmap.c only */
	union {
		struct gp_list link;         /* CACHED in a bin, PENDING, or spare */
		struct gp_tree_node by_size; /* CACHED in a tree */
		struct {
			struct gp_list link; /* RETAINED: pool->retained */
			struct gp_retainer *retainer;
			union {
				struct {
					/* as of the hand-out: struct gp_capture_alloc */
					uint32_t n_elsewhere, n_captured;
				};
				struct gp_retainer *second; /* RETAINED: another one that retains the block; or NULL */
			};
		} captured; /* CAPTURED: USED, FREEING or RETAINED */
	};
};

_Static_assert(sizeof(struct gp_block) == 128, "two cache lines: the first for the fields written at each hand-out");

struct gp_segment {
	struct gp_pool *pool; /* fixed while the descriptor belongs to that pool, spare or not: descriptor.c */
	uint64_t base, size;  /* bytes */
	const struct gp_kind_ops *kind; /* the kind that manages its blocks */
	struct gp_block *first;
	struct gp_list link;         /* pool->segments, or spare */
	struct gp_list idle_link;    /* pool->idle while wholly cached, oldest first */
	struct gp_tree_node by_addr; /* addrmap.c */
	uint64_t idle_since;         /* the pool's n_grows when it became wholly cached */
	bool is_small;               /* kind split: holds small blocks */
	struct gp_arena *arena;      /* kind vmm: its arena, in which blocks have memory and unmapped gaps have none */
	bool is_undersized;          /* undersized: memory was too short for the size of the first request */
	bool is_uncached;            /* goes back once all of it is free, though it may be used until then */
	_Atomic bool is_retired;     /* none of its blocks is handed out again: see gp_pool_export, gp_pool_set_whole */
};

static inline uint64_t gp_block_requested(const struct gp_block *b)
{
	return atomic_load_explicit(&b->requested, memory_order_relaxed);
}

static inline uint64_t gp_block_stream(const struct gp_block *b)
{
	return atomic_load_explicit(&b->stream, memory_order_relaxed);
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

/* True if the block will not be handed out again once it is free. */
static inline bool gp_block_is_retired(const struct gp_block *b)
{
	return atomic_load_explicit(&b->segment->is_retired, memory_order_relaxed) || gp_block_is_exported(b);
}

/*
 * Sets a block's segment and address. They change only while the writing thread alone owns the descriptor, and never
 * while the block is USED. A lookup without a lock (addrmap.c) may read them at that moment nevertheless, so both
 * sides access whole words.
 */
static inline void gp_block_set_address(struct gp_block *b, struct gp_segment *segment, uint64_t addr)
{
	__atomic_store_n(&b->segment, segment, __ATOMIC_RELAXED);
	__atomic_store_n(&b->addr, addr, __ATOMIC_RELAXED);
}

/* True if the block is its whole segment. Only such a block begins at the segment's base when it is handed out. */
static inline bool gp_block_is_whole(const struct gp_block *b)
{
	return b->size == b->segment->size;
}

/* True if the program holds no block of the segment: all are cached or pending. Always false for an arena. */
static inline bool gp_segment_is_unused(const struct gp_segment *segment)
{
	if (segment->arena)
		return false;
	for (const struct gp_block *b = segment->first; b; b = b->next)
		if (gp_block_state(b) != GP_BLOCK_CACHED && gp_block_state(b) != GP_BLOCK_PENDING)
			return false;
	return true;
}
