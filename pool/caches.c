/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "caches.h"

#include <limits.h>

#include "kind.h"
#include "reuse.h"
#include "tuning.h"

void gp_cache_register(struct gp_pool *pool, struct gp_cache *cache, const struct gp_cache_ops *ops)
{
	cache->ops = ops;
	cache->lock.barrier = pool->options.barrier;
	gp_mutex_lock(&pool->lock);
	gp_list_append(&pool->caches, &cache->link);
	pool->n_caches++;
	gp_mutex_unlock(&pool->lock);
}

void gp_cache_unregister_locked(struct gp_pool *pool, struct gp_cache *cache)
{
	gp_list_remove(&cache->link);
	pool->n_caches--;
}

/* Returns the pool's cache after this one, or the first for NULL; NULL if there is none. */
static struct gp_cache *next_locked(struct gp_pool *pool, struct gp_cache *cache)
{
	struct gp_list *link = cache ? cache->link.next : pool->caches.next;

	return link == &pool->caches ? NULL : gp_container_of(link, struct gp_cache, link);
}

/* Lets no thread enter its cache any more. Threads may still be inside. */
static void begin_close_locked(struct gp_pool *pool)
{
	struct gp_cache *cache = NULL;

	while ((cache = next_locked(pool, cache)))
		gp_ownlock_close(&cache->lock);
	if (next_locked(pool, NULL))
		gp_barrier_make(pool->options.barrier);
}

/* Keeps all threads out of their caches. */
static void close_all_locked(struct gp_pool *pool)
{
	struct gp_cache *cache = NULL;

	begin_close_locked(pool);
	while ((cache = next_locked(pool, cache)))
		gp_ownlock_await(&cache->lock);
}

static void open_all_locked(struct gp_pool *pool)
{
	struct gp_cache *cache = NULL;

	while ((cache = next_locked(pool, cache)))
		gp_ownlock_open(&cache->lock);
}

uint64_t gp_caches_flush(struct gp_pool *pool, bool *ret_is_any_unfenced)
{
	struct gp_cache *cache = NULL;
	uint64_t n = 0;

	*ret_is_any_unfenced = false;
	gp_mutex_lock(&pool->lock);
	close_all_locked(pool);
	while ((cache = next_locked(pool, cache))) {
		n += cache->ops->flush_locked(cache, ret_is_any_unfenced);
	}
	open_all_locked(pool);
	gp_mutex_unlock(&pool->lock);
	return n;
}

bool gp_caches_flush_usable(struct gp_pool *pool)
{
	bool is_any_unfenced;

	if (!gp_caches_flush(pool, &is_any_unfenced))
		return false;
	if (!is_any_unfenced || gp_reuse_fence_unfenced(pool, false) == 0)
		(void)gp_fence_poll(pool->fence);
	return true;
}

/* True if the pool has no more than a thread may cache. */
static bool is_pool_small_locked(const struct gp_pool *pool)
{
	return pool->stats.total_bytes < pool->options.thread_cache_bytes;
}

/* Returns how many flushes within GP_FLUSHES_NS are better than a larger pool. */
static unsigned flushes_max_locked(const struct gp_pool *pool)
{
	if (pool->n_caches > GP_FEW_CACHES)
		return GP_FLUSHES_MAX;
	return gp_pool_kind(pool)->is_cut && is_pool_small_locked(pool) ? GP_FLUSHES_SMALL_MAX : UINT_MAX;
}

static bool is_flushing_too_often_locked(struct gp_pool *pool, uint64_t now_ns)
{
	unsigned max = flushes_max_locked(pool);
	bool is_at_limit;

	if (max == UINT_MAX)
		return false;
	if (now_ns - pool->flushes_since_ns > GP_FLUSHES_NS) {
		pool->flushes_since_ns = now_ns;
		pool->n_flushes = 0;
	}
	is_at_limit = pool->n_flushes >= max;
	pool->n_flushes = is_at_limit ? 0 : pool->n_flushes + 1;
	return is_at_limit;
}

bool gp_caches_flush_for(struct gp_pool *pool, uint64_t size)
{
	uint64_t now_ns = gp_pool_now_ns(pool);
	bool is_too_often;

	gp_mutex_lock(&pool->lock);
	is_too_often = size <= GP_SMALL_MAX && is_flushing_too_often_locked(pool, now_ns);
	gp_mutex_unlock(&pool->lock);
	return !is_too_often && gp_caches_flush_usable(pool);
}

void gp_caches_quiesce_locked(struct gp_pool *pool)
{
	close_all_locked(pool);
	open_all_locked(pool);
}

void gp_caches_drop_locked(struct gp_pool *pool)
{
	struct gp_cache *cache = NULL;

	close_all_locked(pool);
	while ((cache = next_locked(pool, cache))) {
		cache->ops->drop_locked(cache);
	}
	open_all_locked(pool);
}

static void count_locked(struct gp_pool *pool, struct gp_stats *stats)
{
	struct gp_cache *cache = NULL;

	while ((cache = next_locked(pool, cache)))
		cache->ops->count_locked(cache, stats);
}

void gp_caches_count_locked(struct gp_pool *pool, struct gp_stats *stats)
{
	close_all_locked(pool);
	count_locked(pool, stats);
	open_all_locked(pool);
}

bool gp_caches_try_count_locked(struct gp_pool *pool, struct gp_stats *stats)
{
	struct gp_cache *cache = NULL;
	bool is_any_inside = false;

	begin_close_locked(pool);
	while ((cache = next_locked(pool, cache)))
		is_any_inside |= gp_ownlock_is_inside(&cache->lock);
	if (!is_any_inside)
		count_locked(pool, stats);
	open_all_locked(pool);
	return !is_any_inside;
}
