/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Serves requests from freed memory: a block becomes cached once it is no longer pending, and is then handed out.
 *
 * A pending block becomes usable in one of three ways:
 *
 *   - Its fence has completed. One query shows that.
 *   - A GPU wait: all later work of the context waits for its fence. This costs the host nothing, but it is a barrier
 *     between the streams.
 *   - The host waits until its fence has completed.
 *
 * The fences are polled before a block is taken while more than 1/64 of the pool, and more than 2 MiB, is pending.
 * Pending blocks cannot merge yet, so blocks would be cut poorly. Poor cuts cost far more memory than a query costs
 * time. There are two exceptions:
 *
 *   - vmm, where one stream works: polling starts at 2 MiB, whatever the size of the pool.
 *   - Where streams overlap, no poll if split has a cached segment of exactly the requested size, or if vmm has a block
 *     of whole granules for a request of whole granules: the smallest one that fits must have that size or be a small
 *     multiple of it.
 *
 * If the cache cannot serve the request then, the next step depends on the context. Each limit applies to the pending
 * bytes and the request together, and none exceeds the limit of the queue of pending blocks.
 *
 *   One stream: only one stream works in the context. A GPU wait costs no overlap then. But the GPU stops for
 *   0.9 us (measured), which counts in a loop of short kernels, and a query while the GPU works costs as much.
 *     1. Grow until two blocks of the size can take turns, or up to 32 MiB or 1/8 of the used memory, if that is more.
 *     2. Then make a GPU wait for the last fence, which makes all pending blocks usable at once.
 *
 *   Overlap: several streams work in the context. Their overlap is worth some memory.
 *     1. Grow up to 16 blocks of the size (at most 128 MiB), or 32 MiB or 1/8 of the used memory, if that is more.
 *     2. Then wait for up to 1 ms for the oldest block that fits and that this thread freed. The thread's own cudaFree
 *        would have waited, too. This applies to requests of up to 16 MiB while at most 128 MiB are pending. Where work
 *        is short, the streams go on without a gap.
 *     3. Otherwise make a GPU wait for the last fence. All pending memory can merge then, which it cannot after a wait
 *        for one block. A GPU wait for an older fence would cost the same: the driver makes later work wait for the
 *        last fence, too (measured).
 *
 *   Completion is needed: something outside the context may be the first to touch the memory.
 *     1. Grow while less is pending than the host's lead over the GPU is worth: 256 MiB, or 1/2 of the used memory if
 *        that is more.
 *     2. Then wait on the host for the oldest block that yields a fit, as the program's own cudaFree would have. If
 *        another thread freed that block, wait for 100 ms at most.
 *     3. Otherwise grow.
 *
 * tuning.h has the limits.
 */

#include <errno.h>

#include "descriptor.h"
#include "handover.h"
#include "retain.h"
#include "reuse.h"
#include "segment.h"
#include "tuning.h"

static void cache_usable_locked(struct gp_pool *pool)
{
	uint64_t completed, gpu_waited;
	struct gp_block *b;

	if (!pool->pending.count)
		return;
	completed = gpu_waited = gp_fence_completed(pool->fence);
	if (!gp_flag_is_set(&pool->completion_only))
		gpu_waited = gp_fence_gpu_waited(pool->fence);
	while ((b = gp_pending_take_usable(&pool->pending, gpu_waited, completed))) {
		pool->stats.pending_bytes -= b->size;
		pool->stats.n_pending_blocks--;
		b->flags &= (uint8_t) ~(GP_BLOCK_UNFENCED | GP_BLOCK_STREAM);
		b->segment->kind->put(pool, b);
	}
}

/* Takes a cached block of the request's size, or an undersized block that is large enough, of which there are few. */
static struct gp_block *take_cached_locked(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = request->kind->take(pool, request->size);

	if (gp_likely(b || !pool->n_undersized) || !request->kind->take_undersized)
		return b;
	return request->kind->take_undersized(pool, gp_request_least(request), request->size);
}

static struct gp_claim_token take_locked(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = take_cached_locked(pool, request);

	if (!b)
		return (struct gp_claim_token){0};
	/*
	 * The block was cached after a GPU wait, and then gp_pool_require_completion came, whose wait is not over yet.
	 */
	if (gp_flag_is_set(&pool->completion_only) && b->seq >= gp_fence_completed(pool->fence)) {
		b->segment->kind->put(pool, b);
		return (struct gp_claim_token){0};
	}
	b = request->kind->cut(pool, b, request->size);
	pool->stats.hits += request->step < GP_STEP_grow;
	return gp_pool_hand_out_locked(pool, b, request);
}

/*
 * True if polling the fences could allow a better choice than the cache does now. Where streams overlap, the GPU nearly
 * always has work, and a poll for each large block would be a wasted call.
 */
static bool is_poll_due_locked(struct gp_pool *pool, const struct gp_request *request)
{
	const struct gp_kind_ops *kind = request->kind;
	bool overlap = gp_flag_is_set(&pool->overlap);
	uint64_t share = kind->wants_merged && !overlap ? 0 : pool->stats.total_bytes / GP_UNPOLLED_SHARE;

	if (pool->pending.bytes <= gp_max(GP_UNPOLLED_MIN, share))
		return false;
	return !kind->has_good_fit || !overlap || !kind->has_good_fit(pool, request->size);
}

static bool is_gpu_wait_cheap(const struct gp_pool *pool)
{
	return !gp_flag_is_set(&pool->overlap) && !gp_flag_is_set(&pool->completion_only);
}

/* True if growing by the request would leave too much memory pending. */
static bool is_too_much_pending_locked(const struct gp_pool *pool, uint64_t size)
{
	uint64_t used = pool->stats.used_bytes, slack;

	if (gp_flag_is_set(&pool->completion_only))
		slack = gp_max(GP_HOST_WAIT_SLACK_MIN, used / GP_HOST_WAIT_SLACK_SHARE);
	else
		slack = gp_max(GP_GPU_WAIT_SLACK_MIN, used / GP_GPU_WAIT_SLACK_SHARE);
	if (is_gpu_wait_cheap(pool))
		slack = gp_max(slack, GP_SERIAL_TURNS * gp_min(size, UINT64_MAX / GP_SERIAL_TURNS));
	else
		slack = gp_max(slack, GP_OVERLAP_TURNS * gp_min(size, GP_OVERLAP_MAX / GP_OVERLAP_TURNS));
	slack = gp_min(slack, gp_pool_pending_max(pool));
	return pool->pending.bytes > slack || size > slack - pool->pending.bytes;
}

/* True if the peak has risen since waits were last counted anew. */
static bool has_peak_risen_locked(const struct gp_pool *pool)
{
	return pool->stats.peak_total_bytes >= pool->wait_level + pool->wait_level / GP_PEAK_SHARE;
}

/* True if the pool would exceed its peak, and may wait once more before it does. */
static bool is_wait_due_locked(const struct gp_pool *pool, const struct gp_request *request)
{
	uint64_t peak = pool->stats.peak_total_bytes;

	if (request->size <= GP_SMALL_MAX || pool->stats.total_bytes + request->size <= gp_max(peak, GP_PEAK_MIN))
		return false;
	return (has_peak_risen_locked(pool) ? 0 : pool->n_waits) < request->kind->n_waits;
}

/*
 * True if the wait before the pool exceeds its peak may yield memory. The program's own cudaFree would have waited for
 * what it freed. A request in stream order would not have waited, so it does only if at least half as much is unused.
 */
static bool is_wait_useful_locked(const struct gp_pool *pool, const struct gp_request *request)
{
	if (!request->stream)
		return gp_fence_is_any_at_free(pool->fence);
	return pool->stats.cached_bytes + pool->stats.pending_bytes >= request->size / 2 &&
	       (pool->pending.n_unfenced || gp_fence_published(pool->fence) > gp_fence_completed(pool->fence));
}

/* True if the next step of the request is to grow. */
static bool is_growth_next(const struct gp_request *request)
{
	unsigned now = request->left & ~request->idle;

	return (now & -now) == GP_SKIP(grow);
}

/*
 * Looks at what the steps before `grow` could do for the request. Most requests that reach them find nothing pending,
 * nothing in thread caches and no fence to wait for, and each step would take the pool's lock to find that out. For
 * the same reason the growth is planned at once if it is next.
 */
static void survey_locked(struct gp_pool *pool, struct gp_request *request)
{
	const struct gp_pending *pending = &pool->pending;
	unsigned idle = 0;

	gp_retain_release_locked(pool);
	if (!pending->count)
		idle |= GP_SKIP(poll) | GP_SKIP(gpuwait);
	request->idle = idle;
	if (idle && request->end == GP_STEP_gpuwait)
		return;
	request->summary.is_any_unfenced = pending->n_unfenced != 0;
	request->summary.newest_seq = pending->newest_seq;
	request->summary.is_queue_long = pending->bytes > gp_max(GP_GPU_WAIT_SLACK_MIN, request->size);
	if (!idle && !is_too_much_pending_locked(pool, request->size))
		idle |= GP_SKIP(gpuwait);
	if (!gp_pool_is_any_in_caches_locked(pool))
		idle |= GP_SKIP(flush);
	/* The step `flush` comes first, and may make a wait in stream order useful. */
	if (!is_wait_due_locked(pool, request) ||
		(!is_wait_useful_locked(pool, request) && (!request->stream || idle & GP_SKIP(flush))))
		idle |= GP_SKIP(hostwait);
	request->idle = idle;
	if (is_growth_next(request))
		gp_segment_plan_locked(pool, request);
}

void gp_reuse_survey(struct gp_pool *pool, struct gp_request *request)
{
	gp_mutex_lock(&pool->lock);
	survey_locked(pool, request);
	gp_mutex_unlock(&pool->lock);
}

/* Takes a block from the cache. must_be_fresh: take nothing while so much is pending that the choice would be poor. */
static struct gp_claim_token take_now_locked(struct gp_pool *pool, const struct gp_request *request, bool must_be_fresh)
{
	if (gp_flag_is_set(&pool->dead))
		return (struct gp_claim_token){0};
	cache_usable_locked(pool);
	if ((must_be_fresh && is_poll_due_locked(pool, request)) || gp_descriptors_ensure_locked(pool))
		return (struct gp_claim_token){0};
	return take_locked(pool, request);
}

static int take_or_survey(
	struct gp_pool *pool, struct gp_request *request, bool must_be_fresh, struct gp_claim_token *ret_token)
{
	gp_mutex_lock(&pool->lock);
	*ret_token = take_now_locked(pool, request, must_be_fresh);
	if (!ret_token->block)
		survey_locked(pool, request);
	gp_mutex_unlock(&pool->lock);
	return ret_token->block ? 0 : -ENOENT;
}

int gp_reuse_take_fresh(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return take_or_survey(pool, request, true, ret_token);
}

struct gp_claim_token gp_reuse_take(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_claim_token token;

	gp_mutex_lock(&pool->lock);
	token = take_now_locked(pool, request, false);
	gp_mutex_unlock(&pool->lock);
	return token;
}

/* Takes a block out of the queue, as one that no fence has to cover. */
static void unqueue_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_pending_remove(&pool->pending, block);
	pool->stats.pending_bytes -= block->size;
	pool->stats.n_pending_blocks--;
	block->flags &= (uint8_t) ~(GP_BLOCK_UNFENCED | GP_BLOCK_STREAM);
}

static struct gp_block *find_of_stream_locked(struct gp_pool *pool, const struct gp_request *request, uint64_t largest)
{
	if (gp_flag_is_set(&pool->dead) || !pool->pending.n_stream)
		return NULL;
	return gp_pending_find_of_stream(&pool->pending, request->stream, request->size, largest);
}

/* The block is handed out whole. So it may be an eighth larger than the request at most, as in the thread caches. */
struct gp_claim_token gp_reuse_take_of_stream(struct gp_pool *pool, const struct gp_request *request)
{
	uint64_t largest = gp_min(request->kind->largest_fit(pool, request->size), request->size + request->size / 8);
	struct gp_claim_token token = {0};
	struct gp_block *b;

	gp_mutex_lock(&pool->lock);
	b = find_of_stream_locked(pool, request, largest);
	if (b) {
		unqueue_locked(pool, b);
		pool->stats.hits++;
		token = gp_pool_hand_out_locked(pool, b, request);
	}
	gp_mutex_unlock(&pool->lock);
	return token;
}

/* Puts a block or a part of one back into the queue: nothing has used it since its free on that stream. */
static void requeue_locked(struct gp_pool *pool, struct gp_block *block, uint64_t stream)
{
	block->flags |= GP_BLOCK_UNFENCED | GP_BLOCK_STREAM;
	atomic_store_explicit(&block->stream, stream, memory_order_relaxed);
	gp_block_set_state(block, GP_BLOCK_PENDING);
	gp_pending_add(&pool->pending, block);
	pool->stats.pending_bytes += block->size;
	pool->stats.n_pending_blocks++;
}

/*
 * Makes a run one block in the queue. For that its blocks are cached for a moment, since the kind then merges them in
 * its own way, also with cached neighbours outside the run. From the last block to the first: merging keeps the
 * descriptor in front.
 */
static struct gp_block *join_locked(struct gp_pool *pool, const struct gp_run *run, uint64_t stream)
{
	struct gp_segment *segment = run->first->segment;
	struct gp_block *first = run->first, *b = run->last, *before;

	if (gp_pending_is_of_run(first->prev, stream) && gp_block_state(first->prev) == GP_BLOCK_CACHED)
		first = first->prev;
	for (bool is_first = false; !is_first; b = before) {
		is_first = b == first;
		before = b->prev;
		if (gp_block_state(b) != GP_BLOCK_PENDING)
			continue;
		unqueue_locked(pool, b);
		segment->kind->put(pool, b);
	}
	if (gp_block_state(first) != GP_BLOCK_CACHED)
		first = segment->first; /* a guard has taken in all of its segment */
	segment->kind->unlink(pool, first);
	gp_cached_sub(pool, first);
	if (gp_block_is_whole(first))
		gp_segment_set_busy_locked(segment);
	requeue_locked(pool, first, stream);
	return first;
}

/* Returns a block that was freed on the stream and has room for the request, or NULL. May join several to one. */
static struct gp_block *find_room_of_stream_locked(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = find_of_stream_locked(pool, request, request->kind->largest_fit(pool, request->size));
	struct gp_run run;

	if (b)
		return b->segment->kind == request->kind ? b : NULL;
	if (request->size <= GP_SMALL_MAX || gp_flag_is_set(&pool->dead) || !pool->pending.n_stream ||
		!gp_pending_find_run_of_stream(&pool->pending, request->stream, request->size, &run))
		return NULL;
	return run.first->segment->kind == request->kind ? join_locked(pool, &run, request->stream) : NULL;
}

struct gp_claim_token gp_reuse_take_part_of_stream(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_block *b = NULL, *part, *rest = NULL;
	struct gp_claim_token token = {0};

	gp_mutex_lock(&pool->lock);
	if (request->kind->divide && !gp_descriptors_ensure_locked(pool))
		b = find_room_of_stream_locked(pool, request);
	if (b) {
		unqueue_locked(pool, b);
		part = b->size == request->size ? b : request->kind->divide(pool, b, request->size, &rest);
		if (rest || !part)
			requeue_locked(pool, part ? rest : b, request->stream);
		if (part) {
			pool->stats.hits++;
			token = gp_pool_hand_out_locked(pool, part, request);
		}
	}
	gp_mutex_unlock(&pool->lock);
	return token;
}

void gp_reuse_cache_usable(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	if (!gp_flag_is_set(&pool->dead))
		cache_usable_locked(pool);
	gp_mutex_unlock(&pool->lock);
}

/*
 * True if a record makes the host wait. Allocations and unfenced frees then record nothing, since neither would wait
 * without gpupool. Unfenced blocks are covered by the next fenced free, or by a record once memory has run out.
 */
static bool does_record_wait(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	return be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);
}

/*
 * Blocks freed without a fence of their own (during a capture, say) need another fence before they can be used again.
 */
int gp_reuse_fence_unfenced(struct gp_pool *pool, bool may_wait)
{
	uint64_t seq;
	bool is_any;

	if (!may_wait && does_record_wait(pool))
		return -EAGAIN;
	gp_mutex_lock(&pool->lock);
	is_any = pool->pending.n_unfenced != 0;
	seq = pool->pending.newest_seq;
	gp_mutex_unlock(&pool->lock);
	return is_any ? gp_fence_record(pool->fence, seq, false) : 0;
}

/*
 * For contexts where a GPU wait is cheap: true if a poll may achieve more than a GPU wait. That is while the GPU keeps
 * up, and on every 16th call, to see whether it does again.
 */
static bool is_poll_worthwhile(struct gp_pool *pool)
{
	return gp_fence_was_ready(pool->fence) ||
	       atomic_fetch_add_explicit(&pool->n_poll_chances, 1, memory_order_relaxed) % GP_LAG_POLL_EVERY == 0;
}

/* Makes pending blocks usable as far as that delays neither the host nor other streams. 0, or the driver's error. */
static int make_usable_cheaply(struct gp_pool *pool, const struct gp_pending_summary *summary)
{
	int r = 0;

	if (gp_unlikely(summary->is_any_unfenced) && !does_record_wait(pool))
		r = gp_fence_record(pool->fence, summary->newest_seq, false);
	if (r > 0)
		return r;
	if (!is_gpu_wait_cheap(pool) || summary->is_any_unfenced || is_poll_worthwhile(pool))
		r = gp_fence_poll(pool->fence);
	else
		r = -EAGAIN;
	if (r == -EAGAIN && is_gpu_wait_cheap(pool) && summary->is_queue_long)
		r = gp_fence_gpu_wait(pool->fence);
	return r > 0 ? r : 0;
}

/* Returns 0 if blocks with the fence sequence are completed; negative if that takes longer; or the driver's error. */
static int wait_briefly(struct gp_pool *pool, uint64_t seq)
{
	bool is_skipped;
	int r;

	gp_mutex_lock(&pool->lock);
	is_skipped = pool->n_waits_to_skip != 0;
	pool->n_waits_to_skip -= is_skipped;
	gp_mutex_unlock(&pool->lock);
	if (is_skipped)
		return -EAGAIN;
	r = gp_fence_wait_due(pool->fence, seq, GP_BRIEF_WAIT_NS);
	/* No wait was made: no free of this thread would have waited, or a capture forbids it. So none has failed. */
	if (r == -ENOENT || r == -EBUSY)
		return r;
	gp_mutex_lock(&pool->lock);
	pool->wait_backoff =
		r ? gp_min(2 * pool->wait_backoff + 1, GP_BRIEF_WAITS_SKIPPED_MAX) : pool->wait_backoff / 2;
	pool->n_waits_to_skip = r ? pool->wait_backoff : 0;
	gp_mutex_unlock(&pool->lock);
	return r;
}

/*
 * Makes pending memory usable: all of it if a GPU wait is enough; otherwise, by waiting on the host, the oldest block
 * that fits alone, or the oldest that may merge into a fit. 0; -EAGAIN if growing is better; or the driver's error.
 */
static int make_usable(struct gp_pool *pool, const struct gp_request *request)
{
	bool must_complete = gp_flag_is_set(&pool->completion_only), is_too_much, is_little;
	uint64_t size = request->size, largest = request->kind->largest_fit(pool, size), seq = 0;
	struct gp_block *fit = NULL, *b = NULL;
	int r = -EAGAIN;

	gp_mutex_lock(&pool->lock);
	is_too_much = is_too_much_pending_locked(pool, size);
	is_little = size <= GP_BRIEF_WAIT_SIZE_MAX && pool->pending.bytes <= GP_OVERLAP_MAX;
	if (is_too_much) {
		fit = gp_pending_find(&pool->pending, pool->n_undersized ? gp_request_least(request) : size, largest);
		b = fit ? fit : gp_pending_find(&pool->pending, request->kind->smallest_part(pool, size), largest);
	}
	if (b)
		seq = b->seq;
	gp_mutex_unlock(&pool->lock);
	if (!b)
		return -EAGAIN;
	if (must_complete)
		return gp_fence_wait(pool->fence, seq, GP_GROW_INSTEAD_NS);
	if (gp_flag_is_set(&pool->overlap) && is_little && fit)
		r = wait_briefly(pool, seq);
	return r >= 0 ? r : gp_fence_gpu_wait(pool->fence);
}

int gp_reuse_poll(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	int r = make_usable_cheaply(pool, &request->summary);

	return r ? r : take_or_survey(pool, request, false, ret_token);
}

int gp_reuse_gpu_wait(struct gp_pool *pool, const struct gp_request *request, struct gp_claim_token *ret_token)
{
	int r = 0;

	*ret_token = (struct gp_claim_token){0};
	while (!ret_token->block && (r = make_usable(pool, request)) == 0)
		*ret_token = gp_reuse_take(pool, request);
	if (ret_token->block)
		return 0;
	return r > 0 ? r : -ENOENT;
}

/*
 * Returns the number of the last fence that covers what the program freed in stream order, or 0 if there is nothing to
 * wait for. Such frees record no fence, so one is recorded here.
 */
static uint64_t record_newest(struct gp_pool *pool)
{
	uint64_t published;

	if (gp_reuse_fence_unfenced(pool, false))
		return 0;
	published = gp_fence_published(pool->fence);
	return published > gp_fence_completed(pool->fence) ? published : 0;
}

/* The work of a stream may itself wait for this thread. So a wait in stream order has a limit in any case. */
static void wait_for_newest(struct gp_pool *pool, const struct gp_request *request, uint64_t newest)
{
	if (request->stream)
		(void)gp_fence_wait_at_most(pool->fence, newest - 1, GP_PEAK_WAIT_NS);
	else
		(void)gp_fence_wait(pool->fence, newest - 1, GP_PEAK_WAIT_NS);
}

struct gp_claim_token gp_reuse_host_wait(struct gp_pool *pool, const struct gp_request *request)
{
	bool is_useful;
	uint64_t newest;

	gp_mutex_lock(&pool->lock);
	is_useful = is_wait_useful_locked(pool, request);
	gp_mutex_unlock(&pool->lock);
	newest = !is_useful ? 0 : request->stream ? record_newest(pool) : gp_fence_newest(pool->fence);
	if (!newest)
		return (struct gp_claim_token){0};
	gp_mutex_lock(&pool->lock);
	if (has_peak_risen_locked(pool)) {
		pool->wait_level = pool->stats.peak_total_bytes;
		pool->n_waits = 0;
	}
	pool->n_waits++;
	gp_mutex_unlock(&pool->lock);
	wait_for_newest(pool, request, newest);
	return gp_reuse_take(pool, request);
}

static bool is_over_limit_locked(const struct gp_pool *pool)
{
	return pool->pending.count > pool->options.pending_count_max || pool->pending.bytes > gp_pool_pending_max(pool);
}

bool gp_reuse_needs_flush_locked(const struct gp_pool *pool)
{
	if (gp_pool_is_deferring(pool))
		return false;
	return is_over_limit_locked(pool) || gp_pool_is_pressed(pool) || gp_segment_is_any_leaving_locked(pool) ||
	       pool->debt_bytes || gp_budget_over(pool->options.budget);
}

/*
 * Returns how much cached memory must go back: all while the driver is nearly empty, otherwise what is over a lowered
 * limit or owed to the driver.
 */
static uint64_t excess_locked(const struct gp_pool *pool)
{
	uint64_t over = gp_budget_over(pool->options.budget);

	over -= gp_min(over, pool->stats.returning_bytes);
	return gp_pool_is_pressed(pool) ? UINT64_MAX : gp_max(over, pool->debt_bytes);
}

/*
 * Kind none: gives all queued blocks back in one batch, each behind its own fence. Unfenced blocks must be completed
 * first.
 */
static uint64_t release_all_pending(struct gp_pool *pool, const uint64_t *free_seq)
{
	uint64_t given = 0;

	for (;;) {
		struct gp_block *b;

		gp_mutex_lock(&pool->lock);
		b = gp_pending_take_usable(&pool->pending, UINT64_MAX, gp_fence_completed(pool->fence));
		gp_mutex_unlock(&pool->lock);
		if (!b)
			return given;
		given += gp_segment_give_back_pending(pool, b, free_seq);
	}
}

/*
 * Subtracts what was given back from the debt. Once nothing is pending, the rest is written off: what could not go
 * shares its memory with blocks in use.
 */
static void pay_debt(struct gp_pool *pool, uint64_t given)
{
	gp_mutex_lock(&pool->lock);
	pool->debt_bytes -= gp_min(pool->debt_bytes, given);
	if (!pool->pending.count)
		pool->debt_bytes = 0;
	gp_mutex_unlock(&pool->lock);
}

/* free_seq: as for gp_reuse_flush_at_free; NULL outside of such a free. */
static uint64_t flush(struct gp_pool *pool, bool may_wait, const uint64_t *free_seq)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t given = 0, excess;
	bool is_pressed, is_too_much_returning;

	gp_mutex_lock(&pool->lock);
	gp_retain_release_locked(pool);
	gp_mutex_unlock(&pool->lock);
	(void)gp_reuse_fence_unfenced(pool, may_wait);
	(void)gp_fence_poll(pool->fence);
	if (pool->options.kind == GP_KIND_NONE && (may_wait || gp_segment_can_give_back(pool)))
		given = release_all_pending(pool, free_seq);
	gp_mutex_lock(&pool->lock);
	cache_usable_locked(pool);
	is_pressed = gp_pool_is_pressed(pool);
	excess = excess_locked(pool);
	is_too_much_returning = pool->stats.returning_bytes > gp_pool_pending_max(pool);
	gp_mutex_unlock(&pool->lock);
	given += free_seq ? gp_segment_give_back_at_free(pool, excess, *free_seq) : gp_segment_give_back(pool, excess);
	pay_debt(pool, given);
	/*
	 * Memory that returns behind a lagging GPU has the limit of the queue, too. Otherwise it would grow without
	 * bound.
	 */
	if (may_wait && is_too_much_returning)
		gp_segment_wait_returning(pool, UINT64_MAX);
	else
		gp_segment_poll_returning(pool);
	if (is_pressed)
		atomic_store(&pool->first->is_pressed,
			be->ops->available(be->arg) < pool->options.reserve_bytes || gp_segment_is_wanted(pool));
	return given;
}

uint64_t gp_reuse_flush(struct gp_pool *pool, bool may_wait)
{
	return flush(pool, may_wait, NULL);
}

void gp_reuse_flush_at_free(struct gp_pool *pool, uint64_t free_seq)
{
	(void)flush(pool, true, &free_seq);
}

static void take_all_pending(struct gp_pool *pool, struct gp_list *blocks)
{
	struct gp_block *b;

	gp_list_init(blocks);
	gp_mutex_lock(&pool->lock);
	while (!gp_flag_is_set(&pool->dead) && (b = gp_pending_take_usable(&pool->pending, UINT64_MAX, UINT64_MAX)))
		gp_list_append(blocks, &b->link);
	gp_mutex_unlock(&pool->lock);
}

/* Waits for all pending blocks, for the kind vmm: no free of the driver waits for mapped memory. */
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

		if (gp_flag_is_set(&pool->dead))
			break;
		gp_list_remove(link);
		if (r) {
			gp_pending_add(&pool->pending, b);
			continue;
		}
		pool->stats.pending_bytes -= b->size;
		pool->stats.n_pending_blocks--;
		b->flags &= (uint8_t) ~(GP_BLOCK_UNFENCED | GP_BLOCK_STREAM);
		b->seq = 0;
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
