/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Driver allocations, coming and going: segment.c. None of these is called with the lock held but the _locked. */

#include "kind.h"
#include "pool_impl.h"

/* Asks the driver for a segment that serves the request, within the budget. -ENOMEM: either said no. */
int gp_segment_grow(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed);

/* After an attempt to grow: what its result tells of whether the driver has any more. */
void gp_segment_note_growth(struct gp_pool *pool, const struct gp_request *request, int result);

/* After growth: gives back what cannot be afforded any more, the driver being nearly empty. */
void gp_segment_keep_reserve(struct gp_pool *pool);

/*
 * Gives back idle segments whose work is completed: the smallest one of at least want bytes if there is one, else
 * the least recently used ones until want bytes are together; and all that are leaving. Returns the bytes begun.
 */
uint64_t gp_segment_give_back(struct gp_pool *pool, uint64_t want);

/* Notes a call that gave memory back, and how long it took. */
void gp_segment_count_release(struct gp_pool *pool, uint64_t start_ns);

/* Notes that bytes that were returning have arrived in the driver, or what it said instead. */
void gp_segment_arrived(struct gp_pool *pool, uint64_t bytes, int r);

/* Gives one block, whole and taken out of the queue, back behind its fence. Returns the bytes begun. */
uint64_t gp_segment_give_back_pending(struct gp_pool *pool, struct gp_block *block);

/*
 * Gives back a segment of which the program holds nothing, though a fence has still to pass, by the driver's own free,
 * which waits for all work. False if none was found.
 */
bool gp_segment_release_unused(struct gp_pool *pool);

/* Whether giving back makes nobody wait just now. */
bool gp_segment_can_give_back(struct gp_pool *pool);

/* Gives one block, whole and in no structure, back by the driver's own free, which may wait. The driver's result. */
int gp_segment_release(struct gp_pool *pool, struct gp_block *block);

/* Sees whether what was begun before the call has arrived in the driver. */
void gp_segment_poll_returning(struct gp_pool *pool);

/* The same, and waits for it, at most so long (UINT64_MAX: without bound). */
void gp_segment_wait_returning(struct gp_pool *pool, uint64_t max_ns);

/* Nothing in it is handed out again: what is cached leaves the index, and the segment goes when all of it is free. */
void gp_segment_retire_locked(struct gp_pool *pool, struct gp_segment *segment);

/*
 * The block is queued, and not to be kept: its segment goes back as soon as all of that is free. The kind vmm has no
 * such segments, and gives as many bytes back instead.
 */
void gp_segment_uncache_locked(struct gp_pool *pool, const struct gp_block *block);

/* Notes that a segment is wholly cached, or not any more. */
void gp_segment_set_idle_locked(struct gp_pool *pool, struct gp_segment *segment);
void gp_segment_set_busy_locked(struct gp_segment *segment);

/* Whether any wait to be given back. */
bool gp_segment_is_any_leaving_locked(const struct gp_pool *pool);
