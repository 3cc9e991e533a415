/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ladder.h"

#include <errno.h>

#include "caches.h"
#include "reuse.h"
#include "rounds.h"
#include "segment.h"

typedef int step_fn(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);

static int step_pool(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_take_fresh(pool, request, ret_token);
}

static int step_poll(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_poll(pool, request, ret_token);
}

static int step_gpuwait(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_insist(pool, request, ret_token);
}

/* A block in a thread cache, of this thread or another, may be usable at once. */
static int step_flush(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	if (gp_caches_flush_for(pool, request->size))
		*ret_token = gp_reuse_take(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_hostwait(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	*ret_token = gp_reuse_await(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	int r;

	gp_segment_poll_returning(pool);
	gp_mutex_lock(&pool->lock);
	pool->stats.misses++;
	gp_mutex_unlock(&pool->lock);
	request->supply = gp_rounds_supply(pool, request);
	r = gp_segment_grow(pool, request, ret_token);
	return r == -ENOMEM ? -ENOENT : r;
}

/*
 * A thread cache asks for somewhat more than the program, so that the block may serve later requests. If that much
 * cannot be obtained, tries the size that the program needs: from the pool, then from the driver.
 */
static int step_least(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	uint64_t least = request->kind->round(pool, request->bytes);
	int r;

	if (least == request->size)
		return -ENOENT;
	request->size = least;
	*ret_token = gp_reuse_take(pool, request);
	if (ret_token->block)
		return 0;
	r = gp_segment_grow(pool, request, ret_token);
	/* Even a success means that the driver is full: record it. */
	gp_segment_note_growth(pool, request, r ? r : -ENOMEM);
	return r == -ENOMEM ? -ENOENT : r;
}

static int attempt_grow(struct gp_rounds *rounds)
{
	return gp_segment_grow(rounds->pool, rounds->request, &rounds->token);
}

static int step_rounds(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	struct gp_rounds rounds = {
		.pool = pool,
		.request = request,
		.bytes = request->size,
		.attempt = attempt_grow,
		.supply = request->supply,
		.ret_failure = request->ret_failure,
	};
	int r;

	/*
	 * The memory that the last attempt gave back may make one more attempt succeed, since work may have completed
	 * meanwhile.
	 */
	request->n_undone = 0;
	r = gp_rounds_run(&rounds);
	*ret_token = rounds.token;
	return r;
}

/* A thread cache serves its hits itself. */
static int step_cache(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return -ENOENT;
}

static const struct {
	step_fn *fn;
	bool is_timed;
} step_table[GP_N_STEPS] = {
#define STEP(name, is_timed, help) [GP_STEP_##name] = {step_##name, is_timed},
#include "ladder.def"
};

/*
 * A request beyond the device's memory or the limit can never succeed, so it is refused before it empties the cache for
 * nothing.
 */
static bool is_hopeless(const struct gp_pool *pool, uint64_t bytes)
{
	return bytes > pool->options.capacity_bytes ||
	       bytes > atomic_load_explicit(&pool->options.budget->limit_bytes, memory_order_relaxed);
}

static int refuse(struct gp_pool *pool, const struct gp_request *request)
{
	if (request->end && request->end <= GP_STEP_grow)
		return -ENOENT;
	gp_mutex_lock(&pool->lock);
	pool->stats.ooms++;
	gp_mutex_unlock(&pool->lock);
	if (request->ret_failure)
		*request->ret_failure = (struct gp_failure){.bytes = request->size, .is_hopeless = true};
	return -ENOMEM;
}

/* Adds the times of the steps that are in the mask. */
static void count_times(struct gp_pool *pool, const uint64_t ns[static GP_N_STEPS], unsigned mask)
{
	gp_mutex_lock(&pool->lock);
	for (int i = 0; i < GP_N_STEPS; i++)
		if (mask >> i & 1)
			pool->stats.steps[i].ns += ns[i];
	gp_mutex_unlock(&pool->lock);
}

int gp_ladder_climb(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	unsigned end = request->end ? request->end : GP_N_STEPS, timed = 0;
	uint64_t ns[GP_N_STEPS] = {0}, before = 0, now;
	int r = -ENOENT;

	if (gp_pool_is_flag(&pool->dead))
		return GP_E_DEAD;
	if (is_hopeless(pool, request->bytes))
		return refuse(pool, request);
	for (unsigned i = gp_max(request->first, GP_STEP_pool); i < end && r == -ENOENT; i++) {
		if (request->skips >> i & 1)
			continue;
		if (step_table[i].is_timed && !timed)
			before = gp_pool_now_ns(pool);
		request->step = (enum gp_step)i;
		r = step_table[i].fn(pool, request, ret_token);
		if (!step_table[i].is_timed)
			continue;
		now = gp_pool_now_ns(pool);
		ns[i] = now - before;
		before = now;
		timed |= 1u << i;
	}
	if (timed)
		count_times(pool, ns, timed);
	return r;
}
