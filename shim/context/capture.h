/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The set of capturing streams. A fence record or a GPU wait while a stream captures would invalidate the capture, in
 * every mode. So fence calls and the begin of captures exclude each other: a fence call looks here first, under its
 * fence's lock, and a capture begins only when every fence call that may have looked earlier has ended.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

extern _Atomic unsigned gp_capturing; /* captures that run or are about to begin */

/* True if a fence call is allowed now. The caller holds the lock of the fence. */
static inline bool gp_capture_is_none(void)
{
	return atomic_load(&gp_capturing) == 0;
}

/* True if this stream is capturing. is_per_thread: the call is of those where NULL means the thread's own stream. */
bool gp_capture_is_on(CUstream stream, bool is_per_thread);

/*
 * Notes that a fence call was refused. Every few times it asks the driver whether the captures in the set still run.
 */
void gp_capture_refused(void);

/* A capture, identified by the stream that it began on. A thread's own stream differs in each thread and context. */
struct gp_capture {
	CUstream stream; /* NULL: no capture */
	CUcontext ctx;
	int thread; /* of a thread's own stream: that thread; else 0 */
};

/* Called around the driver's begin: before it, and with its result after it. */
void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_begun(const struct gp_capture *capture, CUresult r);

/*
 * Called around the driver's end of a capture, and around the end of a stream. The first takes the capture out of the
 * set, if it is there. The second, with the driver's result, puts it back if it still runs.
 */
void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_ended(const struct gp_capture *capture, CUresult r);

/* Forgets the captures of a context that has ended. */
void gp_capture_forget_context(CUcontext ctx);
