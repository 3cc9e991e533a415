/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* From pending to cached, and from there to the program: reuse.c. */

#include "kind.h"
#include "pool_impl.h"

/* Marks a block that is in no structure as the program's. */
struct gp_handed gp_reuse_hand_out_locked(
	struct gp_pool *pool, struct gp_block *block, const struct gp_request *request);

/* Moves what the fences allow into the cache, and hands out a block that fits, if one does. */
struct gp_handed gp_reuse_take(struct gp_pool *pool, const struct gp_request *request);

/* Moves what the fences allow into the cache. */
void gp_reuse_settle(struct gp_pool *pool);

/*
 * Sees to it that some fence covers the late ones among the pending blocks. 0; -EAGAIN where that would be a wait, and
 * none may be; or what gp_fence_record says.
 */
int gp_reuse_cover_late(struct gp_pool *pool, bool may_wait);

/*
 * Looks for a block in the cache, then among the pending ones as far as costs nobody anything. -ENOENT if there
 * is none, or the driver's error.
 */
int gp_reuse_find(struct gp_pool *pool, const struct gp_request *request, struct gp_handed *ret_handed);

/*
 * The same where growing instead would let too much memory wait: orders later work behind the first free that yields a
 * fit, or, where completion is needed, waits for it. -ENOENT if nothing pending fits or growing is better.
 */
int gp_reuse_insist(struct gp_pool *pool, const struct gp_request *request, struct gp_handed *ret_handed);

/*
 * Where the pool would hold more than ever: waits for what has been freed, now and then and not for long. None if no
 * block was to be had by that; then more has been completed, and can be moved or given back.
 */
struct gp_handed gp_reuse_await(struct gp_pool *pool, const struct gp_request *request);

/*
 * Brings the queue of freed blocks back under its limits, and sends off what is leaving. may_wait: as the program's own
 * free would, where the driver gives back in no other way. Returns the bytes begun to be given back.
 */
uint64_t gp_reuse_flush(struct gp_pool *pool, bool may_wait);

/*
 * The same where no fence may be recorded, by the driver's own free, which waits as the program's own would have: only
 * from within a free.
 */
void gp_reuse_flush_unfenced(struct gp_pool *pool);

/* Whether gp_reuse_flush has anything to do. */
bool gp_reuse_needs_flush_locked(const struct gp_pool *pool);
