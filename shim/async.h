/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory of the driver's stream-ordered allocator, for GPUPOOL_BACKEND=async. */

#include "context.h"

/* Whether the driver has such memory for the context's device. */
bool gp_async_is_possible(const struct gp_context *context);

/* Memory that any work may use at once. Between gp_context_enter and gp_context_leave, as all of these. */
CUresult gp_async_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes);

/*
 * Gives it back after all work of the context so far, for which the host waits, as it does in the driver's own free.
 * With the context current.
 */
CUresult gp_async_release(struct gp_context *context, CUdeviceptr ptr);

/* The driver keeps nothing of what was given back. False if there is no such pool. */
bool gp_async_trim(struct gp_context *context);

/* Work of the device may use all of the context's memory from now on, or not: CU_MEM_ACCESS_FLAGS_PROT_... */
CUresult gp_async_set_access(struct gp_context *context, CUdevice device, int flags);

/*
 * The driver is about to end the context, whose lock the caller holds alone. Such memory would not end with it: all
 * that the pools have goes back, behind the work that there is. False if there is none.
 */
bool gp_async_end(struct gp_context *context);
