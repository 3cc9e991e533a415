/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the files of the pool share: its state, and the seam between the kinds and the rest. */

#include "block.h"
#include "fence.h"
#include "pending.h"
#include "pool.h"

enum { GP_N_BINS = GP_N_CLASSES };

/* Up to this a request is small: split serves it from slabs. The driver itself packs together what is up to 1 MiB. */
#define GP_SMALL_MAX GP_MIB

struct gp_pool {
	struct gp_pool_options options;
	const struct gp_kind_ops *kind;
	struct gp_fence fence;
	_Atomic unsigned refs;
	_Atomic bool overlap, completion_only, dead;

	struct gp_mutex lock; /* guards everything below */
	pthread_cond_t rounds_done;
	bool rounds_busy;  /* one thread runs the rounds, the others wait for it and search again */
	bool is_pressed;   /* the driver is nearly empty: nothing stays cached */
	struct gp_stats stats;
	uint64_t n_grows;	/* times that a large segment was asked for: the clock of idleness */
	uint64_t begun_bytes;	/* of release_begin since the start */
	uint64_t arrived_bytes; /* of these, back in the driver */
	uint64_t n_arrivals;	/* times that the driver got anything back: worth another attempt */
	struct gp_pending pending;
	struct gp_list segments; /* all */
	struct gp_list idle;	 /* those wholly cached, least recently used first */
	struct gp_list leaving;	 /* wholly cached too, but to be given back as soon as their work is completed */
	struct gp_list spare_blocks, spare_segments;
	unsigned n_spare_blocks;
	struct gp_chunk *chunks; /* where descriptors come from */
	union {
		struct gp_tree whole;		  /* simple */
		struct gp_list bins[GP_N_BINS];	  /* binned */
		struct {
			struct gp_tree small, large;
		} split;
	} cache;
};

/* What is being asked for. */
struct gp_request {
	uint64_t bytes; /* by the program */
	uint64_t size;	/* rounded by the kind */
	bool is_miss;	/* the driver was asked for memory: no hit any more, whoever serves it */
};

/* A pool kind: how free memory is kept and cut. All functions are called with the pool's lock held. */
struct gp_kind_ops {
	const char *name;
	void (*init)(struct gp_pool *pool);

	/* The size that a request of that many bytes gets: a multiple of GP_ALIGN. */
	uint64_t (*round)(const struct gp_pool *pool, uint64_t bytes);

	/* Takes a cached block of at least size bytes out of the cache and its count; NULL if none fits. */
	struct gp_block *(*take)(struct gp_pool *pool, uint64_t size);

	/*
	 * Cuts a block that is in no structure to size bytes, and caches what is left over. Needs up to two
	 * spare descriptors.
	 */
	struct gp_block *(*cut)(struct gp_pool *pool, struct gp_block *block, uint64_t size);

	/* Puts a usable block into the cache and its count. May merge it: it must not be used afterwards. */
	void (*put)(struct gp_pool *pool, struct gp_block *block);

	/* Takes a cached block out of the index, not out of the count. Nothing to do for an exported one. */
	void (*unlink)(struct gp_pool *pool, struct gp_block *block);

	/* A large segment that was idle for so many growths goes back when the pool grows; 0: none does. */
	unsigned stale_after;

	/* How much to ask the driver for, for a block of size bytes. */
	uint64_t (*segment_bytes)(const struct gp_pool *pool, uint64_t size);

	/* The largest that a block can be that the program freed and that alone serves a request of size bytes. */
	uint64_t (*largest_fit)(const struct gp_pool *pool, uint64_t size);

	/* The smallest that one can be that may come to serve the request by merging with others; size if none can. */
	uint64_t (*smallest_part)(const struct gp_pool *pool, uint64_t size);

	/* The number of blocks in the cache's index, counted one by one: for gp_pool_check. */
	uint64_t (*count)(const struct gp_pool *pool);
};

extern const struct gp_kind_ops gp_kind_none, gp_kind_simple, gp_kind_binned, gp_kind_split;

/* descriptor.c: recycled descriptors. */

/* Sees to it that the next few _new calls cannot fail. 0 or -ENOBUFS. */
int gp_descriptors_ensure_locked(struct gp_pool *pool);
struct gp_block *gp_block_new_locked(struct gp_pool *pool);
void gp_block_spare_locked(struct gp_pool *pool, struct gp_block *block);
struct gp_segment *gp_segment_new_locked(struct gp_pool *pool);
void gp_segment_spare_locked(struct gp_pool *pool, struct gp_segment *segment);
void gp_descriptors_free(struct gp_pool *pool);

/* segment.c: driver allocations, coming and going. None of these is called with the lock held but the _locked. */

/* Asks the driver for a segment that serves the request, within the budget. -ENOMEM: either said no. */
int gp_segment_grow(struct gp_pool *pool, const struct gp_request *request, struct gp_block **ret_block);

/*
 * Gives back idle segments whose work is completed: the smallest one of at least want bytes if there is one, else
 * the least recently used ones until want bytes are together; and all that are leaving. Returns the bytes begun.
 */
uint64_t gp_segment_give_back(struct gp_pool *pool, uint64_t want);

/* Gives one block, whole and taken out of the queue, back behind its fence. Returns the bytes begun. */
uint64_t gp_segment_give_back_pending(struct gp_pool *pool, struct gp_block *block);

/* Whether giving back makes nobody wait just now. */
bool gp_segment_can_give_back(struct gp_pool *pool);

/* Gives one block, whole and in no structure, back by the driver's own free, which may wait. The driver's result. */
int gp_segment_release(struct gp_pool *pool, struct gp_block *block);

/* Sees what of that begun before the call has arrived in the driver; waits for all of it if told to. */
void gp_segment_poll_returning(struct gp_pool *pool, bool wait);

/* Notes that a segment is wholly cached, or not any more. */
void gp_segment_set_idle_locked(struct gp_pool *pool, struct gp_segment *segment);
void gp_segment_set_busy_locked(struct gp_segment *segment);

/* Whether any wait to be given back. */
bool gp_segment_is_any_leaving_locked(const struct gp_pool *pool);

/* pool_query.c: whether the address lies in memory of the pool's that the program does not hold. */
bool gp_pool_is_free_at_locked(struct gp_pool *pool, uint64_t addr);

/* reuse.c: from pending to cached, and from there to the program. */

/* Marks a block that is in no structure as the program's. */
void gp_reuse_hand_out_locked(struct gp_pool *pool, struct gp_block *block, const struct gp_request *request);

/* Moves what the fences allow into the cache, and hands out a block that fits; NULL if none does. */
struct gp_block *gp_reuse_take(struct gp_pool *pool, const struct gp_request *request);

/* Moves what the fences allow into the cache. */
void gp_reuse_settle(struct gp_pool *pool);

/*
 * Looks for a block in the cache, then among the pending ones as far as costs nobody anything. -ENOENT if there
 * is none, or the driver's error.
 */
int gp_reuse_find(struct gp_pool *pool, const struct gp_request *request, struct gp_block **ret_block);

/*
 * The same where growing instead would let too much memory wait: orders later work behind the first free that yields a
 * fit, or, where completion is needed, waits for it. -ENOENT if nothing pending fits or growing is better.
 */
int gp_reuse_insist(struct gp_pool *pool, const struct gp_request *request, struct gp_block **ret_block);

/*
 * Brings the queue of freed blocks back under its limits, and sends off what is leaving. may_wait: as the program's own
 * free would, where the driver gives back in no other way. Returns the bytes begun to be given back.
 */
uint64_t gp_reuse_flush(struct gp_pool *pool, bool may_wait);

/* Whether gp_reuse_flush has anything to do. */
bool gp_reuse_needs_flush_locked(const struct gp_pool *pool);

/*
 * rounds.c: what an allocation goes through when memory has run out. attempt() asks the driver; it may set block,
 * which the search sets too if the pool can serve the request after all. Without a request only attempts count.
 */
struct gp_rounds {
	struct gp_pool *pool;
	const struct gp_request *request; /* NULL: not a pool's allocation */
	uint64_t bytes;			  /* what is missing, at the most */
	int (*attempt)(struct gp_rounds *rounds);
	int (*rescue)(void *arg); /* gp_pool_rescue's */
	void *rescue_arg;
	uint64_t n_arrivals; /* the pool's, before the last attempt */
	int result;	     /* of the last attempt */
	struct gp_block *block;
};

/* 0, or what the last attempt said. */
int gp_rounds_run(struct gp_rounds *rounds);

/* A block that ceases to exist, or to be ours, leaves the address map. */
static inline void gp_block_unmap_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (block->flags & GP_BLOCK_MAPPED)
		gp_addrmap_remove_block(pool->options.map, block);
	block->flags &= (uint8_t)~GP_BLOCK_MAPPED;
}

static inline const struct gp_backend *gp_pool_backend(const struct gp_pool *pool)
{
	return &pool->options.backend;
}

static inline uint64_t gp_pool_now_ns(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->now_ns(gp_pool_backend(pool)->arg);
}

/* The cache's count of what it holds, kept by the kinds. */
static inline void gp_cached_add(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_set_state(block, GP_BLOCK_CACHED);
	pool->stats.cached_bytes += block->size;
	pool->stats.n_free_blocks++;
}

static inline void gp_cached_sub(struct gp_pool *pool, struct gp_block *block)
{
	pool->stats.cached_bytes -= block->size;
	pool->stats.n_free_blocks--;
}

static inline bool gp_pool_is_flag(const _Atomic bool *flag)
{
	return atomic_load_explicit(flag, memory_order_relaxed);
}
