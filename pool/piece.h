/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory of the kind vmm, as the driver gives it: mapped, moved and given back as a whole (range_piece.c). */

#include "list.h"
#include "pool.h"

struct gp_range;

struct gp_piece {
	struct gp_list link; /* vm->pieces */
	uint64_t addr, size, handle;
	bool is_mapped;	 /* so far as its thread knows */
	bool is_retired; /* something in it was exported: nothing of it is handed out again, and it never moves */
};

/* New memory. It belongs to the thread until it is mapped, and counts as returning. */
int gp_piece_create(struct gp_pool *pool, uint64_t bytes, struct gp_piece **ret_piece);

/* Maps it there. 0, GP_E_DEAD, or the driver's error: then it has gone back. */
int gp_piece_map(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr);

/*
 * Unmaps a piece that was taken (above): its addresses become a hole, and it is the thread's. 0, GP_E_DEAD, or the
 * driver's error: then it is cached again.
 */
int gp_piece_unmap(struct gp_pool *pool, struct gp_piece *piece);

/* Gives back a piece of the thread's; and one that it has mapped just now. */
void gp_piece_give_away(struct gp_pool *pool, struct gp_piece *piece);
void gp_piece_remove(struct gp_pool *pool, struct gp_piece *piece);
