/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of arenas: they are reserved with their pool, and freed when its context has ended and no thread maps or
 * unmaps. Chunks in which blocks survive the context stay mapped until the last of these blocks is freed.
 */

#include <errno.h>
#include <stdlib.h>

#include "pool/descriptor.h"
#include "pool/pool.h"
#include "chunk.h"
#include "arena_life.h"
#include "cold.h"
#include "saved.h"
#include "pool/tuning.h"

static const struct gp_mapping_ops *mapping_of(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->mapping;
}

static int reserve(struct gp_pool *pool, struct gp_arena *arena)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t granule = pool->options.granule;
	uint64_t capacity =
		gp_round_up(gp_max(gp_min(pool->options.capacity_bytes, GP_ARENA_SPACE_MAX), granule), granule);
	int r = -ENOTSUP;

	arena->granule_log2 = gp_log2(granule);
	for (uint64_t factor = GP_ARENA_SPACE_FACTOR; factor && r; factor /= 2) {
		arena->size = gp_max(gp_min(capacity * factor, GP_ARENA_SPACE_MAX), granule);
		r = be->ops->mapping->address_reserve(be->arg, arena->size, &arena->base);
	}
	if (r)
		return r;
	arena->granules = calloc(arena->size / granule, sizeof(*arena->granules));
	return arena->granules ? 0 : -ENOMEM;
}

/* Makes the arena's segment: one unmapped gap at first. */
static void make_segment(struct gp_pool *pool, struct gp_arena *arena)
{
	struct gp_segment *segment = gp_segment_new_locked(pool);
	struct gp_block *block = gp_block_new_locked(pool);

	segment->base = arena->base;
	segment->size = block->size = arena->size;
	segment->kind = pool->first_kind;
	segment->first = block;
	segment->arena = arena;
	arena->segment = segment;
	gp_block_set_address(block, segment, arena->base);
	arena->granules[0].start = block;
	gp_arena_make_unmapped_locked(pool, block);
	gp_list_append(&pool->segments, &segment->link);
	gp_addrmap_add_segment(pool->options.map, segment);
}

/* The addresses of an arena where memory is still mapped stay: their next owner would find memory there. */
static bool has_chunks(const struct gp_vm *vm, const struct gp_arena *arena)
{
	struct gp_list *link;

	gp_list_each(link, &vm->chunks)
		if (gp_container_of(link, struct gp_chunk, link)->addr - arena->base < arena->size)
			return true;
	return false;
}

/* Returns the addresses of an arena without chunks that is to be freed, and removes it; or 0. */
static uint64_t take_arena_locked(struct gp_vm *vm, uint64_t *ret_size)
{
	for (int i = 0; i < GP_N_ARENAS; i++) {
		struct gp_arena *arena = &vm->arenas[i];
		uint64_t base = arena->base;

		if (!base || has_chunks(vm, arena))
			continue;
		*ret_size = arena->size;
		arena->base = arena->size = 0;
		return base;
	}
	return 0;
}

/* Gives back an arena without chunks. Returns false if there is none. */
static bool free_arena(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t base, size;

	gp_mutex_lock(&pool->lock);
	base = take_arena_locked(pool->cache.vm, &size);
	gp_mutex_unlock(&pool->lock);
	if (base)
		be->ops->mapping->address_free(be->arg, base, size);
	return base != 0;
}

int gp_arena_open(struct gp_pool *pool)
{
	struct gp_vm *vm;
	int r = 0;

	if (!mapping_of(pool))
		return -ENOTSUP;
	vm = pool->cache.vm = calloc(1, sizeof(*vm));
	if (!vm)
		return -ENOMEM;
	gp_list_init(&vm->chunks);
	gp_list_init(&vm->cold);
	gp_arena_forget_locked(pool);
	if (gp_descriptors_ensure_locked(pool))
		return -ENOMEM;
	for (int i = 0; i < GP_N_ARENAS && !r; i++)
		r = reserve(pool, &vm->arenas[i]);
	if (r) {
		while (free_arena(pool))
			;
		return r;
	}
	for (int i = 0; i < GP_N_ARENAS; i++)
		make_segment(pool, &vm->arenas[i]);
	return 0;
}

void gp_arena_close(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	struct gp_list *link, *tmp;

	if (!vm)
		return;
	gp_list_each_safe(link, tmp, &vm->chunks)
		free(gp_container_of(link, struct gp_chunk, link));
	for (int i = 0; i < GP_N_ARENAS; i++)
		free(vm->arenas[i].granules);
	gp_list_each_safe(link, tmp, &vm->cold)
		free(gp_container_of(link, struct gp_cold, link));
	free(vm);
}

/*
 * Unmaps and releases a chunk after the end of its context. A chunk that the driver does not unmap even now is
 * released, too, so that it would go if it were ever unmapped. Returns false for such a chunk.
 */
static bool unmap_chunk(struct gp_pool *pool, struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (chunk->is_mapped)
		chunk->is_mapped = be->ops->mapping->unmap(be->arg, chunk->addr, chunk->size) != 0;
	if (!chunk->is_asleep || chunk->handle != GP_CHUNK_NO_HANDLE)
		gp_chunk_release_memory(pool, chunk);
	gp_saved_forget(chunk);
	return !chunk->is_mapped;
}

/* Returns a chunk that is to be unmapped, or NULL. */
static struct gp_chunk *next_locked(const struct gp_vm *vm)
{
	struct gp_list *link;

	gp_list_each(link, &vm->chunks) {
		struct gp_chunk *chunk = gp_container_of(link, struct gp_chunk, link);

		if (!chunk->n_survivors && !chunk->is_tried)
			return chunk;
	}
	return NULL;
}

static void uncharge_kept(struct gp_pool *pool, uint64_t bytes)
{
	gp_budget_uncharge(pool->options.budget, bytes);
	if (pool->options.survivor_bytes)
		atomic_fetch_sub(pool->options.survivor_bytes, bytes);
}

/* Unmaps a chunk that next_locked has found. */
static void unmap_next(struct gp_pool *pool, struct gp_chunk *chunk)
{
	bool is_charged = chunk->is_kept && !chunk->is_spilled;
	uint64_t bytes = chunk->size;
	bool is_gone = unmap_chunk(pool, chunk);

	gp_mutex_lock(&pool->lock);
	chunk->is_tried = true;
	if (is_gone)
		gp_list_remove(&chunk->link);
	gp_mutex_unlock(&pool->lock);
	if (is_gone)
		free(chunk);
	if (is_charged)
		uncharge_kept(pool, bytes);
}

/*
 * Unmaps all chunks in which no block survives, and frees the arenas that have none left. One thread does this at a
 * time, until it finds no more.
 */
static void unmap_all(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	struct gp_chunk *chunk;

	gp_mutex_lock(&pool->lock);
	while (vm->is_unmapping) {
		chunk = next_locked(vm);
		gp_mutex_unlock(&pool->lock);
		if (chunk) {
			unmap_next(pool, chunk);
		} else {
			gp_saved_give_back(pool);
			while (free_arena(pool))
				;
		}
		gp_mutex_lock(&pool->lock);
		vm->is_unmapping = chunk || next_locked(vm);
	}
	gp_mutex_unlock(&pool->lock);
}

/* Returns true if the calling thread is the one that gives back what is left. It must call unmap_all then. */
static bool begin_unmapping_locked(struct gp_vm *vm)
{
	if (!vm->is_over || vm->n_busy || vm->is_unmapping)
		return false;
	vm->is_unmapping = true;
	return true;
}

bool gp_arena_enter_locked(struct gp_pool *pool)
{
	if (gp_flag_is_set(&pool->dead) || pool->cache.vm->is_exclusive)
		return false;
	pool->cache.vm->n_busy++;
	return true;
}

bool gp_arena_enter_waiting_locked(struct gp_pool *pool)
{
	for (unsigned attempt = 0; pool->cache.vm->is_exclusive && !gp_flag_is_set(&pool->dead); attempt++) {
		gp_mutex_unlock(&pool->lock);
		gp_yield(attempt);
		gp_mutex_lock(&pool->lock);
	}
	return gp_arena_enter_locked(pool);
}

void gp_arena_leave(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	bool is_last;

	gp_mutex_lock(&pool->lock);
	vm->n_busy--;
	is_last = begin_unmapping_locked(vm);
	gp_mutex_unlock(&pool->lock);
	if (is_last)
		unmap_all(pool);
}

void gp_arena_unmap(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	bool is_last;

	if (!vm)
		return;
	gp_mutex_lock(&pool->lock);
	vm->is_over = true;
	is_last = begin_unmapping_locked(vm);
	gp_mutex_unlock(&pool->lock);
	if (is_last)
		unmap_all(pool);
}

static struct gp_chunk *chunk_at(const struct gp_pool *pool, uint64_t addr)
{
	const struct gp_arena *arena = pool->cache.vm->arenas;

	while (addr - arena->base >= arena->size)
		arena++;
	return gp_arena_granule_at(arena, addr)->chunk;
}

bool gp_arena_can_keep_locked(const struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	uint64_t end = addr + bytes;

	/* Memory that is on its way to the host, or back, is at neither place for certain. */
	if (pool->cache.vm->is_exclusive)
		return false;
	while (addr < end) {
		const struct gp_chunk *chunk = chunk_at(pool, addr);

		if (!chunk || !chunk->is_mapped || chunk->is_asleep)
			return false;
		addr = chunk->addr + chunk->size;
	}
	return true;
}

uint64_t gp_arena_keep_locked(struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	uint64_t end = addr + bytes, kept_bytes = 0;

	while (addr < end) {
		struct gp_chunk *chunk = chunk_at(pool, addr);

		if (!chunk->is_kept && !chunk->is_spilled)
			kept_bytes += chunk->size;
		chunk->is_kept = true;
		chunk->n_survivors++;
		addr = chunk->addr + chunk->size;
	}
	return kept_bytes;
}

void gp_arena_end_survivor(struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	uint64_t end = addr + bytes;
	bool is_last;

	gp_mutex_lock(&pool->lock);
	while (addr < end) {
		struct gp_chunk *chunk = chunk_at(pool, addr);

		chunk->n_survivors--;
		addr = chunk->addr + chunk->size;
	}
	is_last = begin_unmapping_locked(pool->cache.vm);
	gp_mutex_unlock(&pool->lock);
	if (is_last)
		unmap_all(pool);
}
