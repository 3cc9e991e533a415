/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "range.h"

#include "descriptor.h"

void gp_range_forget_locked(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;

	for (int i = 0; i < GP_N_RANGES; i++) {
		vm->ranges[i].free.root = NULL;
		gp_list_init(&vm->ranges[i].holes);
	}
	gp_list_init(&vm->exported);
}

static void set_exported(struct gp_block *block, bool is)
{
	atomic_store_explicit(&block->is_exported, is, memory_order_relaxed);
}

/* A block begins there now. */
static void note_start(struct gp_block *block)
{
	gp_range_granule_at(block->segment->range, block->addr)->start = block;
}

/* A block does not begin there any more: it is a part of the one before it. */
static void note_end(struct gp_block *block, struct gp_block *before, struct gp_block *behind)
{
	struct gp_range *range = block->segment->range;
	struct gp_granule *granule = gp_range_granule_at(range, block->addr);

	if (granule->start != block)
		return;
	granule->start = NULL;
	if (gp_range_granule_at(range, before->addr) == granule)
		granule->start = before;
	else if (behind && gp_range_granule_at(range, behind->addr) == granule)
		granule->start = behind;
}

struct gp_block *gp_range_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	struct gp_block *rest = gp_block_cut_locked(pool, block, size);

	gp_block_set_state(rest, gp_block_state(block));
	set_exported(rest, gp_block_is_exported(block));
	note_start(rest);
	return rest;
}

void gp_range_merge_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind)
{
	note_end(behind, block, behind->next);
	if (gp_unlikely(gp_block_is_exported(behind)))
		set_exported(block, true);
	gp_block_join_locked(pool, block, behind);
}

void gp_range_unlink_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_unlikely(gp_block_is_exported(block)))
		gp_list_remove(&block->link);
	else
		gp_tree_remove(&block->segment->range->free, &block->by_size);
}

/* Cached neighbours merge if both may be handed out, or neither. */
static bool is_mergeable(const struct gp_block *block, const struct gp_block *with)
{
	return with && gp_block_state(with) == GP_BLOCK_CACHED &&
	       gp_block_is_exported(with) == gp_block_is_exported(block);
}

static void take_in_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *neighbour)
{
	gp_range_unlink_locked(pool, neighbour);
	if (neighbour == block->next)
		gp_range_merge_locked(pool, block, neighbour);
	else
		gp_range_merge_locked(pool, neighbour, block);
	pool->stats.n_free_blocks--;
}

static void cache_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_cached_add(pool, block);
	if (is_mergeable(block, block->next))
		take_in_locked(pool, block, block->next);
	if (is_mergeable(block, block->prev)) {
		struct gp_block *before = block->prev;

		take_in_locked(pool, block, before);
		block = before;
	}
	if (gp_unlikely(gp_block_is_exported(block))) {
		gp_list_append(&pool->cache.vm->exported, &block->link);
		return;
	}
	block->by_size.key = block->size;
	block->by_size.tie = block->addr;
	gp_tree_insert(&block->segment->range->free, &block->by_size);
}

static const struct gp_piece *piece_at(const struct gp_range *range, uint64_t addr)
{
	return gp_range_granule_at(range, addr)->piece;
}

/* Bytes of the block that lie in retired pieces, or in others, like the first. */
static uint64_t length_of_kind(const struct gp_block *block)
{
	const struct gp_range *range = block->segment->range;
	const struct gp_piece *piece = piece_at(range, block->addr);
	uint64_t at = piece->addr + piece->size;
	bool is_retired = piece->is_retired;

	while (at < block->addr + block->size && (piece = piece_at(range, at))->is_retired == is_retired)
		at = piece->addr + piece->size;
	return gp_min(at - block->addr, block->size);
}

/* Part by part; or without host memory for that none of it is handed out again. */
static void cache_exported_locked(struct gp_pool *pool, struct gp_block *block)
{
	struct gp_block *rest = block;

	gp_block_set_state(block, GP_BLOCK_MOVING);
	while (rest) {
		uint64_t length = length_of_kind(block);
		bool can_cut = length < block->size && !gp_descriptors_ensure_locked(pool);

		rest = can_cut ? gp_range_cut_locked(pool, block, length) : NULL;
		set_exported(block, piece_at(block->segment->range, block->addr)->is_retired || block->size > length);
		cache_locked(pool, block);
		block = rest;
	}
}

void gp_range_cache_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_unlikely(gp_block_is_exported(block)))
		cache_exported_locked(pool, block);
	else
		cache_locked(pool, block);
}

/* A block of a piece that is retired. */
static void export_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_block_is_exported(block) || gp_block_state(block) == GP_BLOCK_HOLE)
		return;
	if (gp_block_state(block) != GP_BLOCK_CACHED) {
		set_exported(block, true);
		return;
	}
	gp_range_unlink_locked(pool, block);
	gp_cached_sub(pool, block);
	set_exported(block, true);
	cache_exported_locked(pool, block);
}

void gp_range_retire_locked(struct gp_pool *pool, const struct gp_block *block)
{
	struct gp_range *range = block->segment->range;
	uint64_t first = piece_at(range, block->addr)->addr, end = first, at = first;

	while (end < block->addr + block->size) {
		struct gp_piece *piece = gp_range_granule_at(range, end)->piece;

		piece->is_retired = true;
		end = piece->addr + piece->size;
	}
	/* What is exported may merge, so each is looked up anew. */
	while (at < end) {
		struct gp_block *b = gp_range_block_at_locked(range, at);

		at = b->addr + b->size;
		export_locked(pool, b);
	}
}

void gp_range_make_hole_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_unmap_locked(pool, block);
	block->stamp = 0;
	set_exported(block, false);
	gp_block_set_state(block, GP_BLOCK_HOLE);
	if (gp_block_is_hole(block->next)) {
		gp_list_remove(&block->next->link);
		gp_range_merge_locked(pool, block, block->next);
	}
	if (gp_block_is_hole(block->prev)) {
		gp_range_merge_locked(pool, block->prev, block);
		return;
	}
	gp_list_append(&block->segment->range->holes, &block->link);
}

static void set_piece(struct gp_range *range, const struct gp_piece *at, struct gp_piece *piece)
{
	struct gp_granule *granule = gp_range_granule_at(range, at->addr);

	for (uint64_t i = 0; i < at->size >> range->granule_log2; i++)
		granule[i].piece = piece;
}

void gp_range_attach_locked(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr)
{
	piece->addr = addr;
	gp_list_append(&pool->cache.vm->pieces, &piece->link);
	set_piece(range, piece, piece);
}

void gp_range_bar_locked(struct gp_pool *pool, struct gp_piece *piece)
{
	piece->is_retired = true;
	set_exported(gp_range_block_of_locked(pool, piece), true);
}

void gp_range_stick_locked(struct gp_pool *pool, struct gp_piece *piece)
{
	piece->is_stuck = true;
	pool->cache.vm->n_stuck++;
	pool->stats.release_errors++;
}

void gp_range_unstick_locked(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	struct gp_list *link;

	if (gp_likely(!vm->n_stuck))
		return;
	vm->n_stuck = 0;
	gp_list_each(link, &vm->pieces) {
		struct gp_piece *piece = gp_container_of(link, struct gp_piece, link);
		struct gp_block *b;

		if (!piece->is_stuck)
			continue;
		piece->is_stuck = false;
		b = gp_range_block_of_locked(pool, piece);
		/* It was looked at in vain, and left the list of those that may go. */
		if (gp_block_is_exported(b) && gp_block_state(b) == GP_BLOCK_CACHED && gp_list_is_empty(&b->link))
			gp_list_append(&vm->exported, &b->link);
	}
}

static struct gp_range *range_of(const struct gp_vm *vm, uint64_t addr)
{
	const struct gp_range *small = &vm->ranges[GP_RANGE_SMALL];
	bool is_small = addr >= small->base && addr - small->base < small->size;

	return (struct gp_range *)&vm->ranges[is_small ? GP_RANGE_SMALL : GP_RANGE_LARGE];
}

void gp_range_detach_locked(struct gp_pool *pool, struct gp_piece *piece)
{
	set_piece(range_of(pool->cache.vm, piece->addr), piece, NULL);
	gp_list_remove(&piece->link);
}

/* From the nearest granule at or before it in which any block begins. */
struct gp_block *gp_range_block_at_locked(const struct gp_range *range, uint64_t addr)
{
	const struct gp_granule *granule = gp_range_granule_at(range, addr);
	struct gp_block *b;

	while (!granule->start)
		granule--;
	for (b = granule->start; b->addr > addr;)
		b = b->prev;
	while (addr - b->addr >= b->size)
		b = b->next;
	return b;
}

struct gp_block *gp_range_block_of_locked(const struct gp_pool *pool, const struct gp_piece *piece)
{
	return gp_range_block_at_locked(range_of(pool->cache.vm, piece->addr), piece->addr);
}
