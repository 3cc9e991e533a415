/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Retained memory: blocks that the program has freed, but that a captured graph may still use each time it is launched.
 * No other owner gets them before the graph, its clones and its executables are gone (retainer.h).
 *
 * A block that is handed out during a capture remembers its retainer (GP_BLOCK_CAPTURED), so that it is retained also
 * if it is freed after the capture. Retained blocks count as pending, since the GPU may still use them, but they are
 * not in the queue: no fence frees them. When their retainers have no owner left, they enter the queue as unfenced.
 */

#include "kind.h"
#include "retainer.h"

/*
 * Decides about a claimed block that the program frees. Returns true if the block is retained. Otherwise the block
 * forgets its retainer. capture: NULL if no stream captures.
 */
bool gp_retain_freed_locked(struct gp_pool *pool, struct gp_block *block, const struct gp_capture_free *capture);

/* Hands out a retained block that fits and that may be used again in the same capture. Returns a NULL token if none. */
struct gp_claim_token gp_retain_take(struct gp_pool *pool, struct gp_request *request);

/* Queues the blocks whose retainers have no owner any more. To be called while blocks are retained. */
void gp_retain_release_ended_locked(struct gp_pool *pool);

/* The same at any time. Each miss calls this, and few programs have retained blocks. */
static inline void gp_retain_release_locked(struct gp_pool *pool)
{
	if (gp_unlikely(!gp_list_is_empty(&pool->retained)))
		gp_retain_release_ended_locked(pool);
}
