/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "handover.h"

#include "retainer.h"

static void count_in_order_locked(struct gp_pool *pool, struct gp_block *block, unsigned account)
{
	struct gp_stats *stats = &pool->stats;

	block->flags |= GP_BLOCK_STREAM;
	stats->stream_allocs++;
	stats->stream_bytes += block->size;
	if (account) {
		atomic_store_explicit(&block->account, (uint8_t)account, memory_order_relaxed);
		gp_pool_charge_account(pool, block);
		pool->accounted_bytes += block->size;
		return;
	}
	pool->is_stream_served = true;
	pool->stream_high_bytes = gp_max(pool->stream_high_bytes, stats->stream_bytes - pool->accounted_bytes);
}

/* A block in a thread cache is uncharged already. */
static void uncount_in_order_locked(struct gp_pool *pool, struct gp_block *block)
{
	pool->stats.stream_bytes -= block->size;
	block->flags &= (uint8_t)~GP_BLOCK_STREAM;
	if (gp_likely(!gp_block_account(block)))
		return;
	if (gp_block_state(block) != GP_BLOCK_TCACHED)
		gp_pool_uncharge_account(pool, block);
	pool->accounted_bytes -= block->size;
	atomic_store_explicit(&block->account, GP_ACCOUNT_NONE, memory_order_relaxed);
}

struct gp_claim_token gp_pool_hand_out_locked(
	struct gp_pool *pool, struct gp_block *block, const struct gp_request *request)
{
	struct gp_stats *stats = &pool->stats;
	struct gp_claim_token token;
	uint64_t serial;

	if (!(block->flags & GP_BLOCK_IN_MAP)) {
		gp_addrmap_add_block(pool->options.map, block);
		block->flags |= GP_BLOCK_IN_MAP;
	}
	serial = atomic_fetch_add_explicit(&pool->options.map->serial, 1, memory_order_relaxed) + 1;
	if (request->stream)
		count_in_order_locked(pool, block, request->account);
	if (gp_unlikely(request->capture != NULL))
		gp_retainer_note_hand_out_locked(block, request->capture);
	token = gp_block_hand_out(block, request->bytes, request->module, serial);
	stats->used_bytes += block->size;
	stats->requested_bytes += request->bytes;
	stats->n_used_blocks++;
	stats->steps[request->step].count++;
	pool->n_handed_out++;
	stats->peak_used_bytes = gp_max(stats->peak_used_bytes, stats->used_bytes);
	return token;
}

void gp_pool_unaccount_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (block->flags & GP_BLOCK_STREAM)
		uncount_in_order_locked(pool, block);
	pool->stats.used_bytes -= block->size;
	pool->stats.requested_bytes -= gp_block_requested(block);
	pool->stats.n_used_blocks--;
}

void gp_pool_queue_locked(struct gp_pool *pool, struct gp_block *block, bool is_unfenced, uint64_t stream)
{
	gp_pool_unaccount_locked(pool, block);
	block->flags |= is_unfenced ? GP_BLOCK_UNFENCED : 0;
	if (stream) {
		block->flags |= GP_BLOCK_STREAM;
		atomic_store_explicit(&block->stream, stream, memory_order_relaxed);
	}
	gp_block_set_state(block, GP_BLOCK_PENDING);
	gp_pending_add(&pool->pending, block);
	pool->stats.pending_bytes += block->size;
	pool->stats.n_pending_blocks++;
}
