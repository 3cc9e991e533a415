/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_query.h"

#include <errno.h>
#include <stdlib.h>

#include "caches.h"
#include "kind.h"
#include "pool/vmm/arena.h"
#include "retain.h"
#include "segment.h"

struct gp_block *gp_pool_block_at_locked(struct gp_pool *pool, uint64_t addr)
{
	struct gp_segment *segment = gp_addrmap_segment_of(pool->options.map, addr);
	struct gp_block *b;

	if (!segment || segment->pool != pool)
		return NULL;
	if (segment->arena)
		return gp_arena_block_at_locked(segment->arena, addr);
	for (b = segment->first; b && addr - b->addr >= b->size; b = b->next)
		;
	return b;
}

bool gp_pool_is_free_at_locked(struct gp_pool *pool, uint64_t addr)
{
	struct gp_block *b = gp_pool_block_at_locked(pool, addr);

	return b && gp_block_state(b) != GP_BLOCK_USED && gp_block_state(b) != GP_BLOCK_FREEING;
}

int gp_pool_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	struct gp_block *b;

	if (!pool)
		return GP_E_FOREIGN;
	gp_mutex_lock(&pool->lock);
	b = gp_pool_block_at_locked(pool, addr);
	if (b)
		*ret_info = gp_block_describe(b);
	gp_mutex_unlock(&pool->lock);
	gp_pool_put(pool);
	return b ? 0 : GP_E_FOREIGN;
}

/* Adds the counters that change without the pool's lock. */
static void add_unlocked(struct gp_pool *pool, struct gp_stats *ret_stats)
{
	ret_stats->misses = atomic_load_explicit(&pool->n_misses, memory_order_relaxed);
	for (int i = 0; i < GP_N_STEPS; i++) {
		ret_stats->steps[i].ns = atomic_load_explicit(&pool->step_ns[i], memory_order_relaxed);
		ret_stats->steps[i].fastest_ns = atomic_load_explicit(&pool->step_fastest_ns[i], memory_order_relaxed);
	}
	ret_stats->unused_bytes = ret_stats->cached_bytes + ret_stats->pending_bytes;
	if (pool->options.backend.ops->count)
		pool->options.backend.ops->count(pool->options.backend.arg, ret_stats);
	if (atomic_load_explicit(&pool->dead, memory_order_relaxed))
		ret_stats->registered_bytes = 0; /* it has ended with its context */
	/* Shared fences are counted for their owner only. */
	if (pool->fence != &pool->own_fence)
		return;
	ret_stats->fence_records = atomic_load_explicit(&pool->fence->records, memory_order_relaxed);
	ret_stats->fence_queries = atomic_load_explicit(&pool->fence->queries, memory_order_relaxed);
	ret_stats->fence_orders = atomic_load_explicit(&pool->fence->gpu_waits, memory_order_relaxed);
	ret_stats->fence_waits = atomic_load_explicit(&pool->fence->host_waits, memory_order_relaxed);
}

void gp_pool_stats(struct gp_pool *pool, struct gp_stats *ret_stats)
{
	gp_mutex_lock(&pool->lock);
	gp_retain_release_locked(pool);
	*ret_stats = pool->stats;
	gp_caches_count_locked(pool, ret_stats);
	gp_mutex_unlock(&pool->lock);
	add_unlocked(pool, ret_stats);
}

bool gp_pool_try_stats(struct gp_pool *pool, struct gp_stats *ret_stats)
{
	bool is_counted;

	if (!gp_mutex_try(&pool->lock))
		return false;
	*ret_stats = pool->stats;
	is_counted = gp_caches_try_count_locked(pool, ret_stats);
	gp_mutex_unlock(&pool->lock);
	add_unlocked(pool, ret_stats);
	return is_counted;
}

/*
 * Bytes that count for no account. The pool counts blocks in stream order as used that threads have cached again. A
 * block that moves from one cache to another meanwhile may be found in both.
 */
static uint64_t used_in_order_locked(const struct gp_pool *pool)
{
	uint64_t held = pool->stats.stream_bytes - pool->accounted_bytes, cached = 0;
	const struct gp_list *link;

	gp_list_each(link, &pool->caches) {
		const struct gp_cache *cache = gp_container_of(link, struct gp_cache, link);

		cached += atomic_load_explicit(&cache->stream_bytes, memory_order_relaxed);
	}
	return held - gp_min(cached, held);
}

struct gp_stream_usage gp_pool_stream_usage(struct gp_pool *pool)
{
	struct gp_stream_usage usage;
	uint64_t used;

	gp_mutex_lock(&pool->lock);
	used = used_in_order_locked(pool);
	usage = (struct gp_stream_usage){
		.is_any_served = pool->is_stream_served,
		.used_bytes = used,
		/* A block that a cache hands out does not raise the mark. */
		.used_high_bytes = gp_max(pool->stream_high_bytes, used),
		.total_bytes = pool->stats.total_bytes,
		.total_high_bytes = gp_max(pool->total_high_bytes, pool->stats.total_bytes),
	};
	gp_mutex_unlock(&pool->lock);
	return usage;
}

/*
 * A block that a cache hands out does not raise the mark of used bytes. So the caches are empty when it is restarted,
 * and it has counted whatever they hold later.
 */
void gp_pool_restart_highs(struct gp_pool *pool, bool restarts_stream, bool restarts_total)
{
	bool is_any_unfenced;

	if (restarts_stream)
		(void)gp_caches_flush(pool, &is_any_unfenced);
	gp_mutex_lock(&pool->lock);
	if (restarts_stream)
		pool->stream_high_bytes = used_in_order_locked(pool);
	if (restarts_total)
		pool->total_high_bytes = pool->stats.total_bytes;
	gp_mutex_unlock(&pool->lock);
}

uint64_t gp_pool_seq(const struct gp_pool *pool)
{
	return gp_fence_started(pool->fence);
}

bool gp_pool_is_past(const struct gp_pool *pool, uint64_t seq)
{
	return seq < gp_fence_completed(pool->fence);
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
			struct gp_block_info info = gp_block_describe(b);

			if (info.is_used || (is_every && gp_block_state(b) != GP_BLOCK_UNMAPPED))
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

struct extent {
	uint64_t addr, bytes;
};

/* Leaves out chunks of a dropped pool in which no block survives: a thread is about to give them back. */
static int copy_extents_locked(struct gp_pool *pool, struct extent **ret_extents, size_t *ret_n)
{
	bool is_dead = gp_flag_is_set(&pool->dead);
	struct gp_list *link;
	struct extent *extents;
	size_t n = 0;

	gp_list_each(link, &pool->cache.vm->chunks)
		n++;
	extents = calloc(n + 1, sizeof(*extents));
	if (!extents)
		return -ENOMEM;
	n = 0;
	gp_list_each(link, &pool->cache.vm->chunks) {
		const struct gp_chunk *chunk = gp_container_of(link, struct gp_chunk, link);

		if (!is_dead || chunk->n_survivors)
			extents[n++] = (struct extent){chunk->addr, chunk->size};
	}
	*ret_extents = extents;
	*ret_n = n;
	return 0;
}

int gp_pool_each_chunk(struct gp_pool *pool, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg)
{
	struct extent *extents = NULL;
	size_t n = 0;
	int r;

	if (!pool->cache.vm)
		return 0;
	gp_mutex_lock(&pool->lock);
	r = copy_extents_locked(pool, &extents, &n);
	gp_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < n; i++)
		fn(arg, extents[i].addr, extents[i].bytes);
	free(extents);
	return r;
}
