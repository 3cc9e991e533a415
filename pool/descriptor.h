/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Recycled descriptors: descriptor.c. */

#include "pool_impl.h"

/* Sees to it that the next few _new calls cannot fail. 0 or -ENOBUFS. */
int gp_descriptors_ensure_locked(struct gp_pool *pool);
struct gp_block *gp_block_new_locked(struct gp_pool *pool);
void gp_block_spare_locked(struct gp_pool *pool, struct gp_block *block);

/* Cuts a block after size bytes; what is behind is new, in no structure, and inherits the stamp. */
struct gp_block *gp_block_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size);

/* Joins the block behind, which is in no structure, to the one before it, which takes the larger stamp. */
void gp_block_join_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind);

struct gp_segment *gp_segment_new_locked(struct gp_pool *pool);
void gp_segment_spare_locked(struct gp_pool *pool, struct gp_segment *segment);

/* All of them, to the map. */
void gp_descriptors_free(struct gp_pool *pool);
