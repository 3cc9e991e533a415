/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_control.h"

#include <errno.h>

#include "caches.h"
#include "kind_whole.h"
#include "pool_query.h"
#include "pool/vmm/arena.h"
#include "retain.h"
#include "reuse.h"
#include "rounds.h"
#include "segment.h"
#include "tuning.h"

uint64_t gp_pool_trim(struct gp_pool *pool, uint64_t want)
{
	uint64_t given;

	(void)gp_caches_flush_usable(pool);
	given = gp_reuse_flush(pool, false);
	if (given < want)
		given += gp_segment_give_back(pool, want == UINT64_MAX ? want : want - given);
	/* Memory that the kind none gave back may be behind a fence, so waiting for it would be waiting for the GPU. */
	if (pool->options.kind == GP_KIND_NONE)
		gp_segment_poll_returning(pool);
	else
		gp_segment_wait_returning(pool, GP_RECLAIM_WAIT_NS);
	return given;
}

void gp_pool_press(struct gp_pool *pool)
{
	if (!gp_pool_is_pressed(pool))
		atomic_store(&pool->first->is_pressed, true);
}

uint64_t gp_pool_reclaim(struct gp_pool *pool)
{
	return gp_pool_trim(pool, UINT64_MAX);
}

static void count_busy(struct gp_invalidated *count, const struct gp_block *block)
{
	count->busy_blocks++;
	count->busy_bytes += block->size;
}

/* Retires a segment, or in an arena the chunks of the blocks in use. */
static void retire_locked(struct gp_pool *pool, struct gp_segment *segment, struct gp_invalidated *count)
{
	for (struct gp_block *b = segment->first; b; b = b->next) {
		if (gp_block_state(b) != GP_BLOCK_USED)
			continue;
		count_busy(count, b);
		if (segment->arena)
			gp_arena_retire_locked(pool, b);
	}
	if (!segment->arena)
		gp_segment_retire_locked(pool, segment);
}

uint64_t gp_pool_invalidate(struct gp_pool *pool, struct gp_invalidated *ret_invalidated)
{
	struct gp_invalidated count = {0};
	struct gp_list *link;

	gp_mutex_lock(&pool->lock);
	if (!gp_flag_is_set(&pool->dead))
		gp_list_each(link, &pool->segments)
			retire_locked(pool, gp_container_of(link, struct gp_segment, link), &count);
	gp_mutex_unlock(&pool->lock);
	*ret_invalidated = count;
	return gp_pool_reclaim(pool);
}

void gp_pool_await_returning(struct gp_pool *pool, uint64_t max_ns)
{
	gp_segment_wait_returning(pool, max_ns);
}

void gp_pool_flush(struct gp_pool *pool, bool may_wait)
{
	bool is_due;

	gp_mutex_lock(&pool->lock);
	is_due = !gp_flag_is_set(&pool->dead) && gp_reuse_needs_flush_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (!is_due)
		return;
	/* Thread caches hold cached memory like any other. */
	if (gp_budget_over(pool->options.budget))
		(void)gp_caches_flush_usable(pool);
	(void)gp_reuse_flush(pool, may_wait);
}

void gp_pool_prepare_for_capture(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	gp_retain_release_locked(pool);
	gp_mutex_unlock(&pool->lock);
	(void)gp_reuse_fence_unfenced(pool, false);
}

void gp_pool_set_pending_max(struct gp_pool *pool, uint64_t bytes)
{
	atomic_store_explicit(&pool->pending_bytes_max, bytes, memory_order_relaxed);
}

bool gp_pool_is_idle(struct gp_pool *pool)
{
	uint64_t seq = gp_fence_started(pool->fence);

	return !gp_fence_record(pool->fence, seq, true) && !gp_fence_wait(pool->fence, seq, GP_IDLE_WAIT_NS);
}

int gp_pool_grace_begin(struct gp_pool *pool, uint64_t *ret_seq)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r;

	if (be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg))
		return -ENOTSUP;
	*ret_seq = gp_fence_seq(pool->fence);
	r = gp_fence_record(pool->fence, *ret_seq, false);
	return r > 0 || r == -EPERM ? r : 0;
}

bool gp_pool_grace_is_over(struct gp_pool *pool, uint64_t seq)
{
	int r;

	if (gp_fence_completed(pool->fence) > seq)
		return true;
	if (gp_fence_published(pool->fence) <= seq)
		(void)gp_fence_record(pool->fence, seq, false);
	r = gp_fence_poll_seq(pool->fence, seq);
	return !r && gp_fence_completed(pool->fence) > seq;
}

void gp_pool_uncount_oom(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	pool->stats.ooms -= pool->stats.ooms != 0;
	gp_mutex_unlock(&pool->lock);
}

int gp_pool_export(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	struct gp_block *b;

	if (!pool)
		return GP_E_FOREIGN;
	gp_mutex_lock(&pool->lock);
	b = gp_pool_block_at_locked(pool, addr);
	if (b && !b->segment->arena)
		gp_segment_retire_locked(pool, b->segment);
	else if (b && gp_block_state(b) != GP_BLOCK_UNMAPPED && gp_block_state(b) != GP_BLOCK_MOVING)
		gp_arena_retire_locked(pool, b);
	gp_mutex_unlock(&pool->lock);
	(void)gp_caches_flush_usable(pool);
	gp_pool_put(pool);
	return b ? 0 : GP_E_FOREIGN;
}

int gp_pool_require_completion(struct gp_pool *pool)
{
	uint64_t gpu_waited;

	/*
	 * First set the flag: all blocks handed out from here on are completed. Then wait for the others. The flag is
	 * set under the lock, so that a thread that hands out a block has seen it, or relied on a GPU wait no later
	 * than the one read here.
	 */
	(void)gp_fence_set_serial(pool->fence, false);
	gp_mutex_lock(&pool->lock);
	atomic_store(&pool->completion_only, true);
	gp_caches_quiesce_locked(pool);
	gpu_waited = atomic_load(&pool->fence->gpu_waited);
	gp_mutex_unlock(&pool->lock);
	return gpu_waited ? gp_fence_wait(pool->fence, gpu_waited - 1, UINT64_MAX) : 0;
}

void gp_pool_set_whole(struct gp_pool *pool)
{
	struct gp_list *link;

	if (pool->options.kind != GP_KIND_SPLIT)
		return;
	gp_mutex_lock(&pool->lock);
	if (!gp_flag_is_set(&pool->dead) && gp_pool_kind(pool) != &gp_kind_binned) {
		gp_kind_binned.init(pool);
		atomic_store(&pool->kind, &gp_kind_binned);
		gp_list_each(link, &pool->segments)
			gp_segment_retire_locked(pool, gp_container_of(link, struct gp_segment, link));
	}
	gp_mutex_unlock(&pool->lock);
	(void)gp_caches_flush_usable(pool);
	gp_reuse_cache_usable(pool);
	(void)gp_segment_give_back(pool, 0);
}

void gp_pool_gpu_wait_again(struct gp_pool *pool)
{
	uint64_t gpu_waited = gp_fence_gpu_waited(pool->fence);

	if (gp_fence_gpu_wait_again(pool->fence))
		(void)gp_fence_wait(pool->fence, gpu_waited - 1, UINT64_MAX);
}

/* -EAGAIN: no fence is outstanding. */
static int wait_for_oldest(struct gp_fence *fence)
{
	return gp_fence_wait(fence, gp_fence_completed(fence), UINT64_MAX);
}

int gp_pool_synchronize(struct gp_pool *pool)
{
	uint64_t seq = gp_fence_started(pool->fence);
	int r;

	/* If too many fences are outstanding, wait for the oldest to make room. */
	do
		r = gp_fence_record(pool->fence, seq, true);
	while (r == -EAGAIN && !wait_for_oldest(pool->fence));
	return r ? r : gp_fence_wait(pool->fence, seq, UINT64_MAX);
}

void gp_pool_set_serial(struct gp_pool *pool, bool is_serial)
{
	/* Where reuse needs completion, serial mode is not enough. */
	is_serial &= !gp_flag_is_set(&pool->completion_only);
	if (gp_fence_set_serial(pool->fence, is_serial))
		(void)gp_fence_wait(pool->fence, gp_fence_gpu_waited(pool->fence) - 1, UINT64_MAX);
}

void gp_pool_set_overlap(struct gp_pool *pool, bool overlap)
{
	atomic_store_explicit(&pool->overlap, overlap, memory_order_relaxed);
}

void gp_pool_await_unfenced(struct gp_pool *pool)
{
	gp_rounds_await_unfenced(pool);
}
