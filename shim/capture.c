/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The set of capturing streams. A capture may end without an end that succeeded (it was invalidated, its stream
 * destroyed by other means), so now and then, when the set stands in the way of a fence, the driver is asked about
 * each.
 *
 * The wait for fence calls under way is a lock and unlock of every fence: whoever held one when the count went up has
 * let go of it, and whoever takes one later sees the count. So it is the rare begin that pays, not each fence.
 */

#include "capture.h"

#include <stdlib.h>

#include "backend.h"
#include "real.h"

enum { HEAL_EVERY = 64 };

_Atomic unsigned gp_capturing;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static CUstream *streams; /* those whose capture began; one that could not be noted is never forgotten */
static unsigned n_streams, n_room;
static _Atomic unsigned refused;

static void remove_locked(unsigned i)
{
	streams[i] = streams[--n_streams];
	atomic_fetch_sub(&gp_capturing, 1);
}

static bool is_capturing(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;

	return !gp_real.cuStreamIsCapturing(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void gp_capture_refused(void)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed) % HEAL_EVERY != HEAL_EVERY - 1 ||
		gp_real.cuThreadExchangeStreamCaptureMode(&relaxed))
		return;
	gp_mutex_lock(&lock);
	for (unsigned i = n_streams; i-- > 0;)
		if (!is_capturing(streams[i]))
			remove_locked(i);
	gp_mutex_unlock(&lock);
	(void)gp_real.cuThreadExchangeStreamCaptureMode(&relaxed);
}

static void quiesce_pool(void *unused, struct gp_pool *pool)
{
	gp_pool_quiesce(pool);
}

static void quiesce(void *unused, struct gp_context *context)
{
	gp_pool_quiesce(context->pool);
	gp_pinned_each(context, quiesce_pool, NULL);
}

void gp_capture_begin(void)
{
	atomic_fetch_add(&gp_capturing, 1);
	gp_context_each(quiesce, NULL);
}

void gp_capture_begun(CUstream stream, bool success)
{
	if (!success) {
		atomic_fetch_sub(&gp_capturing, 1);
		return;
	}
	gp_mutex_lock(&lock);
	if (n_streams == n_room) {
		unsigned room = n_room ? n_room * 2 : 16;
		CUstream *more = realloc(streams, room * sizeof(CUstream));

		if (more) {
			streams = more;
			n_room = room;
		}
	}
	if (n_streams < n_room)
		streams[n_streams++] = stream;
	gp_mutex_unlock(&lock);
}

void gp_capture_end(CUstream stream, bool is_gone)
{
	if (gp_capture_is_none())
		return;
	gp_mutex_lock(&lock);
	/* An end that failed may leave the stream capturing, or not. */
	for (unsigned i = n_streams; i-- > 0;)
		if (streams[i] == stream && (is_gone || !is_capturing(stream)))
			remove_locked(i);
	gp_mutex_unlock(&lock);
}
