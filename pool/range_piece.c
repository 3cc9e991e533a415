/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of a piece: made, mapped, unmapped, and mapped elsewhere or given back. Only what is completed is unmapped:
 * the driver does it at once, whatever the GPU is at.
 *
 * Should the driver refuse that, the piece is stuck: it stays in the list and in the books, since its memory is the
 * pool's and its addresses can have no other, and blocks are cut from it as before, or none where it could be mapped
 * but not be used. It is tried again only when everything is to go back, or in the end: one call for each such piece.
 *
 * The context may end at any time. What is in the list then goes back in gp_pool_unmap; what is not is its thread's.
 */

#include <errno.h>
#include <stdlib.h>

#include "range.h"
#include "segment.h"

static const struct gp_mapping_ops *mapping_of(const struct gp_backend *be)
{
	return be->ops->mapping;
}

/* What is mapped nowhere goes back; its account is the caller's business. */
static void release(struct gp_pool *pool, struct gp_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	mapping_of(be)->release(be->arg, piece->handle, piece->size);
	free(piece);
}

static int create(struct gp_pool *pool, struct gp_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r;

	if (!gp_budget_charge(pool->options.budget, piece->size))
		return -ENOMEM;
	r = mapping_of(be)->create(be->arg, piece->size, &piece->handle);
	if (r)
		gp_budget_uncharge(pool->options.budget, piece->size);
	return r;
}

/* Puts new memory on the account. False if the pool is dead. */
static bool book(struct gp_pool *pool, uint64_t bytes)
{
	struct gp_stats *stats = &pool->stats;
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_pool_is_flag(&pool->dead);
	if (is_alive) {
		stats->total_bytes += bytes;
		stats->returning_bytes += bytes;
		stats->peak_total_bytes = gp_max(stats->peak_total_bytes, stats->total_bytes);
		stats->driver_allocs++;
	}
	gp_mutex_unlock(&pool->lock);
	if (!is_alive)
		gp_budget_uncharge(pool->options.budget, bytes);
	return is_alive;
}

int gp_piece_create(struct gp_pool *pool, uint64_t bytes, struct gp_piece **ret_piece)
{
	struct gp_piece *piece = calloc(1, sizeof(*piece));
	int r;

	if (!piece)
		return -ENOBUFS;
	piece->size = bytes;
	r = create(pool, piece);
	if (r) {
		free(piece);
		return r;
	}
	if (!book(pool, bytes)) {
		release(pool, piece);
		return GP_E_DEAD;
	}
	*ret_piece = piece;
	return 0;
}

void gp_piece_give_away(struct gp_pool *pool, struct gp_piece *piece)
{
	uint64_t bytes = piece->size, start_ns = gp_pool_now_ns(pool);

	release(pool, piece);
	gp_segment_count_release(pool, start_ns);
	gp_segment_arrived(pool, bytes, 0);
}

/* Into the list, or out of it; false if the pool is dead: then it is as it was. */
static bool attach(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_pool_is_flag(&pool->dead);
	if (is_alive)
		gp_range_attach_locked(pool, range, piece, addr);
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

static bool detach(struct gp_pool *pool, struct gp_piece *piece)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_pool_is_flag(&pool->dead);
	if (is_alive)
		gp_range_detach_locked(pool, piece);
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

/* It stays where nobody may use it. False if the pool is dead. */
static bool strand(struct gp_pool *pool, struct gp_piece *piece)
{
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_pool_is_flag(&pool->dead);
	if (is_alive) {
		gp_range_stick_locked(pool, piece);
		gp_range_bar_locked(pool, piece);
	}
	gp_mutex_unlock(&pool->lock);
	return is_alive;
}

int gp_piece_map(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr,
		 bool *ret_is_stuck)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	bool is_stuck = false;
	int r;

	if (!attach(pool, range, piece, addr)) {
		release(pool, piece);
		return GP_E_DEAD;
	}
	r = mapping_of(be)->map(be->arg, addr, piece->size, piece->handle, &is_stuck);
	piece->is_mapped = !r || is_stuck;
	*ret_is_stuck = r && is_stuck && strand(pool, piece);
	if (!r || *ret_is_stuck)
		return r;
	if (!detach(pool, piece))
		return GP_E_DEAD;
	gp_piece_give_away(pool, piece);
	return r;
}

static int unmap(struct gp_pool *pool, struct gp_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = mapping_of(be)->unmap(be->arg, piece->addr, piece->size);

	piece->is_mapped = r != 0;
	return r;
}

int gp_piece_remove(struct gp_pool *pool, struct gp_piece *piece)
{
	int r = unmap(pool, piece);

	if (!r && detach(pool, piece))
		gp_piece_give_away(pool, piece);
	if (r) {
		gp_mutex_lock(&pool->lock);
		gp_range_stick_locked(pool, piece);
		gp_mutex_unlock(&pool->lock);
	}
	return r;
}

int gp_piece_unmap(struct gp_pool *pool, struct gp_piece *piece)
{
	int r = unmap(pool, piece);
	struct gp_block *b;

	gp_mutex_lock(&pool->lock);
	if (gp_pool_is_flag(&pool->dead)) {
		gp_mutex_unlock(&pool->lock);
		return GP_E_DEAD;
	}
	b = gp_range_block_of_locked(pool, piece);
	if (r) {
		/* It is still there: nobody has lost anything. */
		pool->stats.returning_bytes -= piece->size;
		gp_range_stick_locked(pool, piece);
		gp_range_cache_locked(pool, b);
	} else {
		gp_range_detach_locked(pool, piece);
		gp_range_make_hole_locked(pool, b);
	}
	gp_mutex_unlock(&pool->lock);
	return r;
}

/* The next piece to go back: of what was exported before all else. */
static struct gp_piece *choose(struct gp_pool *pool, bool is_any_wanted)
{
	struct gp_piece *piece = NULL;

	gp_mutex_lock(&pool->lock);
	if (!gp_pool_is_flag(&pool->dead))
		piece = gp_range_take_exported_piece_locked(pool);
	if (!gp_pool_is_flag(&pool->dead) && !piece && is_any_wanted)
		piece = gp_range_take_piece_locked(pool, UINT64_MAX);
	gp_mutex_unlock(&pool->lock);
	return piece;
}

uint64_t gp_range_give_back(struct gp_pool *pool, uint64_t want)
{
	uint64_t given = 0, bytes;
	struct gp_piece *piece;
	bool is_alive;
	int r;

	gp_mutex_lock(&pool->lock);
	is_alive = gp_range_enter_locked(pool);
	if (is_alive && want == UINT64_MAX)
		gp_range_unstick_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (!is_alive)
		return 0;
	while ((piece = choose(pool, given < want))) {
		bytes = piece->size;
		r = gp_piece_unmap(pool, piece);
		if (r == GP_E_DEAD)
			break;
		if (r)
			continue;
		gp_piece_give_away(pool, piece);
		given += bytes;
	}
	gp_range_leave(pool);
	return given;
}
