/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The growth of the kind vmm: it takes new memory, or moves memory that it has.
 *
 * If no mapped memory has room for a request, the request gets a placement: addresses in the arena. Parts of it that
 * have no memory are filled chunk by chunk:
 *
 *   - with new memory, while the pool holds little more than the peak of use;
 *   - beyond that, with chunks that are free elsewhere. Moving a chunk costs about as much as a new one, whatever its
 *     size, and the pool does not grow. If all of them are larger than what is missing, one goes back to the driver,
 *     and a new one takes its place.
 *
 * A loop would go on moving memory forever. The thrash detector (thrash.h) prevents that, so that later iterations
 * find what the first ones mapped:
 *
 *   - A request for which memory was moved before, when as much was used, gets new memory.
 *   - If memory has been moved often and use has not risen, each further move lets the pool grow some more.
 */

#include <errno.h>

#include "pool/descriptor.h"
#include "pool/handover.h"
#include "chunk.h"
#include "grow.h"
#include "fit.h"
#include "arena_life.h"
#include "pool/reuse.h"
#include "pool/segment.h"
#include "pool/tuning.h"

struct filling {
	struct gp_pool *pool;
	struct gp_arena *arena;
	struct gp_request *request;
	struct gp_placement placement;
	struct gp_block *spare; /* a descriptor for abandoning the placement, when host memory may be short, too */
	uint64_t used_bytes;    /* bytes used when the request came */
	bool is_repeated;       /* memory was moved for such a request before */
	bool has_moved;
	bool is_refused;      /* the driver refused to unmap a new mapping */
	bool is_retry_useful; /* memory that goes back now is worth another attempt, even for this request */
};

/* Returns how much the pool may hold before memory is moved. */
static uint64_t move_threshold_locked(const struct filling *f)
{
	uint64_t used = gp_max(f->pool->stats.peak_used_bytes, f->used_bytes + f->request->size);
	uint64_t slack = gp_min(GP_MOVE_SLACK + f->pool->thrash.count, GP_MOVE_SLACK_MAX);

	if (f->is_repeated)
		return UINT64_MAX;
	slack += (uint64_t)GP_MOVE_SLACK_STEP * gp_thrash_excess(&f->pool->thrash);
	return used + used / 1000 * slack;
}

/* Returns the length of the first gap in the placement, and its address. */
static uint64_t find_gap_locked(const struct filling *f, uint64_t *ret_addr)
{
	uint64_t granule = gp_arena_granule(f->arena), end = f->placement.addr + f->placement.size;
	uint64_t at = gp_round_up(f->placement.addr, granule), start;
	const struct gp_chunk *chunk;

	while (at < end && (chunk = gp_arena_granule_at(f->arena, at)->chunk))
		at = chunk->addr + chunk->size;
	start = at;
	while (at < end && !gp_arena_granule_at(f->arena, at)->chunk)
		at += granule;
	*ret_addr = start;
	return at > start ? at - start : 0;
}

/* Maps a chunk into the placement. */
static int map_into_placement(struct filling *f, struct gp_chunk *chunk, uint64_t addr)
{
	uint64_t bytes = chunk->size;
	int r = gp_chunk_map(f->pool, f->arena, chunk, addr, &f->is_refused);

	f->placement.missing -= r ? 0 : bytes;
	/* After this failure the chunk is back in the driver. */
	f->request->n_undone += r && r != GP_E_DEAD && !f->is_refused;
	return r;
}

static int fill_with_new(struct filling *f, uint64_t addr, uint64_t gap)
{
	struct gp_chunk *chunk;
	int r = gp_chunk_create(f->pool, gp_min(gap, gp_arena_chunk_max(f->arena, f->request->size)), &chunk);

	return r ? r : map_into_placement(f, chunk, addr);
}

/* Fills the gap with a free chunk from elsewhere. -ENOENT if no free chunk fits. */
static int fill_with_old(struct filling *f, uint64_t addr, uint64_t gap)
{
	struct gp_chunk *chunk = NULL;
	int r;

	gp_mutex_lock(&f->pool->lock);
	if (!gp_flag_is_set(&f->pool->dead))
		chunk = gp_arena_take_chunk_locked(f->pool, gap);
	f->pool->stats.moves += chunk != NULL;
	gp_mutex_unlock(&f->pool->lock);
	if (!chunk)
		return -ENOENT;
	r = gp_chunk_unmap(f->pool, chunk);
	if (r == GP_E_DEAD)
		return r;
	/* The chunk is stuck and is not found again. Another chunk, or new memory, may do. */
	if (r)
		return 0;
	f->has_moved = true;
	return map_into_placement(f, chunk, addr);
}

/* Gives back a free chunk before a smaller one is created. Returns whether it did. */
static bool make_room(struct filling *f)
{
	struct gp_chunk *chunk = NULL;

	gp_mutex_lock(&f->pool->lock);
	if (!gp_flag_is_set(&f->pool->dead))
		chunk = gp_arena_take_chunk_locked(f->pool, f->pool->stats.total_bytes);
	gp_mutex_unlock(&f->pool->lock);
	if (!chunk || gp_chunk_unmap(f->pool, chunk))
		return false;
	gp_chunk_give_back(f->pool, chunk);
	f->has_moved = true;
	return true;
}

/* Fills the next gap, or a part of it. 0: that has memory now. -EALREADY: no gap is left. */
static int fill_gap(struct filling *f)
{
	uint64_t addr = 0, gap = 0;
	bool is_dead, is_below_threshold, is_replaced = false;
	int r = -ENOENT;

	gp_mutex_lock(&f->pool->lock);
	is_dead = gp_flag_is_set(&f->pool->dead);
	if (!is_dead)
		gap = find_gap_locked(f, &addr);
	is_below_threshold = f->pool->stats.total_bytes + f->placement.missing <= move_threshold_locked(f);
	gp_mutex_unlock(&f->pool->lock);
	if (!gap)
		return is_dead ? GP_E_DEAD : -EALREADY;
	if (!is_below_threshold)
		r = fill_with_old(f, addr, gap);
	if (r != -ENOENT)
		return r;
	if (!is_below_threshold)
		is_replaced = make_room(f);
	r = fill_with_new(f, addr, gap);
	f->request->n_undone += r == -ENOMEM && is_replaced;
	if (r != -ENOMEM || !is_below_threshold || f->is_refused)
		return r;
	r = fill_with_old(f, addr, gap);
	return r == -ENOENT ? -ENOMEM : r;
}

/*
 * True if gp_pool_require_completion was called meanwhile, and its wait may not be over yet for blocks that were taken
 * after a GPU wait alone.
 */
static bool is_too_early_locked(const struct filling *f)
{
	const struct gp_block *b = f->placement.first;
	uint64_t completed = gp_fence_completed(f->pool->fence);

	if (!gp_flag_is_set(&f->pool->completion_only))
		return false;
	for (; b && b->addr < f->placement.addr + f->placement.size; b = b->next)
		if (b->seq >= completed)
			return true;
	return false;
}

static void put_spare_back_locked(struct filling *f)
{
	if (f->spare)
		gp_block_spare_locked(f->pool, f->spare);
	f->spare = NULL;
}

/* Merges the filled placement into one block, and hands out the requested part. Needs two spare descriptors. */
static struct gp_claim_token finish_locked(struct filling *f)
{
	struct gp_block *b = f->placement.first;

	while (b->size < f->placement.size)
		gp_arena_merge_locked(f->pool, b, b->next);
	b->flags &= (uint8_t)~GP_BLOCK_EMPTY;
	f->pool->stats.returning_bytes -= b->size;
	put_spare_back_locked(f);
	if (f->has_moved)
		gp_thrash_note(&f->pool->thrash, f->request->size, f->used_bytes);
	b = f->request->kind->cut(f->pool, b, f->request->size);
	return gp_pool_hand_out_locked(f->pool, b, f->request);
}

/* Returns the last chunk in an empty part of the placement; NULL if nothing is mapped there. */
static struct gp_chunk *last_chunk_locked(const struct filling *f, const struct gp_block *empty)
{
	uint64_t granule = gp_arena_granule(f->arena);

	for (uint64_t at = empty->addr + empty->size; at > empty->addr; at -= granule)
		if (gp_arena_granule_at(f->arena, at - granule)->chunk)
			return gp_arena_granule_at(f->arena, at - granule)->chunk;
	return NULL;
}

/*
 * Unmaps what was mapped in an empty part of the placement, from its end on, until the driver refuses. The part was
 * filled from its beginning, so what stays is at the beginning. Returns its bytes.
 */
static uint64_t empty_part(struct filling *f, const struct gp_block *part)
{
	struct gp_chunk *chunk;

	for (;;) {
		gp_mutex_lock(&f->pool->lock);
		chunk = gp_flag_is_set(&f->pool->dead) ? NULL : last_chunk_locked(f, part);
		gp_mutex_unlock(&f->pool->lock);
		if (!chunk)
			return 0;
		f->is_refused = f->is_refused || gp_chunk_remove(f->pool, chunk);
		if (f->is_refused)
			return chunk->addr + chunk->size - part->addr;
		f->request->n_undone += !f->is_retry_useful;
	}
}

/*
 * Caches the first bytes of the part, which have memory, and turns the rest into an unmapped gap, for which a
 * descriptor was kept.
 */
static void restore_part_locked(struct filling *f, struct gp_block *part, uint64_t kept)
{
	struct gp_pool *pool = f->pool;

	part->flags &= (uint8_t)~GP_BLOCK_EMPTY;
	if (!kept) {
		gp_arena_make_unmapped_locked(pool, part);
		return;
	}
	if (kept < part->size) {
		put_spare_back_locked(f);
		gp_arena_make_unmapped_locked(pool, gp_arena_cut_locked(pool, part, kept));
	}
	pool->stats.returning_bytes -= part->size;
	gp_arena_cache_locked(pool, part);
}

static struct gp_block *last_part(struct filling *f)
{
	struct gp_block *b = f->placement.first;

	gp_mutex_lock(&f->pool->lock);
	while (b->addr + b->size < f->placement.addr + f->placement.size)
		b = b->next;
	gp_mutex_unlock(&f->pool->lock);
	return b;
}

/*
 * Gives the placement up, since there is no memory for the request. Its blocks are cached again and its gaps unmapped,
 * with two exceptions: free memory that was moved into it is back in the driver, and memory that the driver did not
 * unmap is cached where it is.
 */
static void abandon(struct filling *f)
{
	struct gp_block *b = last_part(f), *before;
	bool is_first = false;

	for (; !is_first; b = before) {
		uint64_t kept = b->flags & GP_BLOCK_EMPTY ? empty_part(f, b) : b->size;

		gp_mutex_lock(&f->pool->lock);
		if (gp_flag_is_set(&f->pool->dead)) {
			gp_mutex_unlock(&f->pool->lock);
			return;
		}
		before = b->prev;
		is_first = b == f->placement.first;
		restore_part_locked(f, b, kept);
		if (is_first)
			put_spare_back_locked(f);
		gp_mutex_unlock(&f->pool->lock);
	}
}

static int begin(struct filling *f)
{
	struct gp_pool *pool = f->pool;
	int r = GP_E_DEAD;

	gp_mutex_lock(&pool->lock);
	if (!gp_arena_enter_waiting_locked(pool)) {
		gp_mutex_unlock(&pool->lock);
		return r;
	}
	/* The new memory might be what the pool then lacks to wake. */
	r = pool->cache.vm->asleep.device_bytes ? GP_E_ASLEEP : gp_descriptors_ensure_locked(pool);
	f->used_bytes = pool->stats.used_bytes;
	gp_thrash_begin(&pool->thrash, f->used_bytes + f->request->size);
	f->is_repeated = gp_thrash_is_known(&pool->thrash, f->request->size, f->used_bytes);
	if (!r && !gp_arena_take_placement_locked(pool, f->arena, f->request->size, &f->placement))
		r = -ENOMEM;
	if (!r)
		f->spare = gp_block_new_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (r)
		gp_arena_leave(pool);
	return r;
}

static int end(struct filling *f, int r, uint64_t start_ns, struct gp_claim_token *ret_token)
{
	uint64_t ns = gp_pool_now_ns(f->pool) - start_ns;

	gp_mutex_lock(&f->pool->lock);
	if (gp_flag_is_set(&f->pool->dead))
		r = GP_E_DEAD;
	if (!r)
		r = gp_descriptors_ensure_locked(f->pool);
	/* The request fails now, and the retry rounds search again. */
	f->is_retry_useful = !r && is_too_early_locked(f);
	if (f->is_retry_useful)
		r = -ENOMEM;
	if (!r)
		*ret_token = finish_locked(f);
	f->pool->stats.driver_ns += ns;
	gp_mutex_unlock(&f->pool->lock);
	if (r && r != GP_E_DEAD)
		abandon(f);
	gp_arena_leave(f->pool);
	return r;
}

int gp_arena_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token)
{
	struct filling f = {.pool = pool, .request = request, .arena = gp_arena_for(pool, request->size)};
	uint64_t start_ns = gp_pool_now_ns(pool);
	int r;

	/* Chunks that have completed meanwhile can be moved. */
	(void)gp_fence_poll(pool->fence);
	r = begin(&f);
	if (!r) {
		do
			r = fill_gap(&f);
		while (!r);
		r = end(&f, r == -EALREADY ? 0 : r, start_ns, ret_token);
	}
	gp_segment_note_growth(pool, request, r);
	if (!r)
		gp_segment_keep_reserve(pool);
	return r;
}
