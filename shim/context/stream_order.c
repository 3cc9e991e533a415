/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stream_order.h"

#include <errno.h>

#include "capture.h"
#include "pool/pool.h"
#include "serial.h"
#include "shim/base/state.h"
#include "shim/driver/driver_table.h"
#include "thread.h"

_Atomic uint64_t gp_side_work[GP_N_SIDES];

/* Begins to find out when the work of the side will be done. Returns the number of the attempt, or 0. */
static uint64_t begin_attempt(_Atomic uint64_t *work)
{
	static _Atomic uint64_t n_attempts;
	uint64_t some = GP_SIDE_WORK_SOME, attempt = (atomic_fetch_add(&n_attempts, 1) + 1) * 2;

	return atomic_compare_exchange_strong(work, &some, attempt) ? attempt : 0;
}

/* Stores what the attempt has found, unless work was noted meanwhile. */
static void end_attempt(_Atomic uint64_t *work, uint64_t attempt, uint64_t found)
{
	(void)atomic_compare_exchange_strong(work, &attempt, found);
}

/* The number for work that is done once a fence after the sequence has completed, and the reverse. */
static uint64_t done_after(uint64_t seq)
{
	return seq * 2 + 3;
}

static bool is_done_later(uint64_t work, uint64_t *ret_seq)
{
	*ret_seq = (work - 3) / 2;
	return work >= 3 && work % 2;
}

/*
 * Neither side has work if no thread has submitted any. The reason is added before the threads are counted, so a thread
 * that submits for the first time meanwhile notes its work.
 */
void gp_stream_order_begin(void)
{
	(void)atomic_fetch_or(&gp_submit_reasons, GP_SUBMIT_ORDER);
	for (enum gp_stream_side side = GP_SIDE_LEGACY; side < GP_N_SIDES; side++) {
		uint64_t attempt = begin_attempt(&gp_side_work[side]);

		if (attempt)
			end_attempt(&gp_side_work[side], attempt,
				gp_submission_is_none(&gp_submitted) ? GP_SIDE_WORK_NONE : GP_SIDE_WORK_SOME);
	}
}

/* A stream that cannot be identified counts as blocking. While a stream captures, the driver is not asked. */
static bool is_blocking(CUstream handle)
{
	struct gp_stream stream;

	if (gp_thread_self && gp_stream_recall(&gp_thread_self->streams, handle, false, NULL, &stream))
		return stream.is_blocking;
	return !gp_capture_is_none() || !gp_stream_identify(handle, false, NULL, &stream) || stream.is_blocking;
}

void gp_stream_order_note(CUstream handle, int flags)
{
	int saved_errno = errno;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return;
	if (handle == GP_STREAM_ANY) {
		gp_side_note_work(GP_SIDE_LEGACY);
		gp_side_note_work(GP_SIDE_BLOCKING);
		return;
	}
	handle = gp_stream_waiting(handle);
	if (gp_stream_is_default(handle))
		gp_side_note_work(gp_stream_is_legacy(handle, flags != 0) ? GP_SIDE_LEGACY : GP_SIDE_BLOCKING);
	else if (atomic_load(&gp_side_work[GP_SIDE_BLOCKING]) != GP_SIDE_WORK_SOME && is_blocking(handle))
		gp_side_note_work(GP_SIDE_BLOCKING);
	errno = saved_errno;
}

/*
 * Begins to wait until the work of the side is done. A submission that is under way may come before or after the next
 * fence. One that is not notes its work after it has entered its lane, and so does not find that some is noted already.
 */
static void begin_settling(_Atomic uint64_t *work, struct gp_pool *pool)
{
	uint64_t attempt = begin_attempt(work);
	bool is_any_under_way;

	if (!attempt)
		return;
	is_any_under_way = gp_submission_is_any_under_way(&gp_submitted);
	end_attempt(work, attempt, is_any_under_way ? GP_SIDE_WORK_SOME : done_after(gp_pool_seq(pool)));
}

bool gp_stream_settle_order(const struct gp_stream *stream, struct gp_pool *pool)
{
	_Atomic uint64_t *work = &gp_side_work[stream->is_legacy ? GP_SIDE_BLOCKING : GP_SIDE_LEGACY];
	uint64_t now, seq;

	gp_stream_order_watch();
	if (gp_stream_is_in_own_order(stream))
		return true;
	if (gp_slow_path_is_any(GP_SLOW_PATH_CURRENT) || gp_submission_is_unseen(&gp_submitted))
		return false;
	now = atomic_load(work);
	if (now == GP_SIDE_WORK_SOME)
		begin_settling(work, pool);
	else if (!is_done_later(now, &seq))
		return false;
	else if (gp_pool_is_past(pool, seq))
		(void)atomic_compare_exchange_strong(work, &now, GP_SIDE_WORK_NONE);
	else if (seq > gp_pool_seq(pool))
		/* The sequence is that of a context that has ended. */
		(void)atomic_compare_exchange_strong(work, &now, GP_SIDE_WORK_SOME);
	return gp_stream_is_in_own_order(stream);
}
