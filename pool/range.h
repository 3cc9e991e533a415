/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the kind vmm consists of: two ranges of addresses, for small blocks and large ones, and the pieces of memory
 * that are mapped there. Each range is one segment, which blocks and holes tile. Pieces do not mind blocks: one holds
 * many, and a block may span several. A piece can move, or go back, while all of it is cached and completed.
 *
 * Whoever maps or unmaps has taken the blocks there out of all structures (GP_BLOCK_MOVING), so that the driver is
 * called without the lock. Their memory counts as returning meanwhile. A piece is in the list, and in the granules that
 * it covers, from before it is mapped until after it is unmapped; in between it is its thread's alone.
 */

#include "kind.h"
#include "piece.h"
#include "pool_impl.h"

/* The addresses of a range in steps of the pool's granule. */
struct gp_granule {
	struct gp_block *start; /* some block that begins in it, or NULL */
	struct gp_piece *piece; /* that covers it, or NULL */
};

struct gp_range {
	struct gp_segment *segment;
	uint64_t base, size; /* bytes */
	unsigned granule_log2;
	struct gp_granule *granules;
	struct gp_tree free;   /* what is cached and may be handed out, by size */
	struct gp_list holes;
};

enum { GP_RANGE_SMALL, GP_RANGE_LARGE, GP_N_RANGES };

struct gp_vm {
	struct gp_range ranges[GP_N_RANGES];
	struct gp_list pieces;
	struct gp_list exported;  /* cached blocks of retired pieces, while their memory may go back */
	unsigned n_busy;	  /* threads that map or unmap */
	bool is_over;		  /* gp_pool_unmap was called */
	uint64_t n_stuck;	  /* pieces that are */
};

static inline struct gp_range *gp_range_for(const struct gp_pool *pool, uint64_t size)
{
	return &pool->cache.vm->ranges[size <= GP_SMALL_MAX ? GP_RANGE_SMALL : GP_RANGE_LARGE];
}

static inline struct gp_granule *gp_range_granule_at(const struct gp_range *range, uint64_t addr)
{
	return &range->granules[(addr - range->base) >> range->granule_log2];
}

static inline uint64_t gp_range_granule(const struct gp_range *range)
{
	return UINT64_C(1) << range->granule_log2;
}

static inline bool gp_block_is_hole(const struct gp_block *block)
{
	return block && gp_block_state(block) == GP_BLOCK_HOLE;
}

/* Whether there may be something that has to go back, wanted or not. */
static inline bool gp_range_is_any_leaving_locked(const struct gp_pool *pool)
{
	return pool->cache.vm && !gp_list_is_empty(&pool->cache.vm->exported);
}

/* range_life.c */
int gp_range_open(struct gp_pool *pool);
void gp_range_close(struct gp_pool *pool);

/* A thread that maps or unmaps, from before it takes blocks until it has given them back. False: the pool is dead. */
bool gp_range_enter_locked(struct gp_pool *pool);
void gp_range_leave(struct gp_pool *pool);

/* range.c, the books: forgets what is free, as the pool does with all blocks; not the addresses, nor what is mapped. */
void gp_range_forget_locked(struct gp_pool *pool);

/* Cuts a block, or a hole, after size bytes; what is behind is in no structure yet, and inherits stamp and state. */
struct gp_block *gp_range_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size);

/* Joins the block behind, which is in no structure, to the one before it. */
void gp_range_merge_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind);

/* Blocks that are in no structure become cached, or a hole, and merge. Whose bytes they counted as is the caller's. */
void gp_range_cache_locked(struct gp_pool *pool, struct gp_block *block);
void gp_range_make_hole_locked(struct gp_pool *pool, struct gp_block *block);

/*
 * What the block lies in is exported with it: nothing of those pieces is handed out again, and they go back when all
 * that lies in them is free.
 */
void gp_range_retire_locked(struct gp_pool *pool, const struct gp_block *block);

/* Takes a cached block out of the index, not out of the count. */
void gp_range_unlink_locked(struct gp_pool *pool, struct gp_block *block);

/* A piece gets its place, or loses it. */
void gp_range_attach_locked(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr);
void gp_range_detach_locked(struct gp_pool *pool, struct gp_piece *piece);

/* Nothing of the piece is handed out, as if it had been exported: a thread has it, in a block of its own. */
void gp_range_bar_locked(struct gp_pool *pool, struct gp_piece *piece);

/* The driver refused to unmap the piece; and all that it refused may be tried again. */
void gp_range_stick_locked(struct gp_pool *pool, struct gp_piece *piece);
void gp_range_unstick_locked(struct gp_pool *pool);

/* The block at an address of the range; and that with a piece's first byte. */
struct gp_block *gp_range_block_at_locked(const struct gp_range *range, uint64_t addr);
struct gp_block *gp_range_block_of_locked(const struct gp_pool *pool, const struct gp_piece *piece);

/* range_check.c: what is broken, or NULL. */
const char *gp_range_check_locked(const struct gp_pool *pool);

/* range_find.c: where to put a block for which nothing that is mapped has room. */
struct gp_window {
	struct gp_block *first; /* of the blocks there, each MOVING; EMPTY are those that have no memory yet */
	uint64_t addr, size;	/* at least what was asked for */
	uint64_t missing;	/* bytes that have no memory */
};

/* False: no addresses are left. Needs one spare descriptor. */
bool gp_range_take_window_locked(struct gp_pool *pool, struct gp_range *range, uint64_t size,
				 struct gp_window *ret_window);

/*
 * A piece of at most that many bytes that nothing uses any more: the largest there is, or nearly. Its block is MOVING
 * then, and its bytes are returning. NULL: there is none. is_exported: of blocks that were exported, whatever its size.
 */
struct gp_piece *gp_range_take_piece_locked(struct gp_pool *pool, uint64_t max_bytes);
struct gp_piece *gp_range_take_exported_piece_locked(struct gp_pool *pool);

/* range_piece.c */
uint64_t gp_range_give_back(struct gp_pool *pool, uint64_t want);

/* range_fill.c */
int gp_range_grow(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed);
