/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of a block:
 *
 *   1. It is reserved from the driver as part of a segment (segment.c).
 *   2. It is cut and handed out (kind_*.c, reuse.c).
 *   3. It is freed behind a fence (here) and is pending until the fence allows its reuse (reuse.c).
 *   4. It is cached, and then handed out again or given back to the driver.
 *
 * When memory runs out, rounds.c takes over.
 *
 * All functions may be called from any thread. The pool's lock guards lists, trees and counters; no driver call is made
 * under it. A block that is being freed belongs to the thread that claimed it in the address map, until that thread has
 * queued it.
 */

#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include "caches.h"
#include "descriptor.h"
#include "kind_split.h"
#include "kind_vmm.h"
#include "kind_whole.h"
#include "retainer.h"
#include "pool/vmm/arena_life.h"

static const struct gp_kind_ops *const kinds[GP_N_KINDS] = {
	[GP_KIND_NONE] = &gp_kind_none,
	[GP_KIND_SIMPLE] = &gp_kind_simple,
	[GP_KIND_BINNED] = &gp_kind_binned,
	[GP_KIND_SPLIT] = &gp_kind_split,
	[GP_KIND_VMM] = &gp_kind_vmm,
};

const char *gp_kind_name(enum gp_kind kind)
{
	return kinds[kind]->name;
}

static void pool_free(struct gp_pool *pool)
{
	if (pool->first_kind->close)
		pool->first_kind->close(pool);
	gp_descriptors_free(pool);
	if (pool->fence == &pool->own_fence)
		gp_fence_deinit(pool->fence);
	gp_pool_put(pool->options.sibling);
	gp_mutex_deinit(&pool->lock);
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
	pool->first_kind = kinds[options->kind];
	atomic_init(&pool->kind, pool->first_kind);
	share_fence(pool);
	atomic_init(&pool->refs, 1);
	atomic_init(&pool->pending_bytes_max, options->pending_bytes_max);
	atomic_init(&pool->completion_only, options->completion_only);
	gp_mutex_init(&pool->lock, GP_RANK_POOL);
	gp_pending_init(&pool->pending);
	gp_list_init(&pool->retained);
	gp_list_init(&pool->segments);
	gp_list_init(&pool->idle);
	gp_list_init(&pool->leaving);
	gp_list_init(&pool->caches);
	gp_list_init(&pool->spare_blocks);
	gp_list_init(&pool->spare_segments);
	pool->first_kind->init(pool);
	pool->can_release_behind = options->backend.ops->can_release_behind(options->backend.arg);
	pool->is_first_release_slow = options->backend.ops->is_first_release_slow &&
				      options->backend.ops->is_first_release_slow(options->backend.arg);
	if (pool->first_kind->open)
		r = pool->first_kind->open(pool);
	if (r)
		pool_free(pool);
	else
		*ret_pool = pool;
	return r;
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

enum gp_kind gp_pool_type(const struct gp_pool *pool)
{
	return pool->options.kind;
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

struct survival {
	gp_pool_survive_fn *fn;
	void *arg;
	uint64_t kept_bytes;
};

static bool keep_locked(struct gp_pool *pool, const struct gp_block_info *info, struct survival *survival)
{
	if (!info->is_mapped || !gp_arena_can_keep_locked(pool, info->addr, info->rounded))
		return false;
	survival->kept_bytes += gp_arena_keep_locked(pool, info->addr, info->rounded);
	return true;
}

/* Lets a block that the program held a moment ago survive, if it may. */
static bool survives_locked(struct gp_pool *pool, const struct gp_block_info *info, struct survival *survival)
{
	return survival->fn && info->is_of_stream && info->is_mapped &&
	       gp_arena_can_keep_locked(pool, info->addr, info->rounded) && survival->fn(survival->arg, info) &&
	       keep_locked(pool, info, survival);
}

/*
 * Keeps the memory of a block in stream order that is being freed: work of another context may use it until the free
 * ends. The freeing thread ends its survival (end_free_of_dropped in pool_alloc.c).
 */
static void keep_freeing_locked(struct gp_pool *pool, struct gp_block *block, struct survival *survival)
{
	struct gp_block_info info = gp_block_describe(block);

	if (survival->fn && gp_block_state(block) == GP_BLOCK_FREEING && block->flags & GP_BLOCK_STREAM &&
		keep_locked(pool, &info, survival))
		gp_block_set_state(block, GP_BLOCK_RETURNING);
}

/*
 * Takes a block from the program before it leaves the map. Otherwise a free that has found it there without a lock
 * could still claim it, although the address may belong to a different allocation by then. The free either has claimed
 * it already and learns that the pool is dead, or looks again and finds nothing.
 */
static void revoke_locked(struct gp_pool *pool, struct gp_block *block, struct survival *survival)
{
	uint64_t word = atomic_load_explicit(&block->word, memory_order_relaxed);
	bool is_counted = gp_block_state(block) != GP_BLOCK_TCACHED;
	struct gp_block_info info = gp_block_describe(block);

	gp_retainer_forget_locked(block);
	/* A block that survives counts for its account until it is freed. */
	if ((!gp_block_claim_as(block, word, GP_BLOCK_RETURNING) || !survives_locked(pool, &info, survival)) &&
		is_counted)
		gp_pool_uncharge_account(pool, block);
	atomic_store_explicit(&block->account, GP_ACCOUNT_NONE, memory_order_relaxed);
	keep_freeing_locked(pool, block, survival);
	gp_block_unmap_locked(pool, block);
}

void gp_pool_drop(struct gp_pool *pool)
{
	gp_pool_drop_except(pool, NULL, NULL);
}

void gp_pool_drop_except(struct gp_pool *pool, gp_pool_survive_fn *fn, void *arg)
{
	struct survival survival = {.fn = fn, .arg = arg};
	struct gp_list *link, *tmp;
	uint64_t bytes;

	gp_mutex_lock(&pool->lock);
	atomic_store(&pool->dead, true);
	/* From here on no thread touches a block with only its cache's lock held. */
	gp_caches_drop_locked(pool);
	gp_list_each_safe(link, tmp, &pool->segments) {
		struct gp_segment *segment = gp_container_of(link, struct gp_segment, link);

		for (struct gp_block *b = segment->first; b; b = b->next)
			revoke_locked(pool, b, &survival);
		gp_addrmap_remove_segment(pool->options.map, segment);
		gp_list_remove(link);
	}
	/* Spilled memory is not charged. */
	bytes = pool->stats.total_bytes - pool->stats.spilled_bytes;
	pool->stats.spilled_bytes = 0;
	pool->stats.used_bytes = pool->stats.requested_bytes = pool->stats.cached_bytes = 0;
	pool->stats.pending_bytes = pool->stats.returning_bytes = pool->stats.total_bytes = 0;
	pool->stats.stream_bytes = pool->stream_high_bytes = pool->total_high_bytes = 0;
	pool->is_stream_served = false;
	pool->accounted_bytes = 0;
	pool->stats.n_used_blocks = pool->stats.n_cached_blocks = pool->stats.n_pending_blocks = 0;
	pool->stats.retained_bytes = 0;
	pool->n_undersized = 0;
	gp_list_init(&pool->retained);
	gp_pending_init(&pool->pending);
	gp_list_init(&pool->idle);
	gp_list_init(&pool->leaving);
	pool->first_kind->init(pool);
	gp_pool_kind(pool)->init(pool);
	gp_mutex_unlock(&pool->lock);
	if (pool->fence == &pool->own_fence)
		gp_fence_drop(pool->fence);
	if (survival.kept_bytes && pool->options.survivor_bytes)
		atomic_fetch_add(pool->options.survivor_bytes, survival.kept_bytes);
	gp_budget_uncharge(pool->options.budget, bytes - survival.kept_bytes);
}

void gp_pool_end_survivor(struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	gp_arena_end_survivor(pool, addr, bytes);
}

void gp_pool_unmap(struct gp_pool *pool)
{
	gp_arena_unmap(pool);
}
