/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * From pending to cached, and from there to the program.
 *
 * A pending block can be had in three ways: its fence has completed (one query tells); later work is ordered behind
 * its fence on the GPU, which costs the host nothing but makes a barrier between the streams; or the host waits.
 * Which is best depends:
 *
 *   - While more than a small share of the pool is pending, what the fences say now is asked before anything is taken:
 *     blocks that could not merge yet lead to poor cuts, which cost far more memory than a query costs time. For vmm
 *     that share is 0 where one stream works. Not where streams overlap and a segment of just the size is there.
 *   - Only one stream ever worked in the context: an order costs no overlap, but the GPU still stops for it (0.9 us, as
 *     measured), which counts in a loop of short kernels, and a query while it works costs as much. So let blocks take
 *     turns, and with more than two pending order on the last fence, which frees all in one go.
 *   - Several streams: their overlap is worth some memory. Grow while little is pending, or few blocks of the size.
 *     Then wait for the oldest that fits and that this thread freed, for a moment, as its own cudaFree would have:
 *     where work is short the streams go on without a gap. Else, and where blocks are large or so much waits that it
 *     comes to this seldom, order on the last fence, which empties them all: the driver makes later work wait for
 *     that, too, if it is told to wait for an older one (measured). All that waits can merge then, as it cannot after
 *     a wait for one block.
 *   - Completion is needed (somebody else may be first to touch the memory): grow while less is pending than the host's
 *     lead over the GPU is worth, then wait for the oldest that yields a fit, as the program's own cudaFree would have;
 *     for what another thread freed only a while, then grow.
 */

#include <errno.h>

#include "descriptor.h"
#include "reuse.h"
#include "segment.h"

/*
 * How much may be pending before growth ends: a share of what is used, but not less than a minimum. An order costs the
 * GPU some overlap, a wait costs the host its lead over the GPU, which is worth more memory.
 */
#define ORDER_SLACK_MIN (32 * GP_MIB)
#define ORDER_SLACK	8
#define OVERLAP_TURNS	16
#define OVERLAP_MAX	(128 * GP_MIB)
#define WAIT_SLACK_MIN	(256 * GP_MIB)
#define WAIT_SLACK	2

/*
 * How long an allocation waits for what no free of its own thread would have waited for. That work may be waiting for
 * this thread; and a block too many is better than a stall.
 */
#define OTHERS_WAIT_NS UINT64_C(100000000)

/*
 * How long before an order. That it is in vain, because work takes longer or the host is far ahead, is found out again
 * after twice as many orders each time. Even then it costs the GPU nothing: what the host would have submitted
 * meanwhile would have been behind the order, which waits for the same work. The host loses some of its lead, at most
 * so much in so many orders, and there is one only when much is pending.
 */
#define BRIEF_WAIT_NS UINT64_C(1000000)
#define VAIN_MAX      255u

/*
 * How long for what others freed, before the pool would hold more than ever (its own frees a thread waits for as they
 * would have waited); and by which share the peak must rise until that is done again. The real free waits each time: a
 * few waits while a program finds its size are next to nothing.
 */
#define PEAK_WAIT_NS UINT64_C(20000000)
#define PEAK_SHARE   16
#define PEAK_MIN     (128 * GP_MIB) /* below, memory is not worth a stall */

/* With one stream, where the GPU lags behind, it is asked only so seldom whether it still does. */
enum { ASK_EVERY = 16 };

/* Below this share of the pool, or a slab's worth, pending blocks hardly matter to where the next one is cut. */
#define STALE_SHARE 64
#define STALE_MIN   (2 * GP_MIB)

struct gp_handed gp_reuse_hand_out_locked(
	struct gp_pool *pool, struct gp_block *block, const struct gp_request *request)
{
	struct gp_stats *stats = &pool->stats;
	struct gp_handed handed;
	uint64_t serial;

	if (!(block->flags & GP_BLOCK_MAPPED)) {
		gp_addrmap_add_block(pool->options.map, block);
		block->flags |= GP_BLOCK_MAPPED;
	}
	serial = atomic_fetch_add_explicit(&pool->options.map->serial, 1, memory_order_relaxed) + 1;
	handed = gp_block_hand_out(block, request->bytes, request->caller, serial);
	stats->used_bytes += block->size;
	stats->requested_bytes += request->bytes;
	stats->n_used_blocks++;
	pool->n_handed_out++;
	stats->peak_used_bytes = gp_max(stats->peak_used_bytes, stats->used_bytes);
	return handed;
}

static void settle_locked(struct gp_pool *pool)
{
	uint64_t completed = gp_fence_completed(pool->fence), ordered = completed;
	struct gp_block *b;

	if (!gp_pool_is_flag(&pool->completion_only))
		ordered = gp_fence_ordered(pool->fence);
	while ((b = gp_pending_take_usable(&pool->pending, ordered, completed))) {
		pool->stats.pending_bytes -= b->size;
		pool->stats.n_pending_blocks--;
		b->flags &= (uint8_t)~GP_BLOCK_LATE;
		b->segment->kind->put(pool, b);
	}
}

/* What has the size of the request; else what is odd, of which there is hardly ever any, if it is large enough. */
static struct gp_block *take_cached_locked(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = request->kind->take(pool, request->size);

	if (gp_likely(b || !pool->n_odd) || !request->kind->take_odd)
		return b;
	return request->kind->take_odd(pool, gp_request_least(request), request->size);
}

static struct gp_handed take_locked(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = take_cached_locked(pool, request);

	if (!b)
		return (struct gp_handed){0};
	/* It was cached on order alone, and then gp_pool_require_completion came, whose wait is not over yet. */
	if (gp_pool_is_flag(&pool->completion_only) && b->stamp >= gp_fence_completed(pool->fence)) {
		b->segment->kind->put(pool, b);
		return (struct gp_handed){0};
	}
	b = request->kind->cut(pool, b, request->size);
	pool->stats.hits += !request->is_miss;
	return gp_reuse_hand_out_locked(pool, b, request);
}

/* What else there would be, where nothing could be taken. */
struct outlook {
	bool is_any_pending, is_any_late;
	bool is_queue_long;  /* more is pending than two blocks that take turns are worth */
	uint64_t newest_stamp;
};

/*
 * Whether what the fences say now could make for a better choice than there is. Where streams overlap the GPU nearly
 * always has something to do, and to ask it for each large block is a call for nothing.
 */
static bool is_stale_locked(struct gp_pool *pool, const struct gp_request *request)
{
	const struct gp_kind_ops *kind = request->kind;
	bool overlap = gp_pool_is_flag(&pool->overlap);
	uint64_t share = kind->wants_merged && !overlap ? 0 : pool->stats.total_bytes / STALE_SHARE;

	if (pool->pending.bytes <= gp_max(STALE_MIN, share))
		return false;
	return !kind->has_whole || !overlap || !kind->has_whole(pool, request->size);
}

/* must_be_fresh: takes nothing while so much is pending that the choice would be a poor one. */
static struct gp_handed take(
	struct gp_pool *pool, const struct gp_request *request, bool must_be_fresh, struct outlook *outlook)
{
	struct gp_handed handed = {0};

	gp_mutex_lock(&pool->lock);
	if (!gp_pool_is_flag(&pool->dead)) {
		settle_locked(pool);
		if (!(must_be_fresh && is_stale_locked(pool, request)) && gp_descriptors_ensure_locked(pool) == 0)
			handed = take_locked(pool, request);
	}
	outlook->is_any_pending = pool->pending.count != 0;
	outlook->is_any_late = pool->pending.bitmap[1] != 0;
	outlook->newest_stamp = pool->pending.newest_stamp;
	outlook->is_queue_long = pool->pending.bytes > gp_max(ORDER_SLACK_MIN, request->size);
	gp_mutex_unlock(&pool->lock);
	return handed;
}

struct gp_handed gp_reuse_take(struct gp_pool *pool, const struct gp_request *request)
{
	struct outlook unused;

	return take(pool, request, false, &unused);
}

void gp_reuse_settle(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	if (!gp_pool_is_flag(&pool->dead))
		settle_locked(pool);
	gp_mutex_unlock(&pool->lock);
}

/*
 * Neither an allocation nor a free that is late waits without a pool, so where a record does they make none: late
 * blocks are then covered by the next free that is none, or when memory has run out.
 */
static bool is_record_a_wait(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	return be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);
}

/* Blocks freed without a record of their own (during a capture, say) need some record to be settled by. */
int gp_reuse_cover_late(struct gp_pool *pool, bool may_wait)
{
	uint64_t stamp;
	bool is_any;

	if (!may_wait && is_record_a_wait(pool))
		return -EAGAIN;
	gp_mutex_lock(&pool->lock);
	is_any = pool->pending.bitmap[1] != 0;
	stamp = pool->pending.newest_stamp;
	gp_mutex_unlock(&pool->lock);
	return is_any ? gp_fence_record(pool->fence, stamp, false) : 0;
}

static bool is_order_free(const struct gp_pool *pool)
{
	return !gp_pool_is_flag(&pool->overlap) && !gp_pool_is_flag(&pool->completion_only);
}

/*
 * Whether a query may tell more than an order would bring, where orders are free: while the GPU keeps up, and now and
 * then to see whether it does again.
 */
static bool is_worth_asking(struct gp_pool *pool)
{
	return gp_fence_was_ready(pool->fence) ||
	       atomic_fetch_add_explicit(&pool->n_refreshes, 1, memory_order_relaxed) % ASK_EVERY == 0;
}

/* Makes usable what costs nobody anything. 0, or the driver's error. */
static int refresh(struct gp_pool *pool, const struct outlook *outlook)
{
	int r = 0;

	if (gp_unlikely(outlook->is_any_late) && !is_record_a_wait(pool))
		r = gp_fence_record(pool->fence, outlook->newest_stamp, false);
	if (r > 0)
		return r;
	if (!is_order_free(pool) || outlook->is_any_late || is_worth_asking(pool))
		r = gp_fence_settle(pool->fence);
	else
		r = -EAGAIN;
	if (r == -EAGAIN && is_order_free(pool) && outlook->is_queue_long)
		r = gp_fence_order(pool->fence);
	return r > 0 ? r : 0;
}

int gp_reuse_find(struct gp_pool *pool, const struct gp_request *request, struct gp_handed *ret_handed)
{
	struct outlook outlook;
	int r;

	/* What is queued there is on its way to the driver and to nobody else. */
	if (pool->options.kind == GP_KIND_NONE)
		return -ENOENT;
	*ret_handed = take(pool, request, true, &outlook);
	if (ret_handed->block)
		return 0;
	if (!outlook.is_any_pending)
		return -ENOENT;
	r = refresh(pool, &outlook);
	if (r)
		return r;
	*ret_handed = gp_reuse_take(pool, request);
	return ret_handed->block ? 0 : -ENOENT;
}

/* Whether growing by the request would leave too much memory waiting. */
static bool is_too_much_pending_locked(const struct gp_pool *pool, uint64_t size)
{
	uint64_t used = pool->stats.used_bytes, slack;

	if (gp_pool_is_flag(&pool->completion_only))
		slack = gp_max(WAIT_SLACK_MIN, used / WAIT_SLACK);
	else
		slack = gp_max(ORDER_SLACK_MIN, used / ORDER_SLACK);
	if (is_order_free(pool))
		slack = gp_max(slack, 2 * gp_min(size, UINT64_MAX / 2));
	else
		slack = gp_max(slack, OVERLAP_TURNS * gp_min(size, OVERLAP_MAX / OVERLAP_TURNS));
	slack = gp_min(slack, gp_pool_pending_max(pool));
	return pool->pending.bytes > slack || size > slack - pool->pending.bytes;
}

/* 0 if blocks with the stamp are completed; negative if not soon, or the driver's error. */
static int wait_briefly(struct gp_pool *pool, uint64_t stamp)
{
	bool is_skipped;
	int r;

	gp_mutex_lock(&pool->lock);
	is_skipped = pool->n_to_skip != 0;
	pool->n_to_skip -= is_skipped;
	gp_mutex_unlock(&pool->lock);
	if (is_skipped)
		return -EAGAIN;
	r = gp_fence_wait_due(pool->fence, stamp, BRIEF_WAIT_NS);
	/* A thread that may not wait, or not now, says nothing of others. */
	if (r == -ENOENT || r == -EBUSY)
		return r;
	gp_mutex_lock(&pool->lock);
	pool->n_vain = r ? gp_min(2 * pool->n_vain + 1, VAIN_MAX) : pool->n_vain / 2;
	pool->n_to_skip = r ? pool->n_vain : 0;
	gp_mutex_unlock(&pool->lock);
	return r;
}

/*
 * Brings about that some of what is pending can be had: all of it if an order is enough; if the host has to wait, the
 * oldest free that alone would do, or else of those that may merge. -EAGAIN if growing is better, 0, or the driver's
 * error.
 */
static int press(struct gp_pool *pool, const struct gp_request *request)
{
	bool must_complete = gp_pool_is_flag(&pool->completion_only), is_too_much, is_little;
	uint64_t size = request->size, largest = request->kind->largest_fit(pool, size), stamp = 0;
	struct gp_block *fit = NULL, *b = NULL;
	int r = -EAGAIN;

	if (pool->options.kind == GP_KIND_NONE)
		return -EAGAIN;
	gp_mutex_lock(&pool->lock);
	is_too_much = is_too_much_pending_locked(pool, size);
	is_little = size <= OVERLAP_MAX / 8 && pool->pending.bytes <= OVERLAP_MAX;
	if (is_too_much) {
		fit = gp_pending_find(&pool->pending, pool->n_odd ? gp_request_least(request) : size, largest);
		b = fit ? fit : gp_pending_find(&pool->pending, request->kind->smallest_part(pool, size), largest);
	}
	if (b)
		stamp = b->stamp;
	gp_mutex_unlock(&pool->lock);
	if (!b)
		return -EAGAIN;
	if (must_complete)
		return gp_fence_wait(pool->fence, stamp, OTHERS_WAIT_NS);
	if (gp_pool_is_flag(&pool->overlap) && is_little && fit)
		r = wait_briefly(pool, stamp);
	return r >= 0 ? r : gp_fence_order(pool->fence);
}

int gp_reuse_insist(struct gp_pool *pool, const struct gp_request *request, struct gp_handed *ret_handed)
{
	int r = 0;

	*ret_handed = (struct gp_handed){0};
	while (!ret_handed->block && (r = press(pool, request)) == 0)
		*ret_handed = gp_reuse_take(pool, request);
	if (ret_handed->block)
		return 0;
	return r > 0 ? r : -ENOENT;
}

static bool is_wait_due_locked(struct gp_pool *pool, const struct gp_request *request)
{
	uint64_t peak = pool->stats.peak_total_bytes;

	if (request->size <= GP_SMALL_MAX || pool->stats.total_bytes + request->size <= gp_max(peak, PEAK_MIN))
		return false;
	if (peak >= pool->wait_level + pool->wait_level / PEAK_SHARE) {
		pool->wait_level = peak;
		pool->n_waits = 0;
	}
	return pool->n_waits < request->kind->n_waits;
}

struct gp_handed gp_reuse_await(struct gp_pool *pool, const struct gp_request *request)
{
	uint64_t newest = 0;
	bool is_due;

	gp_mutex_lock(&pool->lock);
	is_due = is_wait_due_locked(pool, request);
	gp_mutex_unlock(&pool->lock);
	if (is_due)
		newest = gp_fence_newest(pool->fence);
	if (!newest)
		return (struct gp_handed){0};
	gp_mutex_lock(&pool->lock);
	pool->n_waits++;
	gp_mutex_unlock(&pool->lock);
	(void)gp_fence_wait(pool->fence, newest - 1, PEAK_WAIT_NS);
	return gp_reuse_take(pool, request);
}

static bool is_over_limit_locked(const struct gp_pool *pool)
{
	return pool->pending.count > pool->options.pending_count_max ||
	       pool->pending.bytes > gp_pool_pending_max(pool);
}

bool gp_reuse_needs_flush_locked(const struct gp_pool *pool)
{
	if (gp_pool_is_deferring(pool))
		return false;
	return is_over_limit_locked(pool) || gp_pool_is_pressed(pool) || gp_segment_is_any_leaving_locked(pool) ||
	       pool->owed_bytes || gp_budget_over(pool->options.budget);
}

/* What has to go from the cache: all of it while the driver is nearly empty, else what a lowered limit forbids. */
static uint64_t excess_locked(const struct gp_pool *pool)
{
	uint64_t over = gp_budget_over(pool->options.budget);

	over -= gp_min(over, pool->stats.returning_bytes);
	return gp_pool_is_pressed(pool) ? UINT64_MAX : gp_max(over, pool->owed_bytes);
}

/* none: all that is queued goes to the driver in one batch, each behind its own fence. Late ones wait for theirs. */
static uint64_t release_all_pending(struct gp_pool *pool)
{
	uint64_t given = 0;

	for (;;) {
		struct gp_block *b;

		gp_mutex_lock(&pool->lock);
		b = gp_pending_take_usable(&pool->pending, UINT64_MAX, gp_fence_completed(pool->fence));
		gp_mutex_unlock(&pool->lock);
		if (!b)
			return given;
		given += gp_segment_give_back_pending(pool, b);
	}
}

/* Once nothing is pending any more, what cannot go is used in part by others. */
static void settle_debt(struct gp_pool *pool, uint64_t given)
{
	gp_mutex_lock(&pool->lock);
	pool->owed_bytes -= gp_min(pool->owed_bytes, given);
	if (!pool->pending.count)
		pool->owed_bytes = 0;
	gp_mutex_unlock(&pool->lock);
}

uint64_t gp_reuse_flush(struct gp_pool *pool, bool may_wait)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t given = 0, excess;
	bool is_pressed, is_too_much_returning;

	(void)gp_reuse_cover_late(pool, may_wait);
	(void)gp_fence_settle(pool->fence);
	if (pool->options.kind == GP_KIND_NONE && (may_wait || gp_segment_can_give_back(pool)))
		given = release_all_pending(pool);
	gp_mutex_lock(&pool->lock);
	settle_locked(pool);
	is_pressed = gp_pool_is_pressed(pool);
	excess = excess_locked(pool);
	is_too_much_returning = pool->stats.returning_bytes > gp_pool_pending_max(pool);
	gp_mutex_unlock(&pool->lock);
	given += gp_segment_give_back(pool, excess);
	settle_debt(pool, given);
	/* What returns behind a GPU that lags counts as what is queued does, or it would grow without bound. */
	if (may_wait && is_too_much_returning)
		gp_segment_wait_returning(pool, UINT64_MAX);
	else
		gp_segment_poll_returning(pool);
	if (is_pressed)
		atomic_store(&pool->first->is_pressed, be->ops->available(be->arg) < pool->options.reserve_bytes);
	return given;
}

static void take_all_pending(struct gp_pool *pool, struct gp_list *blocks)
{
	struct gp_block *b;

	gp_list_init(blocks);
	gp_mutex_lock(&pool->lock);
	while (!gp_pool_is_flag(&pool->dead) &&
	       (b = gp_pending_take_usable(&pool->pending, UINT64_MAX, UINT64_MAX)))
		gp_list_append(blocks, &b->link);
	gp_mutex_unlock(&pool->lock);
}

/* What is mapped cannot go back by a free that waits; but it can be had again after a wait that is as long. */
static void wait_for_pending(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	struct gp_list blocks, *link, *tmp;
	int r;

	take_all_pending(pool, &blocks);
	r = be->ops->mapping->wait(be->arg);
	gp_mutex_lock(&pool->lock);
	gp_list_each_safe(link, tmp, &blocks) {
		struct gp_block *b = gp_container_of(link, struct gp_block, link);

		if (gp_pool_is_flag(&pool->dead))
			break;
		gp_list_remove(link);
		if (r) {
			gp_pending_add(&pool->pending, b);
			continue;
		}
		pool->stats.pending_bytes -= b->size;
		pool->stats.n_pending_blocks--;
		b->flags &= (uint8_t)~GP_BLOCK_LATE;
		b->stamp = 0;
		b->segment->kind->put(pool, b);
	}
	gp_mutex_unlock(&pool->lock);
}

void gp_reuse_flush_unfenced(struct gp_pool *pool)
{
	bool is_over;

	if (pool->cache.vm) {
		gp_mutex_lock(&pool->lock);
		is_over = is_over_limit_locked(pool);
		gp_mutex_unlock(&pool->lock);
		if (is_over)
			wait_for_pending(pool);
		return;
	}

	do {
		gp_mutex_lock(&pool->lock);
		is_over = is_over_limit_locked(pool);
		gp_mutex_unlock(&pool->lock);
	} while (is_over && gp_segment_release_unused(pool));
}
