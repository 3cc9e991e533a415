/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Taking segments from the driver and giving them back: segment.c. Only functions named _locked are called with the
 * lock held.
 */

#include "kind.h"
#include "pool_impl.h"

/*
 * Asks the driver for a segment that serves the request, within the budget. -ENOMEM: the driver or the budget refused.
 */
int gp_segment_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);

/*
 * Plans a growth that follows at once, unless fences or returning memory have to be polled first. gp_segment_grow makes
 * a plan if there is none, and uses a plan once.
 */
void gp_segment_plan_locked(struct gp_pool *pool, struct gp_request *request);

/* Must follow an attempt to grow: notes in pool->is_full whether the driver refused the request. */
void gp_segment_note_growth(struct gp_pool *pool, const struct gp_request *request, int result);

/* Must follow growth: while the driver has less than reserve_bytes left, gives back the difference. */
void gp_segment_keep_reserve(struct gp_pool *pool);

/* True while another process lacks memory of the device. */
bool gp_segment_is_wanted(struct gp_pool *pool);

/*
 * Gives back idle segments whose work is completed, and all segments that are leaving. Of the idle ones it takes the
 * smallest of at least `want` bytes if there is one, otherwise the least recently used ones until `want` bytes are
 * reached. Returns the bytes of the releases begun.
 */
uint64_t gp_segment_give_back(struct gp_pool *pool, uint64_t want);

/*
 * The same inside a free of the program with this fence sequence that waits for the context without gpupool. It may
 * release by the driver's own free.
 */
uint64_t gp_segment_give_back_at_free(struct gp_pool *pool, uint64_t want, uint64_t free_seq);

/* Counts a call that gave memory back, and the time it took. */
void gp_segment_count_release(struct gp_pool *pool, uint64_t start_ns);

/* Notes that returning bytes have reached the driver, or with r > 0 that it reported an error. */
void gp_segment_note_arrival(struct gp_pool *pool, uint64_t bytes, int r);

/*
 * Gives back one block that is a whole segment and was taken out of the queue, behind its fence. free_seq: as in
 * gp_segment_give_back_at_free, or NULL. Returns the bytes begun.
 */
uint64_t gp_segment_give_back_pending(struct gp_pool *pool, struct gp_block *block, const uint64_t *free_seq);

/*
 * Gives back a segment of which the program holds nothing, though a fence is still outstanding, by the driver's own
 * free, which waits for all work. Returns false if there is no such segment.
 */
bool gp_segment_release_unused(struct gp_pool *pool);

/* True if giving back would not make any thread wait now. */
bool gp_segment_can_give_back(struct gp_pool *pool);

/*
 * Gives back one block that is a whole segment and in no list or tree, by the driver's own free, which may wait.
 * Returns the driver's result.
 */
int gp_segment_release(struct gp_pool *pool, struct gp_block *block);

/* Checks whether the releases begun before the call have reached the driver. */
void gp_segment_poll_returning(struct gp_pool *pool);

/*
 * Waits until the releases begun before the call have reached the driver, at most max_ns (UINT64_MAX: without bound).
 */
void gp_segment_wait_returning(struct gp_pool *pool, uint64_t max_ns);

/*
 * Retires a segment: none of its blocks is handed out again. Cached blocks leave the index, and the segment goes back
 * once all of it is free.
 */
void gp_segment_retire_locked(struct gp_pool *pool, struct gp_segment *segment);

/*
 * Marks a queued block as not to be kept: its segment goes back once all of that is free. The kind vmm has no such
 * segments; as many bytes are added to its debt instead.
 */
void gp_segment_uncache_locked(struct gp_pool *pool, const struct gp_block *block);

/* Note that a segment is wholly cached, or no longer is. */
void gp_segment_set_idle_locked(struct gp_pool *pool, struct gp_segment *segment);
void gp_segment_set_busy_locked(struct gp_segment *segment);

/* True if any segment or chunk waits to be given back. */
bool gp_segment_is_any_leaving_locked(const struct gp_pool *pool);
