/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The kind vmm: two arenas of reserved addresses, for small blocks and large ones (struct gp_arena), and chunks of
 * memory that are mapped there (struct gp_chunk). Each arena is one segment, tiled by blocks and by unmapped gaps
 * (GP_BLOCK_UNMAPPED). Chunks are independent of blocks: a chunk holds many blocks, and a block may span several
 * chunks. A chunk can move, or go back, while all of it is cached and completed.
 *
 * A thread that maps or unmaps first takes the blocks there out of all lists and trees (GP_BLOCK_MOVING), so that it
 * calls the driver without the lock. Their memory counts as returning meanwhile. A chunk is in the list, and in the
 * granules that it covers, from before it is mapped until after it is unmapped. While that goes on, it belongs to that
 * thread alone.
 */

#include "pool/kind.h"
#include "chunk.h"
#include "pool/pool_impl.h"
#include "pool/tuning.h"
#include "saved.h"
#include "sleep.h"

/* An arena's addresses, in steps of the pool's granule. */
struct gp_granule {
	struct gp_block *start; /* a block that begins in it, or NULL */
	struct gp_chunk *chunk; /* the chunk that covers it, or NULL */
};

struct gp_arena {
	struct gp_segment *segment;
	uint64_t base, size; /* bytes */
	unsigned granule_log2;
	struct gp_granule *granules;
	struct gp_tree free; /* cached blocks that may be handed out, by size */
	struct gp_list unmapped;
};

enum { GP_ARENA_SMALL, GP_ARENA_LARGE, GP_N_ARENAS };

struct gp_vm {
	struct gp_arena arenas[GP_N_ARENAS];
	struct gp_list chunks;
	struct gp_list cold;     /* cold ranges (cold.h) */
	bool is_cold;            /* all of it is */
	struct gp_list exported; /* cached blocks in retired chunks, while their memory may go back */
	unsigned n_busy;         /* threads that map or unmap */
	bool is_exclusive;       /* the only one of them moves memory to or from the host: no other may begin */
	bool is_over;            /* gp_pool_unmap was called */
	bool is_unmapping;       /* a thread gives back what is left after that */
	uint64_t n_stuck;        /* chunks that are stuck */
	struct gp_sleep_bytes asleep;
	struct gp_saved_pieces saved; /* host memory for what is asleep */
};

static inline struct gp_arena *gp_arena_for(const struct gp_pool *pool, uint64_t size)
{
	return &pool->cache.vm->arenas[size <= GP_SMALL_MAX ? GP_ARENA_SMALL : GP_ARENA_LARGE];
}

static inline struct gp_granule *gp_arena_granule_at(const struct gp_arena *arena, uint64_t addr)
{
	return &arena->granules[(addr - arena->base) >> arena->granule_log2];
}

static inline uint64_t gp_arena_granule(const struct gp_arena *arena)
{
	return UINT64_C(1) << arena->granule_log2;
}

/* Returns the size that a new chunk for a request of that size has at most. */
static inline uint64_t gp_arena_chunk_max(const struct gp_arena *arena, uint64_t size)
{
	uint64_t granule = gp_arena_granule(arena);

	return size > GP_SMALL_MAX ? gp_max(GP_CHUNK_MAX, gp_round_up(size / GP_CHUNK_SHARE, granule)) : granule;
}

static inline bool gp_block_is_unmapped(const struct gp_block *block)
{
	return block && gp_block_state(block) == GP_BLOCK_UNMAPPED;
}

/* Gives back the memory of an unmapped chunk, to the driver or to the host. */
static inline void gp_chunk_release_memory(struct gp_pool *pool, const struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (chunk->is_spilled)
		be->ops->spill->release(be->arg, chunk->handle, chunk->size);
	else
		be->ops->mapping->release(be->arg, chunk->handle, chunk->size);
}

/* True if there may be exported memory, which must go back as soon as it is free. */
static inline bool gp_arena_is_any_leaving_locked(const struct gp_pool *pool)
{
	return pool->cache.vm && !gp_list_is_empty(&pool->cache.vm->exported);
}

/* Forgets all free blocks, since the pool is dropped. The addresses and mappings stay. */
void gp_arena_forget_locked(struct gp_pool *pool);

/*
 * Cuts a block, or an unmapped gap, after `size` bytes. Returns the rest, which is in no list or tree and inherits the
 * fence sequence and the state.
 */
struct gp_block *gp_arena_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size);

/* Merges the block behind, which is in no list or tree, into the one before it. */
void gp_arena_merge_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind);

/*
 * Turn a block that is in no list or tree into a cached block, or an unmapped gap, and merge it with its neighbours.
 * The caller corrects the counter in which its bytes were counted before.
 */
void gp_arena_cache_locked(struct gp_pool *pool, struct gp_block *block);
void gp_arena_make_unmapped_locked(struct gp_pool *pool, struct gp_block *block);

/*
 * Exports the chunks in which the block lies: nothing of them is handed out again, and they go back once all of it is
 * free.
 */
void gp_arena_retire_locked(struct gp_pool *pool, const struct gp_block *block);

/* Takes a cached block out of the index, but not out of the count. */
void gp_arena_unlink_locked(struct gp_pool *pool, struct gp_block *block);

/* Enter a chunk at its addresses, and remove it from them. */
void gp_arena_attach_locked(struct gp_pool *pool, struct gp_arena *arena, struct gp_chunk *chunk, uint64_t addr);
void gp_arena_detach_locked(struct gp_pool *pool, struct gp_chunk *chunk);

/* Bars a chunk from use, as if it had been exported. The calling thread owns it, in a block of its own. */
void gp_arena_bar_locked(struct gp_pool *pool, struct gp_chunk *chunk);

/*
 * gp_arena_stick_locked marks a chunk that the driver refused to unmap. gp_arena_unstick_locked lets all of them be
 * tried again.
 */
void gp_arena_stick_locked(struct gp_pool *pool, struct gp_chunk *chunk);
void gp_arena_unstick_locked(struct gp_pool *pool);

/* Return the block at an address of the arena, and the block with a chunk's first byte. */
struct gp_block *gp_arena_block_at_locked(const struct gp_arena *arena, uint64_t addr);
struct gp_block *gp_arena_block_of_locked(const struct gp_pool *pool, const struct gp_chunk *chunk);
