/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_control.h"

#include "kind.h"
#include "range.h"
#include "reuse.h"
#include "segment.h"
#include "tcache_impl.h"

/* How long reclaiming waits for what it gave back to arrive. That takes no time, unless later work was ordered. */
#define RECLAIM_WAIT_NS UINT64_C(20000000)

/* How long until a fence tells that it is complete, where the GPU has nothing else to do. */
#define IDLE_WAIT_NS UINT64_C(1000000)

uint64_t gp_pool_trim(struct gp_pool *pool, uint64_t want)
{
	uint64_t given;

	(void)gp_tcache_recall(pool);
	given = gp_reuse_flush(pool, false);
	if (given < want)
		given += gp_segment_give_back(pool, want == UINT64_MAX ? want : want - given);
	/* What the kind none gave back may stand behind a fence: that would be waiting for the GPU. */
	if (pool->options.kind == GP_KIND_NONE)
		gp_segment_poll_returning(pool);
	else
		gp_segment_wait_returning(pool, RECLAIM_WAIT_NS);
	return given;
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

/* Where memory is mapped it is the piece that is retired. */
static void retire_locked(struct gp_pool *pool, struct gp_segment *segment, struct gp_invalidated *count)
{
	for (struct gp_block *b = segment->first; b; b = b->next) {
		if (gp_block_state(b) != GP_BLOCK_USED)
			continue;
		count_busy(count, b);
		if (segment->range)
			gp_range_retire_locked(pool, b);
	}
	if (!segment->range)
		gp_segment_retire_locked(pool, segment);
}

uint64_t gp_pool_invalidate(struct gp_pool *pool, struct gp_invalidated *ret_invalidated)
{
	struct gp_invalidated count = {0};
	struct gp_list *link;

	gp_mutex_lock(&pool->lock);
	if (!gp_pool_is_flag(&pool->dead))
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
	is_due = !gp_pool_is_flag(&pool->dead) && gp_reuse_needs_flush_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (!is_due)
		return;
	/* What threads keep is cached memory like any other. */
	if (gp_budget_over(pool->options.budget))
		(void)gp_tcache_recall(pool);
	(void)gp_reuse_flush(pool, may_wait);
}

void gp_pool_set_pending_max(struct gp_pool *pool, uint64_t bytes)
{
	atomic_store_explicit(&pool->pending_bytes_max, bytes, memory_order_relaxed);
}

bool gp_pool_is_idle(struct gp_pool *pool)
{
	uint64_t stamp = gp_fence_started(pool->fence);

	return !gp_fence_record(pool->fence, stamp, true) && !gp_fence_wait(pool->fence, stamp, IDLE_WAIT_NS);
}

void gp_pool_excuse(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	pool->stats.ooms -= pool->stats.ooms != 0;
	gp_mutex_unlock(&pool->lock);
}
