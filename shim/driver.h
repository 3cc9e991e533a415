/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * How gpupool calls the driver for its own ends: with the right context current, without disturbing a capture, and with
 * the driver's codes translated for the allocator.
 */

#include "context.h"

/* Makes a context current and the thread's capture mode relaxed, until gp_driver_leave. 0 or the driver's error. */
struct gp_driver_scope {
	bool is_pushed, is_relaxed;
	int mode;
};

int gp_driver_enter(struct gp_driver_scope *scope, CUcontext ctx);
void gp_driver_leave(struct gp_driver_scope *scope);

/*
 * The allocator's word for a driver's code: 0, -ENOMEM, -EBUSY for a capture in the way, else the code itself. A sticky
 * error ends pooling for the context; other errors say nothing about it. Notes also that the driver has shut down.
 */
int gp_driver_result(struct gp_context *context, CUresult r);

/*
 * The same for a fence call. -EAGAIN if the fence is not complete; -EPERM in a host function, where the driver refuses
 * every call; -EBUSY also for an error that is not sticky, after which a later fence will do. The program made no such
 * call, so that error is not for the program.
 */
int gp_driver_fence_result(struct gp_context *context, CUresult r);

/* The same for memory that was to go back, which is said if it did not. A wrong address says nothing of the context. */
int gp_driver_released(struct gp_context *context, CUresult r);

/*
 * False if memory need not go back to the context any more: it is dead, or lost; *ret_error, if anybody wants to know,
 * is what the driver would say, or 0. Else as gp_context_enter.
 */
static inline bool gp_driver_takes_back(struct gp_context *context, int *ret_error)
{
	int lost_to = atomic_load_explicit(&context->lost_to, memory_order_relaxed);

	if (ret_error)
		*ret_error = lost_to;
	return !lost_to && gp_context_enter(context);
}

/* Whether the device says that it can do something. */
bool gp_driver_has(CUdevice device, int attribute);

/* A private stream of the current context's, made when first needed. */
CUresult gp_driver_stream(_Atomic(CUstream) *place, CUstream *ret_stream);

/* Waits for all work of the current context so far, as a free of the driver's does, and spoils no capture. */
CUresult gp_driver_wait_for_context(void);

uint64_t gp_driver_now_ns(void *unused);

/* Waits a little, longer with each attempt: from a yield to 100 us. */
void gp_driver_pause(void *unused, unsigned attempt);
