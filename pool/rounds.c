/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The retry rounds of ladder.def, which the pool runs when memory runs out, each more drastic than the one before. A
 * round that gave something back, or made pending memory usable, ends with a new search of the pool and another driver
 * attempt.
 *
 * One thread at a time runs the rounds of a pool. Other threads wait for it and then search again, so that they do not
 * give back what the first is about to use. No lock is held meanwhile, so the rounds never delay a free. A thread that
 * waits for other threads or processes lets other threads run their rounds between its attempts.
 */

#include <errno.h>
#include <string.h>

#include "caches.h"
#include "pool_control.h"
#include "reuse.h"
#include "rounds.h"
#include "segment.h"
#include "tuning.h"

/* Searches the pool for the request. Also merges what has become usable, so that it can be given back. */
static bool search(struct gp_rounds *rounds)
{
	if (rounds->request)
		rounds->token = gp_reuse_take(rounds->pool, rounds->request);
	else
		gp_reuse_cache_usable(rounds->pool);
	return rounds->token.block != NULL;
}

struct gp_supply gp_rounds_supply(struct gp_pool *pool, const struct gp_request *request)
{
	struct gp_supply supply = {.n_arrivals = atomic_load(&pool->first->n_arrivals)};

	if (!request)
		return supply;
	supply.n_arrivals -= request->n_undone;
	if (request->kind->grow) {
		supply.completed = gp_fence_completed(pool->fence);
		gp_mutex_lock(&pool->lock);
		supply.n_freed = pool->n_handed_out - pool->stats.n_used_blocks;
		gp_mutex_unlock(&pool->lock);
	}
	return supply;
}

static bool has_supply_changed(const struct gp_rounds *rounds)
{
	const struct gp_supply now = gp_rounds_supply(rounds->pool, rounds->request), *then = &rounds->supply;

	return now.n_arrivals != then->n_arrivals || now.n_freed != then->n_freed || now.completed != then->completed;
}

static uint64_t n_handed_out(struct gp_pool *pool)
{
	uint64_t n;

	gp_mutex_lock(&pool->lock);
	n = pool->n_handed_out;
	gp_mutex_unlock(&pool->lock);
	return n;
}

static int attempt(struct gp_rounds *rounds)
{
	rounds->supply = gp_rounds_supply(rounds->pool, rounds->request);
	rounds->result = rounds->attempt(rounds);
	return rounds->result;
}

static uint64_t pending_bytes(struct gp_pool *pool)
{
	uint64_t bytes;

	gp_mutex_lock(&pool->lock);
	bytes = pool->pending.bytes;
	gp_mutex_unlock(&pool->lock);
	return bytes;
}

/* True if a block is pending whose fence a free recorded, in a kind that reuses blocks. */
static bool is_any_pending_at_free(struct gp_pool *pool)
{
	bool is_any;

	gp_mutex_lock(&pool->lock);
	is_any = pool->pending.bitmap[0] != 0 && pool->options.kind != GP_KIND_NONE;
	gp_mutex_unlock(&pool->lock);
	return is_any;
}

/*
 * True if that many bytes are enough for what the program asked for, without what a size class adds (gp_segment_grow).
 */
static bool is_enough(const struct gp_rounds *rounds, uint64_t bytes)
{
	return bytes >= (rounds->request ? rounds->request->bytes : rounds->bytes);
}

/*
 * Returns the bytes that must be given back: the size of the request, or only what exceeds the limit, or that of the
 * group, if there is one.
 */
static uint64_t deficit(const struct gp_rounds *rounds)
{
	uint64_t left = gp_budget_left_of_all(rounds->pool->options.budget);

	return is_enough(rounds, left) ? rounds->bytes : rounds->bytes - left;
}

static uint64_t round_settle(struct gp_rounds *rounds)
{
	struct gp_pool *pool = rounds->pool;
	bool is_any_unrecorded;
	uint64_t before, after;

	(void)gp_caches_flush(pool, &is_any_unrecorded);
	before = pending_bytes(pool);
	(void)gp_fence_poll(pool->fence);
	if (!gp_flag_is_set(&pool->completion_only))
		(void)gp_fence_gpu_wait(pool->fence);
	if (is_any_unrecorded && gp_reuse_fence_unfenced(pool, false) == 0)
		(void)gp_fence_poll(pool->fence);
	search(rounds);
	after = pending_bytes(pool);
	return before > after ? before - after : 0;
}

static uint64_t round_enough(struct gp_rounds *rounds)
{
	uint64_t given = gp_segment_give_back(rounds->pool, deficit(rounds));

	gp_segment_wait_returning(rounds->pool, GP_SHORTAGE_WAIT_NS);
	return given;
}

static uint64_t ask_siblings(struct gp_rounds *rounds, uint64_t want, bool may_wait)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);

	return be->ops->ask_siblings && want ? be->ops->ask_siblings(be->arg, want, may_wait) : 0;
}

static uint64_t round_all(struct gp_rounds *rounds)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);
	uint64_t want = deficit(rounds), given = gp_segment_give_back(rounds->pool, UINT64_MAX);

	gp_segment_wait_returning(rounds->pool, GP_SHORTAGE_WAIT_NS);
	given += ask_siblings(rounds, want - gp_min(want, given), false);
	/* The amount that the driver freed is unknown. One byte is enough for a new attempt. */
	return given + be->ops->trim_driver(be->arg);
}

void gp_rounds_await_unfenced(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	bool needs_idle = !be->ops->can_release_behind(be->arg), is_any;
	uint64_t seq, unrecorded;

	gp_mutex_lock(&pool->lock);
	needs_idle = needs_idle && pool->stats.cached_bytes + pool->stats.pending_bytes;
	is_any = needs_idle || pool->pending.n_unfenced;
	seq = needs_idle ? gp_fence_started(pool->fence) : pool->pending.newest_seq;
	unrecorded = pool->unrecorded_seq;
	gp_mutex_unlock(&pool->lock);
	if (is_any && gp_fence_record(pool->fence, seq, false) == 0) {
		(void)gp_fence_wait(pool->fence, unrecorded, GP_UNRECORDED_WAIT_NS);
		(void)gp_fence_wait(pool->fence, seq, GP_UNFENCED_WAIT_NS);
	}
	/* Even if that took too long, some of the older fences may have completed. */
	while (gp_fence_poll(pool->fence) == 0)
		;
}

/*
 * Waits once for all fences recorded so far. Returns true if another wait may help: the request has not been served,
 * and there are still pending blocks, or other threads were given blocks meanwhile.
 */
static bool wait_once(struct gp_rounds *rounds, unsigned attempt)
{
	struct gp_pool *pool = rounds->pool;
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t n_before = n_handed_out(pool), newest = gp_fence_newest(pool->fence);
	bool is_any; /* pending blocks that a wait can make usable */
	int r = newest ? gp_fence_wait(pool->fence, newest - 1, GP_SHORTAGE_WAIT_NS) : 0;

	if (search(rounds) || r || !rounds->request)
		return false;
	is_any = is_any_pending_at_free(pool);
	if (!is_any) {
		gp_rounds_await_unfenced(pool);
		if (search(rounds))
			return false;
	}
	/* A thread that was given a block meanwhile may be freeing it right now, or have freed it since. */
	is_any = (is_any && newest) || n_handed_out(pool) != n_before;
	if (is_any && !newest)
		be->ops->pause(be->arg, attempt);
	return is_any;
}

static uint64_t round_fences(struct gp_rounds *rounds)
{
	struct gp_pool *pool = rounds->pool;
	uint64_t before = pending_bytes(pool), given;

	/*
	 * Another thread may take the block that this one waited for. The blocks that it freed before are then still
	 * pending.
	 */
	for (unsigned i = 0; i < GP_SHORTAGE_WAITS_MAX && wait_once(rounds, i); i++)
		;
	if (rounds->token.block)
		return rounds->bytes;
	if (!rounds->request)
		gp_rounds_await_unfenced(pool);
	if (search(rounds))
		return rounds->bytes;
	given = gp_segment_give_back(pool, UINT64_MAX);
	gp_segment_wait_returning(pool, GP_SHORTAGE_WAIT_NS);
	given += ask_siblings(rounds, UINT64_MAX, true);
	return given ? given : before - gp_min(before, pending_bytes(pool));
}

static uint64_t round_contexts(struct gp_rounds *rounds)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);

	return be->ops->ask_contexts(be->arg, deficit(rounds));
}

/*
 * The group's limit is short, not the device: asks its members. Memory that one of them gives may be taken by another
 * member that is short, too, and memory that they have freed may be in use by the GPU for a moment. So they are asked
 * again, until the request is served or they have given nothing several times in a row.
 */
static uint64_t ask_group_again(struct gp_rounds *rounds, unsigned idle_max)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);
	uint64_t given = 0;
	unsigned n_idle = 0;

	for (unsigned n = 0; n < GP_GROUP_ASKS_MAX; n++) {
		uint64_t gained = be->ops->ask_group(be->arg, deficit(rounds));

		n_idle = gained ? 0 : n_idle + 1;
		given += gained;
		if (search(rounds) || attempt(rounds) != -ENOMEM || n_idle == idle_max)
			break;
		be->ops->pause(be->arg, GP_GROUP_ASK_PAUSE + n);
	}
	return given;
}

/* A program that goes on after many failures has used up the group, so its next ones are not to take long. */
static uint64_t ask_group(struct gp_rounds *rounds)
{
	struct gp_pool *pool = rounds->pool;
	uint64_t now_ns = gp_pool_now_ns(pool), given;

	if (!gp_pool_backend(pool)->ops->ask_group)
		return 0;
	if (now_ns - pool->futile_ask_ns > GP_GROUP_FUTILE_NS)
		pool->n_futile_asks = 0;
	given = ask_group_again(rounds, pool->n_futile_asks < GP_GROUP_FUTILE_MAX ? GP_GROUP_ASKS_IDLE : 1);
	if (given || rounds->token.block || rounds->result != -ENOMEM) {
		pool->n_futile_asks = 0;
	} else {
		pool->n_futile_asks = gp_min(pool->n_futile_asks + 1, (unsigned)GP_GROUP_FUTILE_MAX);
		pool->futile_ask_ns = now_ns;
	}
	return given;
}

static uint64_t round_processes(struct gp_rounds *rounds)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);
	const struct gp_budget *budget = rounds->pool->options.budget;

	/* Other processes cannot give what the limit forbids. */
	if (!is_enough(rounds, gp_budget_left(budget)))
		return 0;
	if (!is_enough(rounds, gp_budget_left_in_group(budget)))
		return ask_group(rounds);
	return be->ops->ask_processes(be->arg, rounds->bytes);
}

static bool try_turn(struct gp_pool *pool)
{
	bool is_mine;

	gp_mutex_lock(&pool->lock);
	is_mine = !pool->rounds_busy;
	pool->rounds_busy = true;
	gp_mutex_unlock(&pool->lock);
	return is_mine;
}

/* Reads the event before the attempt: a turn that ends after the attempt keeps the thread from sleeping. */
static void take_turn(struct gp_pool *pool)
{
	uint32_t seen = atomic_load(&pool->rounds_done.count);

	while (!try_turn(pool)) {
		gp_event_wait(&pool->rounds_done, seen);
		seen = atomic_load(&pool->rounds_done.count);
	}
}

static void end_turn(struct gp_pool *pool)
{
	gp_mutex_lock(&pool->lock);
	pool->rounds_busy = false;
	gp_mutex_unlock(&pool->lock);
	gp_event_happen(&pool->rounds_done);
}

/* Ends the turn before the rounds that wait, which are the last ones. */
static void give_up_turn(struct gp_rounds *rounds)
{
	if (rounds->has_turn)
		end_turn(rounds->pool);
	rounds->has_turn = false;
}

/*
 * Tries again while memory is waited for, unless another thread runs its rounds, which may take longer than this wait
 * may. *has_driver_more: asks the driver even if it is given nothing; cleared once that was done. Returns true if the
 * wait is over.
 */
static bool try_again(struct gp_rounds *rounds, bool *has_driver_more)
{
	struct gp_pool *pool = rounds->pool;
	bool is_over;

	if (!try_turn(pool))
		return false;
	(void)gp_fence_poll(pool->fence);
	is_over = search(rounds);
	if (!is_over && (gp_segment_give_back(pool, UINT64_MAX) || *has_driver_more)) {
		gp_segment_wait_returning(pool, GP_SHORTAGE_WAIT_NS);
		is_over = attempt(rounds) != -ENOMEM;
		*has_driver_more = false;
	}
	end_turn(pool);
	return is_over;
}

/* Pauses and tries again, for that long at most. */
static bool wait_for_processes(struct gp_rounds *rounds, struct gp_wait *wait, uint64_t start_ns, uint64_t max_ns)
{
	const struct gp_backend *be = gp_pool_backend(rounds->pool);
	bool has_driver_more = false;

	while (gp_pool_now_ns(rounds->pool) - start_ns < max_ns) {
		enum gp_wait_news news = be->ops->wait_pause(be->arg, wait);

		if (news == GP_WAIT_OVER || !is_enough(rounds, gp_budget_left_of_all(rounds->pool->options.budget)))
			return false;
		has_driver_more |= news == GP_WAIT_MORE || has_supply_changed(rounds);
		if (try_again(rounds, &has_driver_more))
			return true;
	}
	return false;
}

/*
 * Other processes neither announce their frees nor can give what the limit forbids. Other threads run their rounds
 * during the pauses: they may be served by less than this thread lacks.
 */
static uint64_t wait_after(
	struct gp_rounds *rounds, uint64_t (*begin)(void *arg, uint64_t bytes, struct gp_wait *ret_wait))
{
	struct gp_pool *pool = rounds->pool;
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t bytes = rounds->request ? rounds->request->bytes : rounds->bytes, start_ns, max_ns = 0;
	struct gp_wait wait;
	bool is_served;

	if (is_enough(rounds, gp_budget_left_of_all(pool->options.budget)))
		max_ns = begin(be->arg, bytes, &wait);
	rounds->is_left_out = !max_ns;
	if (!max_ns)
		return 0;
	give_up_turn(rounds);
	start_ns = gp_pool_now_ns(pool);
	is_served = wait_for_processes(rounds, &wait, start_ns, max_ns);
	be->ops->wait_end(be->arg, &wait, gp_pool_now_ns(pool) - start_ns, is_served);
	return is_served ? rounds->bytes : 0;
}

static uint64_t round_sleepers(struct gp_rounds *rounds)
{
	return wait_after(rounds, gp_pool_backend(rounds->pool)->ops->sleepers_begin);
}

static uint64_t round_neighbours(struct gp_rounds *rounds)
{
	return wait_after(rounds, gp_pool_backend(rounds->pool)->ops->wait_begin);
}

static uint64_t round_wait(struct gp_rounds *rounds)
{
	struct gp_pool *pool = rounds->pool;
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t start_ns = gp_pool_now_ns(pool);
	bool is_served = false;
	unsigned n = 0;

	give_up_turn(rounds);
	while (!is_served && gp_pool_now_ns(pool) - start_ns < pool->options.oom_wait_ns) {
		bool has_driver_more = true; /* perhaps: other processes do not announce their frees */

		be->ops->pause(be->arg, n++);
		is_served = try_again(rounds, &has_driver_more);
	}
	return is_served ? rounds->bytes : 0;
}

/*
 * Less than the whole request may be missing, and another thread may take the memory that was moved for this one. So
 * each attempt moves more.
 */
static uint64_t round_spill(struct gp_rounds *rounds)
{
	struct gp_pool *pool = rounds->pool;
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t granule = pool->options.granule, need = gp_round_up(rounds->bytes, granule), given = 0, moved;

	give_up_turn(rounds);
	be->ops->spill->seek(be->arg, true);
	for (unsigned n = 0; n < GP_SPILL_TRIES; n++) {
		uint64_t least = n == 0 ? granule : n == 1 ? need / 4 : need;

		moved = be->ops->spill->make_room(be->arg, need, gp_max(least, granule));
		given += moved;
		if (!moved || search(rounds) || attempt(rounds) != -ENOMEM)
			break;
	}
	be->ops->spill->seek(be->arg, false);
	rounds->is_left_out = !given;
	return given;
}

static uint64_t round_fail(struct gp_rounds *rounds)
{
	gp_mutex_lock(&rounds->pool->lock);
	rounds->pool->stats.ooms++;
	gp_mutex_unlock(&rounds->pool->lock);
	return 0;
}

/*
 * Runs one round. It also makes a new attempt if another thread gave memory back since the last one. Returns true if no
 * further round is needed.
 */
static bool run_round(struct gp_rounds *rounds, enum gp_round which, uint64_t (*fn)(struct gp_rounds *))
{
	struct gp_pool *pool = rounds->pool;
	uint64_t start_ns = gp_pool_now_ns(pool), yielded, ns;
	struct gp_round_stats *stats = &pool->stats.rounds[which], *spent = &rounds->spent[which];

	rounds->is_left_out = false;
	yielded = fn(rounds);
	if (rounds->is_left_out)
		return false;
	if (!rounds->token.block && rounds->result == -ENOMEM && (yielded || has_supply_changed(rounds)) &&
		!search(rounds))
		attempt(rounds);
	ns = gp_pool_now_ns(pool) - start_ns;
	gp_mutex_lock(&pool->lock);
	*spent = (struct gp_round_stats){.count = 1, .gained_bytes = yielded, .ns = ns};
	stats->count++;
	stats->gained_bytes += yielded;
	stats->ns += ns;
	gp_mutex_unlock(&pool->lock);
	return rounds->token.block || rounds->result != -ENOMEM;
}

static bool is_round_skipped(const struct gp_pool *pool, enum gp_round round)
{
	const struct gp_backend_ops *ops = gp_pool_backend(pool)->ops;

	switch (round) {
	case GP_ROUND_contexts:
		return !ops->ask_contexts;
	case GP_ROUND_processes:
		return !ops->ask_processes;
	case GP_ROUND_sleepers:
		return !ops->sleepers_begin;
	case GP_ROUND_neighbours:
		return !ops->wait_begin || pool->options.oom_wait_ns;
	case GP_ROUND_wait:
		return !pool->options.oom_wait_ns;
	case GP_ROUND_spill:
		return !ops->spill || !pool->options.spills || pool->options.kind != GP_KIND_VMM;
	default:
		return false;
	}
}

int gp_rounds_run(struct gp_rounds *rounds)
{
	static uint64_t (*const fns[GP_N_ROUNDS])(struct gp_rounds *) = {
#define ROUND(number, name, doing, help) [GP_ROUND_##name] = round_##name,
#include "ladder.def"
	};

	rounds->result = -ENOMEM;
	take_turn(rounds->pool);
	rounds->has_turn = true;
	for (int i = 0; i < GP_N_ROUNDS; i++) {
		if (is_round_skipped(rounds->pool, (enum gp_round)i))
			continue;
		if (run_round(rounds, (enum gp_round)i, fns[i]))
			break;
	}
	give_up_turn(rounds);
	if (!rounds->token.block && rounds->result == -ENOMEM && rounds->ret_failure) {
		*rounds->ret_failure = (struct gp_failure){
			.bytes = rounds->bytes, .is_mapped = rounds->pool->options.kind == GP_KIND_VMM};
		memcpy(rounds->ret_failure->rounds, rounds->spent, sizeof(rounds->spent));
	}
	return rounds->token.block ? 0 : rounds->result;
}
