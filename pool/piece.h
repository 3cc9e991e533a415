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
	bool is_stuck;	 /* the driver refused to unmap it: left alone until everything is to go back */
	bool is_retired; /* nothing of it is handed out again, and it never moves: something in it was exported, say */
};

/* New memory. It belongs to the thread until it is mapped, and counts as returning. */
int gp_piece_create(struct gp_pool *pool, uint64_t bytes, struct gp_piece **ret_piece);

/*
 * Maps it there. 0, GP_E_DEAD, or the driver's error: then it has gone back, or is stuck there and of no use. What it
 * was to fill is exported then, as far as the piece reaches.
 */
int gp_piece_map(struct gp_pool *pool, struct gp_range *range, struct gp_piece *piece, uint64_t addr,
		 bool *ret_is_stuck);

/*
 * Unmaps a piece that was taken (above): its addresses become a hole, and it is the thread's. 0, GP_E_DEAD, or the
 * driver's error: then it is cached again, and stuck.
 */
int gp_piece_unmap(struct gp_pool *pool, struct gp_piece *piece);

/* Gives back a piece of the thread's. */
void gp_piece_give_away(struct gp_pool *pool, struct gp_piece *piece);

/* The same of one that it has mapped just now. 0, or the driver's error: then it stays where it is, and is stuck. */
int gp_piece_remove(struct gp_pool *pool, struct gp_piece *piece);
