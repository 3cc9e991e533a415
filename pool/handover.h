/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A block changes hands between the pool and the program, with the pool's counters. */

#include "kind.h"

/* Hands out a block that is in no list or tree. */
struct gp_claim_token gp_pool_hand_out_locked(
	struct gp_pool *pool, struct gp_block *block, const struct gp_request *request);

/* Subtracts a claimed block from what the program holds. */
void gp_pool_unaccount_locked(struct gp_pool *pool, struct gp_block *block);

/*
 * Moves a block whose fence sequence is set from the used bytes into the queue of pending blocks. stream: the stream of
 * the free, which is unfenced then; or 0.
 */
void gp_pool_queue_locked(struct gp_pool *pool, struct gp_block *block, bool is_unfenced, uint64_t stream);
