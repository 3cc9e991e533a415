/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The caches of a pool's threads, as the pool sees them: blocks that the program holds, until it asks for them. */

#include <stdlib.h>

#include "reuse.h"
#include "tcache_block.h"

/* Of what a cache may hold: no more than that on one shelf, and nothing that is larger than that, or not small. */
enum { SHELF_SHARE = 2, BLOCK_SHARE = 16 };

/*
 * All threads stop for a recall, and come to the pool one by one for what they had at hand. Where many do that, or
 * there is little memory that is cut, a slab more is better than so many recalls in such a time; it goes on until the
 * threads have about what they need.
 */
enum { FEW_CACHES = 4, RECALLS_MAX = 16 };
#define RECALLS_NS UINT64_C(20000000)

static bool is_allowed(const struct gp_pool *pool)
{
	const struct gp_pool_options *options = &pool->options;

	if (options->kind == GP_KIND_NONE || options->pending_count_max != UINT64_MAX)
		return false;
	return options->thread_cache_bytes && options->thread_cache_bytes <= gp_pool_pending_max(pool);
}

static void set_bounds(struct gp_tcache *tc, uint64_t bytes_max)
{
	tc->bytes_max = bytes_max;
	tc->size_max = gp_min(bytes_max / BLOCK_SHARE & ~(uint64_t)(GP_ALIGN - 1), GP_SMALL_MAX);
	for (unsigned i = 0; i < GP_TCACHE_SHELVES; i++) {
		uint64_t n = bytes_max / SHELF_SHARE / gp_shelf_size_max(i);

		tc->shelves[i].due = tc->shelves[i].depth = (uint8_t)gp_min(gp_max(n, 1), GP_TCACHE_DEPTH);
		tc->shelves[i].blocks = tc->blocks[i];
	}
}

struct gp_tcache *gp_tcache_new(struct gp_pool *pool)
{
	struct gp_tcache *tc = NULL;
	void *memory;

	if (is_allowed(pool))
		tc = gp_calloc_aligned(sizeof(*tc), _Alignof(struct gp_tcache), &memory);
	if (!tc)
		return NULL;
	tc->memory = memory;
	tc->pool = gp_pool_get(pool);
	tc->fence = pool->fence;
	tc->lock.barrier = pool->options.barrier;
	set_bounds(tc, pool->options.thread_cache_bytes);
	gp_mutex_lock(&pool->lock);
	gp_list_append(&pool->tcaches, &tc->link);
	pool->n_tcaches++;
	gp_mutex_unlock(&pool->lock);
	return tc;
}

/* The next cache of the pool after one, or the first; NULL if there is none. */
static struct gp_tcache *next_locked(struct gp_pool *pool, struct gp_tcache *tc)
{
	struct gp_list *link = tc ? tc->link.next : pool->tcaches.next;

	return link == &pool->tcaches ? NULL : gp_container_of(link, struct gp_tcache, link);
}

/* Keeps all threads out of their caches. */
static void close_all_locked(struct gp_pool *pool)
{
	struct gp_tcache *tc = NULL;

	while ((tc = next_locked(pool, tc)))
		gp_ownlock_close(&tc->lock);
	if (next_locked(pool, NULL))
		gp_barrier_make(pool->options.barrier);
	while ((tc = next_locked(pool, tc)))
		gp_ownlock_await(&tc->lock);
}

static void open_all_locked(struct gp_pool *pool)
{
	struct gp_tcache *tc = NULL;

	while ((tc = next_locked(pool, tc)))
		gp_ownlock_open(&tc->lock);
}

/* To the pool the program has held it all the time. Whether no free's fence covers it. */
static bool queue_locked(struct gp_tcache *tc, struct gp_block *b)
{
	bool is_late = b->stamp >= gp_fence_published_at_free(tc->pool->fence);

	if (is_late)
		tc->pool->unrecorded_stamp = gp_max(tc->pool->unrecorded_stamp, b->stamp);
	tc->requested += gp_block_requested(b); /* the pool takes it off, as it was when it was handed out last */
	gp_pool_queue_locked(tc->pool, b, is_late);
	return is_late;
}

static bool give_back_locked(struct gp_tcache *tc, struct gp_shelf *shelf)
{
	return queue_locked(tc, gp_tcache_take_nth(tc, shelf, 0));
}

bool gp_tcache_flush_large_locked(struct gp_tcache *tc)
{
	bool is_any_late = false;

	for (unsigned i = 0; i < tc->n_large; i++)
		is_any_late |= queue_locked(tc, tc->large[i].block);
	tc->n_blocks -= tc->n_large;
	tc->n_large = 0;
	tc->large_bytes = 0;
	return is_any_late;
}

/* With both locks. */
static bool flush_locked(struct gp_tcache *tc)
{
	bool is_any_late = gp_tcache_flush_large_locked(tc);

	for (int i = 0; i < GP_TCACHE_SHELVES; i++)
		while (tc->shelves[i].count)
			is_any_late |= give_back_locked(tc, &tc->shelves[i]);
	tc->n_uncovered = tc->n_refused = 0;
	return is_any_late;
}

uint64_t gp_tcache_flush_all(struct gp_pool *pool, bool *ret_is_any_late)
{
	struct gp_tcache *tc = NULL;
	uint64_t n = 0;

	*ret_is_any_late = false;
	gp_mutex_lock(&pool->lock);
	close_all_locked(pool);
	while ((tc = next_locked(pool, tc))) {
		n += tc->n_blocks;
		*ret_is_any_late |= flush_locked(tc);
	}
	open_all_locked(pool);
	gp_mutex_unlock(&pool->lock);
	return n;
}

bool gp_tcache_recall(struct gp_pool *pool)
{
	bool is_any_late;

	if (!gp_tcache_flush_all(pool, &is_any_late))
		return false;
	if (!is_any_late || gp_reuse_cover_late(pool, false) == 0)
		(void)gp_fence_settle(pool->fence);
	return true;
}

/* No more than a thread may keep. */
static bool is_little_locked(const struct gp_pool *pool)
{
	return pool->stats.total_bytes < pool->options.thread_cache_bytes;
}

static bool is_too_many_locked(struct gp_pool *pool, uint64_t now_ns)
{
	bool is;

	if (pool->n_tcaches <= FEW_CACHES && !(gp_pool_kind(pool)->is_cut && is_little_locked(pool)))
		return false;
	if (now_ns - pool->recalls_since_ns > RECALLS_NS) {
		pool->recalls_since_ns = now_ns;
		pool->n_recalls = 0;
	}
	is = pool->n_recalls == RECALLS_MAX;
	pool->n_recalls = is ? 0 : pool->n_recalls + 1;
	return is;
}

bool gp_tcache_recall_for(struct gp_pool *pool, uint64_t size)
{
	uint64_t now_ns = gp_pool_now_ns(pool);
	bool is_too_many;

	gp_mutex_lock(&pool->lock);
	is_too_many = size <= GP_SMALL_MAX && is_too_many_locked(pool, now_ns);
	gp_mutex_unlock(&pool->lock);
	return !is_too_many && gp_tcache_recall(pool);
}

void gp_tcache_flush(struct gp_tcache *tc)
{
	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->lock);
	(void)flush_locked(tc);
	gp_ownlock_leave(&tc->lock);
	gp_mutex_unlock(&tc->pool->lock);
}

bool gp_tcache_spill(struct gp_tcache *tc, struct gp_shelf *shelf)
{
	uint64_t covered = gp_fence_published_at_free(tc->pool->fence);
	unsigned n_kept, n_before;
	bool needs_flush;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->lock);
	n_before = shelf->count;
	n_kept = n_before / 2;
	while (shelf->count > n_kept && (*gp_shelf_at(shelf, 0))->stamp < covered)
		(void)give_back_locked(tc, shelf);
	n_before -= shelf->count;
	gp_ownlock_leave(&tc->lock);
	needs_flush = n_before && gp_reuse_needs_flush_locked(tc->pool);
	gp_mutex_unlock(&tc->pool->lock);
	if (needs_flush)
		gp_reuse_flush(tc->pool, true);
	return n_before != 0;
}

void gp_tcache_quiesce_locked(struct gp_pool *pool)
{
	close_all_locked(pool);
	open_all_locked(pool);
}

void gp_tcache_drop_all_locked(struct gp_pool *pool)
{
	struct gp_tcache *tc = NULL;

	close_all_locked(pool);
	while ((tc = next_locked(pool, tc))) {
		for (int i = 0; i < GP_TCACHE_SHELVES; i++)
			tc->shelves[i].count = 0;
		tc->bytes = tc->large_bytes = tc->n_blocks = tc->requested = 0;
		tc->n_large = 0;
	}
	open_all_locked(pool);
}

/* What the pool may hand out as it is counts as cached, the rest as pending. */
static void count_block(
	const struct gp_tcache *tc, const struct gp_block *b, struct gp_stats *stats)
{
	bool is_usable = b->stamp < gp_tcache_usable_below(tc);

	*(is_usable ? &stats->cached_bytes : &stats->pending_bytes) += b->size;
	*(is_usable ? &stats->n_free_blocks : &stats->n_pending_blocks) += 1;
}

static void count(struct gp_tcache *tc, struct gp_stats *stats)
{
	stats->hits += tc->hits;
	stats->requested_bytes += tc->requested;
	stats->used_bytes -= tc->bytes + tc->large_bytes;
	stats->n_used_blocks -= tc->n_blocks;
	for (unsigned i = 0; i < tc->n_large; i++)
		count_block(tc, tc->large[i].block, stats);
	for (int i = 0; i < GP_TCACHE_SHELVES; i++)
		for (unsigned n = 0; n < tc->shelves[i].count; n++)
			count_block(tc, *gp_shelf_at(&tc->shelves[i], n), stats);
}

void gp_tcache_count_locked(struct gp_pool *pool, struct gp_stats *stats)
{
	struct gp_tcache *tc = NULL;

	close_all_locked(pool);
	while ((tc = next_locked(pool, tc)))
		count(tc, stats);
	open_all_locked(pool);
}

void gp_tcache_free(struct gp_tcache *tc)
{
	struct gp_pool *pool = tc->pool;

	gp_mutex_lock(&pool->lock);
	gp_ownlock_enter(&tc->lock);
	if (!gp_pool_is_flag(&pool->dead))
		(void)flush_locked(tc);
	pool->stats.hits += tc->hits;
	pool->stats.requested_bytes += tc->requested;
	gp_ownlock_leave(&tc->lock);
	gp_list_remove(&tc->link);
	pool->n_tcaches--;
	gp_mutex_unlock(&pool->lock);
	free(tc->memory);
	gp_pool_put(pool);
}
