/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Recycled descriptors of blocks and segments: descriptor.c. */

#include "pool_impl.h"

/* Ensures that the next few _new calls cannot fail. 0 or -ENOBUFS. */
int gp_descriptors_ensure_locked(struct gp_pool *pool);
struct gp_block *gp_block_new_locked(struct gp_pool *pool);
void gp_block_spare_locked(struct gp_pool *pool, struct gp_block *block);

/*
 * Cuts a block after `size` bytes. Returns the rest: a new block in no list or tree, which inherits the fence sequence.
 */
struct gp_block *gp_block_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size);

/*
 * Merges the block behind, which is in no list or tree, into the one before it, which takes the larger fence sequence.
 */
void gp_block_join_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind);

struct gp_segment *gp_segment_new_locked(struct gp_pool *pool);
void gp_segment_spare_locked(struct gp_pool *pool, struct gp_segment *segment);

/* Passes all descriptors of the pool to its map. */
void gp_descriptors_free(struct gp_pool *pool);
