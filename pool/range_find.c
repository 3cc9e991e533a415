/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Where memory is wanted, and where it is not: the choice of a window for a new block, and of pieces to fill it. */

#include "descriptor.h"
#include "range.h"

/* So many free blocks are looked at for a piece that fills a window well; then the best so far has to do. */
enum { LOOK_AT = 64 };

/* Addresses for a block: free blocks and holes in a row, whose holes have yet to be filled. */
struct window {
	struct gp_block *first;
	bool is_downwards; /* first is the last then */
	uint64_t missing;  /* bytes */
};

/* What later work may touch as things are, and nobody else has seen. */
static bool is_free(const struct gp_pool *pool, const struct gp_block *b)
{
	if (!b || gp_block_state(b) != GP_BLOCK_CACHED || gp_block_is_exported(b))
		return false;
	return !gp_pool_is_flag(&pool->completion_only) || b->stamp < gp_fence_completed(pool->fence);
}

static struct gp_block *next_of(const struct gp_block *b, bool is_downwards)
{
	return is_downwards ? b->prev : b->next;
}

/* How much of a hole a block would take that lacks so many bytes. */
static uint64_t part_of_hole(const struct gp_block *hole, uint64_t lacking, uint64_t granule)
{
	return gp_min(hole->size, gp_round_up(lacking, granule));
}

static void consider(const struct gp_pool *pool, struct window *best, struct gp_block *first, bool is_downwards,
		     uint64_t size)
{
	uint64_t granule = pool->options.granule, lacking = size, missing = 0, n;
	const struct gp_block *b;

	for (b = first; gp_block_is_hole(b) || is_free(pool, b); b = next_of(b, is_downwards)) {
		n = b->size;
		if (gp_block_is_hole(b)) {
			n = part_of_hole(b, lacking, granule);
			missing += n;
		}
		if (missing >= best->missing)
			return;
		if (n >= lacking) {
			*best = (struct window){first, is_downwards, missing};
			return;
		}
		lacking -= n;
	}
}

/* The window that lacks least. Every one has a hole, or the block would have been served. */
static struct window find_window_locked(const struct gp_pool *pool, const struct gp_range *range, uint64_t size)
{
	struct window best = {.missing = UINT64_MAX};
	struct gp_list *link;

	gp_list_each(link, &range->holes) {
		struct gp_block *hole = gp_container_of(link, struct gp_block, link);

		consider(pool, &best, is_free(pool, hole->prev) ? hole->prev : hole, false, size);
		if (is_free(pool, hole->next))
			consider(pool, &best, hole->next, true, size);
	}
	return best;
}

/* Takes what is needed of a hole out of it. */
static struct gp_block *take_hole_locked(struct gp_pool *pool, struct gp_block *hole, uint64_t bytes, bool is_downwards)
{
	struct gp_block *rest;

	if (bytes == hole->size) {
		gp_list_remove(&hole->link);
		return hole;
	}
	if (is_downwards)
		return gp_range_cut_locked(pool, hole, hole->size - bytes);
	rest = gp_range_cut_locked(pool, hole, bytes);
	gp_list_append(&hole->link, &rest->link);
	gp_list_remove(&hole->link);
	return hole;
}

/* Takes the next part of the window out of what it is in. */
static struct gp_block *take_part_locked(struct gp_pool *pool, struct gp_block *b, uint64_t lacking, bool is_downwards)
{
	if (gp_block_is_hole(b)) {
		b = take_hole_locked(pool, b, part_of_hole(b, lacking, pool->options.granule), is_downwards);
		b->flags |= GP_BLOCK_EMPTY;
	} else {
		gp_range_unlink_locked(pool, b);
		gp_cached_sub(pool, b);
		pool->stats.returning_bytes += b->size;
	}
	gp_block_set_state(b, GP_BLOCK_MOVING);
	return b;
}

bool gp_range_take_window_locked(struct gp_pool *pool, struct gp_range *range, uint64_t size,
				 struct gp_window *ret_window)
{
	struct window best = find_window_locked(pool, range, size);
	struct gp_block *b, *next = best.first;
	struct gp_window window = {.size = 0};

	if (!next)
		return false;
	while (window.size < size) {
		b = take_part_locked(pool, next, size - window.size, best.is_downwards);
		next = next_of(b, best.is_downwards);
		if (best.is_downwards || !window.first)
			window.first = b;
		window.size += b->size;
	}
	window.addr = window.first->addr;
	window.missing = best.missing;
	*ret_window = window;
	return true;
}

/* The largest piece of at most that many bytes that lies wholly within the block, and may go; the first of those. */
static struct gp_piece *piece_in(const struct gp_block *b, uint64_t max_bytes)
{
	const struct gp_range *range = b->segment->range;
	uint64_t at = gp_round_up(b->addr, gp_range_granule(range)), end = b->addr + b->size;
	struct gp_piece *best = NULL;

	while (at < end) {
		struct gp_piece *piece = gp_range_granule_at(range, at)->piece;

		at = piece->addr + piece->size;
		if (piece->addr >= b->addr && at <= end && piece->size <= max_bytes && !piece->is_stuck &&
		    (!best || piece->size > best->size))
			best = piece;
	}
	return best;
}

static struct gp_piece *find_piece_locked(const struct gp_pool *pool, const struct gp_range *range, uint64_t max_bytes)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_tree_node *node = gp_tree_at_most(&range->free, UINT64_MAX);
	struct gp_piece *best = NULL;

	for (int i = 0; node && node->key >= gp_range_granule(range) && i < LOOK_AT; i++) {
		const struct gp_block *b = gp_container_of(node, struct gp_block, by_size);
		struct gp_piece *piece = b->stamp < completed ? piece_in(b, max_bytes) : NULL;

		if (piece && (!best || piece->size > best->size))
			best = piece;
		if (best && best->size == max_bytes)
			break;
		node = gp_tree_before(&range->free, node);
	}
	return best;
}

/* Takes the piece's addresses out of the block they are in; the rest of it is cached, or exported, as before. */
static void carve_locked(struct gp_pool *pool, struct gp_block *b, const struct gp_piece *piece)
{
	struct gp_block *rest;

	gp_range_unlink_locked(pool, b);
	gp_cached_sub(pool, b);
	gp_block_set_state(b, GP_BLOCK_MOVING);
	if (b->addr + b->size > piece->addr + piece->size) {
		rest = gp_range_cut_locked(pool, b, piece->addr + piece->size - b->addr);
		gp_range_cache_locked(pool, rest);
	}
	if (b->addr < piece->addr) {
		rest = b;
		b = gp_range_cut_locked(pool, b, piece->addr - b->addr);
		gp_range_cache_locked(pool, rest);
	}
	pool->stats.returning_bytes += piece->size;
}

struct gp_piece *gp_range_take_piece_locked(struct gp_pool *pool, uint64_t max_bytes)
{
	struct gp_piece *best = NULL;

	if (gp_descriptors_ensure_locked(pool))
		return NULL;
	for (int i = GP_N_RANGES - 1; i >= 0; i--) {
		struct gp_piece *piece = find_piece_locked(pool, &pool->cache.vm->ranges[i], max_bytes);

		if (piece && (!best || piece->size > best->size))
			best = piece;
	}
	if (best)
		carve_locked(pool, gp_range_block_of_locked(pool, best), best);
	return best;
}

struct gp_piece *gp_range_take_exported_piece_locked(struct gp_pool *pool)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_list *link, *tmp;

	if (gp_descriptors_ensure_locked(pool))
		return NULL;
	gp_list_each_safe(link, tmp, &pool->cache.vm->exported) {
		struct gp_block *b = gp_container_of(link, struct gp_block, link);
		struct gp_piece *piece = b->stamp < completed ? piece_in(b, UINT64_MAX) : NULL;

		if (piece) {
			carve_locked(pool, b, piece);
			return piece;
		}
		/* What is left shares its memory with what is still used. */
		if (b->stamp < completed)
			gp_list_remove(link);
	}
	return NULL;
}
