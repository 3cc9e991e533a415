/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The deferred-free queue: blocks that the program has freed and the GPU may still use, in the order of their
 * stamps within each size class. Guarded by the pool's lock.
 */

#include "block.h"
#include "sizeclass.h"

enum { GP_PENDING_BINS = 64 };

struct gp_pending {
	/* [1]: the late ones, usable on completion only. A bit is set where the bin is not empty. */
	struct gp_list bins[2][GP_PENDING_BINS];
	uint64_t bitmap[2];
	uint64_t bytes, count;
	uint64_t newest_stamp; /* of all that ever entered */
};

void gp_pending_init(struct gp_pending *p);
void gp_pending_add(struct gp_pending *p, struct gp_block *block);
void gp_pending_remove(struct gp_pending *p, struct gp_block *block);

/*
 * Takes one block out that is usable: its stamp is below ordered, or below completed for a late one. NULL if
 * none is.
 */
struct gp_block *gp_pending_take_usable(struct gp_pending *p, uint64_t ordered, uint64_t completed);

/*
 * The block that was freed first among those that alone could serve min..max bytes, or NULL. Never a late one,
 * since nobody may be made to wait for that, nor one of a retired segment, which serves nobody.
 */
struct gp_block *gp_pending_find(struct gp_pending *p, uint64_t min_bytes, uint64_t max_bytes);

/*
 * A segment of which the program holds nothing, and some is queued: with large blocks rather than small ones, with late
 * ones rather than others. NULL if none is found.
 */
struct gp_segment *gp_pending_find_unused(struct gp_pending *p);
