/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * How a free finds its block: the last blocks that the thread was given are remembered by address, each with the
 * generation of that hand-out. A block that somebody else freed meanwhile has a newer one and is not touched.
 */

#include "tcache.h"

#include <errno.h>

#include "kind.h"
#include "reuse.h"
#include "tcache_block.h"

enum {
	RECORD_AFTER = 32, /* blocks that came: a fence for all of them */
	REFUSED_MAX = 32,  /* for want of room: what lies there is not what is wanted now */
	GROW_AFTER = 16,   /* fences for the sake of one shelf: it is worth a larger pool then */
	GROWN_BLOCKS = 4,  /* or so many bytes: by a block at a time, without patience */
};

#define GROWN_MAX (2 * GP_MIB)

_Static_assert(GP_TCACHE_SETS == 1 << (64 - 54), "the hash fits");

static struct gp_shelf *shelf_of(struct gp_tcache *tc, uint64_t size)
{
	return &tc->shelves[gp_shelf_index(size)];
}

static bool is_fit(const struct gp_tcache *tc, const struct gp_request *request, uint64_t size)
{
	return size == request->size ||
	       (size > request->size && size <= request->kind->largest_fit(tc->pool, request->size));
}

/* Whether no more go there. */
static bool is_full(const struct gp_shelf *shelf)
{
	return shelf->count >= shelf->depth;
}

static struct gp_recent *recent_set(struct gp_tcache *tc, uint64_t addr)
{
	return tc->recent[((addr / GP_ALIGN) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

struct gp_pool *gp_tcache_pool(const struct gp_tcache *tc)
{
	return tc->pool;
}

bool gp_tcache_is_dead(const struct gp_tcache *tc)
{
	return gp_pool_is_flag(&tc->pool->dead);
}

/* A block that the thread was given just now for a request of that size. */
static void remember(struct gp_tcache *tc, const struct gp_handed *handed, uint64_t size)
{
	struct gp_recent *set = recent_set(tc, handed->addr);

	set[1] = set[0];
	set[0] = (struct gp_recent){
		.addr = handed->addr,
		.size = size,
		.block = handed->block,
		.word = handed->word,
	};
}

/* What a shelf has. */
enum offer { NOTHING, USABLE, COVERED, NOT_COVERED };

static enum offer offer_of(const struct gp_tcache *tc, const struct gp_block *block)
{
	if (gp_likely(block->stamp < gp_tcache_usable_below(tc)))
		return USABLE;
	return block->stamp < gp_fence_published(tc->fence) ? COVERED : NOT_COVERED;
}

static inline struct gp_handed hand_out(
	struct gp_tcache *tc, struct gp_shelf *shelf, unsigned n, uint64_t bytes, uint32_t caller)
{
	return gp_tcache_hand_out(tc, gp_tcache_take_nth(tc, shelf, n), bytes, caller);
}

static inline bool is_near_fit(const struct gp_block *block, uint64_t size, uint64_t slack, uint64_t usable_below)
{
	return block->size - size <= slack && block->stamp < usable_below;
}

/*
 * What nearly every allocation gets: the newest of a shelf if it may be had, of which the processor still has all that
 * is looked at; else the oldest. Most are of that very size, or nearly.
 */
static inline struct gp_handed take_first_locked(struct gp_tcache *tc, uint64_t size, uint64_t slack, uint64_t bytes,
						 uint32_t caller)
{
	struct gp_shelf *shelf = shelf_of(tc, size);
	uint64_t usable_below = gp_tcache_usable_below(tc);
	struct gp_block *b = NULL;

	if (gp_unlikely(!shelf->count))
		return (struct gp_handed){0};
	if (gp_likely(is_near_fit(*gp_shelf_at(shelf, shelf->count - 1), size, slack, usable_below)))
		b = gp_tcache_take_newest(tc, shelf);
	else if (is_near_fit(*gp_shelf_at(shelf, 0), size, slack, usable_below))
		b = gp_tcache_take_nth(tc, shelf, 0);
	return gp_likely(b) ? gp_tcache_hand_out(tc, b, bytes, caller) : (struct gp_handed){0};
}

/* The position of the oldest block of at most so many bytes that fits; count if none does. */
static unsigned find_fit_locked(
	const struct gp_tcache *tc, struct gp_shelf *shelf, const struct gp_request *request, uint64_t size_max)
{
	unsigned n = 0;

	for (; n < shelf->count; n++) {
		uint64_t size = (*gp_shelf_at(shelf, n))->size;

		if (size <= size_max && is_fit(tc, request, size))
			break;
	}
	return n;
}

/* The oldest block that fits, if it may be had; else what a fence has to cover for that. */
static enum offer take(struct gp_tcache *tc, const struct gp_request *request, uint64_t *ret_stamp,
		       struct gp_handed *ret_handed)
{
	struct gp_shelf *shelf = shelf_of(tc, request->size);
	enum offer offer = NOTHING;
	unsigned n;

	gp_ownlock_enter(&tc->lock);
	n = find_fit_locked(tc, shelf, request, UINT64_MAX);
	if (gp_likely(n < shelf->count)) {
		offer = offer_of(tc, *gp_shelf_at(shelf, n));
		*ret_stamp = (*gp_shelf_at(shelf, n))->stamp;
	}
	if (gp_likely(offer == USABLE))
		*ret_handed = hand_out(tc, shelf, n, request->bytes, request->caller);
	gp_ownlock_leave(&tc->lock);
	return offer;
}

/*
 * From the shelf of sizes that are larger by up to a quarter, what may be had. Not what is larger than that shelf's: it
 * came there in this way, and would go on to ever smaller requests.
 */
static struct gp_handed take_larger(struct gp_tcache *tc, const struct gp_request *request)
{
	unsigned i = gp_shelf_index(request->size) + 1, n;
	struct gp_shelf *shelf = &tc->shelves[i];
	struct gp_handed handed = {0};

	if (i == GP_TCACHE_SHELVES)
		return handed;
	gp_ownlock_enter(&tc->lock);
	n = find_fit_locked(tc, shelf, request, gp_shelf_size_max(i));
	if (n < shelf->count && offer_of(tc, *gp_shelf_at(shelf, n)) == USABLE)
		handed = hand_out(tc, shelf, n, request->bytes, request->caller);
	gp_ownlock_leave(&tc->lock);
	return handed;
}

/* One fence for all that lies there; another thread's will do. */
static int record(struct gp_tcache *tc, bool is_at_free)
{
	return gp_fence_record(tc->fence, tc->newest_stamp, is_at_free);
}

/*
 * Growing so that a shelf can fill is worth it the first time after some fences, and then after twice as many. Where
 * the pool grows by a block at a time, which is little, also each time after as many, until it has as much as others
 * grow by at once. By how much it would; 0: it is not worth it.
 */
static uint64_t growth_due(const struct gp_tcache *tc, const struct gp_shelf *shelf, const struct gp_request *request)
{
	unsigned n = shelf->n_fences + 1;
	uint64_t step;
	bool is;

	if (n % GROW_AFTER)
		return 0;
	gp_mutex_lock(&tc->pool->lock);
	step = request->kind->segment_bytes(tc->pool, request->size);
	gp_mutex_unlock(&tc->pool->lock);
	is = (n & (n - 1)) == 0 || shelf->grown_bytes + step <= gp_max(GROWN_MAX, GROWN_BLOCKS * request->size);
	return is ? step : 0;
}

/*
 * All of a shelf had been freed without a fence, and there is no more. In order a fence at the free of the last of them
 * would have been enough: so the next time it comes then.
 */
static void hurry(struct gp_tcache *tc, struct gp_shelf *shelf)
{
	gp_ownlock_enter(&tc->lock);
	if (gp_fence_is_in_order(tc->fence) && shelf->count)
		shelf->due = shelf->count;
	gp_ownlock_leave(&tc->lock);
}

/* Whether who asks for memory can have more of it. */
static inline bool is_plenty(const struct gp_tcache *tc)
{
	const struct gp_pool *pool = tc->pool;

	return !gp_pool_is_pressed(pool) && !gp_pool_is_flag(&pool->is_full) &&
	       gp_budget_left(pool->options.budget) >= tc->bytes_max;
}

/* Unless memory is short a block is cut so that it can serve whatever comes to its shelf. */
static uint64_t size_to_keep(const struct gp_tcache *tc, const struct gp_request *request)
{
	uint64_t size = gp_shelf_size_max(gp_shelf_index(request->size));

	return request->kind->is_cut && size <= tc->size_max && is_plenty(tc) ? size : request->size;
}

/*
 * What no fence covers yet waits for more to come, so long as the pool has a block at hand; else a fence for little is
 * better than a larger pool.
 */
static int alloc_small(struct gp_tcache *tc, struct gp_request *request, struct gp_handed *ret_handed)
{
	uint64_t stamp = 0, step;
	enum offer offer = take(tc, request, &stamp, ret_handed);
	struct gp_shelf *shelf;
	int r;

	if (gp_likely(offer == USABLE))
		return 0;
	/* A part of a small block is worth less than a turn at the pool, if others are there. */
	if (offer == NOTHING && gp_mutex_is_busy(&tc->pool->lock))
		*ret_handed = take_larger(tc, request);
	if (ret_handed->block)
		return 0;
	if (offer == NOT_COVERED) {
		*ret_handed = gp_reuse_take(tc->pool, request);
		if (ret_handed->block)
			return 0;
		shelf = shelf_of(tc, request->size);
		step = growth_due(tc, shelf, request);
		request->is_growth = step != 0;
		if (request->is_growth && request->is_hit_only)
			return -ENOENT;
		shelf->n_fences++;
		shelf->grown_bytes += step;
		hurry(tc, shelf);
		r = request->is_growth ? 0 : record(tc, false);
		if (r > 0)
			return r;
	}
	if (offer != NOTHING && gp_fence_settle_stamp(tc->fence, stamp) == 0 &&
	    take(tc, request, &stamp, ret_handed) == USABLE)
		return 0;
	request->size = size_to_keep(tc, request);
	return gp_pool_alloc_block(tc->pool, request, ret_handed);
}

static int alloc_slow(
	struct gp_tcache *tc, uint64_t bytes, uint32_t caller, bool is_hit_only, struct gp_handed *ret_handed)
{
	struct gp_request request = gp_request_of(tc->pool, bytes);
	bool is_small = request.size <= tc->size_max;
	int r;

	request.caller = caller;
	request.is_hit_only = is_hit_only;
	r = is_small ? alloc_small(tc, &request, ret_handed) : gp_pool_alloc_block(tc->pool, &request, ret_handed);
	/* A large block that is smaller than its request's size is found by its own, which only the pool looks at. */
	if (!r && (is_small || (gp_fence_is_in_order(tc->fence) && ret_handed->size >= request.size)))
		remember(tc, ret_handed, request.size);
	return r;
}

/* As gp_tcache_take, of any size and kind, and whoever is in the way. */
static __attribute__((noinline)) uint64_t take_slow(struct gp_tcache *tc, uint64_t bytes, uint32_t caller)
{
	const struct gp_kind_ops *kind = gp_pool_kind(tc->pool);
	uint64_t size = kind->round(tc->pool, bytes);
	struct gp_handed handed;
	int saved_errno = errno;

	if (size > tc->size_max) {
		handed = gp_tcache_take_large(tc, size, bytes, caller);
	} else {
		gp_ownlock_enter(&tc->lock);
		handed = take_first_locked(tc, size, kind->is_cut ? size / 8 : 0, bytes, caller);
		gp_ownlock_leave(&tc->lock);
	}
	if (handed.block)
		remember(tc, &handed, size);
	errno = saved_errno;
	return handed.addr;
}

/* Calls nobody but the above, at its end, so that it need not put anything aside. What is cut is of any size. */
uint64_t gp_tcache_take(struct gp_tcache *tc, uint64_t bytes, uint32_t caller)
{
	uint64_t size = (bytes + GP_ALIGN - 1) & ~(uint64_t)(GP_ALIGN - 1);
	struct gp_handed handed;

	if (gp_unlikely(bytes - 1 >= tc->size_max || !gp_pool_kind(tc->pool)->is_cut ||
			!gp_ownlock_enter_at_once(&tc->lock)))
		return bytes ? take_slow(tc, bytes, caller) : 0;
	handed = take_first_locked(tc, size, size / 8, bytes, caller);
	gp_ownlock_leave(&tc->lock);
	if (gp_likely(handed.block))
		remember(tc, &handed, size);
	return handed.addr;
}

int gp_tcache_alloc_more(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, bool is_hit_only, uint64_t *ret_addr)
{
	struct gp_handed handed = {0};
	int r = alloc_slow(tc, bytes, caller, is_hit_only, &handed);

	if (handed.block)
		*ret_addr = handed.addr;
	return r;
}

static int alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, bool is_hit_only, uint64_t *ret_addr)
{
	uint64_t addr = gp_tcache_take(tc, bytes, caller);

	if (gp_unlikely(!addr))
		return gp_tcache_alloc_more(tc, bytes, caller, is_hit_only, ret_addr);
	*ret_addr = addr;
	return 0;
}

int gp_tcache_alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	return alloc(tc, bytes, caller, false, ret_addr);
}

int gp_tcache_alloc_hit(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	return alloc(tc, bytes, caller, true, ret_addr);
}

static inline void put_locked(struct gp_tcache *tc, struct gp_shelf *shelf, struct gp_block *block)
{
	uint64_t published = gp_fence_published(tc->fence);

	if (gp_unlikely(tc->published != published)) {
		tc->published = published;
		tc->n_uncovered = 0;
	}
	gp_tcache_stamp_locked(tc, block);
	*gp_shelf_at(shelf, shelf->count++) = block;
	tc->bytes += block->size;
	tc->n_uncovered += block->stamp >= published;
}

/* When a fence is due: soon, if enough has come together; now, if others were in the way for long, or it is wanted. */
enum due { NOT_DUE, DUE_SOON, DUE_NOW, REFUSED };

static inline enum due record_due_locked(const struct gp_tcache *tc, struct gp_shelf *shelf)
{
	if (gp_unlikely(shelf->count >= shelf->due && (*gp_shelf_at(shelf, 0))->stamp >= tc->published)) {
		shelf->n_fences += shelf->due < shelf->depth;
		/* Now and then it is seen whether a larger pool is worth it, or the pool has got more. */
		if (shelf->n_fences % GROW_AFTER == GROW_AFTER - 1)
			shelf->due = shelf->depth;
		return DUE_NOW;
	}
	if (gp_likely(tc->n_uncovered < RECORD_AFTER))
		return NOT_DUE;
	return tc->n_uncovered < 2 * RECORD_AFTER ? DUE_SOON : DUE_NOW;
}

/* From the program to its shelf; refused if that has no room, or the block is not the program's. */
static inline enum due accept_locked(struct gp_tcache *tc, struct gp_recent *recent)
{
	struct gp_shelf *shelf = shelf_of(tc, recent->size);

	if (gp_unlikely(is_full(shelf) || tc->bytes + recent->size > tc->bytes_max ||
			!gp_tcache_claim_locked(tc, recent)))
		return REFUSED;
	recent->addr = 0;
	put_locked(tc, shelf, recent->block);
	return record_due_locked(tc, shelf);
}

static enum due accept(struct gp_tcache *tc, struct gp_recent *recent)
{
	enum due due;

	gp_ownlock_enter(&tc->lock);
	due = accept_locked(tc, recent);
	gp_ownlock_leave(&tc->lock);
	return due;
}

/* The shelf of a block that was refused, if that is full, or NULL; if all is full, that is noted. */
static struct gp_shelf *find_full(struct gp_tcache *tc, uint64_t size)
{
	struct gp_shelf *shelf = shelf_of(tc, size);
	bool is;

	gp_ownlock_enter(&tc->lock);
	is = is_full(shelf);
	if (tc->bytes + size > tc->bytes_max)
		tc->n_refused++;
	gp_ownlock_leave(&tc->lock);
	return is ? shelf : NULL;
}

/* Whether so much was refused that what lies there is in the way. */
static bool is_crowded(struct gp_tcache *tc)
{
	bool is;

	gp_ownlock_enter(&tc->lock);
	is = tc->n_refused >= REFUSED_MAX;
	gp_ownlock_leave(&tc->lock);
	return is;
}

/* This is a free, so a fence for it covers all that was freed here before. */
static void hand_over(struct gp_tcache *tc)
{
	bool is_any;

	gp_ownlock_enter(&tc->lock);
	is_any = tc->n_blocks != 0;
	gp_ownlock_leave(&tc->lock);
	if (!is_any)
		return;
	(void)record(tc, true);
	gp_tcache_flush(tc);
}

/*
 * Whether blocks may wait for their fence: the GPU keeps up, and who asks for memory meanwhile can have more of it. If
 * not, only what was freed can be had, and a kernel may be launched before a fence tells that it can.
 */
static inline bool is_leisure(const struct gp_tcache *tc)
{
	return !gp_fence_lags(tc->fence) && is_plenty(tc);
}

/* A block was refused: while the GPU lags, or memory is short, the pool knows better what to do. */
static void give_way(struct gp_tcache *tc, bool is_wanted)
{
	if (!is_wanted || is_crowded(tc))
		hand_over(tc);
}

/* What a free is told of the fence that was due then, if one was. */
static int record_due(struct gp_tcache *tc, enum due due)
{
	int r = 0;

	if (due == DUE_SOON)
		r = gp_fence_try_record(tc->fence, tc->newest_stamp);
	else if (due == DUE_NOW)
		r = record(tc, true);
	return r > 0 ? r : 0;
}

/* Whoever is in the way; and where there is no room, some is made. */
static enum due put_small(struct gp_tcache *tc, struct gp_recent *recent)
{
	bool is_wanted = is_leisure(tc);
	enum due due = is_wanted ? accept(tc, recent) : REFUSED;
	struct gp_shelf *full = is_wanted && due == REFUSED ? find_full(tc, recent->size) : NULL;

	if (full && gp_tcache_spill(tc, full))
		due = accept(tc, recent);
	if (due == REFUSED)
		give_way(tc, is_wanted);
	return due;
}

static enum due put_large(struct gp_tcache *tc, struct gp_recent *recent)
{
	if (!gp_tcache_put_large(tc, recent, is_plenty(tc)))
		return REFUSED;
	recent->addr = 0;
	return tc->newest_stamp < gp_tcache_usable_below(tc) ? NOT_DUE : DUE_NOW;
}

/* As gp_tcache_put, where that takes more than a place on a shelf. due: REFUSED, or it lies there. */
static __attribute__((noinline)) int put_slow(struct gp_tcache *tc, struct gp_recent *recent, enum due due)
{
	int saved_errno = errno, r;

	if (due == REFUSED)
		due = recent->size > tc->size_max ? put_large(tc, recent) : put_small(tc, recent);
	r = due == REFUSED ? -ENOENT : record_due(tc, due);
	errno = saved_errno;
	return r;
}

int gp_tcache_put(struct gp_tcache *tc, uint64_t addr)
{
	struct gp_recent *recent = recent_set(tc, addr);
	enum due due = REFUSED;

	if (recent->addr != addr)
		recent++;
	if (gp_unlikely(recent->addr != addr || !addr))
		return -ENOENT;
	if (gp_likely(recent->size <= tc->size_max && is_leisure(tc) &&
		      gp_ownlock_enter_at_once(&tc->lock))) {
		due = accept_locked(tc, recent);
		gp_ownlock_leave(&tc->lock);
	}
	return gp_likely(due == NOT_DUE) ? 0 : put_slow(tc, recent, due);
}

/* Whether a claimed block is of those that a cache of its pool's may hold: what of that stays as it is. */
static bool is_keepable(const struct gp_tcache *tc, const struct gp_block *b)
{
	return b->segment->pool == tc->pool && b->segment->kind == gp_pool_kind(tc->pool) && b->size <= tc->size_max;
}

/* It may be retired at any time, and then caches are emptied; so whether it is shows with the cache's lock. */
static bool keep(struct gp_tcache *tc, struct gp_shelf *shelf, struct gp_block *block, enum due *ret_due)
{
	bool is_kept;

	gp_ownlock_enter(&tc->lock);
	is_kept = !is_full(shelf) && tc->bytes + block->size <= tc->bytes_max && gp_tcache_is_open_locked(tc) &&
		  !(block->flags & GP_BLOCK_UNCACHED) && !gp_block_is_retired(block);
	if (is_kept) {
		gp_block_set_state(block, GP_BLOCK_TCACHED);
		put_locked(tc, shelf, block);
		*ret_due = record_due_locked(tc, shelf);
	}
	gp_ownlock_leave(&tc->lock);
	return is_kept;
}

bool gp_tcache_keep(struct gp_tcache *tc, struct gp_block *block, int *ret_r)
{
	struct gp_shelf *full = NULL;
	enum due due = NOT_DUE;
	bool is_wanted, is_kept;

	if (!is_keepable(tc, block))
		return false;
	is_wanted = is_leisure(tc);
	is_kept = is_wanted && keep(tc, shelf_of(tc, block->size), block, &due);
	if (is_wanted && !is_kept)
		full = find_full(tc, block->size);
	if (full && gp_tcache_spill(tc, full))
		is_kept = keep(tc, full, block, &due);
	if (is_kept)
		*ret_r = record_due(tc, due);
	else
		give_way(tc, is_wanted);
	return is_kept;
}
