/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The interface between the pool kinds and the rest of the pool. */

#include "pool_impl.h"

/* A summary of what is pending, for use when nothing could be taken. */
struct gp_pending_summary {
	bool is_any_unfenced;
	bool is_queue_long; /* more is pending than two blocks that take turns need */
	uint64_t newest_seq;
};

/* Snapshot of everything that could let another driver attempt succeed (rounds.c). */
struct gp_supply {
	uint64_t n_arrivals;         /* times the driver got memory back, except from the request's own attempts */
	uint64_t n_freed, completed; /* for a kind with a `grow` of its own: blocks freed, fences completed */
};

/* The plan of a growth, made with the pool's lock held. */
struct gp_growth {
	bool is_planned;
	bool is_any_stale;   /* a segment was idle for long */
	uint64_t swap_bytes; /* idle bytes to give back; 0: none */
	uint64_t used_bytes; /* bytes used meanwhile */
	uint64_t bytes;      /* to ask the driver for */
};

/* A request on its way up the ladder. */
struct gp_request {
	const struct gp_kind_ops *kind;    /* the pool's kind when the request came; it may change later */
	uint64_t bytes;                    /* requested by the program */
	uint64_t size;                     /* rounded by the kind */
	uint64_t stream;                   /* as in gp_alloc_options */
	unsigned account;                  /* likewise */
	uint32_t module;                   /* the calling module, stored in the block */
	unsigned skips;                    /* steps that are left out: GP_SKIP of each */
	unsigned left;                     /* steps that may still be tried, likewise */
	enum gp_step step;                 /* the current one */
	enum gp_step first, end;           /* as in gp_alloc_options */
	bool is_uncached;                  /* gp_pool_alloc_uncached */
	unsigned n_undone;                 /* failed growths that gave memory back, so no reason to retry */
	unsigned idle;                     /* steps that would find nothing to do, as of the last look into the pool */
	struct gp_pending_summary summary; /* set with `idle` */
	struct gp_growth growth;           /* planned with the survey if growth is next */
	struct gp_supply supply;           /* set before the last driver attempt */
	struct gp_failure *ret_failure;
	const struct gp_capture_alloc *capture; /* as in gp_alloc_options */
};

#define GP_SKIP(step) (1u << GP_STEP_##step)

/* Returns the smallest size that serves the program. An undersized block has at least this size. */
static inline uint64_t gp_request_least(const struct gp_request *request)
{
	return gp_min(gp_round_up(gp_max(request->bytes, 1), GP_ALIGN), request->size);
}

/* A pool kind: it decides how free memory is stored and cut. Functions are called with the pool's lock unless noted. */
struct gp_kind_ops {
	const char *name;
	void (*init)(struct gp_pool *pool);

	/*
	 * Obtains what a new pool needs from the driver, and host memory for it, until close. 0 or an error. NULL:
	 * nothing.
	 */
	int (*open)(struct gp_pool *pool);
	void (*close)(struct gp_pool *pool);

	/*
	 * For a kind that takes and gives back memory in its own way; called without the pool's lock, by
	 * gp_segment_grow and gp_segment_give_back, as their implementation. NULL: the kind takes and gives back
	 * whole segments.
	 */
	int (*grow)(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);
	uint64_t (*give_back)(struct gp_pool *pool, uint64_t want);

	/* Returns the size for a request of that many bytes: a multiple of GP_ALIGN. */
	uint64_t (*round)(const struct gp_pool *pool, uint64_t bytes);

	/* Steps that cannot serve a request of this kind: GP_SKIP of each. The ladder leaves them out. */
	unsigned skips;

	/*
	 * Blocks have nearly any size: round is gp_round_cut. Thread caches then ask for small sizes that recur, up
	 * to an eighth larger than the request.
	 */
	bool is_cut;

	/* Takes a cached block of at least `size` bytes out of the cache and its count. Returns NULL if none fits. */
	struct gp_block *(*take)(struct gp_pool *pool, uint64_t size);

	/*
	 * The fences are polled before a block is taken once more than GP_UNPOLLED_MIN is pending, instead of a share
	 * of the pool. Pending blocks that cannot merge yet cost such a kind twice, since memory may have to be moved
	 * later. This does not apply where streams overlap.
	 */
	bool wants_merged;

	/*
	 * Returns true if polling the fences could hardly allow a better choice than `take` would make now. Asked where
	 * streams overlap. NULL: the kind always polls, since learning late what is idle costs it memory.
	 */
	bool (*has_good_fit)(const struct gp_pool *pool, uint64_t size);

	/*
	 * As take, for undersized blocks: returns one of at least `least` bytes and less than `size`. NULL: the kind
	 * has none.
	 */
	struct gp_block *(*take_undersized)(struct gp_pool *pool, uint64_t least, uint64_t size);

	/*
	 * Cuts a block that is in no list or tree to `size` bytes, and caches the remainder. Needs up to two spare
	 * descriptors.
	 */
	struct gp_block *(*cut)(struct gp_pool *pool, struct gp_block *block, uint64_t size);

	/*
	 * Divides a block that is in no list or tree, and may still be in use by GPU work. Returns a part of `size`
	 * bytes, and in *ret_rest another part or NULL, both in no list or tree; or NULL if the block cannot be divided
	 * so. Needs up to two spare descriptors. NULL: the kind divides no blocks.
	 */
	struct gp_block *(*divide)(
		struct gp_pool *pool, struct gp_block *block, uint64_t size, struct gp_block **ret_rest);

	/*
	 * Adds a usable block to the cache and its count. The block may be merged, so the caller must not use it
	 * afterwards.
	 */
	void (*put)(struct gp_pool *pool, struct gp_block *block);

	/* Takes a cached block out of the index, but not out of the count. Does nothing in a retired segment. */
	void (*unlink)(struct gp_pool *pool, struct gp_block *block);

	/* A large segment that was idle for this many growths goes back when the pool grows. 0: none does. */
	unsigned stale_after;

	/*
	 * The kind gives back idle segments before the pool exceeds its peak, but only once for a request that recurs
	 * (thrash.h).
	 */
	bool swaps;

	/*
	 * Maximum number of waits for freed memory before the pool exceeds its peak; counted anew once the peak has
	 * risen.
	 */
	unsigned n_waits;

	/* Returns how much to ask the driver for, for a block of `size` bytes. */
	uint64_t (*segment_bytes)(const struct gp_pool *pool, uint64_t size);

	/* Returns the largest size of a freed block that may serve a request of `size` bytes on its own. */
	uint64_t (*largest_fit)(const struct gp_pool *pool, uint64_t size);

	/*
	 * Returns the smallest size of a freed block that may serve the request by merging with others; `size` if
	 * none can.
	 */
	uint64_t (*smallest_part)(const struct gp_pool *pool, uint64_t size);

	/* Counts the blocks in the cache's index, for gp_pool_check. */
	uint64_t (*count)(const struct gp_pool *pool);
};

/* Returns a request for the pool's current kind. */
static inline struct gp_request gp_request_of(const struct gp_pool *pool, uint64_t bytes)
{
	const struct gp_kind_ops *kind = gp_pool_kind(pool);

	return (struct gp_request){
		.kind = kind,
		.bytes = bytes,
		.size = kind->round(pool, bytes),
		.skips = kind->skips,
	};
}
