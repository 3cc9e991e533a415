/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Serves requests from freed memory (reuse.c). */

#include "kind.h"
#include "pool_impl.h"

/* Moves pending blocks that the fences allow into the cache, and hands out a block that fits, if there is one. */
struct gp_claim_token gp_reuse_take(struct gp_pool *pool, const struct gp_request *request);

/* Takes a pending block that was freed on the stream of the request, and has nearly its size. */
struct gp_claim_token gp_reuse_take_of_stream(struct gp_pool *pool, const struct gp_request *request);

/* Takes a part of a larger such block. The rest stays pending. */
struct gp_claim_token gp_reuse_take_part_of_stream(struct gp_pool *pool, const struct gp_request *request);

/* Moves pending blocks that the fences allow into the cache. */
void gp_reuse_cache_usable(struct gp_pool *pool);

/*
 * Ensures that a fence covers the unfenced blocks among the pending ones. 0; -EAGAIN if that would wait and may_wait is
 * false; or the result of gp_fence_record.
 */
int gp_reuse_fence_unfenced(struct gp_pool *pool, bool may_wait);

/* Sets the request's summary and the steps before `grow` that would find nothing to do. */
void gp_reuse_survey(struct gp_pool *pool, struct gp_request *request);

/*
 * As gp_reuse_take, but takes nothing while so much is pending that the choice would be poor. 0, or -ENOENT after a
 * survey.
 */
int gp_reuse_take_fresh(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);

/*
 * Must follow a survey: makes pending blocks usable as far as that is cheap (reuse.c), and takes one. 0, -ENOENT after
 * a new survey, or the driver's error.
 */
int gp_reuse_poll(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);

/*
 * For the case that growing would leave too much memory pending: makes a GPU wait, or waits on the
 * host where completion is needed. -ENOENT if nothing pending fits or growing is better.
 */
int gp_reuse_gpu_wait(struct gp_pool *pool, const struct gp_request *request, struct gp_claim_token *ret_token);

/*
 * Must follow a survey. For a pool that would exceed its peak: waits for freed memory, a few times and not for long.
 * Returns no block if that did not yield one; then more memory is completed, and can be moved or given back.
 */
struct gp_claim_token gp_reuse_host_wait(struct gp_pool *pool, const struct gp_request *request);

/*
 * Brings the queue of freed blocks back under its limits, and gives back what is leaving. may_wait: true if this may
 * wait as the program's own free would, where the driver gives memory back in no other way. Returns the bytes of
 * releases begun.
 */
uint64_t gp_reuse_flush(struct gp_pool *pool, bool may_wait);

/*
 * The same inside a free of the program that waits for the context without gpupool. free_seq: the fence sequence of
 * what it frees.
 */
void gp_reuse_flush_at_free(struct gp_pool *pool, uint64_t free_seq);

/*
 * As gp_reuse_flush where no fence may be recorded: uses the driver's own free, which waits as the program's own would
 * have. Only from within a free.
 */
void gp_reuse_flush_unfenced(struct gp_pool *pool);

/* True if gp_reuse_flush has anything to do. */
bool gp_reuse_needs_flush_locked(const struct gp_pool *pool);
