/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The set of capturing streams. While a stream captures, a fence record or a GPU wait would invalidate the capture, in
 * every capture mode. So fence calls and captures exclude each other. A fence call checks gp_capture_is_none() first,
 * under the lock of the context's fences. A capture begins only when every fence call that checked before has ended.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

extern _Atomic unsigned gp_capturing; /* captures that run or are about to begin */

/* True if a fence call is allowed now. The caller must hold the lock of the context's fences. */
static inline bool gp_capture_is_none(void)
{
	return atomic_load(&gp_capturing) == 0;
}

/* True if this stream is capturing. is_per_thread: a stream of NULL means the thread's own default stream. */
bool gp_capture_is_on(CUstream stream, bool is_per_thread);

/*
 * Notes that a fence call was refused. Every RECHECK_EVERY calls it asks the driver whether the captures in the set
 * still run.
 */
void gp_capture_refused(void);

/* A capture, identified by the stream that it began on. A thread's own stream differs in each thread and context. */
struct gp_capture {
	CUstream stream; /* NULL: no capture */
	CUcontext ctx;
	int thread; /* the thread, if the stream is a thread's own default stream; else 0 */
};

/* Called before the driver begins a capture, and after that with the driver's result. */
void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_begun(const struct gp_capture *capture, CUresult r);

/*
 * Called before the driver ends a capture or destroys a stream, and after that with the driver's result.
 * gp_capture_end takes the capture out of the set, if it is there. gp_capture_ended puts it back if it still runs.
 */
void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_ended(const struct gp_capture *capture, CUresult r);

/* Forgets the captures of a context that has ended. */
void gp_capture_forget_context(CUcontext ctx);
