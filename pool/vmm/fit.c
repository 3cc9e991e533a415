/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The choice of addresses for a new block, and of the chunks to fill them with. */

#include "pool/descriptor.h"
#include "fit.h"
#include "pool/tuning.h"

/* A possible placement of a block: free blocks and unmapped gaps in a row. */
struct placement {
	struct gp_block *first;
	bool is_downwards; /* then `first` has the highest address */
	uint64_t missing;  /* bytes */
	uint64_t rest;     /* free addresses on the side of it that has fewer of them, at most the size of the block */
	uint64_t left;     /* bytes of its last gap that stay a gap; UINT64_MAX if it ends in a free block */
};

/* True if the block is cached, may be handed out, and later work may touch it now. */
static bool is_free(const struct gp_pool *pool, const struct gp_block *b)
{
	if (!b || gp_block_state(b) != GP_BLOCK_CACHED || gp_block_is_exported(b))
		return false;
	return !gp_flag_is_set(&pool->completion_only) || b->seq < gp_fence_completed(pool->fence);
}

static struct gp_block *next_of(const struct gp_block *b, bool is_downwards)
{
	return is_downwards ? b->prev : b->next;
}

/* Returns how many bytes of a gap a block would take if it lacks `lacking` bytes. */
static uint64_t part_of_gap(const struct gp_block *gap, uint64_t lacking, uint64_t granule)
{
	return gp_min(gap->size, gp_round_up(lacking, granule));
}

/* Returns how many bytes of free blocks and gaps are in a row from b on, or max if there are more. */
static uint64_t free_from(const struct gp_pool *pool, const struct gp_block *b, bool is_downwards, uint64_t max)
{
	uint64_t n = 0;

	for (; n < max && (gp_block_is_unmapped(b) || is_free(pool, b)); b = next_of(b, is_downwards))
		n += b->size;
	return gp_min(n, max);
}

static bool is_better(const struct placement *a, const struct placement *b)
{
	if (a->missing != b->missing)
		return a->missing < b->missing;
	return a->rest != b->rest ? a->rest < b->rest : a->left < b->left;
}

static void consider(
	const struct gp_pool *pool, struct placement *best, struct gp_block *first, bool is_downwards, uint64_t size)
{
	struct placement found = {.first = first, .is_downwards = is_downwards};
	uint64_t granule = pool->options.granule, lacking = size, n;
	const struct gp_block *b;

	for (b = first; gp_block_is_unmapped(b) || is_free(pool, b); b = next_of(b, is_downwards)) {
		n = b->size;
		found.left = UINT64_MAX;
		if (gp_block_is_unmapped(b)) {
			n = part_of_gap(b, lacking, granule);
			found.missing += n;
			found.left = b->size - n;
		}
		if (found.missing > best->missing)
			return;
		if (n >= lacking) {
			found.rest = free_from(pool, next_of(b, is_downwards), is_downwards, size);
			found.rest = gp_min(found.rest + b->size - gp_min(n, lacking), size);
			found.rest =
				gp_min(found.rest, free_from(pool, next_of(first, !is_downwards), !is_downwards, size));
			if (is_better(&found, best))
				*best = found;
			return;
		}
		lacking -= n;
	}
}

/*
 * Returns the placement that lacks the least memory. Each contains a gap; otherwise the block would have been served.
 *
 * If several lack equally much, the one with the smallest rest beside a block in use wins: a rest there serves only
 * small blocks, and its chunk cannot move. If these rests are equal, too, the placement wins whose last gap keeps the
 * fewest bytes, so that large gaps stay whole.
 */
static struct placement find_placement_locked(const struct gp_pool *pool, const struct gp_arena *arena, uint64_t size)
{
	struct placement best = {.missing = UINT64_MAX};
	struct gp_list *link;

	gp_list_each(link, &arena->unmapped) {
		struct gp_block *gap = gp_container_of(link, struct gp_block, link);

		consider(pool, &best, is_free(pool, gap->prev) ? gap->prev : gap, false, size);
		if (is_free(pool, gap->next))
			consider(pool, &best, gap->next, true, size);
	}
	return best;
}

/* Takes the needed part out of an unmapped gap. */
static struct gp_block *take_gap_locked(struct gp_pool *pool, struct gp_block *gap, uint64_t bytes, bool is_downwards)
{
	struct gp_block *rest;

	if (bytes == gap->size) {
		gp_list_remove(&gap->link);
		return gap;
	}
	if (is_downwards)
		return gp_arena_cut_locked(pool, gap, gap->size - bytes);
	rest = gp_arena_cut_locked(pool, gap, bytes);
	gp_list_append(&gap->link, &rest->link);
	gp_list_remove(&gap->link);
	return gap;
}

/* Takes the next part of the placement out of the list or tree that it is in. */
static struct gp_block *take_part_locked(struct gp_pool *pool, struct gp_block *b, uint64_t lacking, bool is_downwards)
{
	if (gp_block_is_unmapped(b)) {
		b = take_gap_locked(pool, b, part_of_gap(b, lacking, pool->options.granule), is_downwards);
		b->flags |= GP_BLOCK_EMPTY;
	} else {
		gp_arena_unlink_locked(pool, b);
		gp_cached_sub(pool, b);
		pool->stats.returning_bytes += b->size;
	}
	gp_block_set_state(b, GP_BLOCK_MOVING);
	return b;
}

bool gp_arena_take_placement_locked(
	struct gp_pool *pool, struct gp_arena *arena, uint64_t size, struct gp_placement *ret_placement)
{
	struct placement best = find_placement_locked(pool, arena, size);
	struct gp_block *b, *next = best.first;
	struct gp_placement placement = {.size = 0};

	if (!next)
		return false;
	while (placement.size < size) {
		b = take_part_locked(pool, next, size - placement.size, best.is_downwards);
		next = next_of(b, best.is_downwards);
		if (best.is_downwards || !placement.first)
			placement.first = b;
		placement.size += b->size;
	}
	placement.addr = placement.first->addr;
	placement.missing = best.missing;
	*ret_placement = placement;
	return true;
}

/* Returns the largest chunk of at most max_bytes that lies wholly within the block and may go; the first of several. */
static struct gp_chunk *chunk_in(const struct gp_block *b, uint64_t max_bytes)
{
	const struct gp_arena *arena = b->segment->arena;
	uint64_t at = gp_round_up(b->addr, gp_arena_granule(arena)), end = b->addr + b->size;
	struct gp_chunk *best = NULL;

	while (at < end) {
		struct gp_chunk *chunk = gp_arena_granule_at(arena, at)->chunk;

		at = chunk->addr + chunk->size;
		if (chunk->addr >= b->addr && at <= end && chunk->size <= max_bytes && !chunk->is_stuck &&
			!chunk->n_pins && !chunk->is_asleep && (!chunk->is_spilled || max_bytes == UINT64_MAX) &&
			(!best || chunk->size > best->size))
			best = chunk;
	}
	return best;
}

static struct gp_chunk *find_chunk_locked(const struct gp_pool *pool, const struct gp_arena *arena, uint64_t max_bytes)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_tree_node *node = gp_tree_at_most(&arena->free, UINT64_MAX);
	struct gp_chunk *best = NULL;

	for (int i = 0; node && node->key >= gp_arena_granule(arena) && i < GP_FIT_LOOK_AT; i++) {
		const struct gp_block *b = gp_container_of(node, struct gp_block, by_size);
		struct gp_chunk *chunk = b->seq < completed ? chunk_in(b, max_bytes) : NULL;

		if (chunk && (!best || chunk->size > best->size))
			best = chunk;
		if (best && best->size == max_bytes)
			break;
		node = gp_tree_before(&arena->free, node);
	}
	return best;
}

/* Takes the chunk's addresses out of their block. The rest of the block stays cached or exported. */
static void carve_locked(struct gp_pool *pool, struct gp_block *b, const struct gp_chunk *chunk)
{
	struct gp_block *rest;

	gp_arena_unlink_locked(pool, b);
	gp_cached_sub(pool, b);
	gp_block_set_state(b, GP_BLOCK_MOVING);
	if (b->addr + b->size > chunk->addr + chunk->size) {
		rest = gp_arena_cut_locked(pool, b, chunk->addr + chunk->size - b->addr);
		gp_arena_cache_locked(pool, rest);
	}
	if (b->addr < chunk->addr) {
		rest = b;
		b = gp_arena_cut_locked(pool, b, chunk->addr - b->addr);
		gp_arena_cache_locked(pool, rest);
	}
	pool->stats.returning_bytes += chunk->size;
}

struct gp_chunk *gp_arena_take_chunk_locked(struct gp_pool *pool, uint64_t max_bytes)
{
	struct gp_chunk *best = NULL;

	if (gp_descriptors_ensure_locked(pool))
		return NULL;
	for (int i = GP_N_ARENAS - 1; i >= 0; i--) {
		struct gp_chunk *chunk = find_chunk_locked(pool, &pool->cache.vm->arenas[i], max_bytes);

		if (chunk && (!best || chunk->size > best->size))
			best = chunk;
	}
	if (best)
		carve_locked(pool, gp_arena_block_of_locked(pool, best), best);
	return best;
}

/* True if a chunk of the block is pinned, or asleep: it may go later. */
static bool has_later(const struct gp_block *b)
{
	const struct gp_arena *arena = b->segment->arena;
	bool is_later = false;

	for (uint64_t at = b->addr; at < b->addr + b->size && !is_later;) {
		const struct gp_chunk *chunk = gp_arena_granule_at(arena, at)->chunk;

		is_later = chunk->n_pins != 0 || chunk->is_asleep;
		at = chunk->addr + chunk->size;
	}
	return is_later;
}

struct gp_chunk *gp_arena_take_exported_chunk_locked(struct gp_pool *pool)
{
	uint64_t completed = gp_fence_completed(pool->fence);
	struct gp_list *link, *tmp;

	if (gp_descriptors_ensure_locked(pool))
		return NULL;
	gp_list_each_safe(link, tmp, &pool->cache.vm->exported) {
		struct gp_block *b = gp_container_of(link, struct gp_block, link);
		struct gp_chunk *chunk = b->seq < completed ? chunk_in(b, UINT64_MAX) : NULL;

		if (chunk) {
			carve_locked(pool, b, chunk);
			return chunk;
		}
		/*
		 * No chunk lies wholly in the rest, which shares its memory with blocks in use. A chunk that is pinned
		 * or asleep may go later.
		 */
		if (b->seq < completed && !has_later(b))
			gp_list_remove(link);
	}
	return NULL;
}
