/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The set of capturing streams. A capture may end without an end that succeeded (it was invalidated, its thread has
 * ended), so now and then, when the set stands in the way of a fence, the driver is asked about each.
 *
 * Each begin that succeeded has an entry of its own, which leaves the set before the driver is told to end the capture
 * and comes back if it did not: so an entry is never mistaken for that of a capture that begins on the same stream, or
 * on another with the same handle, while an end is under way.
 *
 * The wait for fence calls under way is a lock and unlock of every fence: whoever held one when the count went up has
 * let go of it, and whoever takes one later sees the count. So it is the rare begin that pays, not each fence.
 */

#include "capture.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "in_order.h"
#include "real.h"

enum { HEAL_EVERY = 64 };

#define LEGACY	   ((CUstream)1)
#define PER_THREAD ((CUstream)2)

_Atomic unsigned gp_capturing;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_capture *captures; /* that began; one that could not be noted is never forgotten */
static unsigned n_captures, n_room;
static _Atomic unsigned refused;

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

/* What the driver says; false if it says nothing. */
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
 * Only the thread itself can ask about its own stream, and only in the context. What another's has begun and cannot
 * end any more is nobody's loss.
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

	if (atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed) % HEAL_EVERY != HEAL_EVERY - 1 ||
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
	gp_pinned_each(context, quiesce_pool, NULL);
}

void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread)
{
	gp_in_order_end("a capture");
	*capture = identify(stream, is_per_thread);
	atomic_fetch_add(&gp_capturing, 1);
	gp_context_each(quiesce, NULL);
}

static void note(const struct gp_capture *capture)
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
		note(capture);
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
	/* An end that failed may leave the stream capturing, or not. */
	if (r == CUDA_SUCCESS || !is_still_on(capture))
		atomic_fetch_sub(&gp_capturing, 1);
	else
		note(capture);
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
