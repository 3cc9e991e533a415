/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The seam between the pool kinds and the rest. */

#include "pool.h"

struct gp_handed;

/* What is being asked for. */
struct gp_request {
	const struct gp_kind_ops *kind; /* the pool's when the request came: a change meanwhile is for later ones */
	uint64_t bytes; /* by the program */
	uint64_t size;	/* rounded by the kind */
	uint32_t caller; /* that the block keeps */
	bool is_miss;	/* the driver was asked for memory: no hit any more, whoever serves it */
	bool is_growth; /* rather a larger pool than what lies in threads' caches */
	bool is_hit_only; /* gp_pool_alloc_hit */
	bool is_uncached; /* gp_pool_alloc_uncached */
	unsigned n_undone; /* times that growing in vain gave the driver something back: no news to this request */
};

/* The least that serves the program: what it gets where memory does not allow the kind's size. */
static inline uint64_t gp_request_least(const struct gp_request *request)
{
	return gp_min(gp_round_up(gp_max(request->bytes, 1), GP_ALIGN), request->size);
}

/* A pool kind: how free memory is kept and cut. All functions are called with the pool's lock held. */
struct gp_kind_ops {
	const char *name;
	void (*init)(struct gp_pool *pool);

	/* What a new pool needs of the driver, and host memory for it, until close. 0, or why not. NULL: nothing. */
	int (*open)(struct gp_pool *pool);
	void (*close)(struct gp_pool *pool);

	/*
	 * For a kind that takes and gives back memory in its own way; without the pool's lock. As gp_segment_grow and
	 * gp_segment_give_back, which call them. NULL: by segments.
	 */
	int (*grow)(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed);
	uint64_t (*give_back)(struct gp_pool *pool, uint64_t want);

	/* The size that a request of that many bytes gets: a multiple of GP_ALIGN. */
	uint64_t (*round)(const struct gp_pool *pool, uint64_t bytes);

	/*
	 * Blocks have nearly any size: round is gp_round_cut. Then threads ask for small sizes that come again, which
	 * are up to an eighth larger.
	 */
	bool is_cut;

	/* Takes a cached block of at least size bytes out of the cache and its count; NULL if none fits. */
	struct gp_block *(*take)(struct gp_pool *pool, uint64_t size);

	/*
	 * What waits may be no more than a slab's worth when it takes a block, not a share of the pool: for what cannot
	 * merge yet it pays twice, since memory may have to be moved later. Not where streams overlap.
	 */
	bool wants_merged;

	/*
	 * Whether it would take a segment of exactly that size, which is neither cut nor merges with anything: what
	 * waits could hardly make for a better choice. NULL: never, where it costs memory to learn later what is idle.
	 */
	bool (*has_whole)(const struct gp_pool *pool, uint64_t size);

	/*
	 * The same as take, of odd blocks, which memory did not allow to be as large as their request's size: one of at
	 * least that many bytes, and less than size. NULL: the kind has none.
	 */
	struct gp_block *(*take_odd)(struct gp_pool *pool, uint64_t least, uint64_t size);

	/*
	 * Cuts a block that is in no structure to size bytes, and caches what is left over. Needs up to two
	 * spare descriptors.
	 */
	struct gp_block *(*cut)(struct gp_pool *pool, struct gp_block *block, uint64_t size);

	/* Puts a usable block into the cache and its count. May merge it: it must not be used afterwards. */
	void (*put)(struct gp_pool *pool, struct gp_block *block);

	/* Takes a cached block out of the index, not out of the count. Nothing to do in a retired segment. */
	void (*unlink)(struct gp_pool *pool, struct gp_block *block);

	/* A large segment that was idle for so many growths goes back when the pool grows; 0: none does. */
	unsigned stale_after;

	/* Idle segments go back before the pool would hold more than ever: once for each request (marks.h). */
	bool swaps;

	/* So often it waits for what was freed, before it would hold more than ever, until it does by a share. */
	unsigned n_waits;

	/* How much to ask the driver for, for a block of size bytes. */
	uint64_t (*segment_bytes)(const struct gp_pool *pool, uint64_t size);

	/* The largest that a block can be that the program freed and that alone serves a request of size bytes. */
	uint64_t (*largest_fit)(const struct gp_pool *pool, uint64_t size);

	/* The smallest that one can be that may come to serve the request by merging with others; size if none can. */
	uint64_t (*smallest_part)(const struct gp_pool *pool, uint64_t size);

	/* The number of blocks in the cache's index, counted one by one: for gp_pool_check. */
	uint64_t (*count)(const struct gp_pool *pool);
};

/* pool.c: a request of the pool's kind as of now. */
struct gp_request gp_request_of(const struct gp_pool *pool, uint64_t bytes);

/* The ops of a kind. */
const struct gp_kind_ops *gp_kind_ops_of(enum gp_kind kind);

extern const struct gp_kind_ops gp_kind_none, gp_kind_simple, gp_kind_binned, gp_kind_split, gp_kind_vmm;
