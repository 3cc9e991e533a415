/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ladder.h"

#include <errno.h>

#include "caches.h"
#include "reuse.h"
#include "rounds.h"
#include "segment.h"

typedef int step_fn(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);

static int step_stream(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	*ret_token = gp_reuse_take_of_stream(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_pool(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_take_fresh(pool, request, ret_token);
}

static int step_poll(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_poll(pool, request, ret_token);
}

static int step_part(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	*ret_token = gp_reuse_take_part_of_stream(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_gpuwait(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	return gp_reuse_gpu_wait(pool, request, ret_token);
}

/* A block in a thread cache, of this thread or another, may be usable at once. */
static int step_flush(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	if (!gp_caches_flush_for(pool, request->size))
		return -ENOENT;
	if (request->stream)
		*ret_token = gp_reuse_take_of_stream(pool, request);
	if (!ret_token->block)
		*ret_token = gp_reuse_take(pool, request);
	if (request->stream && !ret_token->block)
		*ret_token = gp_reuse_take_part_of_stream(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_hostwait(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	*ret_token = gp_reuse_host_wait(pool, request);
	return ret_token->block ? 0 : -ENOENT;
}

static int step_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	int r;

	gp_segment_poll_returning(pool);
	atomic_fetch_add_explicit(&pool->n_misses, 1, memory_order_relaxed);
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

static step_fn *const step_fns[GP_N_STEPS] = {
#define STEP(name, is_timed, help) [GP_STEP_##name] = step_##name,
#include "ladder.def"
};

/* A bit for each step whose time is taken. */
static const unsigned timed_steps = 0
#define STEP(name, is_timed, help) | ((is_timed) ? 1u << GP_STEP_##name : 0)
#include "ladder.def"
	;

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
		*request->ret_failure = (struct gp_failure){
			.bytes = request->size, .is_mapped = pool->options.kind == GP_KIND_VMM, .is_hopeless = true};
	return -ENOMEM;
}

/* Lowers the shortest time of the step. 0 stands for none yet. */
static void note_fastest(_Atomic uint64_t *fastest_ns, uint64_t ns)
{
	uint64_t known = atomic_load_explicit(fastest_ns, memory_order_relaxed);

	while ((!known || ns < known) && !atomic_compare_exchange_weak_explicit(fastest_ns, &known, gp_max(ns, 1),
						 memory_order_relaxed, memory_order_relaxed))
		;
}

static int run_timed(struct gp_pool *pool, struct gp_request *request, unsigned step, struct gp_claim_token *ret_token)
{
	uint64_t start_ns = gp_pool_now_ns(pool);
	int r = step_fns[step](pool, request, ret_token);
	uint64_t ns = gp_pool_now_ns(pool) - start_ns;

	atomic_fetch_add_explicit(&pool->step_ns[step], ns, memory_order_relaxed);
	if (!r)
		note_fastest(&pool->step_fastest_ns[step], ns);
	return r;
}

/* Returns the steps of the request, except those that its kind skips. */
static unsigned steps_of(const struct gp_request *request)
{
	enum gp_step least = request->stream ? GP_STEP_stream : GP_STEP_pool;
	unsigned first = (unsigned)gp_max(request->first, least), end = request->end ? request->end : GP_N_STEPS;

	return ((1u << end) - 1) & ~0u << first & ~request->skips & ~(request->stream ? 0 : GP_SKIP(part));
}

int gp_ladder_climb(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	unsigned now;
	int r = -ENOENT;

	if (gp_flag_is_set(&pool->dead))
		return GP_E_DEAD;
	if (is_hopeless(pool, request->bytes))
		return refuse(pool, request);
	request->left = steps_of(request);
	if (request->first > GP_STEP_pool)
		gp_reuse_survey(pool, request);
	while (r == -ENOENT && (now = request->left & ~request->idle)) {
		unsigned step = (unsigned)__builtin_ctz(now);

		request->left &= ~0u << (step + 1);
		request->step = (enum gp_step)step;
		r = timed_steps >> step & 1 ? run_timed(pool, request, step, ret_token)
					    : step_fns[step](pool, request, ret_token);
	}
	return r;
}
