/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The beginning and the end of a thread cache, and its flushes. */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "handover.h"
#include "reuse.h"
#include "tcache_impl.h"
#include "tcache_stream.h"

/* Queues a block, which the pool has counted as held by the program. Returns true if no fence of a free covers it. */
static bool queue_locked(struct gp_tcache *tc, struct gp_block *b)
{
	bool is_unfenced = b->seq >= gp_fence_published_at_free(tc->pool->fence);

	if (is_unfenced)
		tc->pool->unrecorded_seq = gp_max(tc->pool->unrecorded_seq, b->seq);
	tc->requested += gp_block_requested(b); /* offsets what the pool subtracts: the free did so, too */
	gp_pool_queue_locked(tc->pool, b, is_unfenced, 0);
	return is_unfenced;
}

static bool flush_oldest_locked(struct gp_tcache *tc, struct gp_bin *bin)
{
	return queue_locked(tc, gp_tcache_take_nth(tc, bin, 0));
}

bool gp_tcache_flush_large_locked(struct gp_tcache *tc)
{
	bool is_any_unfenced = false;

	for (unsigned i = 0; i < tc->n_large; i++)
		is_any_unfenced |= queue_locked(tc, tc->large[i].block);
	tc->n_large = 0;
	atomic_store_explicit(&tc->cache.large_bytes, 0, memory_order_relaxed);
	return is_any_unfenced;
}

/* Requires both locks. Returns the number of blocks. */
static uint64_t flush_locked(struct gp_tcache *tc, bool *ret_is_any_unfenced)
{
	uint64_t n = tc->n_large + tc->n_streamed;
	bool is_any_unfenced = gp_tcache_flush_large_locked(tc);

	is_any_unfenced |= gp_tcache_flush_streams_locked(tc) != 0;

	for (int i = 0; i < GP_TCACHE_BINS && gp_tcache_bytes(tc); i++)
		for (; tc->bins[i].count; n++)
			is_any_unfenced |= flush_oldest_locked(tc, &tc->bins[i]);
	tc->n_uncovered = tc->n_refused = 0;
	*ret_is_any_unfenced |= is_any_unfenced;
	return n;
}

void gp_tcache_flush(struct gp_tcache *tc)
{
	bool unused = false;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->cache.lock);
	(void)flush_locked(tc, &unused);
	gp_ownlock_leave(&tc->cache.lock);
	gp_mutex_unlock(&tc->pool->lock);
}

bool gp_tcache_spill(struct gp_tcache *tc, struct gp_bin *bin)
{
	uint64_t covered = gp_fence_published_at_free(tc->pool->fence);
	unsigned n_kept, n_before;
	bool needs_flush;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->cache.lock);
	n_before = bin->count;
	n_kept = n_before / 2;
	while (bin->count > n_kept && (*gp_bin_at(bin, 0))->seq < covered)
		(void)flush_oldest_locked(tc, bin);
	n_before -= bin->count;
	gp_ownlock_leave(&tc->cache.lock);
	needs_flush = n_before && gp_reuse_needs_flush_locked(tc->pool);
	gp_mutex_unlock(&tc->pool->lock);
	if (needs_flush)
		gp_reuse_flush_at_free(tc->pool, gp_fence_seq(tc->fence));
	return n_before != 0;
}

/* Counts the blocks freed in stream order as pending. */
static void count_streamed(const struct gp_tcache *tc, struct gp_stats *stats)
{
	uint64_t bytes = gp_tcache_streamed_bytes(tc);

	stats->used_bytes -= bytes;
	stats->stream_bytes -= bytes;
	stats->pending_bytes += bytes;
	stats->n_used_blocks -= tc->n_streamed;
	stats->n_pending_blocks += tc->n_streamed;
}

/* Counts a block as cached if it may be handed out as it is, otherwise as pending. */
static void count_block(const struct gp_tcache *tc, const struct gp_block *b, struct gp_stats *stats)
{
	bool is_usable = b->seq < gp_tcache_usable_below(tc);

	*(is_usable ? &stats->cached_bytes : &stats->pending_bytes) += b->size;
	*(is_usable ? &stats->n_cached_blocks : &stats->n_pending_blocks) += 1;
	stats->n_used_blocks--;
}

static struct gp_tcache *tcache_of(struct gp_cache *cache)
{
	return gp_container_of(cache, struct gp_tcache, cache);
}

static uint64_t tcache_flush_locked(struct gp_cache *cache, bool *ret_is_any_unfenced)
{
	return flush_locked(tcache_of(cache), ret_is_any_unfenced);
}

static void tcache_count_locked(struct gp_cache *cache, struct gp_stats *stats)
{
	struct gp_tcache *tc = tcache_of(cache);

	gp_tcache_add_hits(tc, stats);
	stats->requested_bytes += tc->requested;
	stats->used_bytes -= gp_tcache_bytes(tc) + gp_tcache_large_bytes(tc);
	count_streamed(tc, stats);
	for (unsigned i = 0; i < tc->n_large; i++)
		count_block(tc, tc->large[i].block, stats);
	for (int i = 0; i < GP_TCACHE_BINS; i++)
		for (unsigned n = 0; n < tc->bins[i].count; n++)
			count_block(tc, *gp_bin_at(&tc->bins[i], n), stats);
}

static void tcache_drop_locked(struct gp_cache *cache)
{
	struct gp_tcache *tc = tcache_of(cache);

	for (int i = 0; i < GP_TCACHE_BINS; i++)
		tc->bins[i].count = 0;
	atomic_store_explicit(&tc->cache.bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&tc->cache.large_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&tc->cache.stream_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&tc->cache.account_bytes, 0, memory_order_relaxed);
	tc->requested = 0;
	tc->n_large = tc->n_streamed = 0;
}

static const struct gp_cache_ops tcache_ops = {
	.flush_locked = tcache_flush_locked,
	.count_locked = tcache_count_locked,
	.drop_locked = tcache_drop_locked,
};

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
	tc->size_max = gp_min(bytes_max / GP_TCACHE_BLOCK_SHARE & ~(uint64_t)(GP_ALIGN - 1), GP_SMALL_MAX);
	for (unsigned i = 0; i < GP_TCACHE_BINS; i++) {
		uint64_t n = bytes_max / GP_TCACHE_BIN_SHARE / gp_bin_size_max(i);

		tc->bins[i].due = tc->bins[i].depth = (uint8_t)gp_min(gp_max(n, 1), GP_TCACHE_DEPTH);
		tc->bins[i].blocks = tc->blocks[i];
	}
}

/*
 * Returns a cache without blocks, in which everything but the table of blocks is zero: zeroing that as well would make
 * the kernel provide its pages at once, most of which are used late or never.
 */
static struct gp_tcache *new_cache(void **ret_memory)
{
	size_t align = _Alignof(struct gp_tcache), behind = offsetof(struct gp_tcache, recent);
	char *memory = malloc(sizeof(struct gp_tcache) + align), *start;

	*ret_memory = memory;
	if (!memory)
		return NULL;
	start = memory + (align - (uintptr_t)memory % align);
	memset(start, 0, offsetof(struct gp_tcache, blocks));
	memset(start + behind, 0, sizeof(struct gp_tcache) - behind);
	return (struct gp_tcache *)(void *)start;
}

struct gp_tcache *gp_tcache_new(struct gp_pool *pool)
{
	struct gp_tcache *tc = NULL;
	void *memory;

	if (is_allowed(pool))
		tc = new_cache(&memory);
	if (!tc)
		return NULL;
	tc->memory = memory;
	tc->pool = gp_pool_get(pool);
	tc->fence = pool->fence;
	set_bounds(tc, pool->options.thread_cache_bytes);
	gp_cache_register(pool, &tc->cache, &tcache_ops);
	return tc;
}

void gp_tcache_free(struct gp_tcache *tc)
{
	struct gp_pool *pool = tc->pool;
	bool unused = false;

	gp_mutex_lock(&pool->lock);
	gp_ownlock_enter(&tc->cache.lock);
	if (!gp_flag_is_set(&pool->dead))
		(void)flush_locked(tc, &unused);
	gp_tcache_add_hits(tc, &pool->stats);
	pool->stats.requested_bytes += tc->requested;
	gp_ownlock_leave(&tc->cache.lock);
	gp_cache_unregister_locked(pool, &tc->cache);
	gp_mutex_unlock(&pool->lock);
	free(tc->memory);
	gp_pool_put(pool);
}
