/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Which streams are capturing. A fence that is recorded or ordered upon while a stream captures would destroy the
 * capture, whatever the mode, so fences and the beginning of captures exclude one another: a fence call looks here
 * first, under its fence's lock, and a capture begins only after every fence call that may have looked too early has
 * ended.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"

extern _Atomic unsigned gp_capturing; /* captures that run or are about to begin */

/* Whether a fence call is allowed now. The caller holds the lock of the fence. */
static inline bool gp_capture_is_none(void)
{
	return atomic_load(&gp_capturing) == 0;
}

/* Whether this very stream is capturing. is_per_thread: in a call where NULL is the thread's own stream. */
bool gp_capture_is_on(CUstream stream, bool is_per_thread);

/* A fence call was refused: now and then looks whether the captures in the way are really still there. */
void gp_capture_refused(void);

/* A capture, by the stream that it began on. A thread's own stream is another in each thread and context. */
struct gp_capture {
	CUstream stream; /* NULL: none */
	CUcontext ctx;
	int thread; /* that the stream is the own one of, or 0 */
};

/* Around the driver's own begin: before it, and with its result after it. */
void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_begun(const struct gp_capture *capture, CUresult r);

/*
 * Around the driver's own end, and around the end of the stream: the first takes the capture out of the set, if it is
 * there, and the second sees whether it is over.
 */
void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_ended(const struct gp_capture *capture, CUresult r);

/* A context is gone, with its streams. */
void gp_capture_forget_context(CUcontext ctx);
