/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A block is handed out and freed here. See pool.c for its life.
 */

#include "pool_alloc.h"

#include <errno.h>

#include "handover.h"
#include "kind_whole.h"
#include "ladder.h"
#include "pool_query.h"
#include "retain.h"
#include "reuse.h"
#include "rounds.h"
#include "pool/vmm/arena_life.h"
#include "segment.h"

static int attempt_rescue(struct gp_rounds *rounds)
{
	return rounds->rescue(rounds->rescue_arg);
}

static int alloc(struct gp_pool *pool, struct gp_request *request, uint64_t *ret_addr)
{
	struct gp_claim_token token = {0};
	int r = 0;

	if (gp_unlikely(request->capture && request->capture->may_reuse) && !request->is_uncached &&
		request->kind != &gp_kind_none)
		token = gp_retain_take(pool, request);
	if (gp_likely(!token.block))
		r = gp_ladder_climb(pool, request, &token);
	if (!r)
		*ret_addr = token.addr;
	return r;
}

int gp_pool_alloc_with(struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(pool, bytes);

	request.stream = options->stream;
	request.account = options->account;
	request.module = options->module;
	request.first = options->first;
	request.end = options->end;
	request.ret_failure = options->ret_failure;
	request.capture = options->capture;
	return alloc(pool, &request, ret_addr);
}

int gp_pool_alloc(struct gp_pool *pool, uint64_t bytes, uint32_t module, uint64_t *ret_addr)
{
	return gp_pool_alloc_with(pool, bytes, &(struct gp_alloc_options){.module = module}, ret_addr);
}

uint64_t gp_pool_take_on(struct gp_pool *pool, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account)
{
	struct gp_request request = gp_request_of(pool, bytes);

	if (gp_unlikely(request.skips & GP_SKIP(stream)))
		return 0;
	request.stream = stream;
	request.account = account;
	request.module = module;
	request.step = GP_STEP_stream;
	return gp_reuse_take_of_stream(pool, &request).addr;
}

/* Allocates uncached in the kind vmm: a mark on the block makes its chunks go back once it is freed. */
static int alloc_mapped(
	struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(pool, bytes);
	struct gp_claim_token token = {0};
	int r;

	request.module = options->module;
	request.ret_failure = options->ret_failure;
	request.capture = options->capture;
	r = gp_ladder_climb(pool, &request, &token);
	if (r)
		return r;
	gp_mutex_lock(&pool->lock);
	if (gp_block_is_held_as(&token))
		token.block->flags |= GP_BLOCK_UNCACHED;
	gp_mutex_unlock(&pool->lock);
	*ret_addr = token.addr;
	return 0;
}

/* The block is a segment of the kind none, which the pool's own kind does not know. */
int gp_pool_alloc_uncached(
	struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_request request = {
		.kind = &gp_kind_none,
		.skips = gp_kind_none.skips,
		.bytes = bytes,
		.module = options->module,
		.ret_failure = options->ret_failure,
		.capture = options->capture,
		.is_uncached = true,
	};

	if (pool->first_kind->grow)
		return alloc_mapped(pool, bytes, options, ret_addr);
	request.size = gp_kind_none.round(pool, bytes);
	return alloc(pool, &request, ret_addr);
}

/* True if a queued block can be given back behind its fence at once, instead of at a later flush. */
static bool can_release_at_once_locked(struct gp_pool *pool, const struct gp_block *block)
{
	return block->segment->is_uncached && gp_block_is_whole(block) && !(block->flags & GP_BLOCK_UNFENCED) &&
	       !gp_pool_is_deferring(pool) && pool->can_release_behind;
}

/* After an unfenced free the stream may still use the block, so the current epoch's fence does not cover it. */
static uint64_t seq_of(const struct gp_pool *pool, enum gp_free_mode mode)
{
	return mode == GP_FREE_NORMAL ? gp_fence_seq(pool->fence) : gp_fence_started(pool->fence);
}

/*
 * The pool was dropped after this thread had claimed the block. If its memory has stayed (gp_pool_drop_except), it goes
 * back now: the free came before the end. Otherwise it has ended with the context.
 */
__attribute__((cold)) static int end_free_of_dropped(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_block_state(block) != GP_BLOCK_RETURNING)
		return GP_E_DEAD;
	gp_arena_end_survivor(pool, block->addr, block->size);
	return 0;
}

/* The thread may not call the driver (backend.h), so the free fails and the program keeps the block. */
__attribute__((cold)) static int leave_to_program(struct gp_pool *pool, struct gp_block *block)
{
	bool is_dead;

	gp_mutex_lock(&pool->lock);
	is_dead = gp_flag_is_set(&pool->dead);
	if (!is_dead)
		gp_block_set_state(block, GP_BLOCK_USED);
	gp_mutex_unlock(&pool->lock);
	return is_dead ? end_free_of_dropped(pool, block) : GP_E_NOT_PERMITTED;
}

/* The way in which a claimed block is taken back. */
struct take_back {
	enum gp_free_mode mode;
	bool is_uncached;
	uint64_t stream;                       /* of gp_pool_free_on; or 0 */
	const struct gp_capture_free *capture; /* of gp_pool_free_captured; or NULL */
};

/* Retains a claimed block if a capture or a graph may use it. */
static bool retain_locked(
	struct gp_pool *pool, struct gp_block *block, bool is_uncached, const struct gp_capture_free *capture)
{
	if (gp_likely(!capture && !(block->flags & GP_BLOCK_CAPTURED)))
		return false;
	if (!gp_retain_freed_locked(pool, block, capture))
		return false;
	block->flags |= is_uncached ? GP_BLOCK_UNCACHED : 0;
	return true;
}

static int queue(struct gp_pool *pool, struct gp_block *block, const struct take_back *how)
{
	enum gp_free_mode mode = how->mode;
	uint64_t seq = mode == GP_FREE_SYNCED ? 0 : seq_of(pool, mode);
	int r = mode == GP_FREE_NORMAL ? gp_fence_record(pool->fence, seq, true) : 0;
	bool is_unfenced = mode == GP_FREE_UNFENCED || r, needs_flush = false, is_released_at_once = false, is_dead;

	if (gp_unlikely(r == -EPERM))
		return leave_to_program(pool, block);
	gp_mutex_lock(&pool->lock);
	is_dead = gp_flag_is_set(&pool->dead);
	if (!is_dead && !retain_locked(pool, block, how->is_uncached, how->capture)) {
		block->seq = seq;
		gp_pool_queue_locked(pool, block, is_unfenced, how->stream);
		if (how->is_uncached || block->flags & GP_BLOCK_UNCACHED)
			gp_segment_uncache_locked(pool, block);
		block->flags &= (uint8_t)~GP_BLOCK_UNCACHED;
		is_released_at_once = can_release_at_once_locked(pool, block);
		if (is_released_at_once)
			gp_pending_remove(&pool->pending, block);
		needs_flush = gp_reuse_needs_flush_locked(pool);
	}
	gp_mutex_unlock(&pool->lock);
	if (gp_unlikely(is_dead))
		return end_free_of_dropped(pool, block);
	if (is_released_at_once) {
		(void)gp_segment_give_back_pending(pool, block, &seq);
		gp_segment_poll_returning(pool);
	}
	if (needs_flush && is_unfenced)
		(void)gp_reuse_flush(pool, false);
	else if (needs_flush)
		gp_reuse_flush_at_free(pool, seq);
	/* The capture may last, and no thread can use the queued memory until a fence has completed. */
	if (needs_flush && r == -EBUSY)
		gp_reuse_flush_unfenced(pool);
	return r > 0 ? r : 0;
}

/* Frees a block where the queue has length 0: at once, by the driver's own free, which waits for the block's work. */
static int free_unqueued(struct gp_pool *pool, struct gp_block *block, const struct gp_capture_free *capture)
{
	bool is_retained;

	gp_mutex_lock(&pool->lock);
	if (gp_flag_is_set(&pool->dead)) {
		gp_mutex_unlock(&pool->lock);
		return GP_E_DEAD;
	}
	is_retained = retain_locked(pool, block, false, capture);
	if (!is_retained)
		gp_pool_unaccount_locked(pool, block);
	gp_mutex_unlock(&pool->lock);
	return is_retained ? 0 : gp_segment_release(pool, block);
}

/* Counts a free that is refused. An address in free memory was, as far as can be known, freed before. */
static int refuse(struct gp_pool *pool, uint64_t addr, enum gp_claim claim)
{
	bool is_free;

	gp_mutex_lock(&pool->lock);
	/* The drop takes blocks from the program one by one. */
	if (gp_flag_is_set(&pool->dead)) {
		gp_mutex_unlock(&pool->lock);
		return GP_E_DEAD;
	}
	is_free = claim == GP_CLAIM_NOT_USED || gp_pool_is_free_at_locked(pool, addr);
	pool->stats.double_frees += is_free;
	pool->stats.invalid_frees += !is_free;
	gp_mutex_unlock(&pool->lock);
	return is_free ? GP_E_NOT_USED : GP_E_INTERIOR;
}

/* True if freed blocks are not queued: the queue's length is 0 and no defer scope holds flushes back. */
static bool is_unqueued(const struct gp_pool *pool, enum gp_free_mode mode)
{
	return pool->options.kind == GP_KIND_NONE && pool->options.pending_count_max == 0 && mode != GP_FREE_UNFENCED &&
	       !gp_pool_is_deferring(pool);
}

/* Takes back a claimed block of the pool. */
static int take_back(struct gp_pool *pool, struct gp_block *block, const struct take_back *how)
{
	return is_unqueued(pool, how->mode) ? free_unqueued(pool, block, how->capture) : queue(pool, block, how);
}

int gp_pool_take_back(struct gp_pool *pool, struct gp_block *block, gp_pool_keep_fn *keep, void *arg)
{
	int r;

	return keep && keep(arg, block, &r) ? r : take_back(pool, block, &(struct take_back){.mode = GP_FREE_NORMAL});
}

static int claim_to_free(struct gp_addrmap *map, uint64_t addr, struct gp_claimed *ret_claimed)
{
	enum gp_claim claim;
	int r;

	*ret_claimed = (struct gp_claimed){NULL};
	claim = gp_addrmap_claim(map, addr, &ret_claimed->pool, &ret_claimed->block);
	if (gp_likely(claim == GP_CLAIM_OK))
		return 0;
	if (claim == GP_CLAIM_FOREIGN)
		return GP_E_FOREIGN;
	r = refuse(ret_claimed->pool, addr, claim);
	gp_pool_put(ret_claimed->pool);
	return r;
}

/* The second step may be long in coming, so what the program has requested stops counting here. */
int gp_pool_free_begin(struct gp_addrmap *map, uint64_t addr, struct gp_claimed *ret_claimed)
{
	int r = claim_to_free(map, addr, ret_claimed);
	struct gp_pool *pool = ret_claimed->pool;

	if (r)
		return r;
	gp_mutex_lock(&pool->lock);
	if (!gp_flag_is_set(&pool->dead))
		pool->stats.requested_bytes -= gp_block_requested(ret_claimed->block);
	else if (gp_block_state(ret_claimed->block) != GP_BLOCK_RETURNING)
		r = GP_E_DEAD;
	atomic_store_explicit(&ret_claimed->block->requested, 0, memory_order_relaxed);
	gp_mutex_unlock(&pool->lock);
	if (r)
		gp_pool_put(pool);
	return r;
}

void gp_pool_free_end(const struct gp_claimed *claimed, bool is_uncached, const struct gp_capture_free *capture)
{
	const struct take_back how = {.mode = GP_FREE_UNFENCED, .is_uncached = is_uncached, .capture = capture};

	(void)take_back(claimed->pool, claimed->block, &how);
	gp_pool_put(claimed->pool);
}

/* Claims a block of any pool of the map and takes it back. keep: only with GP_FREE_NORMAL. */
static int release(struct gp_addrmap *map, uint64_t addr, const struct take_back *how, gp_pool_keep_fn *keep, void *arg)
{
	struct gp_claimed claimed;
	int r = claim_to_free(map, addr, &claimed);

	if (gp_unlikely(r))
		return r;
	r = keep ? gp_pool_take_back(claimed.pool, claimed.block, keep, arg)
		 : take_back(claimed.pool, claimed.block, how);
	gp_pool_put(claimed.pool);
	return r;
}

int gp_pool_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	return release(map, addr, &(struct take_back){.mode = mode}, NULL, NULL);
}

int gp_pool_free_on(struct gp_addrmap *map, uint64_t addr, uint64_t stream)
{
	return release(map, addr, &(struct take_back){.mode = GP_FREE_UNFENCED, .stream = stream}, NULL, NULL);
}

int gp_pool_take_back_on(struct gp_pool *pool, struct gp_block *block, uint64_t stream)
{
	return take_back(pool, block, &(struct take_back){.mode = GP_FREE_UNFENCED, .stream = stream});
}

int gp_pool_free_or_keep(struct gp_addrmap *map, uint64_t addr, gp_pool_keep_fn *keep, void *arg)
{
	return release(map, addr, &(struct take_back){.mode = GP_FREE_NORMAL}, keep, arg);
}

int gp_pool_free_uncached(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	return release(map, addr, &(struct take_back){.mode = mode, .is_uncached = true}, NULL, NULL);
}

int gp_pool_free_captured(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode, bool is_uncached,
	const struct gp_capture_free *capture)
{
	const struct take_back how = {.mode = mode, .is_uncached = is_uncached, .capture = capture};

	return release(map, addr, &how, NULL, NULL);
}

int gp_pool_rescue(
	struct gp_pool *pool, uint64_t bytes, int (*attempt)(void *arg), void *arg, struct gp_failure *ret_failure)
{
	struct gp_rounds rounds = {
		.pool = pool,
		.bytes = bytes,
		.attempt = attempt_rescue,
		.rescue = attempt,
		.rescue_arg = arg,
		.ret_failure = ret_failure,
		/* It is unknown when the caller's own attempt was, so one more is due. */
		.supply = {.n_arrivals = UINT64_MAX},
	};

	if (gp_flag_is_set(&pool->dead))
		return GP_E_DEAD;
	return gp_rounds_run(&rounds);
}
