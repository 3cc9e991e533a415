/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of a chunk: created, mapped, unmapped, and mapped elsewhere or given back. Only completed memory is
 * unmapped, since the driver unmaps at once, whatever the GPU is doing.
 *
 * If the driver refuses to unmap a chunk, the chunk is stuck. It stays in the list and on the books, since its memory
 * belongs to the pool and its addresses can have no other. Blocks are still cut from it, unless it could be mapped but
 * not be used. It is tried again only when all memory is to go back, or at the end: with one call for each stuck chunk.
 *
 * The context may end at any time. Chunks in the list then go back in gp_pool_unmap; others belong to their thread.
 */

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "chunk.h"
#include "fit.h"
#include "arena_life.h"
#include "pool/segment.h"

static const struct gp_mapping_ops *mapping_of(const struct gp_backend *be)
{
	return be->ops->mapping;
}

/* Releases an unmapped chunk; the caller corrects the counters. */
static void release(struct gp_pool *pool, struct gp_chunk *chunk)
{
	gp_chunk_release_memory(pool, chunk);
	free(chunk);
}

static int create(struct gp_pool *pool, struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r;

	if (!gp_budget_charge(pool->options.budget, chunk->size))
		return -ENOMEM;
	r = mapping_of(be)->create(be->arg, chunk->size, &chunk->handle);
	if (r)
		gp_budget_uncharge(pool->options.budget, chunk->size);
	return r;
}

/* Accounts for new memory. Returns false if the pool is dead. */
static bool book(struct gp_pool *pool, uint64_t bytes)
{
	struct gp_stats *stats = &pool->stats;
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_flag_is_set(&pool->dead);
	if (is_alive) {
		stats->total_bytes += bytes;
		stats->returning_bytes += bytes;
		stats->peak_total_bytes = gp_max(stats->peak_total_bytes, stats->total_bytes);
		pool->total_high_bytes = gp_max(pool->total_high_bytes, stats->total_bytes);
		stats->driver_allocs++;
	}
	gp_mutex_unlock(&pool->lock);
	if (!is_alive)
		gp_budget_uncharge(pool->options.budget, bytes);
	return is_alive;
}

int gp_chunk_create(struct gp_pool *pool, uint64_t bytes, struct gp_chunk **ret_chunk)
{
	struct gp_chunk *chunk = calloc(1, sizeof(*chunk));
	int r;

	if (!chunk)
		return -ENOBUFS;
	chunk->size = bytes;
	r = create(pool, chunk);
	if (r) {
		free(chunk);
		return r;
	}
	if (!book(pool, bytes)) {
		release(pool, chunk);
		return GP_E_DEAD;
	}
	*ret_chunk = chunk;
	return 0;
}

/* Takes a spilled chunk off the books, which was not charged. */
static void note_release_of_host(struct gp_pool *pool, uint64_t bytes)
{
	gp_mutex_lock(&pool->lock);
	/* gp_pool_drop has taken it off the books otherwise. */
	if (!gp_flag_is_set(&pool->dead)) {
		pool->stats.returning_bytes -= bytes;
		pool->stats.total_bytes -= bytes;
		pool->stats.spilled_bytes -= bytes;
	}
	gp_mutex_unlock(&pool->lock);
}

void gp_chunk_give_back(struct gp_pool *pool, struct gp_chunk *chunk)
{
	uint64_t bytes = chunk->size, start_ns = gp_pool_now_ns(pool);
	bool is_spilled = chunk->is_spilled;

	release(pool, chunk);
	gp_segment_count_release(pool, start_ns);
	if (is_spilled)
		note_release_of_host(pool, bytes);
	else
		gp_segment_note_arrival(pool, bytes, 0);
}

/* Add a chunk to the list, or remove it. They return false, without effect, if the pool is dead. */
static bool attach(struct gp_pool *pool, struct gp_arena *arena, struct gp_chunk *chunk, uint64_t addr)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_flag_is_set(&pool->dead);
	if (is_alive)
		gp_arena_attach_locked(pool, arena, chunk, addr);
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

static bool detach(struct gp_pool *pool, struct gp_chunk *chunk)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_flag_is_set(&pool->dead);
	if (is_alive)
		gp_arena_detach_locked(pool, chunk);
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

/* Leaves the chunk where it is and bars it from use. Returns false if the pool is dead. */
static bool strand(struct gp_pool *pool, struct gp_chunk *chunk)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_flag_is_set(&pool->dead);
	if (is_alive) {
		gp_arena_stick_locked(pool, chunk);
		gp_arena_bar_locked(pool, chunk);
	}
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

int gp_chunk_map(
	struct gp_pool *pool, struct gp_arena *arena, struct gp_chunk *chunk, uint64_t addr, bool *ret_is_stuck)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	bool is_stuck = false;
	int r;

	if (!attach(pool, arena, chunk, addr)) {
		release(pool, chunk);
		return GP_E_DEAD;
	}
	r = mapping_of(be)->map(be->arg, addr, chunk->size, chunk->handle, &is_stuck);
	chunk->is_mapped = !r || is_stuck;
	*ret_is_stuck = r && is_stuck && strand(pool, chunk);
	if (!r || *ret_is_stuck)
		return r;
	if (!detach(pool, chunk))
		return GP_E_DEAD;
	gp_chunk_give_back(pool, chunk);
	return r;
}

static int unmap(struct gp_pool *pool, struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = mapping_of(be)->unmap(be->arg, chunk->addr, chunk->size);

	chunk->is_mapped = r != 0;
	return r;
}

int gp_chunk_remove(struct gp_pool *pool, struct gp_chunk *chunk)
{
	int r = unmap(pool, chunk);

	if (!r && detach(pool, chunk))
		gp_chunk_give_back(pool, chunk);
	if (r) {
		gp_mutex_lock(&pool->lock);
		gp_arena_stick_locked(pool, chunk);
		gp_mutex_unlock(&pool->lock);
	}
	return r;
}

int gp_chunk_unmap(struct gp_pool *pool, struct gp_chunk *chunk)
{
	int r = unmap(pool, chunk);
	struct gp_block *b;

	gp_mutex_lock(&pool->lock);
	if (gp_flag_is_set(&pool->dead)) {
		gp_mutex_unlock(&pool->lock);
		return GP_E_DEAD;
	}
	b = gp_arena_block_of_locked(pool, chunk);
	if (r) {
		/* The chunk is still mapped, so no memory is lost. */
		pool->stats.returning_bytes -= chunk->size;
		gp_arena_stick_locked(pool, chunk);
		gp_arena_cache_locked(pool, b);
	} else {
		gp_arena_detach_locked(pool, chunk);
		gp_arena_make_unmapped_locked(pool, b);
	}
	gp_mutex_unlock(&pool->lock);
	return r;
}

/* Chooses the next chunk to give back: exported memory first. */
static struct gp_chunk *choose(struct gp_pool *pool, bool is_any_wanted)
{
	struct gp_chunk *chunk = NULL;

	gp_mutex_lock(&pool->lock);
	if (!gp_flag_is_set(&pool->dead))
		chunk = gp_arena_take_exported_chunk_locked(pool);
	if (!gp_flag_is_set(&pool->dead) && !chunk && is_any_wanted)
		chunk = gp_arena_take_chunk_locked(pool, UINT64_MAX);
	gp_mutex_unlock(&pool->lock);
	return chunk;
}

uint64_t gp_arena_give_back(struct gp_pool *pool, uint64_t want)
{
	uint64_t given = 0, bytes;
	struct gp_chunk *chunk;
	bool is_alive;
	int r;

	gp_mutex_lock(&pool->lock);
	is_alive = gp_arena_enter_locked(pool);
	if (is_alive && want == UINT64_MAX)
		gp_arena_unstick_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (!is_alive)
		return 0;
	while ((chunk = choose(pool, given < want))) {
		bytes = chunk->size;
		r = gp_chunk_unmap(pool, chunk);
		if (r == GP_E_DEAD)
			break;
		if (r)
			continue;
		gp_chunk_give_back(pool, chunk);
		given += bytes;
	}
	gp_arena_leave(pool);
	return given;
}
