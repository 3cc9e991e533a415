/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "arena.h"

#include "pool/descriptor.h"

void gp_arena_forget_locked(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;

	for (int i = 0; i < GP_N_ARENAS; i++) {
		vm->arenas[i].free.root = NULL;
		gp_list_init(&vm->arenas[i].unmapped);
	}
	gp_list_init(&vm->exported);
}

static void set_exported(struct gp_block *block, bool is_exported)
{
	atomic_store_explicit(&block->is_exported, is_exported, memory_order_relaxed);
}

/* Records that a block begins at its address. */
static void note_start(struct gp_block *block)
{
	gp_arena_granule_at(block->segment->arena, block->addr)->start = block;
}

/* Records that a block no longer begins at its address, since it was merged into the one before it. */
static void note_end(struct gp_block *block, struct gp_block *before, struct gp_block *behind)
{
	struct gp_arena *arena = block->segment->arena;
	struct gp_granule *granule = gp_arena_granule_at(arena, block->addr);

	if (granule->start != block)
		return;
	granule->start = NULL;
	if (gp_arena_granule_at(arena, before->addr) == granule)
		granule->start = before;
	else if (behind && gp_arena_granule_at(arena, behind->addr) == granule)
		granule->start = behind;
}

struct gp_block *gp_arena_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	struct gp_block *rest = gp_block_cut_locked(pool, block, size);

	gp_block_set_state(rest, gp_block_state(block));
	set_exported(rest, gp_block_is_exported(block));
	note_start(rest);
	return rest;
}

void gp_arena_merge_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind)
{
	note_end(behind, block, behind->next);
	if (gp_unlikely(gp_block_is_exported(behind)))
		set_exported(block, true);
	gp_block_join_locked(pool, block, behind);
}

void gp_arena_unlink_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_unlikely(gp_block_is_exported(block)))
		gp_list_remove(&block->link);
	else
		gp_tree_remove(&block->segment->arena->free, &block->by_size);
}

/* True if the cached neighbour may merge with the block: both may be handed out, or neither. */
static bool is_mergeable(const struct gp_block *block, const struct gp_block *with)
{
	return with && gp_block_state(with) == GP_BLOCK_CACHED &&
	       gp_block_is_exported(with) == gp_block_is_exported(block);
}

static void take_in_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *neighbour)
{
	gp_arena_unlink_locked(pool, neighbour);
	if (neighbour == block->next)
		gp_arena_merge_locked(pool, block, neighbour);
	else
		gp_arena_merge_locked(pool, neighbour, block);
	pool->stats.n_cached_blocks--;
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
	gp_tree_insert(&block->segment->arena->free, &block->by_size);
}

static const struct gp_chunk *chunk_at(const struct gp_arena *arena, uint64_t addr)
{
	return gp_arena_granule_at(arena, addr)->chunk;
}

/* Returns the length of the block's first part: up to the first change between retired chunks and others. */
static uint64_t length_of_first_part(const struct gp_block *block)
{
	const struct gp_arena *arena = block->segment->arena;
	const struct gp_chunk *chunk = chunk_at(arena, block->addr);
	uint64_t at = chunk->addr + chunk->size;
	bool is_retired = chunk->is_retired;

	while (at < block->addr + block->size && (chunk = chunk_at(arena, at))->is_retired == is_retired)
		at = chunk->addr + chunk->size;
	return gp_min(at - block->addr, block->size);
}

/*
 * Caches a block part by part, each retired or not. Without host memory for the parts none of it is handed out again.
 */
static void cache_exported_locked(struct gp_pool *pool, struct gp_block *block)
{
	struct gp_block *rest = block;

	gp_block_set_state(block, GP_BLOCK_MOVING);
	while (rest) {
		uint64_t length = length_of_first_part(block);
		bool can_cut = length < block->size && !gp_descriptors_ensure_locked(pool);

		rest = can_cut ? gp_arena_cut_locked(pool, block, length) : NULL;
		set_exported(block, chunk_at(block->segment->arena, block->addr)->is_retired || block->size > length);
		cache_locked(pool, block);
		block = rest;
	}
}

void gp_arena_cache_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_unlikely(gp_block_is_exported(block)))
		cache_exported_locked(pool, block);
	else
		cache_locked(pool, block);
}

/* Marks a block of a retired chunk as exported. */
static void export_locked(struct gp_pool *pool, struct gp_block *block)
{
	if (gp_block_is_exported(block) || gp_block_state(block) == GP_BLOCK_UNMAPPED)
		return;
	if (gp_block_state(block) != GP_BLOCK_CACHED) {
		set_exported(block, true);
		return;
	}
	gp_arena_unlink_locked(pool, block);
	gp_cached_sub(pool, block);
	set_exported(block, true);
	cache_exported_locked(pool, block);
}

void gp_arena_retire_locked(struct gp_pool *pool, const struct gp_block *block)
{
	struct gp_arena *arena = block->segment->arena;
	uint64_t first = chunk_at(arena, block->addr)->addr, end = first, at = first;

	while (end < block->addr + block->size) {
		struct gp_chunk *chunk = gp_arena_granule_at(arena, end)->chunk;

		chunk->is_retired = true;
		end = chunk->addr + chunk->size;
	}
	/* Exported blocks may merge, so each is looked up anew. */
	while (at < end) {
		struct gp_block *b = gp_arena_block_at_locked(arena, at);

		at = b->addr + b->size;
		export_locked(pool, b);
	}
}

void gp_arena_make_unmapped_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_unmap_locked(pool, block);
	block->seq = 0;
	set_exported(block, false);
	gp_block_set_state(block, GP_BLOCK_UNMAPPED);
	if (gp_block_is_unmapped(block->next)) {
		gp_list_remove(&block->next->link);
		gp_arena_merge_locked(pool, block, block->next);
	}
	if (gp_block_is_unmapped(block->prev)) {
		gp_arena_merge_locked(pool, block->prev, block);
		return;
	}
	gp_list_append(&block->segment->arena->unmapped, &block->link);
}

static void set_chunk(struct gp_arena *arena, const struct gp_chunk *at, struct gp_chunk *chunk)
{
	struct gp_granule *granule = gp_arena_granule_at(arena, at->addr);

	for (uint64_t i = 0; i < at->size >> arena->granule_log2; i++)
		granule[i].chunk = chunk;
}

void gp_arena_attach_locked(struct gp_pool *pool, struct gp_arena *arena, struct gp_chunk *chunk, uint64_t addr)
{
	chunk->addr = addr;
	gp_list_append(&pool->cache.vm->chunks, &chunk->link);
	set_chunk(arena, chunk, chunk);
}

void gp_arena_bar_locked(struct gp_pool *pool, struct gp_chunk *chunk)
{
	chunk->is_retired = true;
	set_exported(gp_arena_block_of_locked(pool, chunk), true);
}

void gp_arena_stick_locked(struct gp_pool *pool, struct gp_chunk *chunk)
{
	chunk->is_stuck = true;
	pool->cache.vm->n_stuck++;
	pool->stats.release_errors++;
}

void gp_arena_unstick_locked(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	struct gp_list *link;

	if (gp_likely(!vm->n_stuck))
		return;
	vm->n_stuck = 0;
	gp_list_each(link, &vm->chunks) {
		struct gp_chunk *chunk = gp_container_of(link, struct gp_chunk, link);
		struct gp_block *b;

		if (!chunk->is_stuck)
			continue;
		chunk->is_stuck = false;
		b = gp_arena_block_of_locked(pool, chunk);
		/* An earlier attempt removed it from the list of blocks that may go. */
		if (gp_block_is_exported(b) && gp_block_state(b) == GP_BLOCK_CACHED && gp_list_is_empty(&b->link))
			gp_list_append(&vm->exported, &b->link);
	}
}

static struct gp_arena *arena_of(const struct gp_vm *vm, uint64_t addr)
{
	const struct gp_arena *small = &vm->arenas[GP_ARENA_SMALL];
	bool is_small = addr >= small->base && addr - small->base < small->size;

	return (struct gp_arena *)&vm->arenas[is_small ? GP_ARENA_SMALL : GP_ARENA_LARGE];
}

void gp_arena_detach_locked(struct gp_pool *pool, struct gp_chunk *chunk)
{
	set_chunk(arena_of(pool->cache.vm, chunk->addr), chunk, NULL);
	gp_list_remove(&chunk->link);
}

/* Searches from the nearest granule at or before the address in which a block begins. */
struct gp_block *gp_arena_block_at_locked(const struct gp_arena *arena, uint64_t addr)
{
	const struct gp_granule *granule = gp_arena_granule_at(arena, addr);
	struct gp_block *b;

	while (!granule->start)
		granule--;
	for (b = granule->start; b->addr > addr;)
		b = b->prev;
	while (addr - b->addr >= b->size)
		b = b->next;
	return b;
}

struct gp_block *gp_arena_block_of_locked(const struct gp_pool *pool, const struct gp_chunk *chunk)
{
	return gp_arena_block_at_locked(arena_of(pool->cache.vm, chunk->addr), chunk->addr);
}
