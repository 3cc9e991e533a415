/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory from the driver's stream-ordered allocator, for GPUPOOL_BACKEND=async. */

#include "shim/context/context.h"

/* True if the driver has stream-ordered memory for the context's device. */
bool gp_async_is_possible(const struct gp_context *context);

/*
 * Allocates memory that any stream may use at once, between gp_driver_enter and gp_driver_leave. This function,
 * gp_async_release, gp_async_trim and gp_async_set_access are called between gp_context_enter and gp_context_leave.
 */
CUresult gp_async_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes);

/*
 * Frees memory. The host first waits for all work of the context so far, as the driver's own free does. The context
 * must be current.
 */
CUresult gp_async_release(struct gp_context *context, CUdeviceptr ptr);

/* Makes the driver release all freed memory of the context's private pool. Returns false if there is no such pool. */
bool gp_async_trim(struct gp_context *context);

/*
 * Sets the access of a device to all memory of the context's private pool, present and future. flags:
 * CU_MEM_ACCESS_FLAGS_PROT_...
 */
CUresult gp_async_set_access(struct gp_context *context, CUdevice device, int flags);

/*
 * Frees all segments of the context's pools once the submitted work has finished, since stream-ordered memory does not
 * end with the context. To be called when the driver is about to end the context, with the context's lock held
 * exclusively. Returns false if the context has no private pool, or has a sticky error.
 */
bool gp_async_end(struct gp_context *context);
