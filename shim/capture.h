/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Which streams are capturing. A fence that is recorded, queried or ordered while a stream captures would destroy
 * the capture, so fences and the beginning of captures exclude one another.
 */

#include "cuda_abi.h"
#include <stdbool.h>

/* Before a fence call: true if no stream of the process captures, and none begins to until gp_capture_leave. */
bool gp_capture_enter(void);
void gp_capture_leave(void);

/* Around the driver's own begin. */
void gp_capture_begin(void);
void gp_capture_begun(CUstream stream, bool success);

/* After the driver's own end, or when the stream is gone. */
void gp_capture_end(CUstream stream, bool is_gone);

/* Whether some stream captures now, as far as is known. */
bool gp_capture_is_any(void);
