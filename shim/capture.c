/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The set of capturing streams. A capture may end without an end that succeeded (it was invalidated, its stream
 * destroyed by other means), so now and then, when the set stands in the way of a fence, the driver is asked about each.
 */

#include "capture.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "real.h"
#include "rwlock.h"

enum { HEAL_EVERY = 64 };

static struct gp_rwlock lock; /* shared: a fence call; alone: a capture begins, and the set changes */
static CUstream *streams;
static unsigned n_streams, n_room;
static _Atomic unsigned n_capturing; /* n_streams, readable without the lock */
static _Atomic bool is_overflown;    /* a stream could not be noted: no fences any more */
static _Atomic unsigned blocked;

static void remove_locked(unsigned i)
{
	streams[i] = streams[--n_streams];
	atomic_store(&n_capturing, n_streams);
}

static void heal_locked(void)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (gp_real.cuThreadExchangeStreamCaptureMode(&relaxed))
		return;
	for (unsigned i = n_streams; i-- > 0;) {
		int status = CU_STREAM_CAPTURE_STATUS_NONE;

		if (gp_real.cuStreamIsCapturing(streams[i], &status) || status == CU_STREAM_CAPTURE_STATUS_NONE)
			remove_locked(i);
	}
	(void)gp_real.cuThreadExchangeStreamCaptureMode(&relaxed);
}

bool gp_capture_is_any(void)
{
	return atomic_load(&n_capturing) != 0 || atomic_load(&is_overflown);
}

bool gp_capture_enter(void)
{
	gp_rwlock_lock_shared(&lock);
	if (!gp_capture_is_any())
		return true;
	gp_rwlock_unlock_shared(&lock);
	if (atomic_fetch_add(&blocked, 1) % HEAL_EVERY == HEAL_EVERY - 1) {
		gp_rwlock_lock(&lock);
		heal_locked();
		gp_rwlock_unlock(&lock);
	}
	return false;
}

void gp_capture_leave(void)
{
	gp_rwlock_unlock_shared(&lock);
}

void gp_capture_begin(void)
{
	gp_rwlock_lock(&lock);
}

void gp_capture_begun(CUstream stream, bool success)
{
	if (success && n_streams == n_room) {
		unsigned room = n_room ? n_room * 2 : 16;
		CUstream *more = realloc(streams, room * sizeof(CUstream));

		if (more) {
			streams = more;
			n_room = room;
		} else {
			atomic_store(&is_overflown, true);
		}
	}
	if (success && n_streams < n_room) {
		streams[n_streams++] = stream;
		atomic_store(&n_capturing, n_streams);
	}
	gp_rwlock_unlock(&lock);
}

void gp_capture_end(CUstream stream, bool is_gone)
{
	if (!atomic_load(&n_capturing))
		return;
	gp_rwlock_lock(&lock);
	for (unsigned i = n_streams; i-- > 0;) {
		int status = CU_STREAM_CAPTURE_STATUS_NONE;

		if (streams[i] != stream)
			continue;
		/* An end that failed may leave the stream capturing, or not. */
		if (is_gone || gp_real.cuStreamIsCapturing(stream, &status) ||
			status == CU_STREAM_CAPTURE_STATUS_NONE)
			remove_locked(i);
	}
	gp_rwlock_unlock(&lock);
}
