/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The deferred-free queue: blocks that the program has freed and the GPU may still use, ordered by fence sequence
 * within each size class. Guarded by the pool's lock.
 */

#include "block.h"
#include "sizeclass.h"

enum { GP_PENDING_BINS = 64 };

struct gp_pending {
	/* [1]: unfenced blocks, usable on completion only. A bit is set where the bin is not empty. */
	struct gp_list bins[2][GP_PENDING_BINS];
	uint64_t bitmap[2];
	uint64_t bytes, count;
	uint64_t newest_seq; /* the largest fence sequence that ever entered */
};

void gp_pending_init(struct gp_pending *p);
void gp_pending_add(struct gp_pending *p, struct gp_block *block);
void gp_pending_remove(struct gp_pending *p, struct gp_block *block);

/*
 * Takes out one usable block: its fence sequence is below `gpu_waited`, or for an unfenced block below `completed`.
 * NULL if there is none.
 */
struct gp_block *gp_pending_take_usable(struct gp_pending *p, uint64_t gpu_waited, uint64_t completed);

/*
 * Returns the block that was freed first among those of min_bytes to max_bytes, or NULL. Never an unfenced block, since
 * no work or thread may be made to wait for that, nor one of a retired segment, which is not handed out again.
 */
struct gp_block *gp_pending_find(struct gp_pending *p, uint64_t min_bytes, uint64_t max_bytes);

/*
 * Returns a segment of which the program holds nothing and some is queued, or NULL if none is found. Prefers unfenced
 * blocks to others, and then large ones to small ones.
 */
struct gp_segment *gp_pending_find_unused(struct gp_pending *p);
