/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Helpers for gpupool's own calls of the driver: they make the right context current, leave captures valid, and
 * translate the driver's codes for the allocator.
 */

#include "context.h"

/*
 * gp_driver_enter makes a context current and the thread's capture mode relaxed, until gp_driver_leave. It returns 0 or
 * the driver's error. The scope holds what gp_driver_leave has to undo.
 */
struct gp_driver_scope {
	bool is_pushed, is_relaxed;
	int mode; /* the thread's capture mode before */
};

int gp_driver_enter(struct gp_driver_scope *scope, CUcontext ctx);
void gp_driver_leave(struct gp_driver_scope *scope);

/* The thread's capture mode is relaxed until gp_driver_unrelax: for driver calls that need no current context. */
struct gp_driver_relaxed {
	int mode; /* the thread's capture mode before */
	bool is_relaxed;
};

struct gp_driver_relaxed gp_driver_relax(void);
void gp_driver_unrelax(struct gp_driver_relaxed *relaxed);

/*
 * True for sticky errors: no call succeeds in the context any more, since it has ended, or the driver takes no memory
 * back until it is reset. Its work has ended.
 */
bool gp_driver_is_sticky(CUresult r);

/*
 * Translates a driver code for the allocator: 0, -ENOMEM, -EBUSY if a capture does not allow the call, otherwise the
 * code itself. A sticky error ends pooling for the context; other errors do not. If the driver has shut down, gpupool
 * passes all later calls to it.
 */
int gp_driver_result(struct gp_context *context, CUresult r);

/*
 * The same for a fence call, which runs under a lock. So it logs nothing, and gp_driver_log_errors must follow without
 * the lock. Returns -EAGAIN if the fence is not complete, and -EPERM in a host function, where the
 * driver refuses every call. An error that is not sticky becomes -EBUSY: the pool tries a later fence, and the program,
 * which made no fence call, does not get the error.
 */
int gp_driver_fence_result(struct gp_context *context, CUresult r);

/* Logs what gp_driver_fence_result has noted. */
void gp_driver_log_errors(void);

/* The same for a call that gives memory back. Logs a refusal. CUDA_ERROR_INVALID_VALUE does not end pooling. */
int gp_driver_released(struct gp_context *context, CUresult r);

/*
 * Works like gp_context_enter, and also returns false if the context has a sticky error: then the driver takes no
 * memory back. *ret_error, unless ret_error is NULL, becomes that error or 0.
 */
static inline bool gp_driver_takes_back(struct gp_context *context, int *ret_error)
{
	int lost_to = atomic_load_explicit(&context->lost_to, memory_order_relaxed);

	if (ret_error)
		*ret_error = lost_to;
	return !lost_to && gp_context_enter(context);
}

/* Finds the device of the context, and the device that works on the stream, which need not be the current one. */
CUresult gp_driver_device_of_context(CUcontext ctx, CUdevice *ret_device);
CUresult gp_driver_device_of(CUstream stream, CUdevice *ret_device);

/* Returns true if the device reports a value other than 0 for the attribute. */
bool gp_driver_has(CUdevice device, int attribute);

/* Returns the NUMA node of the host that the device is nearest to, or -1. */
int gp_driver_numa_node(CUdevice device);

/* Returns a private stream of the current context, and creates it in *shared at first use. */
CUresult gp_driver_stream(_Atomic(CUstream) *shared, CUstream *ret_stream);

/* Waits for all work of the current context so far, as the driver's own free does, without invalidating a capture. */
CUresult gp_driver_wait_for_context(void);
