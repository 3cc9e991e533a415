/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Segments: memory is taken from the driver here and given back.
 *
 * Giving back never makes the host wait:
 *
 *   - A segment whose work is completed is passed to the backend's release_begin. It stays charged to the budget as
 *     "returning" until release_poll or release_drain reports that it is back in the driver.
 *   - Where the backend cannot do that (pinned memory, old drivers), the memory is released at once, but only while the
 *     context is idle, when the driver has nothing to wait for.
 *   - Until the first release_begin, where that takes long, a free of the program also releases at once if the context
 *     is idle (is_own_free_better).
 *
 * A thread that takes memory in exchange waits for a moment until the driver has what it was given, but not for GPU
 * work.
 */

#include <errno.h>

#include "descriptor.h"
#include "handover.h"
#include "kind.h"
#include "pool/vmm/arena.h"
#include "reuse.h"
#include "segment.h"
#include "tuning.h"

void gp_segment_set_idle_locked(struct gp_pool *pool, struct gp_segment *segment)
{
	bool leaves = segment->is_retired || segment->is_uncached || pool->options.kind == GP_KIND_NONE;

	segment->idle_since = pool->n_grows;
	gp_list_append(leaves ? &pool->leaving : &pool->idle, &segment->idle_link);
}

void gp_segment_set_busy_locked(struct gp_segment *segment)
{
	gp_list_remove(&segment->idle_link);
}

void gp_segment_retire_locked(struct gp_pool *pool, struct gp_segment *segment)
{
	if (segment->is_retired)
		return;
	for (struct gp_block *b = segment->first; b; b = b->next)
		if (gp_block_state(b) == GP_BLOCK_CACHED)
			segment->kind->unlink(pool, b);
	segment->is_retired = true;
	if (gp_block_state(segment->first) == GP_BLOCK_CACHED && gp_block_is_whole(segment->first)) {
		gp_segment_set_busy_locked(segment);
		gp_segment_set_idle_locked(pool, segment);
	}
}

void gp_segment_uncache_locked(struct gp_pool *pool, const struct gp_block *block)
{
	if (block->segment->arena)
		pool->debt_bytes += block->size;
	else
		block->segment->is_uncached = true;
}

bool gp_segment_is_any_leaving_locked(const struct gp_pool *pool)
{
	return !gp_list_is_empty(&pool->leaving) || gp_arena_is_any_leaving_locked(pool);
}

/* The outcome of the attempts to reserve a segment. */
struct reservation {
	uint64_t base, bytes;
	uint64_t ns;        /* the time that they took */
	uint64_t available; /* what the driver has left; UINT64_MAX: unknown */
	int r;
};

static void reserve(struct gp_pool *pool, uint64_t bytes, struct reservation *reservation)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t start_ns, *available = pool->options.reserve_bytes ? &reservation->available : NULL;

	reservation->bytes = bytes;
	reservation->r = -ENOMEM;
	if (!gp_budget_charge(pool->options.budget, bytes))
		return;
	start_ns = gp_pool_now_ns(pool);
	reservation->r = be->ops->reserve(be->arg, bytes, &reservation->base, available);
	reservation->ns += gp_pool_now_ns(pool) - start_ns;
	if (reservation->r)
		gp_budget_uncharge(pool->options.budget, bytes);
}

void gp_segment_note_growth(struct gp_pool *pool, const struct gp_request *request, int result)
{
	/* A refusal of a large request does not mean that small blocks, which thread caches keep, would be refused. */
	if (result == -ENOMEM && request->size > pool->options.thread_cache_bytes)
		return;
	atomic_store_explicit(&pool->is_full, result == -ENOMEM, memory_order_relaxed);
}

bool gp_segment_is_wanted(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	return be->ops->is_wanted && be->ops->is_wanted(be->arg);
}

/*
 * If the driver is nearly empty, leaves the rest for calls that cannot be retried (loading a module, a graph).
 * is_pressed is stored only on change, since every thread reads its cache line.
 */
static void keep_reserve(struct gp_pool *pool, uint64_t available)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	bool is_short = available < pool->options.reserve_bytes, was_pressed = gp_pool_is_pressed(pool);
	bool is_pressed = is_short || (was_pressed && gp_segment_is_wanted(pool));
	uint64_t missing, given;

	if (is_pressed != was_pressed)
		atomic_store(&pool->first->is_pressed, is_pressed);
	if (!is_short)
		return;
	/* In serial mode the fences may not have been polled for long. */
	(void)gp_fence_poll(pool->fence);
	missing = pool->options.reserve_bytes - available;
	given = gp_segment_give_back(pool, missing);
	if (given < missing && be->ops->ask_siblings)
		(void)be->ops->ask_siblings(be->arg, missing - given, false);
}

void gp_segment_keep_reserve(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (pool->options.reserve_bytes)
		keep_reserve(pool, be->ops->available(be->arg));
}

static struct gp_block *adopt_locked(
	struct gp_pool *pool, uint64_t base, uint64_t bytes, const struct gp_request *request)
{
	struct gp_segment *segment = gp_segment_new_locked(pool);
	struct gp_block *block = gp_block_new_locked(pool);

	segment->base = base;
	segment->size = block->size = bytes;
	segment->first = block;
	segment->kind = request->kind;
	segment->is_retired = request->is_uncached || request->kind != gp_pool_kind(pool);
	segment->is_uncached = request->is_uncached;
	segment->is_undersized = bytes < request->size;
	pool->n_undersized += segment->is_undersized;
	segment->is_small = request->size <= GP_SMALL_MAX;
	gp_block_set_address(block, segment, base);
	gp_list_append(&pool->segments, &segment->link);
	gp_addrmap_add_segment(pool->options.map, segment);
	pool->stats.total_bytes += bytes;
	pool->stats.peak_total_bytes = gp_max(pool->stats.peak_total_bytes, pool->stats.total_bytes);
	pool->total_high_bytes = gp_max(pool->total_high_bytes, pool->stats.total_bytes);
	return request->kind->cut(pool, block, request->size);
}

/*
 * Accounts for the attempts, and hands the block of a new reservation out. Without host memory the reservation is
 * released. If its context is gone, the memory is gone as well, and the address may already belong to another
 * allocation.
 */
static int book(struct gp_pool *pool, const struct reservation *reservation, const struct gp_request *request,
	struct gp_claim_token *ret_token)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = reservation->r;

	gp_mutex_lock(&pool->lock);
	pool->stats.driver_allocs += !r;
	pool->stats.driver_ns += reservation->ns;
	if (!r)
		r = gp_flag_is_set(&pool->dead) ? GP_E_DEAD : gp_descriptors_ensure_locked(pool);
	if (!r) {
		struct gp_block *block = adopt_locked(pool, reservation->base, reservation->bytes, request);

		*ret_token = gp_pool_hand_out_locked(pool, block, request);
	}
	gp_mutex_unlock(&pool->lock);
	if (!r || reservation->r)
		return r;
	if (r == -ENOBUFS)
		(void)be->ops->release(be->arg, reservation->base);
	gp_budget_uncharge(pool->options.budget, reservation->bytes);
	return r;
}

/*
 * Takes a whole block and its segment off the books; its bytes count as returning. The release in flight ends
 * once the driver has been called.
 */
static void forget_locked(struct gp_pool *pool, struct gp_block *block, struct gp_release *in_flight)
{
	struct gp_segment *segment = block->segment;

	gp_block_unmap_locked(pool, block);
	gp_addrmap_release_begin(pool->options.map, segment, in_flight);
	gp_list_remove(&segment->link);
	gp_segment_set_busy_locked(segment);
	pool->n_undersized -= segment->is_undersized;
	pool->stats.returning_bytes += segment->size;
	gp_block_spare_locked(pool, block);
	gp_segment_spare_locked(pool, segment);
}

void gp_segment_note_arrival(struct gp_pool *pool, uint64_t bytes, int r)
{
	bool is_dead;

	gp_mutex_lock(&pool->lock);
	is_dead = gp_flag_is_set(&pool->dead); /* then gp_pool_drop has taken it off the books */
	if (!is_dead) {
		pool->stats.returning_bytes -= bytes;
		pool->stats.total_bytes -= bytes;
	}
	/*
	 * After an error it is unknown who owns the memory. It is no longer charged to the pool; nothing else is
	 * affected.
	 */
	pool->stats.release_errors += r > 0;
	gp_mutex_unlock(&pool->lock);
	if (is_dead)
		return;
	gp_budget_uncharge(pool->options.budget, bytes);
	/* Last, so that a thread that sees the new count can obtain the memory. */
	atomic_fetch_add(&pool->first->n_arrivals, 1);
}

/*
 * True if the GPU has no work in this context. If only a wait could show that, the context counts as busy unless memory
 * has run out.
 */
static bool is_context_idle(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t seq = gp_fence_started(pool->fence);

	if (!gp_flag_is_set(&pool->rounds_busy) && be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg))
		return false;
	return gp_fence_record(pool->fence, seq, false) == 0 && gp_fence_poll(pool->fence) == 0 &&
	       gp_fence_completed(pool->fence) > seq;
}

void gp_segment_count_release(struct gp_pool *pool, uint64_t start_ns)
{
	uint64_t ns = gp_pool_now_ns(pool) - start_ns;

	gp_mutex_lock(&pool->lock);
	pool->stats.driver_frees++;
	pool->stats.driver_ns += ns;
	gp_mutex_unlock(&pool->lock);
}

/*
 * For releases inside a free of the program whose block has this fence sequence: true if the driver's own free is
 * better than release_begin, because that would take long and the context is idle.
 *
 * The driver's own free waits for all work of the context, also for work that another thread submits after the check.
 * Without gpupool the program's free waits for such work, too: the program cannot know at which moment of the call the
 * driver begins to wait. So work that another thread submits while the call runs may always be waited for, even work
 * that ends only after the call has returned. Therefore this must not be used outside such a free. An allocation, a
 * stream-ordered free or a request of gpupool-stat has no such wait without gpupool.
 *
 * The check makes sure that in practice the host does not wait. An idle GPU completes a fence that was just recorded in
 * less than GP_LAG_NS.
 */
static bool is_own_free_better(struct gp_pool *pool, uint64_t seq)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r;

	if (gp_likely(!pool->is_first_release_slow ||
		      atomic_load_explicit(&pool->first->n_own_frees, memory_order_relaxed) >= GP_OWN_FREES_MAX))
		return false;
	r = gp_fence_wait_due(pool->fence, seq, GP_LAG_NS);
	/* Usually the free has recorded a fence. A free into a thread's cache may not have. */
	if (r == -ENOENT && !(be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg)) &&
		!gp_fence_record(pool->fence, seq, true))
		r = gp_fence_wait_due(pool->fence, seq, GP_LAG_NS);
	return !r;
}

/* After the first release_begin the others are fast. Stores only on change. */
static void note_release_begun(struct gp_pool *pool)
{
	_Atomic unsigned *n = &pool->first->n_own_frees;

	if (gp_unlikely(atomic_load_explicit(n, memory_order_relaxed) < GP_OWN_FREES_MAX))
		atomic_store_explicit(n, GP_OWN_FREES_MAX, memory_order_relaxed);
}

static int begin_or_release(struct gp_pool *pool, uint64_t base, int slot, const uint64_t *free_seq, bool *ret_is_done)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = -ENOTSUP;

	if (free_seq && is_own_free_better(pool, *free_seq))
		atomic_fetch_add_explicit(&pool->first->n_own_frees, 1, memory_order_relaxed);
	else
		r = be->ops->release_begin(be->arg, base, slot);
	*ret_is_done = r == -ENOTSUP;
	if (*ret_is_done)
		return be->ops->release(be->arg, base);
	note_release_begun(pool);
	return r;
}

/*
 * Calls the driver for a segment that is off the books. The release in flight is all that is left of it. free_seq: the
 * fence sequence of the program's free that causes the release and that waits for the context without gpupool; NULL
 * outside of such a free.
 */
static void begin_release(struct gp_pool *pool, struct gp_release *in_flight, int slot, const uint64_t *free_seq)
{
	uint64_t base = in_flight->base, bytes = in_flight->size;
	uint64_t start_ns = gp_pool_now_ns(pool);
	bool is_done = in_flight->is_superseded;
	int r = is_done ? 0 : begin_or_release(pool, base, slot, free_seq, &is_done);

	gp_addrmap_release_end(pool->options.map, in_flight);
	if (!in_flight->is_superseded)
		gp_segment_count_release(pool, start_ns);
	if (r || is_done) {
		gp_segment_note_arrival(pool, bytes, r);
		return;
	}
	/* After the call: a poll covers exactly the releases that were counted before it. */
	gp_mutex_lock(&pool->lock);
	atomic_fetch_add(&pool->begun_bytes, bytes);
	gp_mutex_unlock(&pool->lock);
}

static struct gp_block *only_block(struct gp_list *idle_link)
{
	return gp_container_of(idle_link, struct gp_segment, idle_link)->first;
}

/* Returns the block of the best segment to give back, whose work is completed; NULL if there is none. */
static struct gp_block *choose_locked(struct gp_pool *pool, uint64_t want)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_block *oldest = NULL, *fit = NULL;
	struct gp_list *link;

	gp_list_each(link, &pool->leaving)
		if (only_block(link)->seq < completed)
			return only_block(link);
	if (!want)
		return NULL;
	gp_list_each(link, &pool->idle) {
		struct gp_block *b = only_block(link);

		if (b->seq >= completed)
			continue;
		if (!oldest)
			oldest = b;
		if (want == UINT64_MAX)
			break;
		if (b->size >= want && (!fit || b->size < fit->size))
			fit = b;
	}
	return fit ? fit : oldest;
}

/* Returns the least recently used segment among those that were idle for long. */
static struct gp_block *choose_stale_locked(struct gp_pool *pool, uint64_t want)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_list *link;

	gp_list_each(link, &pool->idle) {
		struct gp_block *b = only_block(link);

		if (b->segment->idle_since + b->segment->kind->stale_after > pool->n_grows)
			break;
		if (b->seq < completed)
			return b;
	}
	return NULL;
}

/* True if giving back would not wait. Without release_begin that is so only while the context is idle. */
bool gp_segment_can_give_back(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	return be->ops->can_release_behind(be->arg) || is_context_idle(pool);
}

static uint64_t give_back(struct gp_pool *pool, uint64_t want, const uint64_t *free_seq,
	struct gp_block *(*choose)(struct gp_pool *pool, uint64_t want))
{
	struct gp_release in_flight;
	uint64_t given = 0;
	bool is_any;

	gp_mutex_lock(&pool->lock);
	is_any = choose(pool, want) != NULL;
	gp_mutex_unlock(&pool->lock);
	if (!is_any || !gp_segment_can_give_back(pool))
		return 0;
	for (;;) {
		struct gp_block *b;

		gp_mutex_lock(&pool->lock);
		b = gp_flag_is_set(&pool->dead) ? NULL : choose(pool, given < want ? want - given : 0);
		if (b) {
			b->segment->kind->unlink(pool, b);
			gp_cached_sub(pool, b);
			forget_locked(pool, b, &in_flight);
		}
		gp_mutex_unlock(&pool->lock);
		if (!b)
			break;
		begin_release(pool, &in_flight, GP_NO_SLOT, free_seq);
		given += in_flight.size;
	}
	return given;
}

uint64_t gp_segment_give_back(struct gp_pool *pool, uint64_t want)
{
	if (pool->first_kind->give_back)
		return pool->first_kind->give_back(pool, want);
	return give_back(pool, want, NULL, choose_locked);
}

uint64_t gp_segment_give_back_at_free(struct gp_pool *pool, uint64_t want, uint64_t free_seq)
{
	if (pool->first_kind->give_back)
		return pool->first_kind->give_back(pool, want);
	return give_back(pool, want, &free_seq, choose_locked);
}

/*
 * Returns how many idle bytes to give back before a growth by `bytes` exceeds the pool's peak; 0: none. The driver can
 * then use them for the growth. Some idle memory stays, since the program may ask for it next. A program that soon
 * needs it again has paid with driver calls and saved nothing, so this is not done in a loop (thrash.h).
 */
static uint64_t swap_bytes_locked(struct gp_pool *pool, const struct gp_request *request, uint64_t bytes)
{
	uint64_t used = pool->stats.used_bytes;

	if (pool->stats.total_bytes + bytes <= pool->stats.peak_total_bytes || gp_list_is_empty(&pool->idle))
		return 0;
	gp_thrash_begin(&pool->thrash, used + request->size);
	if (gp_thrash_excess(&pool->thrash) || gp_thrash_is_known(&pool->thrash, request->size, used))
		return 0;
	return GP_SWAP_MULTIPLE * bytes;
}

static void plan_locked(struct gp_pool *pool, const struct gp_request *request, struct gp_growth *growth)
{
	growth->bytes = request->kind->segment_bytes(pool, request->size);
	growth->swap_bytes = request->kind->swaps ? swap_bytes_locked(pool, request, growth->bytes) : 0;
	growth->used_bytes = pool->stats.used_bytes;
}

static void begin_growth_locked(struct gp_pool *pool, struct gp_request *request)
{
	struct gp_growth *growth = &request->growth;

	growth->is_planned = true;
	growth->is_any_stale = false;
	if (request->kind->stale_after && request->size > GP_SMALL_MAX) {
		pool->n_grows++;
		growth->is_any_stale = choose_stale_locked(pool, UINT64_MAX) != NULL;
	}
	plan_locked(pool, request, growth);
}

static void begin_growth(struct gp_pool *pool, struct gp_request *request)
{
	gp_mutex_lock(&pool->lock);
	begin_growth_locked(pool, request);
	gp_mutex_unlock(&pool->lock);
}

static bool is_any_returning(const struct gp_pool *pool)
{
	return atomic_load(&pool->begun_bytes) > atomic_load_explicit(&pool->arrived_bytes, memory_order_relaxed);
}

void gp_segment_plan_locked(struct gp_pool *pool, struct gp_request *request)
{
	if (!request->kind->grow && !is_any_returning(pool) && gp_fence_is_nothing_to_poll(pool->fence))
		begin_growth_locked(pool, request);
}

/*
 * Gives back segments that were idle for long: a buffer that grows slowly must not fill the device with its former
 * segments. The growth is planned anew after that.
 */
static void give_back_stale(struct gp_pool *pool, const struct gp_request *request, struct gp_growth *growth)
{
	if (give_back(pool, UINT64_MAX, NULL, choose_stale_locked))
		gp_segment_poll_returning(pool);
	gp_mutex_lock(&pool->lock);
	plan_locked(pool, request, growth);
	gp_mutex_unlock(&pool->lock);
}

/* Gives idle memory back, so that the driver can use it for the growth. The smaller pool may need a smaller segment. */
static void swap_idle(struct gp_pool *pool, const struct gp_request *request, struct gp_growth *growth)
{
	if (!gp_segment_give_back(pool, growth->swap_bytes))
		return;
	gp_mutex_lock(&pool->lock);
	gp_thrash_note(&pool->thrash, request->size, growth->used_bytes);
	gp_mutex_unlock(&pool->lock);
	gp_segment_wait_returning(pool, GP_SWAP_WAIT_NS);
	gp_mutex_lock(&pool->lock);
	growth->bytes = request->kind->segment_bytes(pool, request->size);
	gp_mutex_unlock(&pool->lock);
}

/*
 * The driver takes whole granules for a segment. A limit of one process counts what was asked for. In a group the sum
 * must hold by what the driver takes, so the segment gets all of it.
 */
static uint64_t size_in_group(const struct gp_pool *pool, const struct gp_request *request, uint64_t bytes)
{
	bool is_rounded = pool->options.budget->group && request->kind->is_cut;

	return is_rounded ? gp_round_up(bytes, pool->options.granule) : bytes;
}

static struct reservation reserve_segment(
	struct gp_pool *pool, const struct gp_request *request, uint64_t planned_bytes)
{
	/* If the planned size does not fit any more, the size of the block may, or the size that the program needs. */
	const uint64_t tries[] = {planned_bytes, gp_round_up(request->size, pool->options.granule), request->size,
		request->kind->is_cut ? request->size : gp_request_least(request)};
	struct reservation reservation = {.bytes = UINT64_MAX, .available = UINT64_MAX, .r = -ENOMEM};

	for (int i = 0; i < 4 && reservation.r == -ENOMEM; i++) {
		uint64_t bytes = size_in_group(pool, request, tries[i]);

		if (bytes < reservation.bytes)
			reserve(pool, bytes, &reservation);
	}
	return reservation;
}

int gp_segment_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	struct gp_growth *growth = &request->growth;
	struct reservation reservation;
	int r;

	if (request->kind->grow)
		return request->kind->grow(pool, request, ret_token);
	/* In kinds that reuse memory without a poll, completed work may not be known to be complete. */
	if (request->kind->swaps)
		(void)gp_fence_poll(pool->fence);
	if (!growth->is_planned)
		begin_growth(pool, request);
	growth->is_planned = false;
	if (growth->is_any_stale)
		give_back_stale(pool, request, growth);
	if (growth->swap_bytes)
		swap_idle(pool, request, growth);
	reservation = reserve_segment(pool, request, growth->bytes);
	r = reservation.r;
	/* An undersized block means that the driver is full: record it. */
	gp_segment_note_growth(pool, request, !r && reservation.bytes < request->size ? -ENOMEM : r);
	r = book(pool, &reservation, request, ret_token);
	if (!r && pool->options.reserve_bytes)
		keep_reserve(pool, reservation.available);
	return r;
}

uint64_t gp_segment_give_back_pending(struct gp_pool *pool, struct gp_block *block, const uint64_t *free_seq)
{
	struct gp_release in_flight;
	uint64_t bytes = block->size;
	int slot = GP_NO_SLOT;
	bool is_dead;

	if (gp_fence_completed(pool->fence) <= block->seq)
		slot = gp_fence_slot_after(pool->fence, block->seq);
	gp_mutex_lock(&pool->lock);
	is_dead = gp_flag_is_set(&pool->dead);
	gp_assert(is_dead || slot != GP_NO_SLOT || gp_fence_completed(pool->fence) > block->seq);
	if (!is_dead) {
		pool->stats.pending_bytes -= bytes;
		pool->stats.n_pending_blocks--;
		forget_locked(pool, block, &in_flight);
	}
	gp_mutex_unlock(&pool->lock);
	if (is_dead)
		return 0;
	begin_release(pool, &in_flight, slot, free_seq);
	return bytes;
}

/* Takes a segment of which nothing is used off the books, with all its blocks. */
static void forget_unused_locked(struct gp_pool *pool, struct gp_segment *segment, struct gp_release *in_flight)
{
	for (struct gp_block *b = segment->first, *next; b; b = next) {
		next = b->next;
		if (gp_block_state(b) == GP_BLOCK_PENDING) {
			gp_pending_remove(&pool->pending, b);
			pool->stats.pending_bytes -= b->size;
			pool->stats.n_pending_blocks--;
		} else {
			segment->kind->unlink(pool, b);
			gp_cached_sub(pool, b);
		}
		if (b == segment->first)
			continue;
		gp_block_unmap_locked(pool, b);
		gp_block_spare_locked(pool, b);
	}
	forget_locked(pool, segment->first, in_flight);
}

static int release(struct gp_pool *pool, struct gp_release *in_flight, uint64_t start_ns)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = in_flight->is_superseded ? 0 : be->ops->release(be->arg, in_flight->base);

	gp_addrmap_release_end(pool->options.map, in_flight);
	if (!in_flight->is_superseded)
		gp_segment_count_release(pool, start_ns);
	gp_segment_note_arrival(pool, in_flight->size, r);
	return r;
}

bool gp_segment_release_unused(struct gp_pool *pool)
{
	uint64_t start_ns = gp_pool_now_ns(pool);
	struct gp_release in_flight;
	struct gp_segment *segment;

	gp_mutex_lock(&pool->lock);
	segment = gp_flag_is_set(&pool->dead) ? NULL : gp_pending_find_unused(&pool->pending);
	if (segment)
		forget_unused_locked(pool, segment, &in_flight);
	gp_mutex_unlock(&pool->lock);
	if (!segment)
		return false;
	(void)release(pool, &in_flight, start_ns);
	return true;
}

int gp_segment_release(struct gp_pool *pool, struct gp_block *block)
{
	uint64_t start_ns = gp_pool_now_ns(pool);
	struct gp_release in_flight;
	bool is_dead;

	gp_mutex_lock(&pool->lock);
	is_dead = gp_flag_is_set(&pool->dead);
	if (!is_dead)
		forget_locked(pool, block, &in_flight);
	gp_mutex_unlock(&pool->lock);
	return is_dead ? GP_E_DEAD : release(pool, &in_flight, start_ns);
}

/* Counts the first `begun` bytes of all releases as arrived. Returns the bytes that were not counted before. */
static uint64_t take_arrived(struct gp_pool *pool, uint64_t begun)
{
	uint64_t arrived = 0, before;

	/* Another thread that polled meanwhile may have taken some or all of it. */
	gp_mutex_lock(&pool->lock);
	before = atomic_load_explicit(&pool->arrived_bytes, memory_order_relaxed);
	if (begun > before) {
		arrived = begun - before;
		atomic_store_explicit(&pool->arrived_bytes, begun, memory_order_relaxed);
	}
	gp_mutex_unlock(&pool->lock);
	return arrived;
}

static void check_returning(struct gp_pool *pool, uint64_t max_ns)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t begun = atomic_load(&pool->begun_bytes), arrived;
	int r;

	if (begun <= atomic_load_explicit(&pool->arrived_bytes, memory_order_relaxed) || gp_flag_is_set(&pool->dead))
		return;
	r = max_ns ? be->ops->release_drain(be->arg, max_ns) : be->ops->release_poll(be->arg);
	if (r == -EAGAIN)
		return;
	arrived = take_arrived(pool, begun);
	if (arrived)
		gp_segment_note_arrival(pool, arrived, r);
}

void gp_segment_poll_returning(struct gp_pool *pool)
{
	check_returning(pool, 0);
}

void gp_segment_wait_returning(struct gp_pool *pool, uint64_t max_ns)
{
	check_returning(pool, max_ns);
}
