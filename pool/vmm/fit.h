/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The choice of a placement for a block of the kind vmm, and of a chunk that can be moved or given back. */

#include "arena.h"

/* The placement of a new block for which no mapped memory has room. */
struct gp_placement {
	struct gp_block *first; /* the first block there; all are MOVING, and EMPTY if they have no memory yet */
	uint64_t addr, size;    /* size: at least the requested size */
	uint64_t missing;       /* bytes without memory */
};

/* Takes the addresses for a new block. False: no addresses are left. Needs one spare descriptor. */
bool gp_arena_take_placement_locked(
	struct gp_pool *pool, struct gp_arena *arena, uint64_t size, struct gp_placement *ret_placement);

/*
 * Both take a chunk that is no longer used, or return NULL. gp_arena_take_chunk_locked takes a chunk of at most
 * max_bytes, the largest among the blocks that it looks at; gp_arena_take_exported_chunk_locked takes any chunk of
 * exported blocks. The chunk's block is MOVING then, and its bytes count as returning.
 */
struct gp_chunk *gp_arena_take_chunk_locked(struct gp_pool *pool, uint64_t max_bytes);
struct gp_chunk *gp_arena_take_exported_chunk_locked(struct gp_pool *pool);
