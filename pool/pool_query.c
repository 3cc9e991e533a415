/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* What a pool can tell about itself, and the end of it. */

#include <errno.h>
#include <stdlib.h>

#include "kind.h"
#include "mapped.h"
#include "range.h"
#include "segment.h"
#include "tcache_impl.h"

/*
 * What the program still holds is taken from it before it leaves the map. Else a free that has found it there without a
 * lock could still claim it, though the address may be somebody else's by then: it either has it already, and hears
 * that the pool is dead, or looks again and finds nothing.
 */
static void take_away_locked(struct gp_pool *pool, struct gp_block *block)
{
	uint64_t word = atomic_load_explicit(&block->word, memory_order_relaxed);

	(void)gp_block_claim_as(block, word, GP_BLOCK_RETURNING);
	gp_block_unmap_locked(pool, block);
}

void gp_pool_drop(struct gp_pool *pool)
{
	struct gp_list *link, *tmp;
	uint64_t bytes;

	gp_mutex_lock(&pool->lock);
	atomic_store(&pool->dead, true);
	/* From here on no thread looks at a block with its cache's lock alone. */
	gp_tcache_drop_all_locked(pool);
	gp_list_each_safe(link, tmp, &pool->segments) {
		struct gp_segment *segment = gp_container_of(link, struct gp_segment, link);

		for (struct gp_block *b = segment->first; b; b = b->next)
			take_away_locked(pool, b);
		gp_addrmap_remove_segment(pool->options.map, segment);
		gp_list_remove(link);
	}
	bytes = pool->stats.total_bytes;
	pool->stats.used_bytes = pool->stats.requested_bytes = pool->stats.cached_bytes = 0;
	pool->stats.pending_bytes = pool->stats.returning_bytes = pool->stats.total_bytes = 0;
	pool->stats.n_used_blocks = pool->stats.n_free_blocks = pool->stats.n_pending_blocks = 0;
	pool->n_odd = 0;
	gp_pending_init(&pool->pending);
	gp_list_init(&pool->idle);
	gp_list_init(&pool->leaving);
	gp_kind_ops_of(pool->options.kind)->init(pool);
	gp_pool_kind(pool)->init(pool);
	gp_mutex_unlock(&pool->lock);
	if (pool->fence == &pool->own_fence)
		gp_fence_drop(pool->fence);
	gp_budget_uncharge(pool->options.budget, bytes);
}

static struct gp_block *block_around_locked(struct gp_pool *pool, uint64_t addr)
{
	struct gp_segment *segment = gp_addrmap_segment_of(pool->options.map, addr);
	struct gp_block *b;

	if (!segment || segment->pool != pool)
		return NULL;
	if (segment->range)
		return gp_range_block_at_locked(segment->range, addr);
	for (b = segment->first; b && addr - b->addr >= b->size; b = b->next)
		;
	return b;
}

bool gp_pool_is_free_at_locked(struct gp_pool *pool, uint64_t addr)
{
	struct gp_block *b = block_around_locked(pool, addr);

	return b && gp_block_state(b) != GP_BLOCK_USED && gp_block_state(b) != GP_BLOCK_FREEING;
}

static struct gp_block_info describe(const struct gp_block *b)
{
	bool is_used = gp_block_state(b) == GP_BLOCK_USED;
	const struct gp_range *range = b->segment->range;
	const struct gp_piece *piece = range ? gp_range_granule_at(range, b->addr)->piece : NULL;

	return (struct gp_block_info){
		.addr = b->addr,
		.size = is_used ? gp_block_requested(b) : b->size,
		.rounded = b->size,
		.serial = atomic_load_explicit(&b->serial, memory_order_relaxed),
		.segment_base = piece ? piece->addr : b->segment->base,
		.segment_size = piece ? piece->size : b->segment->size,
		.caller = is_used ? atomic_load_explicit(&b->caller, memory_order_relaxed) : 0,
		.is_used = is_used,
		.is_whole = gp_block_is_whole(b),
		.is_retired = gp_block_is_retired(b),
		.is_cached = gp_block_state(b) == GP_BLOCK_CACHED,
		.is_mapped = range != NULL,
	};
}

int gp_pool_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	struct gp_block *b;

	if (!pool)
		return GP_E_FOREIGN;
	gp_mutex_lock(&pool->lock);
	b = block_around_locked(pool, addr);
	if (b)
		*ret_info = describe(b);
	gp_mutex_unlock(&pool->lock);
	gp_pool_put(pool);
	return b ? 0 : GP_E_FOREIGN;
}

int gp_pool_export(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	struct gp_block *b;

	if (!pool)
		return GP_E_FOREIGN;
	gp_mutex_lock(&pool->lock);
	b = block_around_locked(pool, addr);
	if (b && !b->segment->range)
		gp_segment_retire_locked(pool, b->segment);
	else if (b && gp_block_state(b) != GP_BLOCK_HOLE && gp_block_state(b) != GP_BLOCK_MOVING)
		gp_range_retire_locked(pool, b);
	gp_mutex_unlock(&pool->lock);
	(void)gp_tcache_recall(pool);
	gp_pool_put(pool);
	return b ? 0 : GP_E_FOREIGN;
}

void gp_pool_stats(struct gp_pool *pool, struct gp_stats *ret_stats)
{
	gp_mutex_lock(&pool->lock);
	*ret_stats = pool->stats;
	gp_tcache_count_locked(pool, ret_stats);
	gp_mutex_unlock(&pool->lock);
	ret_stats->free_bytes = ret_stats->cached_bytes + ret_stats->pending_bytes;
	/* What siblings share is its owner's. */
	if (pool->fence != &pool->own_fence)
		return;
	ret_stats->fence_records = atomic_load_explicit(&pool->fence->records, memory_order_relaxed);
	ret_stats->fence_queries = atomic_load_explicit(&pool->fence->queries, memory_order_relaxed);
	ret_stats->fence_orders = atomic_load_explicit(&pool->fence->orders, memory_order_relaxed);
	ret_stats->fence_waits = atomic_load_explicit(&pool->fence->waits, memory_order_relaxed);
}

void gp_pool_last_failure(struct gp_pool *pool, struct gp_failure *ret_failure)
{
	gp_mutex_lock(&pool->lock);
	*ret_failure = pool->failure;
	gp_mutex_unlock(&pool->lock);
}

typedef bool visit_fn(void *arg, const struct gp_block_info *info);

static void visit(struct gp_pool *pool, bool is_every, visit_fn *fn, void *arg)
{
	struct gp_list *link;
	bool more = true;

	gp_mutex_lock(&pool->lock);
	gp_list_each(link, &pool->segments) {
		struct gp_segment *segment = gp_container_of(link, struct gp_segment, link);

		for (struct gp_block *b = segment->first; b && more; b = b->next) {
			struct gp_block_info info = describe(b);

			if (info.is_used || (is_every && gp_block_state(b) != GP_BLOCK_HOLE))
				more = fn(arg, &info);
		}
		if (!more)
			break;
	}
	gp_mutex_unlock(&pool->lock);
}

void gp_pool_each_used(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg)
{
	visit(pool, false, fn, arg);
}

void gp_pool_each_block(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg)
{
	visit(pool, true, fn, arg);
}

struct place {
	uint64_t addr, bytes;
};

static int copy_places_locked(struct gp_pool *pool, struct place **ret_places, size_t *ret_n)
{
	struct gp_list *link;
	struct place *places;
	size_t n = 0;

	gp_list_each(link, &pool->cache.vm->pieces)
		n++;
	places = calloc(n + 1, sizeof(*places));
	if (!places)
		return -ENOMEM;
	n = 0;
	gp_list_each(link, &pool->cache.vm->pieces) {
		const struct gp_piece *piece = gp_container_of(link, struct gp_piece, link);

		places[n++] = (struct place){piece->addr, piece->size};
	}
	*ret_places = places;
	*ret_n = n;
	return 0;
}

int gp_pool_each_piece(struct gp_pool *pool, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg)
{
	struct place *places = NULL;
	size_t n = 0;
	int r = 0;

	if (!pool->cache.vm)
		return 0;
	gp_mutex_lock(&pool->lock);
	/* Those of a pool that is gone go without the lock (range_life.c). */
	if (!gp_pool_is_flag(&pool->dead))
		r = copy_places_locked(pool, &places, &n);
	gp_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < n; i++)
		fn(arg, places[i].addr, places[i].bytes);
	free(places);
	return r;
}
