/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The order between blocking streams (GPUPOOL_ASYNC). Each operation on the legacy stream waits for the earlier work of
 * all blocking streams, and their later operations wait for it. The driver's allocations and frees are operations;
 * those of the pool are not. A recorded event has this effect on an H100, and not on an H200 (measured). So work may
 * precede a free on one blocking stream though it was submitted to another, and an event on the first stream would not
 * show that it is done.
 *
 * A block that is freed on such a stream is reused at once on the same stream only if there is no such work:
 *
 *   - on the legacy stream, while no other blocking stream has work;
 *   - on another blocking stream, while the legacy stream has none.
 *
 * Otherwise it is reused on completion. For this, gpupool looks at the stream of each submission. A stream's wait for
 * an event counts as work: it lets work of any stream precede a free. So do allocations and frees on the legacy stream,
 * also those of the pool, which would be operations, and events that are recorded there. The state is the same for all
 * contexts.
 *
 * Submissions are looked at from the first allocation or free in stream order on, so a program without any does not pay
 * for it. Earlier submissions count as work of both sides.
 *
 * Once a fence has completed, all that was submitted before it is done. So a program that copied to the device through
 * the legacy stream when it began, and then works on another blocking stream, gets back to reuse at once.
 */

#include "pool/pool.h"
#include "pool/submission.h"
#include "shim/base/slow_path.h"
#include "shim/driver/submit.h"
#include "stream.h"

/* Streams of each side wait for work of the other. */
enum gp_stream_side { GP_SIDE_LEGACY, GP_SIDE_BLOCKING /* all other blocking streams */, GP_N_SIDES };

/*
 * The work of a side: some, also while submissions are not looked at; none; or one of the following:
 *
 *   - An even number: some, and the thread that has drawn this number is finding out when it will be done. The numbers
 *     differ, so that such a thread notices that work was noted and another thread has begun meanwhile.
 *   - An odd number: none once a fence after a sequence has completed (stream_order.c).
 */
enum { GP_SIDE_WORK_SOME, GP_SIDE_WORK_NONE };
extern _Atomic uint64_t gp_side_work[GP_N_SIDES];

static inline void gp_side_note_work(enum gp_stream_side side)
{
	if (atomic_load(&gp_side_work[side]) != GP_SIDE_WORK_SOME)
		atomic_store(&gp_side_work[side], GP_SIDE_WORK_SOME);
}

void gp_stream_order_begin(void);

/* Looks at the stream of each submission from now on. To be called before an allocation or a free in stream order. */
static inline void gp_stream_order_watch(void)
{
	if (gp_unlikely(!(atomic_load(&gp_submit_reasons) & GP_SUBMIT_ORDER)))
		gp_stream_order_begin();
}

/*
 * True if no work can precede a free on the stream but what the stream itself waits for. On the legacy stream the call
 * counts as an operation.
 */
static inline bool gp_stream_is_in_own_order(const struct gp_stream *stream)
{
	enum gp_stream_side other = stream->is_legacy ? GP_SIDE_BLOCKING : GP_SIDE_LEGACY;

	if (!stream->is_blocking)
		return true;
	if (stream->is_legacy)
		gp_side_note_work(GP_SIDE_LEGACY);
	return atomic_load(&gp_side_work[other]) == GP_SIDE_WORK_NONE && !gp_submission_is_unseen(&gp_submitted);
}

/*
 * The same, but notes progress: work of the other side may have been done in the meantime. pool: of the only context in
 * use.
 */
bool gp_stream_settle_order(const struct gp_stream *stream, struct gp_pool *pool);

/*
 * For an operation that gpupool does not look at as a submission: a free in stream order, an allocation that the driver
 * serves, and the record of an event, which is an operation on an H100.
 */
static inline void gp_stream_order_note_operation(CUstream stream, bool is_per_thread)
{
	if (gp_stream_is_legacy(stream, is_per_thread))
		gp_side_note_work(GP_SIDE_LEGACY);
}

/* For a submission to the stream. To be called in the lane of the thread, before the driver's call. */
void gp_stream_order_note(CUstream stream, int flags);

static inline void gp_stream_order_see(CUstream stream, int flags)
{
	if (atomic_load(&gp_submit_reasons) & GP_SUBMIT_ORDER)
		gp_stream_order_note(stream, flags);
}
