/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Which streams are capturing. A fence that is recorded, queried or ordered while a stream captures would destroy
 * the capture, so fences and the beginning of captures exclude one another: a fence call looks here first, under its
 * fence's lock, and a capture begins only after every fence call that may have looked too early has ended.
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

/* A fence call was refused: now and then looks whether the captures in the way are really still there. */
void gp_capture_refused(void);

/* Around the driver's own begin: before it, and with its result after it. */
void gp_capture_begin(void);
void gp_capture_begun(CUstream stream, bool success);

/* After the driver's own end, or when the stream is gone. */
void gp_capture_end(CUstream stream, bool is_gone);
