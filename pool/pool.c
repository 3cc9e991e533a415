/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of a block: reserved from the driver as a segment (segment.c), cut and handed out (kind_*.c, reuse.c), freed
 * behind a fence (here), pending until the fence allows its reuse (reuse.c), cached, and handed out again or given
 * back. When memory runs out, rounds.c.
 *
 * Threads: any. The pool's lock guards lists, trees and counters; no driver call is made under it. A block that is
 * being freed belongs to the thread that claimed it in the address map until that thread has queued it.
 */

#include "pool_control.h"

#include <errno.h>
#include <stdlib.h>

#include "descriptor.h"
#include "kind.h"
#include "reuse.h"
#include "rounds.h"
#include "segment.h"
#include "tcache_impl.h"

static const struct gp_kind_ops *const kinds[GP_N_KINDS] = {
	[GP_KIND_NONE] = &gp_kind_none,
	[GP_KIND_SIMPLE] = &gp_kind_simple,
	[GP_KIND_BINNED] = &gp_kind_binned,
	[GP_KIND_SPLIT] = &gp_kind_split,
	[GP_KIND_VMM] = &gp_kind_vmm,
};

const struct gp_kind_ops *gp_kind_ops_of(enum gp_kind kind)
{
	return kinds[kind];
}

const char *gp_kind_name(enum gp_kind kind)
{
	return kinds[kind]->name;
}

static void pool_free(struct gp_pool *pool)
{
	if (kinds[pool->options.kind]->close)
		kinds[pool->options.kind]->close(pool);
	gp_descriptors_free(pool);
	if (pool->fence == &pool->own_fence)
		gp_fence_deinit(pool->fence);
	gp_pool_put(pool->options.sibling);
	gp_mutex_deinit(&pool->lock);
	pthread_cond_destroy(&pool->rounds_done);
	free(pool);
}

static void share_fence(struct gp_pool *pool)
{
	struct gp_pool *sibling = pool->options.sibling;

	pool->first = sibling ? gp_pool_get(sibling)->first : pool;
	pool->fence = &pool->first->own_fence;
	if (!sibling)
		gp_fence_init(pool->fence, &pool->options.backend);
}

int gp_pool_new(const struct gp_pool_options *options, struct gp_pool **ret_pool)
{
	struct gp_pool *pool = calloc(1, sizeof(*pool));
	int r = 0;

	if (!pool)
		return -ENOMEM;
	pool->options = *options;
	pool->options.page_bytes = gp_max(options->page_bytes, GP_ALIGN);
	atomic_init(&pool->kind, kinds[options->kind]);
	share_fence(pool);
	atomic_init(&pool->refs, 1);
	atomic_init(&pool->pending_bytes_max, options->pending_bytes_max);
	atomic_init(&pool->completion_only, options->completion_only);
	gp_mutex_init(&pool->lock, GP_RANK_POOL);
	pthread_cond_init(&pool->rounds_done, NULL);
	gp_pending_init(&pool->pending);
	gp_list_init(&pool->segments);
	gp_list_init(&pool->idle);
	gp_list_init(&pool->leaving);
	gp_list_init(&pool->tcaches);
	gp_list_init(&pool->spare_blocks);
	gp_list_init(&pool->spare_segments);
	kinds[options->kind]->init(pool);
	pool->can_release_behind = options->backend.ops->can_release_behind(options->backend.arg);
	if (kinds[options->kind]->open)
		r = kinds[options->kind]->open(pool);
	if (r)
		pool_free(pool);
	else
		*ret_pool = pool;
	return r;
}

struct gp_pool *gp_pool_get(struct gp_pool *pool)
{
	atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
	return pool;
}

void gp_pool_put(struct gp_pool *pool)
{
	struct gp_backend be;

	if (!pool || atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1)
		return;
	gp_assert(gp_list_is_empty(&pool->segments));
	be = pool->options.backend;
	pool_free(pool);
	if (be.ops->detach)
		be.ops->detach(be.arg);
}

static int attempt_grow(struct gp_rounds *rounds)
{
	return gp_segment_grow(rounds->pool, rounds->request, &rounds->handed);
}

static int attempt_rescue(struct gp_rounds *rounds)
{
	return rounds->rescue(rounds->rescue_arg);
}

/* What is not at hand at once. -ENOENT: it takes the driver. */
static int search_on(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed)
{
	int r = gp_reuse_insist(pool, request, ret_handed);

	if (r != -ENOENT)
		return r;
	/* A thread may have back at once what lies in its own cache, or another's. */
	if (!request->is_growth && gp_tcache_recall_for(pool, request->size))
		*ret_handed = gp_reuse_take(pool, request);
	if (!ret_handed->block)
		*ret_handed = gp_reuse_await(pool, request);
	return ret_handed->block ? 0 : -ENOENT;
}

/*
 * A thread asks for somewhat more than the program, so that the block may serve others after it. Where that is not to
 * be had: what the pool has, or can have, for the program alone.
 */
static int settle_for_least(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed)
{
	uint64_t least = request->kind->round(pool, request->bytes);
	int r;

	if (!request->kind->is_cut || least == request->size)
		return -ENOMEM;
	request->size = least;
	*ret_handed = gp_reuse_take(pool, request);
	if (ret_handed->block)
		return 0;
	r = gp_segment_grow(pool, request, ret_handed);
	/* Who gets that could not have had any more. */
	gp_segment_note_growth(pool, request, r ? r : -ENOMEM);
	return r;
}

static int alloc_slow(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed)
{
	struct gp_rounds rounds = {.pool = pool, .request = request, .attempt = attempt_grow};
	int r = request->is_uncached ? -ENOENT : search_on(pool, request, ret_handed);

	if (r != -ENOENT)
		return r;
	request->is_miss = true;
	gp_segment_poll_returning(pool);
	gp_mutex_lock(&pool->lock);
	pool->stats.misses++;
	gp_mutex_unlock(&pool->lock);
	rounds.news = gp_rounds_news(&rounds);
	r = gp_segment_grow(pool, request, ret_handed);
	if (r == -ENOMEM)
		r = settle_for_least(pool, request, ret_handed);
	if (r != -ENOMEM)
		return r;
	rounds.bytes = request->size;
	/* What this attempt gave back is worth another, once: meanwhile work may have completed. */
	request->n_undone = 0;
	r = gp_rounds_run(&rounds);
	*ret_handed = rounds.handed;
	return r;
}

/* More than the device or the limit could ever give is refused before it empties the cache for nothing. */
static bool is_hopeless(const struct gp_pool *pool, uint64_t bytes)
{
	return bytes > pool->options.capacity_bytes ||
	       bytes > atomic_load_explicit(&pool->options.budget->limit_bytes, memory_order_relaxed);
}

struct gp_request gp_request_of(const struct gp_pool *pool, uint64_t bytes)
{
	const struct gp_kind_ops *kind = gp_pool_kind(pool);

	return (struct gp_request){.kind = kind, .bytes = bytes, .size = kind->round(pool, bytes)};
}

int gp_pool_alloc_block(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed)
{
	int r;

	if (gp_pool_is_flag(&pool->dead))
		return GP_E_DEAD;
	if (is_hopeless(pool, request->bytes)) {
		if (request->is_hit_only)
			return -ENOENT;
		gp_mutex_lock(&pool->lock);
		pool->stats.ooms++;
		pool->failure = (struct gp_failure){.bytes = request->size, .is_hopeless = true};
		gp_mutex_unlock(&pool->lock);
		return -ENOMEM;
	}
	r = request->is_uncached ? -ENOENT : gp_reuse_find(pool, request, ret_handed);
	return r == -ENOENT && !request->is_hit_only ? alloc_slow(pool, request, ret_handed) : r;
}

static int alloc(struct gp_pool *pool, struct gp_request *request, uint64_t *ret_addr)
{
	struct gp_handed handed = {0};
	int r = gp_pool_alloc_block(pool, request, &handed);

	if (!r)
		*ret_addr = handed.addr;
	return r;
}

int gp_pool_alloc(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(pool, bytes);

	request.caller = caller;
	return alloc(pool, &request, ret_addr);
}

int gp_pool_alloc_hit(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(pool, bytes);

	request.caller = caller;
	request.is_hit_only = true;
	return alloc(pool, &request, ret_addr);
}

/* Where memory is mapped in pieces it goes back in pieces, too. */
static int alloc_mapped(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(pool, bytes);
	struct gp_handed handed = {0};
	int r;

	request.caller = caller;
	r = gp_pool_alloc_block(pool, &request, &handed);
	if (r)
		return r;
	gp_mutex_lock(&pool->lock);
	if (gp_block_is_as_handed(&handed))
		handed.block->flags |= GP_BLOCK_UNCACHED;
	gp_mutex_unlock(&pool->lock);
	*ret_addr = handed.addr;
	return 0;
}

/* As the kind none has it, in a segment that no other kind knows of. */
int gp_pool_alloc_uncached(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	struct gp_request request = {
		.kind = &gp_kind_none,
		.bytes = bytes,
		.caller = caller,
		.is_uncached = true,
	};

	if (gp_kind_ops_of(pool->options.kind)->grow)
		return alloc_mapped(pool, bytes, caller, ret_addr);
	request.size = gp_kind_none.round(pool, bytes);
	return alloc(pool, &request, ret_addr);
}

/* The claimed block leaves the program's account. */
static void unaccount_locked(struct gp_pool *pool, const struct gp_block *block)
{
	pool->stats.used_bytes -= block->size;
	pool->stats.requested_bytes -= gp_block_requested(block);
	pool->stats.n_used_blocks--;
}

void gp_pool_queue_locked(struct gp_pool *pool, struct gp_block *block, bool is_late)
{
	unaccount_locked(pool, block);
	block->flags |= is_late ? GP_BLOCK_LATE : 0;
	gp_block_set_state(block, GP_BLOCK_PENDING);
	gp_pending_add(&pool->pending, block);
	pool->stats.pending_bytes += block->size;
	pool->stats.n_pending_blocks++;
}

/* Whether a queued block can be sent to the driver behind its fence now, instead of when somebody looks again. */
static bool is_sent_off_locked(struct gp_pool *pool, const struct gp_block *block)
{
	return block->segment->is_uncached && gp_block_is_whole(block) && !(block->flags & GP_BLOCK_LATE) &&
	       !gp_pool_is_deferring(pool) && pool->can_release_behind;
}

/* A late free is no end of what its stream does with the block. */
static uint64_t stamp_of(const struct gp_pool *pool, enum gp_free_mode mode)
{
	return mode == GP_FREE_NORMAL ? gp_fence_stamp(pool->fence) : gp_fence_started(pool->fence);
}

/* The thread may not call the driver (backend.h), so the free is none. */
__attribute__((cold)) static int leave_to_program(struct gp_pool *pool, struct gp_block *block)
{
	bool is_dead;

	gp_mutex_lock(&pool->lock);
	is_dead = gp_pool_is_flag(&pool->dead);
	if (!is_dead)
		gp_block_set_state(block, GP_BLOCK_USED);
	gp_mutex_unlock(&pool->lock);
	return is_dead ? GP_E_DEAD : GP_E_NOT_PERMITTED;
}

static int queue(struct gp_pool *pool, struct gp_block *block, enum gp_free_mode mode, bool is_uncached)
{
	uint64_t stamp = mode == GP_FREE_SYNCED ? 0 : stamp_of(pool, mode);
	int r = mode == GP_FREE_NORMAL ? gp_fence_record(pool->fence, stamp, true) : 0;
	bool is_late = mode == GP_FREE_LATE || r, needs_flush = false, is_sent_off = false;

	if (gp_unlikely(r == -EPERM))
		return leave_to_program(pool, block);
	gp_mutex_lock(&pool->lock);
	if (gp_pool_is_flag(&pool->dead)) {
		r = GP_E_DEAD;
	} else {
		block->stamp = stamp;
		gp_pool_queue_locked(pool, block, is_late);
		if (is_uncached || block->flags & GP_BLOCK_UNCACHED)
			gp_segment_uncache_locked(pool, block);
		block->flags &= (uint8_t)~GP_BLOCK_UNCACHED;
		is_sent_off = is_sent_off_locked(pool, block);
		if (is_sent_off)
			gp_pending_remove(&pool->pending, block);
		needs_flush = gp_reuse_needs_flush_locked(pool);
	}
	gp_mutex_unlock(&pool->lock);
	if (is_sent_off) {
		(void)gp_segment_give_back_pending(pool, block);
		gp_segment_poll_returning(pool);
	}
	if (needs_flush)
		gp_reuse_flush(pool, !is_late);
	/* A capture may last, and with it what nobody may use until a fence has passed. */
	if (needs_flush && r == -EBUSY)
		gp_reuse_flush_unfenced(pool);
	return r > 0 ? r : 0;
}

/* With a queue of length 0 the block goes to the driver now: the driver's own free, with its own wait. */
static int free_unqueued(struct gp_pool *pool, struct gp_block *block)
{
	gp_mutex_lock(&pool->lock);
	if (gp_pool_is_flag(&pool->dead)) {
		gp_mutex_unlock(&pool->lock);
		return GP_E_DEAD;
	}
	unaccount_locked(pool, block);
	gp_mutex_unlock(&pool->lock);
	return gp_segment_release(pool, block);
}

/* Counts a free that is none. What lies in free memory was, as far as one can know, freed before. */
static int refuse(struct gp_pool *pool, uint64_t addr, enum gp_claim claim)
{
	bool is_free;

	gp_mutex_lock(&pool->lock);
	is_free = claim == GP_CLAIM_NOT_USED || gp_pool_is_free_at_locked(pool, addr);
	pool->stats.double_frees += is_free;
	pool->stats.invalid_frees += !is_free;
	gp_mutex_unlock(&pool->lock);
	return is_free ? GP_E_NOT_USED : GP_E_INTERIOR;
}

/* A queue of length 0 is none, unless a scope holds back what would go to the driver. */
static bool is_unqueued(const struct gp_pool *pool, enum gp_free_mode mode)
{
	return pool->options.kind == GP_KIND_NONE && pool->options.pending_count_max == 0 && mode != GP_FREE_LATE &&
	       !gp_pool_is_deferring(pool);
}

/* A claimed block, of the pool. tc: of the thread, or NULL. */
static int take_back(struct gp_pool *pool, struct gp_block *block, enum gp_free_mode mode, bool is_uncached,
		     struct gp_tcache *tc)
{
	int r;

	if (tc && gp_tcache_keep(tc, block, &r))
		return r;
	return is_unqueued(pool, mode) ? free_unqueued(pool, block) : queue(pool, block, mode, is_uncached);
}

static int release(
	struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode, bool is_uncached, struct gp_tcache *tc)
{
	struct gp_pool *pool = NULL;
	struct gp_block *block;
	enum gp_claim claim = gp_addrmap_claim(map, addr, &pool, &block);
	int r;

	switch (claim) {
	case GP_CLAIM_FOREIGN:
		return GP_E_FOREIGN;
	case GP_CLAIM_NOT_USED:
	case GP_CLAIM_INTERIOR:
		r = refuse(pool, addr, claim);
		break;
	case GP_CLAIM_OK:
	default:
		r = take_back(pool, block, mode, is_uncached, tc);
		break;
	}
	gp_pool_put(pool);
	return r;
}

int gp_pool_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	return release(map, addr, mode, false, NULL);
}

/* Nearly all that is freed here is of the cache's pool, to which the cache has a reference: no other is needed then. */
int gp_pool_free_by(struct gp_addrmap *map, uint64_t addr, struct gp_tcache *tc)
{
	struct gp_block *block = tc ? gp_addrmap_try_claim(map, addr, tc->pool) : NULL;

	if (gp_likely(block != NULL))
		return take_back(tc->pool, block, GP_FREE_NORMAL, false, tc);
	return release(map, addr, GP_FREE_NORMAL, false, tc);
}

int gp_pool_free_uncached(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	return release(map, addr, mode, true, NULL);
}

int gp_pool_rescue(struct gp_pool *pool, uint64_t bytes, int (*attempt)(void *arg), void *arg)
{
	struct gp_rounds rounds = {
		.pool = pool,
		.bytes = bytes,
		.attempt = attempt_rescue,
		.rescue = attempt,
		.rescue_arg = arg,
		/* Nobody knows when the caller's own attempt was: so one more is due. */
		.news = {.n_arrivals = UINT64_MAX},
	};

	if (gp_pool_is_flag(&pool->dead))
		return GP_E_DEAD;
	return gp_rounds_run(&rounds);
}

int gp_pool_require_completion(struct gp_pool *pool)
{
	uint64_t ordered;

	/*
	 * First the flag: what is handed out from here on is completed; then wait for what was not. Under the
	 * lock, so that who hands out a block has seen the flag or orders no later than what is read here.
	 */
	(void)gp_fence_set_in_order(pool->fence, false);
	gp_mutex_lock(&pool->lock);
	atomic_store(&pool->completion_only, true);
	gp_tcache_quiesce_locked(pool);
	ordered = atomic_load(&pool->fence->ordered);
	gp_mutex_unlock(&pool->lock);
	return ordered ? gp_fence_wait(pool->fence, ordered - 1, UINT64_MAX) : 0;
}

void gp_pool_set_whole(struct gp_pool *pool)
{
	struct gp_list *link;

	if (pool->options.kind != GP_KIND_SPLIT)
		return;
	gp_mutex_lock(&pool->lock);
	if (!gp_pool_is_flag(&pool->dead) && gp_pool_kind(pool) != &gp_kind_binned) {
		gp_kind_binned.init(pool);
		atomic_store(&pool->kind, &gp_kind_binned);
		gp_list_each(link, &pool->segments)
			gp_segment_retire_locked(pool, gp_container_of(link, struct gp_segment, link));
	}
	gp_mutex_unlock(&pool->lock);
	(void)gp_tcache_recall(pool);
	gp_reuse_settle(pool);
	(void)gp_segment_give_back(pool, 0);
}

void gp_pool_order_again(struct gp_pool *pool)
{
	uint64_t ordered = gp_fence_ordered(pool->fence);

	if (gp_fence_order_again(pool->fence))
		(void)gp_fence_wait(pool->fence, ordered - 1, UINT64_MAX);
}

/* -EAGAIN: there is none. */
static int wait_for_oldest(struct gp_fence *fence)
{
	return gp_fence_wait(fence, gp_fence_completed(fence), UINT64_MAX);
}

int gp_pool_synchronize(struct gp_pool *pool)
{
	uint64_t stamp = gp_fence_started(pool->fence);
	int r;

	/* Too many may be outstanding, of which the oldest makes room. */
	do
		r = gp_fence_record(pool->fence, stamp, true);
	while (r == -EAGAIN && !wait_for_oldest(pool->fence));
	return r ? r : gp_fence_wait(pool->fence, stamp, UINT64_MAX);
}

void gp_pool_set_in_order(struct gp_pool *pool, bool is_in_order)
{
	/* There order is not enough. */
	is_in_order &= !gp_pool_is_flag(&pool->completion_only);
	if (gp_fence_set_in_order(pool->fence, is_in_order))
		(void)gp_fence_wait(pool->fence, gp_fence_ordered(pool->fence) - 1, UINT64_MAX);
}

void gp_pool_set_overlap(struct gp_pool *pool, bool overlap)
{
	atomic_store_explicit(&pool->overlap, overlap, memory_order_relaxed);
}

void *gp_pool_owner(const struct gp_pool *pool)
{
	return pool->options.owner;
}

uint32_t gp_pool_number(const struct gp_pool *pool)
{
	return pool->options.number;
}

void gp_pool_quiesce(struct gp_pool *pool)
{
	gp_fence_quiesce(pool->fence);
}
