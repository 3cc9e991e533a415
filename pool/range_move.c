/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Growing, moving and giving back.
 *
 * A request that nothing mapped has room for gets a window of addresses, and what that lacks is filled piece by piece.
 * While the pool holds little more than was ever used at a time, with new memory. Beyond that with pieces that lie free
 * elsewhere: moving one costs about as much as a new one, whatever its size, and the pool does not grow. But a loop
 * would go on moving for ever: so if memory has been moved a few times and no more is used than before, the pool may
 * grow a little more, and then as it likes. Then all its rounds find what the first ones made.
 *
 * Only what is completed is moved: the driver unmaps at once, whatever the GPU does.
 */

#include <errno.h>
#include <stdlib.h>

#include "descriptor.h"
#include "range.h"
#include "reuse.h"
#include "segment.h"

/* How much more may be held than was ever used, before memory is moved: as shares of that. */
enum { SLACK_SHARE = 50, LOOP_SLACK_SHARE = 22 };

/* It may be a loop, and surely is one, after so many requests for which memory was moved. */
enum { LOOP_AFTER = 4, SURELY_AFTER = 12 };

/* New pieces are as large as the gap, but not so large that they will never be free as a whole. */
#define PIECE_MAX   (32 * GP_MIB)
#define PIECE_SHARE 8

struct filling {
	struct gp_pool *pool;
	struct gp_range *range;
	const struct gp_request *request;
	struct gp_window window;
	bool has_moved;
};

static const struct gp_mapping_ops *mapping_of(const struct gp_backend *be)
{
	return be->ops->mapping;
}

/* What may be held in all before memory is moved. */
static uint64_t plenty_locked(const struct filling *f)
{
	const struct gp_stats *stats = &f->pool->stats;
	uint64_t used = gp_max(stats->peak_used_bytes, stats->used_bytes + f->request->size);
	unsigned n = f->pool->cache.vm->n_moving_grows;

	if (n >= SURELY_AFTER)
		return UINT64_MAX;
	return used + used / (n >= LOOP_AFTER ? LOOP_SLACK_SHARE : SLACK_SHARE);
}

/* The first addresses of the window that have no memory. */
static uint64_t find_gap_locked(const struct filling *f, uint64_t *ret_addr)
{
	uint64_t granule = gp_range_granule(f->range), end = f->window.addr + f->window.size;
	uint64_t at = gp_round_up(f->window.addr, granule), start;
	const struct gp_piece *piece;

	while (at < end && (piece = gp_range_granule_at(f->range, at)->piece))
		at = piece->addr + piece->size;
	start = at;
	while (at < end && !gp_range_granule_at(f->range, at)->piece)
		at += granule;
	*ret_addr = start;
	return at > start ? at - start : 0;
}

/* New memory, which belongs to this thread. */
static int create(struct gp_pool *pool, uint64_t bytes, struct gp_piece **ret_piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	struct gp_piece *piece = calloc(1, sizeof(*piece));
	int r = -ENOMEM;

	if (!piece)
		return -ENOBUFS;
	piece->size = bytes;
	if (gp_budget_charge(pool->options.budget, bytes)) {
		r = mapping_of(be)->create(be->arg, bytes, &piece->handle);
		if (r)
			gp_budget_uncharge(pool->options.budget, bytes);
	}
	if (r) {
		free(piece);
		return r;
	}
	*ret_piece = piece;
	return 0;
}

/* Memory that belongs to this thread, and is mapped nowhere, goes back; its account is the caller's business. */
static void release(struct gp_pool *pool, struct gp_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	mapping_of(be)->release(be->arg, piece->handle, piece->size);
	free(piece);
}

/* Its addresses are nobody's but this thread's, and become a hole. 0, GP_E_DEAD, or the driver's error. */
static int take_off(struct gp_pool *pool, struct gp_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = mapping_of(be)->unmap(be->arg, piece->addr, piece->size);
	struct gp_block *b;

	gp_mutex_lock(&pool->lock);
	if (gp_pool_is_flag(&pool->dead)) {
		r = GP_E_DEAD;
	} else {
		b = gp_range_block_of_locked(pool, piece);
		if (r) {
			/* It is still there: nobody has lost anything. */
			pool->stats.returning_bytes -= piece->size;
			pool->stats.release_errors++;
			gp_range_cache_locked(pool, b);
		} else {
			gp_range_detach_locked(pool, piece);
			gp_range_make_hole_locked(pool, b);
		}
	}
	gp_mutex_unlock(&pool->lock);
	return r;
}

/* Takes off the account what never came to be of use, or no longer is. */
static void give_away(struct gp_pool *pool, struct gp_piece *piece)
{
	uint64_t bytes = piece->size;

	release(pool, piece);
	gp_segment_arrived(pool, bytes, 0);
}

/* A piece of this thread's is mapped into the window. */
static int place(struct filling *f, struct gp_piece *piece, uint64_t addr)
{
	const struct gp_backend *be = gp_pool_backend(f->pool);
	bool is_dead;
	int r;

	gp_mutex_lock(&f->pool->lock);
	is_dead = gp_pool_is_flag(&f->pool->dead);
	if (!is_dead)
		gp_range_attach_locked(f->pool, f->range, piece, addr);
	gp_mutex_unlock(&f->pool->lock);
	if (is_dead) {
		release(f->pool, piece);
		return GP_E_DEAD;
	}
	r = mapping_of(be)->map(be->arg, addr, piece->size, piece->handle);
	if (!r) {
		f->window.missing -= piece->size;
		return 0;
	}
	gp_mutex_lock(&f->pool->lock);
	is_dead = gp_pool_is_flag(&f->pool->dead);
	if (!is_dead)
		gp_range_detach_locked(f->pool, piece);
	gp_mutex_unlock(&f->pool->lock);
	if (is_dead)
		return GP_E_DEAD;
	give_away(f->pool, piece);
	return r;
}

/* Puts new memory on the account. False if the pool is dead, and the memory went back. */
static bool book(struct gp_pool *pool, struct gp_piece *piece)
{
	struct gp_stats *stats = &pool->stats;
	bool is_dead;

	gp_mutex_lock(&pool->lock);
	is_dead = gp_pool_is_flag(&pool->dead);
	if (!is_dead) {
		stats->total_bytes += piece->size;
		stats->returning_bytes += piece->size;
		stats->peak_total_bytes = gp_max(stats->peak_total_bytes, stats->total_bytes);
		stats->driver_allocs++;
	}
	gp_mutex_unlock(&pool->lock);
	if (is_dead) {
		gp_budget_uncharge(pool->options.budget, piece->size);
		release(pool, piece);
	}
	return !is_dead;
}

static int fill_with_new(struct filling *f, uint64_t addr, uint64_t gap)
{
	uint64_t granule = gp_range_granule(f->range), most = granule;
	struct gp_piece *piece;
	int r;

	if (f->request->size > GP_SMALL_MAX)
		most = gp_max(PIECE_MAX, gp_round_up(f->request->size / PIECE_SHARE, granule));
	r = create(f->pool, gp_min(gap, most), &piece);
	if (r)
		return r;
	return book(f->pool, piece) ? place(f, piece, addr) : GP_E_DEAD;
}

/* -ENOENT if nothing that would fit lies free. */
static int fill_with_old(struct filling *f, uint64_t addr, uint64_t gap)
{
	struct gp_piece *piece = NULL;
	int r;

	gp_mutex_lock(&f->pool->lock);
	if (!gp_pool_is_flag(&f->pool->dead))
		piece = gp_range_take_piece_locked(f->pool, gap);
	f->pool->stats.moves += piece != NULL;
	gp_mutex_unlock(&f->pool->lock);
	if (!piece)
		return -ENOENT;
	f->has_moved = true;
	r = take_off(f->pool, piece);
	return r ? r : place(f, piece, addr);
}

/* The next gap, or a part of it. 0: it has memory now. -EALREADY: there is none any more. */
static int fill_gap(struct filling *f)
{
	uint64_t addr = 0, gap = 0;
	bool is_dead, is_enough;
	int r = -ENOENT;

	gp_mutex_lock(&f->pool->lock);
	is_dead = gp_pool_is_flag(&f->pool->dead);
	if (!is_dead)
		gap = find_gap_locked(f, &addr);
	is_enough = f->pool->stats.total_bytes + f->window.missing <= plenty_locked(f);
	gp_mutex_unlock(&f->pool->lock);
	if (!gap)
		return is_dead ? GP_E_DEAD : -EALREADY;
	if (!is_enough)
		r = fill_with_old(f, addr, gap);
	if (r != -ENOENT)
		return r;
	r = fill_with_new(f, addr, gap);
	if (r != -ENOMEM || !is_enough)
		return r;
	r = fill_with_old(f, addr, gap);
	return r == -ENOENT ? -ENOMEM : r;
}

/* The window is filled: one block, of which the request gets its part. Needs two spare descriptors. */
static struct gp_block *finish_locked(struct filling *f)
{
	struct gp_block *b = f->window.first;

	while (b->size < f->window.size)
		gp_range_merge_locked(f->pool, b, b->next);
	b->flags &= (uint8_t)~GP_BLOCK_EMPTY;
	f->pool->stats.returning_bytes -= b->size;
	f->pool->cache.vm->n_moving_grows += f->has_moved;
	b = f->request->kind->cut(f->pool, b, f->request->size);
	gp_reuse_hand_out_locked(f->pool, b, f->request);
	return b;
}

/* What was mapped in an empty part of the window, one piece after another; NULL: nothing more. */
static struct gp_piece *piece_of_locked(const struct filling *f, const struct gp_block *empty)
{
	for (uint64_t at = empty->addr; at < empty->addr + empty->size; at += gp_range_granule(f->range))
		if (gp_range_granule_at(f->range, at)->piece)
			return gp_range_granule_at(f->range, at)->piece;
	return NULL;
}

/* Takes back what was mapped there. */
static void empty_part(struct filling *f, struct gp_block *part)
{
	const struct gp_backend *be = gp_pool_backend(f->pool);
	struct gp_piece *piece;

	do {
		gp_mutex_lock(&f->pool->lock);
		piece = gp_pool_is_flag(&f->pool->dead) ? NULL : piece_of_locked(f, part);
		gp_mutex_unlock(&f->pool->lock);
		if (!piece)
			return;
		(void)mapping_of(be)->unmap(be->arg, piece->addr, piece->size);
		gp_mutex_lock(&f->pool->lock);
		if (gp_pool_is_flag(&f->pool->dead))
			piece = NULL;
		else
			gp_range_detach_locked(f->pool, piece);
		gp_mutex_unlock(&f->pool->lock);
		if (piece)
			give_away(f->pool, piece);
	} while (piece);
}

/* There is no memory for the request: all is as it was, but that some of what lay free is the driver's again. */
static void abandon(struct filling *f)
{
	struct gp_block *b = f->window.first, *next;
	uint64_t end = f->window.addr + f->window.size;

	for (uint64_t at = f->window.addr; at < end; b = next) {
		bool is_hole = b->flags & GP_BLOCK_EMPTY;

		if (is_hole)
			empty_part(f, b);
		gp_mutex_lock(&f->pool->lock);
		if (gp_pool_is_flag(&f->pool->dead)) {
			gp_mutex_unlock(&f->pool->lock);
			return;
		}
		next = b->next;
		at += b->size;
		b->flags &= (uint8_t)~GP_BLOCK_EMPTY;
		if (is_hole) {
			gp_range_make_hole_locked(f->pool, b);
		} else {
			f->pool->stats.returning_bytes -= b->size;
			gp_range_cache_locked(f->pool, b);
		}
		gp_mutex_unlock(&f->pool->lock);
	}
}

/* Looks for addresses, and notes whether more is used now than ever before: then what was moved until now says nothing. */
static int begin(struct filling *f)
{
	struct gp_pool *pool = f->pool;
	int r = GP_E_DEAD;

	gp_mutex_lock(&pool->lock);
	if (!gp_range_enter_locked(pool)) {
		gp_mutex_unlock(&pool->lock);
		return r;
	}
	r = gp_descriptors_ensure_locked(pool);
	if (pool->stats.used_bytes + f->request->size > pool->stats.peak_used_bytes)
		pool->cache.vm->n_moving_grows = 0;
	if (!r && !gp_range_take_window_locked(pool, f->range, f->request->size, &f->window))
		r = -ENOMEM;
	gp_mutex_unlock(&pool->lock);
	if (r)
		gp_range_leave(pool);
	return r;
}

static int end(struct filling *f, int r, uint64_t start_ns, struct gp_block **ret_block)
{
	uint64_t ns = gp_pool_now_ns(f->pool) - start_ns;

	gp_mutex_lock(&f->pool->lock);
	if (gp_pool_is_flag(&f->pool->dead))
		r = GP_E_DEAD;
	if (!r)
		r = gp_descriptors_ensure_locked(f->pool);
	if (!r)
		*ret_block = finish_locked(f);
	f->pool->stats.driver_ns += ns;
	gp_mutex_unlock(&f->pool->lock);
	if (r && r != GP_E_DEAD)
		abandon(f);
	gp_range_leave(f->pool);
	return r;
}

int gp_range_grow(struct gp_pool *pool, const struct gp_request *request, struct gp_block **ret_block)
{
	struct filling f = {.pool = pool, .request = request, .range = gp_range_for(pool, request->size)};
	uint64_t start_ns = gp_pool_now_ns(pool);
	int r;

	/* What has completed meanwhile can be moved. */
	(void)gp_fence_settle(&pool->fence);
	r = begin(&f);
	if (!r) {
		do
			r = fill_gap(&f);
		while (!r);
		r = end(&f, r == -EALREADY ? 0 : r, start_ns, ret_block);
	}
	atomic_store_explicit(&pool->is_full, r == -ENOMEM, memory_order_relaxed);
	if (!r)
		gp_segment_keep_reserve(pool);
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
	uint64_t given = 0, start_ns, bytes;
	struct gp_piece *piece;
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = gp_range_enter_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (!is_alive)
		return 0;
	while ((piece = choose(pool, given < want))) {
		bytes = piece->size;
		start_ns = gp_pool_now_ns(pool);
		if (take_off(pool, piece))
			break;
		give_away(pool, piece);
		gp_segment_count_release(pool, start_ns);
		given += bytes;
	}
	gp_range_leave(pool);
	return given;
}
