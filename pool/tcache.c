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
#include "tcache_impl.h"

enum {
	EXACT_BITS = 3,
	EXACT = 1 << EXACT_BITS, /* shelves of one size each, twice; then as many for each power of two */
	RECORD_AFTER = 32, /* blocks that came: a fence for all of them */
	REFUSED_MAX = 32,  /* for want of room: what lies there is not what is wanted now */
	GROW_AFTER = 16,   /* fences for the sake of one shelf: it is worth a larger pool then */
	SERIALS = 256,	   /* drawn at a time */
};

/* Of what a cache may hold: no more than that on one shelf, and nothing that is larger than that, or not small. */
enum { SHELF_SHARE = 2, BLOCK_SHARE = 16 };

_Static_assert(GP_TCACHE_SETS == 1 << (64 - 54), "the hash fits");
_Static_assert(GP_SMALL_MAX / GP_ALIGN == 2048 && GP_TCACHE_SHELVES == EXACT * 9, "there is a shelf for each size");

static uint64_t bytes_max(const struct gp_tcache *tc)
{
	return tc->pool->options.thread_cache_bytes;
}

static bool is_small_enough(const struct gp_tcache *tc, uint64_t size)
{
	return size <= gp_min(bytes_max(tc) / BLOCK_SHARE, GP_SMALL_MAX);
}

/* Sizes of one shelf differ by less than an eighth. */
static struct gp_shelf *shelf_of(struct gp_tcache *tc, uint64_t size)
{
	unsigned units = (unsigned)(size / GP_ALIGN) - 1;
	unsigned power = 31 - (unsigned)__builtin_clz(units | EXACT) - EXACT_BITS;

	return &tc->shelves[EXACT * power + (units >> power)];
}

static bool is_fit(const struct gp_tcache *tc, const struct gp_request *request, uint64_t size)
{
	return size == request->size ||
	       (size > request->size && size <= request->kind->largest_fit(tc->pool, request->size));
}

/* Whether no more go there. The first of a shelf decides how many that are: a division each time takes too long. */
static bool is_full(const struct gp_tcache *tc, struct gp_shelf *shelf, uint64_t size)
{
	if (gp_unlikely(!shelf->depth))
		shelf->depth = (unsigned)gp_min(gp_max(bytes_max(tc) / SHELF_SHARE / size, 1), GP_TCACHE_DEPTH);
	return shelf->count >= shelf->depth;
}

static struct gp_recent *recent_set(struct gp_tcache *tc, uint64_t addr)
{
	return tc->recent[((addr / GP_ALIGN) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

bool gp_tcache_is_dead(const struct gp_tcache *tc)
{
	return gp_pool_is_flag(&tc->pool->dead);
}

/* A block that the thread was given just now for a request of that size, and of which nobody else knows. */
static void remember(struct gp_tcache *tc, struct gp_block *block, uint64_t size)
{
	struct gp_recent *set = recent_set(tc, block->addr);

	set[1] = set[0];
	set[0] = (struct gp_recent){
		.addr = block->addr,
		.size = size,
		.block = block,
		.word = atomic_load_explicit(&block->word, memory_order_relaxed),
	};
}

static uint64_t new_serial(struct gp_tcache *tc)
{
	if (gp_unlikely(tc->next_serial == tc->end_serial)) {
		tc->next_serial = atomic_fetch_add_explicit(
			&tc->pool->options.map->serial, SERIALS, memory_order_relaxed);
		tc->end_serial = tc->next_serial + SERIALS;
	}
	return ++tc->next_serial;
}

/* Later work may touch what has a stamp below this. */
static uint64_t usable_below(const struct gp_pool *pool)
{
	if (gp_pool_is_flag(&pool->completion_only))
		return gp_fence_completed(pool->fence);
	return gp_fence_ordered(pool->fence);
}

/* What a shelf has. */
enum offer { NOTHING, USABLE, COVERED, NOT_COVERED };

static enum offer offer_of(const struct gp_tcache *tc, const struct gp_block *block)
{
	if (gp_likely(block->stamp < usable_below(tc->pool)))
		return USABLE;
	return block->stamp < gp_fence_published(tc->pool->fence) ? COVERED : NOT_COVERED;
}

/* The oldest block that fits, if it may be had; else what a fence has to cover for that. */
static enum offer take(struct gp_tcache *tc, const struct gp_request *request, uint64_t *ret_stamp,
		       struct gp_block **ret_block)
{
	struct gp_shelf *shelf = shelf_of(tc, request->size);
	enum offer offer = NOTHING;
	unsigned n = 0;

	gp_ownlock_enter(&tc->lock);
	while (n < shelf->count && !is_fit(tc, request, (*gp_shelf_at(shelf, n))->size))
		n++;
	if (gp_likely(n < shelf->count)) {
		offer = offer_of(tc, *gp_shelf_at(shelf, n));
		*ret_stamp = (*gp_shelf_at(shelf, n))->stamp;
	}
	if (gp_likely(offer == USABLE)) {
		*ret_block = gp_tcache_take_nth(tc, shelf, n);
		gp_block_hand_out(*ret_block, request->bytes, request->caller, new_serial(tc));
		tc->requested += request->bytes;
		tc->hits++;
	}
	gp_ownlock_leave(&tc->lock);
	return offer;
}

/* One fence for all that lies there; another thread's will do. */
static int record(struct gp_tcache *tc, bool is_at_free)
{
	return gp_fence_record(tc->pool->fence, tc->newest_stamp, is_at_free);
}

/* Growing so that a shelf can fill is worth it the first time after some fences, and then after twice as many. */
static bool is_worth_growing(unsigned n_fences)
{
	return n_fences >= GROW_AFTER && (n_fences & (n_fences - 1)) == 0;
}

/*
 * What no fence covers yet waits for more to come, so long as the pool has a block at hand; else a fence for little is
 * better than a larger pool.
 */
static int alloc_small(struct gp_tcache *tc, struct gp_request *request, struct gp_block **ret_block)
{
	uint64_t stamp = 0;
	enum offer offer = take(tc, request, &stamp, ret_block);
	struct gp_shelf *shelf;
	int r;

	if (gp_likely(offer == USABLE))
		return 0;
	if (offer == NOT_COVERED) {
		*ret_block = gp_reuse_take(tc->pool, request);
		if (*ret_block)
			return 0;
		shelf = shelf_of(tc, request->size);
		request->is_growth = is_worth_growing(shelf->n_fences + 1);
		if (request->is_growth && request->is_hit_only)
			return -ENOENT;
		shelf->n_fences++;
		r = request->is_growth ? 0 : record(tc, false);
		if (r > 0)
			return r;
	}
	if (offer != NOTHING && gp_fence_settle_stamp(tc->pool->fence, stamp) == 0 &&
	    take(tc, request, &stamp, ret_block) == USABLE)
		return 0;
	return gp_pool_alloc_block(tc->pool, request, ret_block);
}

static inline int alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t caller, bool is_hit_only, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(tc->pool, bytes);
	struct gp_block *b = NULL;
	bool is_small = is_small_enough(tc, request.size);
	int r;

	request.caller = caller;
	request.is_hit_only = is_hit_only;
	r = gp_likely(is_small) ? alloc_small(tc, &request, &b) : gp_pool_alloc_block(tc->pool, &request, &b);
	if (gp_unlikely(r))
		return r;
	if (gp_likely(is_small))
		remember(tc, b, request.size);
	*ret_addr = b->addr;
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

/* Room for a block of that size, or NULL. */
static struct gp_shelf *find_room_locked(struct gp_tcache *tc, uint64_t size)
{
	struct gp_shelf *shelf = shelf_of(tc, size);

	if (gp_likely(tc->bytes + size <= bytes_max(tc)))
		return is_full(tc, shelf, size) ? NULL : shelf;
	tc->n_refused++;
	return NULL;
}

static void put_locked(struct gp_tcache *tc, struct gp_shelf *shelf, struct gp_block *block)
{
	const struct gp_fence *fence = tc->pool->fence;

	if (tc->published != gp_fence_published(fence)) {
		tc->published = gp_fence_published(fence);
		tc->n_uncovered = 0;
	}
	block->stamp = tc->newest_stamp = gp_fence_started(fence);
	*gp_shelf_at(shelf, shelf->count++) = block;
	tc->bytes += block->size;
	tc->n_blocks++;
	tc->n_uncovered++;
	tc->requested -= gp_block_requested(block);
}

/* Whether a fence is due: enough has come together, or no more can. */
static bool is_record_due_locked(const struct gp_tcache *tc, struct gp_shelf *shelf, uint64_t size)
{
	return tc->n_uncovered >= RECORD_AFTER ||
	       (is_full(tc, shelf, size) && (*gp_shelf_at(shelf, 0))->stamp >= tc->published);
}

/*
 * Not when the pool is dropped, and not while somebody waits for memory: that is said first, and then each cache is
 * emptied with its lock held.
 */
static bool is_open_locked(const struct gp_tcache *tc)
{
	return !gp_pool_is_flag(&tc->pool->dead) && !gp_pool_is_flag(&tc->pool->rounds_busy);
}

/* From the program to its shelf; false if it has no room, or the block is not the program's. */
static bool accept(struct gp_tcache *tc, const struct gp_recent *recent, bool *ret_is_record_due)
{
	struct gp_block *b = recent->block;
	struct gp_shelf *shelf;
	bool is_taken = false;

	gp_ownlock_enter(&tc->lock);
	shelf = find_room_locked(tc, recent->size);
	if (shelf && is_open_locked(tc) && gp_block_claim_as(b, recent->word, GP_BLOCK_TCACHED)) {
		is_taken = !gp_block_is_retired(b);
		if (is_taken)
			put_locked(tc, shelf, b);
		else
			atomic_store_explicit(&b->word, recent->word, memory_order_release);
		*ret_is_record_due = is_record_due_locked(tc, shelf, recent->size);
	}
	gp_ownlock_leave(&tc->lock);
	return is_taken;
}

/* A shelf that is full, or NULL. */
static struct gp_shelf *find_full(struct gp_tcache *tc, uint64_t size)
{
	struct gp_shelf *shelf = shelf_of(tc, size);
	bool is;

	gp_ownlock_enter(&tc->lock);
	is = is_full(tc, shelf, size);
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
static bool is_leisure(const struct gp_tcache *tc)
{
	const struct gp_pool *pool = tc->pool;

	return !gp_fence_lags(pool->fence) && !gp_pool_is_pressed(pool) &&
	       !gp_pool_is_flag(&pool->is_full) && gp_budget_left(pool->options.budget) >= bytes_max(tc);
}

int gp_tcache_put(struct gp_tcache *tc, uint64_t addr)
{
	struct gp_recent *recent = recent_set(tc, addr);
	bool is_record_due = false, is_wanted = is_leisure(tc), is_taken;
	struct gp_shelf *full;
	int r;

	if (recent->addr != addr)
		recent++;
	if (gp_unlikely(recent->addr != addr))
		return -ENOENT;
	is_taken = is_wanted && accept(tc, recent, &is_record_due);
	if (gp_unlikely(!is_taken && is_wanted)) {
		full = find_full(tc, recent->size);
		is_taken = full && gp_tcache_spill(tc, full) && accept(tc, recent, &is_record_due);
	}
	if (gp_likely(is_taken)) {
		recent->addr = 0;
		r = gp_unlikely(is_record_due) ? record(tc, true) : 0;
		return r > 0 ? r : 0;
	}
	/* While the GPU lags, or memory is short, the pool knows better what to do. */
	if (!is_wanted || is_crowded(tc))
		hand_over(tc);
	return -ENOENT;
}
