/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "driver_call.h"

#include <errno.h>

#include "capture.h"
#include "green.h"
#include "shim/base/log.h"
#include "shim/driver/driver_table.h"
#include "thread.h"

int gp_driver_enter(struct gp_driver_scope *scope, CUcontext ctx)
{
	CUcontext current = NULL;
	CUresult r = gp_real.cuCtxGetCurrent(&current);

	*scope = (struct gp_driver_scope){.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
	if (!r && current != ctx) {
		r = gp_real.cuCtxPushCurrent_v2(ctx);
		scope->is_pushed = !r;
	}
	if (r)
		return r;
	if (gp_real.cuThreadExchangeStreamCaptureMode)
		scope->is_relaxed = !gp_real.cuThreadExchangeStreamCaptureMode(&scope->mode);
	return 0;
}

void gp_driver_leave(struct gp_driver_scope *scope)
{
	CUcontext popped;

	if (scope->is_relaxed)
		(void)gp_real.cuThreadExchangeStreamCaptureMode(&scope->mode);
	if (!scope->is_pushed)
		return;
	(void)gp_real.cuCtxPopCurrent_v2(&popped);
	/* A callback of the program during the call may have stored the pushed context as the current one. */
	gp_thread_forget_current();
}

struct gp_driver_relaxed gp_driver_relax(void)
{
	struct gp_driver_relaxed relaxed = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};

	if (gp_real.cuThreadExchangeStreamCaptureMode)
		relaxed.is_relaxed = !gp_real.cuThreadExchangeStreamCaptureMode(&relaxed.mode);
	return relaxed;
}

void gp_driver_unrelax(struct gp_driver_relaxed *relaxed)
{
	if (relaxed->is_relaxed)
		(void)gp_real.cuThreadExchangeStreamCaptureMode(&relaxed->mode);
}

/* Error codes that only this file uses. */
enum {
	CUDA_ERROR_CONTAINED = 226,
	CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_EXTERNAL_DEVICE = 911,
};

/* All codes of the range below are sticky. The last two cases mean that the context has ended. */
bool gp_driver_is_sticky(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return true;
	default:
		return r >= CUDA_ERROR_HARDWARE_STACK_ERROR && r <= CUDA_ERROR_LAUNCH_FAILED;
	}
}

/*
 * Errors that are not logged yet. They may have been found under a lock, and a log line blocks while no process reads
 * it: the reader may be a thread that waits for that lock.
 */
static struct {
	_Atomic bool is_any;
	_Atomic int ends[GP_DEVICES_MAX]; /* sticky errors of contexts, by device */
	_Atomic int fence_error;
} unlogged;

void gp_driver_log_errors(void)
{
	int r;

	if (!atomic_exchange(&unlogged.is_any, false))
		return;
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		r = atomic_exchange(&unlogged.ends[i], 0);
		if (r)
			gp_log(GP_LOG_INFO, "pooling has ended for a context of device %d after driver error %d", i, r);
	}
	r = atomic_exchange(&unlogged.fence_error, 0);
	if (r)
		gp_log(GP_LOG_WARN, "a fence call failed with driver error %d; freed memory waits for a later fence",
			r);
}

/* Stores the error before the state, since a thread that sees the state reads the error. */
static void end_pooling(struct gp_context *context, CUresult r)
{
	int none = 0;

	atomic_compare_exchange_strong(&context->lost_to, &none, (int)r);
	atomic_fetch_or(&context->states, GP_CONTEXT_BROKEN);
	if (none)
		return;
	atomic_store(&unlogged.ends[context->device->index], (int)r);
	atomic_store(&unlogged.is_any, true);
}

static int result_of(struct gp_context *context, CUresult r)
{
	if (r == CUDA_SUCCESS)
		return 0;
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return -ENOMEM;
	if (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_CAPTURED_EVENT)
		return -EBUSY;
	if (r == CUDA_ERROR_DEINITIALIZED)
		gp_slow_path_add(GP_SLOW_PATH_BYPASS);
	if (gp_driver_is_sticky(r))
		end_pooling(context, r);
	return r;
}

int gp_driver_result(struct gp_context *context, CUresult r)
{
	int result = result_of(context, r);

	if (gp_unlikely(result > 0))
		gp_driver_log_errors();
	return result;
}

/* Notes one error for the process: a driver that refuses one fence call may refuse many. */
static void note_fence_error(CUresult r)
{
	static _Atomic bool is_noted;

	if (atomic_exchange(&is_noted, true))
		return;
	atomic_store(&unlogged.fence_error, (int)r);
	atomic_store(&unlogged.is_any, true);
}

int gp_driver_fence_result(struct gp_context *context, CUresult r)
{
	int result;

	if (gp_likely(r == CUDA_SUCCESS))
		return 0;
	if (r == CUDA_ERROR_NOT_READY)
		return -EAGAIN;
	if (r == CUDA_ERROR_NOT_PERMITTED)
		return -EPERM;
	result = result_of(context, r);
	if (result < 0 || r == CUDA_ERROR_DEINITIALIZED || gp_driver_is_sticky(r))
		return result;
	note_fence_error(r);
	return -EBUSY;
}

int gp_driver_released(struct gp_context *context, CUresult r)
{
	/* In a host function the driver refuses every call. The program gets that error, so it is not logged. */
	if (r && r != CUDA_ERROR_NOT_PERMITTED)
		gp_log(GP_LOG_WARN, "the driver refused to take memory back: error %d", r);
	return r == CUDA_ERROR_INVALID_VALUE ? r : gp_driver_result(context, r);
}

CUresult gp_driver_device_of_context(CUcontext ctx, CUdevice *ret_device)
{
	CUcontext primary = gp_green_primary(ctx); /* a green context can be current to one thread only */
	struct gp_driver_scope scope;
	CUresult r = (CUresult)gp_driver_enter(&scope, primary ? primary : ctx);

	if (r)
		return r;
	r = gp_real.cuCtxGetDevice(ret_device);
	gp_driver_leave(&scope);
	return r;
}

CUresult gp_driver_device_of(CUstream stream, CUdevice *ret_device)
{
	bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
	CUcontext ctx;
	CUresult r;

	if (is_default || !gp_real.cuStreamGetCtx)
		return gp_real.cuCtxGetDevice(ret_device);
	r = gp_real.cuStreamGetCtx(stream, &ctx);
	return r ? r : gp_driver_device_of_context(ctx, ret_device);
}

bool gp_driver_has(CUdevice device, int attribute)
{
	int value = 0;

	return gp_real.cuDeviceGetAttribute && !gp_real.cuDeviceGetAttribute(&value, attribute, device) && value;
}

int gp_driver_numa_node(CUdevice device)
{
	int node = -1;

	if (!gp_real.cuDeviceGetAttribute ||
		gp_real.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device))
		return -1;
	return node;
}

CUresult gp_driver_stream(_Atomic(CUstream) *shared, CUstream *ret_stream)
{
	CUstream stream = atomic_load(shared), none = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!stream) {
		r = gp_real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		if (!r && !atomic_compare_exchange_strong(shared, &none, stream)) {
			(void)gp_real.cuStreamDestroy_v2(stream);
			stream = none;
		}
	}
	*ret_stream = stream;
	return r;
}

/* Allocates and frees memory. No other wait for a context leaves a running capture valid (measured). */
CUresult gp_driver_wait_for_context(void)
{
	CUdeviceptr ptr;
	CUresult r = gp_real.cuMemAlloc_v2(&ptr, GP_ALIGN);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && gp_capture_is_none())
		return gp_real.cuCtxSynchronize();
	return r ? r : gp_real.cuMemFree_v2(ptr);
}
