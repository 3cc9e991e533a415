/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The allocator's public face: one pool serves the memory of one kind of one context. All functions are
 * thread-safe. Addresses are numbers here; nothing is ever read or written through them.
 */

#include "addrmap.h"
#include "backend.h"
#include "budget.h"
#include "ownlock.h"
#include "stats.h"

enum gp_kind {
	GP_KIND_NONE,	/* no cache: the driver for every call */
	GP_KIND_SIMPLE, /* whole driver allocations, nearest fit */
	GP_KIND_BINNED, /* whole driver allocations, in size classes */
	GP_KIND_SPLIT,	/* large segments, split and merged */
	GP_KIND_VMM,	/* ranges of addresses, where memory is mapped as it is needed */
	GP_N_KINDS
};

const char *gp_kind_name(enum gp_kind kind);

struct gp_pool_options {
	enum gp_kind kind;
	struct gp_backend backend;
	struct gp_addrmap *map;	   /* of the process; outlives the pool */
	struct gp_budget *budget;  /* shared; outlives the pool */
	uint64_t capacity_bytes;   /* what the device has in all: more than this is never asked for */
	uint64_t granule;	   /* large requests are rounded to this, as the driver does: a power of two */
	uint64_t page_bytes;	   /* large blocks begin at multiples of this: a power of two up to the granule, or 0 */
	uint64_t pending_bytes_max; /* the queue's limits; UINT64_MAX for none */
	uint64_t pending_count_max;
	const _Atomic unsigned *n_defers; /* while not 0 the queue is not flushed (pool_control.h); NULL: never */
	uint64_t reserve_bytes; /* with less than this left in the driver nothing stays cached */
	uint64_t oom_wait_ns;	/* round 6 */
	uint64_t thread_cache_bytes; /* each thread's at most (tcache.h); 0: none */
	const gp_barrier_source *barrier; /* for the locks of threads' caches (ownlock.h); outlives the pool; or NULL */
	bool completion_only;	/* order on the GPU is not enough for the first to touch it */
	struct gp_pool *sibling; /* a pool of the same context, whose fences this one shares; NULL: it has its own */
	void *owner;		 /* for gp_pool_owner and gp_pool_number: the caller's */
	uint32_t number;
};

enum gp_free_mode {
	GP_FREE_NORMAL, /* the program's work so far may touch it */
	GP_FREE_LATE,	/* likewise, and no fence may be recorded now or ordered upon later */
	GP_FREE_SYNCED, /* the caller has waited for the context: nothing touches it any more */
};

/* Positive results of gp_pool_free, which the driver's own codes cannot collide with. */
enum {
	GP_E_FOREIGN = 1 << 20, /* not our pointer: the driver's business */
	GP_E_INTERIOR,		/* inside one of our segments, but not a block's address */
	GP_E_NOT_USED,		/* a block that is free already */
	GP_E_DEAD,		/* its context is gone */
	GP_E_NOT_PERMITTED,	/* the thread may not call the driver: the block is the program's still */
};

/* 0, -ENOMEM (host memory), or what the backend says to what the kind needs. The caller holds the first reference. */
int gp_pool_new(const struct gp_pool_options *options, struct gp_pool **ret_pool);
struct gp_pool *gp_pool_get(struct gp_pool *pool);

/* Drops a reference; the last one frees the descriptors. The pool must have been dropped before. */
void gp_pool_put(struct gp_pool *pool);

/*
 * Hands out a block of at least that many bytes (> 0), with a note of the caller. It is aligned to GP_ALIGN, and one of
 * more than GP_SMALL_MAX bytes to a page. 0; -ENOMEM after all rounds failed; -ENOBUFS if host memory ran out, or
 * GP_E_DEAD: the driver should be asked; or the driver's error.
 */
int gp_pool_alloc(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

/* The same out of what the pool has at hand: 0 if it has. It does not grow, nobody waits, and a failure is no miss. */
int gp_pool_alloc_hit(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

/*
 * Takes a block back, whichever pool of the map it belongs to. 0, one of the GP_E codes, or the driver's error
 * from the fence, in which case the block is used again only once a later fence has completed.
 */
int gp_pool_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * Runs the retry rounds for an allocation that is not pooled: attempt() is called once more, then after each round that
 * gave something back, and returns what a backend's reserve would. The result is that of the last attempt,
 * or GP_E_DEAD.
 */
int gp_pool_rescue(struct gp_pool *pool, uint64_t bytes, int (*attempt)(void *arg), void *arg);

/* Gives back everything cached; waits a little for it to arrive in the driver. Returns the bytes given back. */
uint64_t gp_pool_reclaim(struct gp_pool *pool);

/*
 * From now on reuse needs completion: somebody else may be the first to touch a block. Waits for what was handed out
 * on order alone. 0; -EBUSY if a capture forbids the wait, -EAGAIN if the pool is dead, or the driver's error: then a
 * later call waits for it.
 */
int gp_pool_require_completion(struct gp_pool *pool);

/*
 * From now on every new block is a driver allocation of its own, which can be exported, as with the kind binned. Blocks
 * that are parts of segments stay what they are, and their segments go back when they are free. Only the kind split
 * has any.
 */
void gp_pool_set_whole(struct gp_pool *pool);

/* Returns when every fence call that was under way has ended. */
void gp_pool_quiesce(struct gp_pool *pool);

/* What the options said. */
void *gp_pool_owner(const struct gp_pool *pool);
uint32_t gp_pool_number(const struct gp_pool *pool);

/* Whether work of the context may overlap with other work of it: more than one stream exists. */
void gp_pool_set_overlap(struct gp_pool *pool, bool overlap);

/*
 * The context is gone: forgets every block without a driver call. Later calls answer GP_E_DEAD. While others still
 * call, those that share its fences are dropped first.
 */
void gp_pool_drop(struct gp_pool *pool);

/* What holds an address: the bounds of a block as the program knows it. */
struct gp_block_info {
	uint64_t addr, size; /* bytes the program asked for, as the driver reports it too; of a free block, all */
	uint64_t rounded; /* bytes that it takes */
	uint64_t serial;      /* unique per hand-out in the process */
	uint64_t segment_base, segment_size; /* of what the driver gave: kind vmm: the piece that it begins in */
	uint32_t caller; /* that gp_pool_alloc was told; of a used block */
	bool is_used, is_whole, is_retired; /* retired: nobody gets it again */
	bool is_cached, is_mapped; /* free, and ready to be handed out; of the kind vmm, which is no allocation's */
};

/* 0 and the block at or around the address, or GP_E_FOREIGN. */
int gp_pool_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info);

/*
 * Something outside the process may hold the memory from now on: once freed, it goes back to the driver instead
 * of to another owner. The whole segment is meant; with the kind vmm the block. 0 or GP_E_FOREIGN.
 */
int gp_pool_export(struct gp_addrmap *map, uint64_t addr);

void gp_pool_stats(struct gp_pool *pool, struct gp_stats *ret_stats);

/* Calls back for every block that the program holds, with the pool's lock held, until it returns false. */
void gp_pool_each_used(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg);

/* Proves every invariant; returns what is broken, or NULL. For tests: slow, and the pool must be at rest. */
const char *gp_pool_check(struct gp_pool *pool);
