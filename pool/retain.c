/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "retain.h"

#include "handover.h"
#include "segment.h"
#include "tuning.h"

/*
 * Returns what retains the block from now on, or NULL. *ret_second becomes another one that retains it, too, or NULL.
 * own: the block's own retainer, or NULL. The two are not joined: of all their blocks only this one concerns both, and
 * a program that captures a graph before it destroys the last one would join them all.
 */
static struct gp_retainer *find_retainer(const struct gp_block *block, struct gp_retainer *own,
	const struct gp_capture_free *capture, struct gp_retainer **ret_second)
{
	bool is_owned = own && gp_retainer_is_owned(own);

	*ret_second = NULL;
	if (!capture || !capture->retainer || (own && own == capture->exempt && !is_owned))
		return is_owned ? own : NULL;
	/* The capture has ended meanwhile and has no graph: no later end would release the block. */
	if (!gp_retainer_is_owned(capture->retainer))
		return is_owned ? own : NULL;
	/* Nothing was captured since the block was allocated in the capture. */
	if (own == capture->retainer && capture->n_captured != GP_CAPTURED_UNKNOWN &&
		block->captured.n_captured == capture->n_captured)
		return NULL;
	if (is_owned && own != capture->retainer)
		*ret_second = capture->retainer;
	return is_owned ? own : capture->retainer;
}

bool gp_retain_freed_locked(struct gp_pool *pool, struct gp_block *block, const struct gp_capture_free *capture)
{
	struct gp_retainer *own = block->flags & GP_BLOCK_CAPTURED ? block->captured.retainer : NULL;
	struct gp_retainer *second, *retainer = find_retainer(block, own, capture, &second);
	bool is_reusable;

	if (!retainer) {
		gp_retainer_forget_locked(block);
		return false;
	}
	is_reusable = capture && capture->may_reuse && own == capture->retainer &&
		      block->captured.n_elsewhere == capture->n_elsewhere;
	if (retainer != own) {
		gp_retainer_forget_locked(block);
		block->captured.retainer = gp_retainer_get(retainer);
		block->flags |= GP_BLOCK_CAPTURED;
	}
	block->captured.second = second ? gp_retainer_get(second) : NULL;
	block->flags |= is_reusable ? GP_BLOCK_REUSABLE : 0;
	gp_pool_unaccount_locked(pool, block);
	gp_block_set_state(block, GP_BLOCK_RETAINED);
	if (is_reusable)
		gp_list_append(&pool->retained, &block->captured.link);
	else
		gp_list_prepend(&pool->retained, &block->captured.link);
	pool->stats.pending_bytes += block->size;
	pool->stats.n_pending_blocks++;
	pool->stats.retained_bytes += block->size;
	pool->stats.peak_retained_bytes = gp_max(pool->stats.peak_retained_bytes, pool->stats.retained_bytes);
	return true;
}

static void leave_retained_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_list_remove(&block->captured.link);
	pool->stats.retained_bytes -= block->size;
}

/*
 * Returns the smallest block that fits and is not much larger than the request. The blocks that may be used again are
 * the last ones of the list, those of the running captures behind those of the graphs that exist. So the search does
 * not become longer with each graph.
 */
static struct gp_block *find_locked(struct gp_pool *pool, const struct gp_request *request)
{
	uint64_t size_max = request->size + request->size / GP_RETAINED_SLACK_SHARE;
	struct gp_block *best = NULL;
	int n_others = 0;

	for (struct gp_list *link = pool->retained.prev; link != &pool->retained; link = link->prev) {
		struct gp_block *b = gp_container_of(link, struct gp_block, captured.link);

		if (!(b->flags & GP_BLOCK_REUSABLE))
			break;
		if (b->captured.retainer != request->capture->retainer) {
			if (++n_others == GP_RETAINED_OTHERS_MAX)
				break;
			continue;
		}
		if (b->size < request->size || b->size > size_max || gp_block_is_retired(b) ||
			(best && best->size <= b->size))
			continue;
		best = b;
		if (b->size == request->size)
			break;
	}
	return best;
}

struct gp_claim_token gp_retain_take(struct gp_pool *pool, struct gp_request *request)
{
	struct gp_claim_token token = {0};
	struct gp_block *block;

	gp_mutex_lock(&pool->lock);
	block = gp_flag_is_set(&pool->dead) ? NULL : find_locked(pool, request);
	if (block) {
		leave_retained_locked(pool, block);
		block->flags &= (uint8_t)~GP_BLOCK_REUSABLE;
		pool->stats.pending_bytes -= block->size;
		pool->stats.n_pending_blocks--;
		pool->stats.hits++;
		request->step = GP_STEP_pool;
		token = gp_pool_hand_out_locked(pool, block, request);
	}
	gp_mutex_unlock(&pool->lock);
	return token;
}

/* GP_BLOCK_UNCACHED: the free was uncached. */
static void release_locked(struct gp_pool *pool, struct gp_block *block)
{
	leave_retained_locked(pool, block);
	gp_retainer_forget_locked(block);
	block->seq = gp_fence_started(pool->fence);
	block->flags |= GP_BLOCK_UNFENCED;
	gp_block_set_state(block, GP_BLOCK_PENDING);
	gp_pending_add(&pool->pending, block);
	if (block->flags & GP_BLOCK_UNCACHED)
		gp_segment_uncache_locked(pool, block);
	block->flags &= (uint8_t)~GP_BLOCK_UNCACHED;
}

static bool is_still_retained(const struct gp_block *block)
{
	struct gp_retainer *second = block->captured.second;

	return gp_retainer_is_owned(block->captured.retainer) || (second && gp_retainer_is_owned(second));
}

void gp_retain_release_ended_locked(struct gp_pool *pool)
{
	struct gp_block *first = gp_container_of(pool->retained.next, struct gp_block, captured.link);
	uint64_t n_ended = atomic_load(&first->captured.retainer->all->n_ended);
	struct gp_list *link, *tmp;

	if (n_ended == pool->n_ended_seen)
		return;
	pool->n_ended_seen = n_ended;
	gp_list_each_safe(link, tmp, &pool->retained) {
		struct gp_block *b = gp_container_of(link, struct gp_block, captured.link);

		if (!is_still_retained(b))
			release_locked(pool, b);
	}
}
