/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Growing, by new memory or by moving what there is.
 *
 * A request that nothing mapped has room for gets a window of addresses, and what that lacks is filled piece by piece.
 * While the pool holds little more than was ever used at a time, with new memory. Beyond that with pieces that lie free
 * elsewhere: moving one costs about as much as a new one, whatever its size, and the pool does not grow. But a loop
 * would go on moving for ever: so a request for which memory was moved before, when just as much was used, gets new
 * memory (marks.h); and if memory has been moved often and no more is used than before, each time lets the pool grow
 * some more. Then all rounds find what the first ones made.
 */

#include <errno.h>

#include "descriptor.h"
#include "range.h"
#include "reuse.h"
#include "segment.h"

/*
 * How much more may be held than was ever used, before memory is moved: thousandths of that. Each time that memory was
 * moved is worth one more, and once it is certain that this would go on, ten.
 */
enum { SLACK = 28, SLACK_MAX = 40, SLACK_STEP = 10 };

/* New pieces are as large as the gap, but not so large that they will never be free as a whole. */
#define PIECE_MAX   (20 * GP_MIB)
#define PIECE_SHARE 8

struct filling {
	struct gp_pool *pool;
	struct gp_range *range;
	struct gp_request *request;
	struct gp_window window;
	struct gp_block *spare; /* a descriptor, for host memory may be short, too, when the window has to be emptied */
	uint64_t used_bytes; /* when the request came */
	bool is_again;	     /* memory was moved for such a request before */
	bool has_moved;
	bool is_refused;     /* what was mapped could not be unmapped */
	bool is_news;	     /* to the request, too, should the driver get this back */
};

/* What may be held in all before memory is moved. */
static uint64_t plenty_locked(const struct filling *f)
{
	uint64_t used = gp_max(f->pool->stats.peak_used_bytes, f->used_bytes + f->request->size);
	uint64_t slack = gp_min(SLACK + f->pool->marks.count, SLACK_MAX);

	if (f->is_again)
		return UINT64_MAX;
	slack += (uint64_t)SLACK_STEP * gp_marks_excess(&f->pool->marks);
	return used + used / 1000 * slack;
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

/* Into the window. */
static int place(struct filling *f, struct gp_piece *piece, uint64_t addr)
{
	uint64_t bytes = piece->size;
	int r = gp_piece_map(f->pool, f->range, piece, addr, &f->is_refused);

	f->window.missing -= r ? 0 : bytes;
	/* Then the driver has it again. */
	f->request->n_undone += r && r != GP_E_DEAD && !f->is_refused;
	return r;
}

static int fill_with_new(struct filling *f, uint64_t addr, uint64_t gap)
{
	uint64_t granule = gp_range_granule(f->range), most = granule;
	struct gp_piece *piece;
	int r;

	if (f->request->size > GP_SMALL_MAX)
		most = gp_max(PIECE_MAX, gp_round_up(f->request->size / PIECE_SHARE, granule));
	r = gp_piece_create(f->pool, gp_min(gap, most), &piece);
	return r ? r : place(f, piece, addr);
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
	r = gp_piece_unmap(f->pool, piece);
	if (r == GP_E_DEAD)
		return r;
	/* It is stuck, and not found again; there may be others, or new memory. */
	if (r)
		return 0;
	f->has_moved = true;
	return place(f, piece, addr);
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
	if (r != -ENOMEM || !is_enough || f->is_refused)
		return r;
	r = fill_with_old(f, addr, gap);
	return r == -ENOENT ? -ENOMEM : r;
}

/*
 * Whether gp_pool_require_completion came meanwhile, whose wait for what the window was taken on order of may not be
 * over yet.
 */
static bool is_too_early_locked(const struct filling *f)
{
	const struct gp_block *b = f->window.first;
	uint64_t completed = gp_fence_completed(f->pool->fence);

	if (!gp_pool_is_flag(&f->pool->completion_only))
		return false;
	for (; b && b->addr < f->window.addr + f->window.size; b = b->next)
		if (b->stamp >= completed)
			return true;
	return false;
}

static void put_spare_back_locked(struct filling *f)
{
	if (f->spare)
		gp_block_spare_locked(f->pool, f->spare);
	f->spare = NULL;
}

/* The window is filled: one block, of which the request gets its part. Needs two spare descriptors. */
static struct gp_handed finish_locked(struct filling *f)
{
	struct gp_block *b = f->window.first;

	while (b->size < f->window.size)
		gp_range_merge_locked(f->pool, b, b->next);
	b->flags &= (uint8_t)~GP_BLOCK_EMPTY;
	f->pool->stats.returning_bytes -= b->size;
	put_spare_back_locked(f);
	if (f->has_moved)
		gp_marks_note(&f->pool->marks, f->request->size, f->used_bytes);
	b = f->request->kind->cut(f->pool, b, f->request->size);
	return gp_reuse_hand_out_locked(f->pool, b, f->request);
}

/* The last piece in an empty part of the window; NULL: nothing is mapped there. */
static struct gp_piece *last_piece_locked(const struct filling *f, const struct gp_block *empty)
{
	uint64_t granule = gp_range_granule(f->range);

	for (uint64_t at = empty->addr + empty->size; at > empty->addr; at -= granule)
		if (gp_range_granule_at(f->range, at - granule)->piece)
			return gp_range_granule_at(f->range, at - granule)->piece;
	return NULL;
}

/*
 * Unmaps what was mapped in an empty part of the window, from its end on; but nothing more once the driver has refused
 * that. It was filled from its beginning on, so what stays is there: returns how many bytes.
 */
static uint64_t empty_part(struct filling *f, const struct gp_block *part)
{
	struct gp_piece *piece;

	for (;;) {
		gp_mutex_lock(&f->pool->lock);
		piece = gp_pool_is_flag(&f->pool->dead) ? NULL : last_piece_locked(f, part);
		gp_mutex_unlock(&f->pool->lock);
		if (!piece)
			return 0;
		f->is_refused = f->is_refused || gp_piece_remove(f->pool, piece);
		if (f->is_refused)
			return piece->addr + piece->size - part->addr;
		f->request->n_undone += !f->is_news;
	}
}

/* The part's first bytes, which have memory, are cached; the rest is a hole, for which a descriptor was kept. */
static void settle_part_locked(struct filling *f, struct gp_block *part, uint64_t kept)
{
	struct gp_pool *pool = f->pool;

	part->flags &= (uint8_t)~GP_BLOCK_EMPTY;
	if (!kept) {
		gp_range_make_hole_locked(pool, part);
		return;
	}
	if (kept < part->size) {
		put_spare_back_locked(f);
		gp_range_make_hole_locked(pool, gp_range_cut_locked(pool, part, kept));
	}
	pool->stats.returning_bytes -= part->size;
	gp_range_cache_locked(pool, part);
}

static struct gp_block *last_part(struct filling *f)
{
	struct gp_block *b = f->window.first;

	gp_mutex_lock(&f->pool->lock);
	while (b->addr + b->size < f->window.addr + f->window.size)
		b = b->next;
	gp_mutex_unlock(&f->pool->lock);
	return b;
}

/*
 * There is no memory for the request: all is as it was, but that some of what lay free is the driver's again, and that
 * what the driver does not let go of is cached where it is.
 */
static void abandon(struct filling *f)
{
	struct gp_block *b = last_part(f), *before;
	bool is_first = false;

	for (; !is_first; b = before) {
		uint64_t kept = b->flags & GP_BLOCK_EMPTY ? empty_part(f, b) : b->size;

		gp_mutex_lock(&f->pool->lock);
		if (gp_pool_is_flag(&f->pool->dead)) {
			gp_mutex_unlock(&f->pool->lock);
			return;
		}
		before = b->prev;
		is_first = b == f->window.first;
		settle_part_locked(f, b, kept);
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
	if (!gp_range_enter_locked(pool)) {
		gp_mutex_unlock(&pool->lock);
		return r;
	}
	r = gp_descriptors_ensure_locked(pool);
	f->used_bytes = pool->stats.used_bytes;
	gp_marks_begin(&pool->marks, f->used_bytes + f->request->size);
	f->is_again = gp_marks_is_known(&pool->marks, f->request->size, f->used_bytes);
	if (!r && !gp_range_take_window_locked(pool, f->range, f->request->size, &f->window))
		r = -ENOMEM;
	if (!r)
		f->spare = gp_block_new_locked(pool);
	gp_mutex_unlock(&pool->lock);
	if (r)
		gp_range_leave(pool);
	return r;
}

static int end(struct filling *f, int r, uint64_t start_ns, struct gp_handed *ret_handed)
{
	uint64_t ns = gp_pool_now_ns(f->pool) - start_ns;

	gp_mutex_lock(&f->pool->lock);
	if (gp_pool_is_flag(&f->pool->dead))
		r = GP_E_DEAD;
	if (!r)
		r = gp_descriptors_ensure_locked(f->pool);
	/* Then the rounds look again. */
	f->is_news = !r && is_too_early_locked(f);
	if (f->is_news)
		r = -ENOMEM;
	if (!r)
		*ret_handed = finish_locked(f);
	f->pool->stats.driver_ns += ns;
	gp_mutex_unlock(&f->pool->lock);
	if (r && r != GP_E_DEAD)
		abandon(f);
	gp_range_leave(f->pool);
	return r;
}

int gp_range_grow(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed)
{
	struct filling f = {.pool = pool, .request = request, .range = gp_range_for(pool, request->size)};
	uint64_t start_ns = gp_pool_now_ns(pool);
	int r;

	/* What has completed meanwhile can be moved. */
	(void)gp_fence_settle(pool->fence);
	r = begin(&f);
	if (!r) {
		do
			r = fill_gap(&f);
		while (!r);
		r = end(&f, r == -EALREADY ? 0 : r, start_ns, ret_handed);
	}
	gp_segment_note_growth(pool, request, r);
	if (!r)
		gp_segment_keep_reserve(pool);
	return r;
}
