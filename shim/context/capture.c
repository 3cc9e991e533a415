/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The set of capturing streams. A capture may end without a successful end call (it was invalidated, or its thread has
 * ended). So after every RECHECK_EVERY refused fence calls the driver is asked about each capture in the set.
 *
 * Each successful begin adds an entry. The entry leaves the set before the driver is called to end the capture, and is
 * put back if that call fails. Meanwhile a capture may begin on the same stream, or on a new stream with the same
 * handle. Its entry is never mistaken for the one that has left.
 *
 * A begin first raises the count of captures, and then locks and unlocks the fences of each context once. This waits
 * for the fence calls under way. A thread that takes the lock of the fences later sees the count. So the cost is on the
 * rare begin, not on each fence call.
 */

#include "capture.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "context.h"
#include "serial.h"
#include "shim/driver/driver_table.h"

enum { RECHECK_EVERY = 64 };

#define LEGACY     ((CUstream)1)
#define PER_THREAD ((CUstream)2)

_Atomic unsigned gp_capturing;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
/* The captures that have begun. If there was no host memory for an entry, the capture is counted for good. */
static struct gp_capture *captures;
static unsigned n_captures, n_room;
static _Atomic unsigned n_refused;

static int thread_now(void)
{
	return (int)syscall(SYS_gettid);
}

static bool is_thread_gone(int thread)
{
	return syscall(SYS_tgkill, getpid(), thread, 0) != 0;
}

static CUcontext context_now(void)
{
	CUcontext ctx = NULL;

	(void)gp_real.cuCtxGetCurrent(&ctx);
	return ctx;
}

static struct gp_capture identify(CUstream stream, bool is_per_thread)
{
	struct gp_capture capture = {.stream = stream};

	if (!stream)
		capture.stream = is_per_thread ? PER_THREAD : LEGACY;
	if (capture.stream == PER_THREAD)
		capture.thread = thread_now();
	if (capture.thread || !gp_real.cuStreamGetCtx || gp_real.cuStreamGetCtx(capture.stream, &capture.ctx))
		capture.ctx = context_now();
	return capture;
}

/* Asks the driver whether a stream captures; false if the driver fails. */
static bool is_capturing(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;

	return !gp_real.cuStreamIsCapturing(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gp_capture_is_on(CUstream stream, bool is_per_thread)
{
	return !gp_capture_is_none() && is_capturing(!stream && is_per_thread ? PER_THREAD : stream);
}

/*
 * True if a capture still runs. A thread's own stream (PER_THREAD) can be queried only by that thread, in that
 * context. For all other callers its capture counts as running until the thread ends, since no other thread could end
 * the capture.
 */
static bool is_still_on(const struct gp_capture *capture)
{
	if (capture->thread && (capture->thread != thread_now() || capture->ctx != context_now()))
		return !is_thread_gone(capture->thread);
	return is_capturing(capture->stream);
}

static void remove_locked(unsigned i)
{
	captures[i] = captures[--n_captures];
	atomic_fetch_sub(&gp_capturing, 1);
}

void gp_capture_refused(void)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (atomic_fetch_add_explicit(&n_refused, 1, memory_order_relaxed) % RECHECK_EVERY != RECHECK_EVERY - 1 ||
		gp_real.cuThreadExchangeStreamCaptureMode(&relaxed))
		return;
	gp_mutex_lock(&lock);
	for (unsigned i = n_captures; i-- > 0;)
		if (!is_still_on(&captures[i]))
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
	gp_context_each_pinned(context, quiesce_pool, NULL);
}

void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread)
{
	gp_serial_end("a capture");
	*capture = identify(stream, is_per_thread);
	atomic_fetch_add(&gp_capturing, 1);
	gp_context_each(quiesce, NULL);
}

static void add_entry(const struct gp_capture *capture)
{
	gp_mutex_lock(&lock);
	if (n_captures == n_room) {
		unsigned room = n_room ? n_room * 2 : 16;
		struct gp_capture *more = realloc(captures, room * sizeof(*more));

		if (more) {
			captures = more;
			n_room = room;
		}
	}
	if (n_captures < n_room)
		captures[n_captures++] = *capture;
	gp_mutex_unlock(&lock);
}

void gp_capture_begun(const struct gp_capture *capture, CUresult r)
{
	if (r)
		atomic_fetch_sub(&gp_capturing, 1);
	else
		add_entry(capture);
}

static bool is_same(const struct gp_capture *a, const struct gp_capture *b)
{
	return a->stream == b->stream && a->thread == b->thread && (!a->thread || a->ctx == b->ctx);
}

void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread)
{
	*capture = (struct gp_capture){NULL};
	if (gp_capture_is_none())
		return;
	capture->stream = !stream ? is_per_thread ? PER_THREAD : LEGACY : stream;
	if (capture->stream == PER_THREAD) {
		capture->thread = thread_now();
		capture->ctx = context_now();
	}
	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_captures; i++) {
		if (!is_same(&captures[i], capture))
			continue;
		*capture = captures[i];
		captures[i] = captures[--n_captures];
		gp_mutex_unlock(&lock);
		return;
	}
	gp_mutex_unlock(&lock);
	capture->stream = NULL;
}

void gp_capture_ended(const struct gp_capture *capture, CUresult r)
{
	if (!capture->stream)
		return;
	/* After a failed end the stream may still be capturing. */
	if (r == CUDA_SUCCESS || !is_still_on(capture))
		atomic_fetch_sub(&gp_capturing, 1);
	else
		add_entry(capture);
}

void gp_capture_forget_context(CUcontext ctx)
{
	if (gp_capture_is_none())
		return;
	gp_mutex_lock(&lock);
	for (unsigned i = n_captures; i-- > 0;)
		if (captures[i].ctx == ctx)
			remove_locked(i);
	gp_mutex_unlock(&lock);
}
