/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Hooks of functions that create, select and end contexts: they note which contexts the program uses. */

#include "shim/backend/sleep.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/context/context_end.h"
#include "shim/context/green.h"
#include "shim/context/memops.h"
#include "shim/context/thread.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"

static CUresult note_created(CUresult r, const CUcontext *ctx)
{
	gp_thread_forget_current();
	if (!r && ctx)
		gp_context_seen(*ctx);
	return r;
}

CUresult hook_cuCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuCtxCreate(ctx, flags, device), ctx);
}

CUresult hook_cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuCtxCreate_v2(ctx, flags, device), ctx);
}

CUresult hook_cuCtxCreate_v3(CUcontext *ctx, void *affinity, int n, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuCtxCreate_v3(ctx, affinity, n, flags, device), ctx);
}

CUresult hook_cuCtxCreate_v4(CUcontext *ctx, void *parameters, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuCtxCreate_v4(ctx, parameters, flags, device), ctx);
}

CUresult hook_cuGLCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuGLCtxCreate(ctx, flags, device), ctx);
}

CUresult hook_cuGLCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return note_created(gp_real.cuGLCtxCreate_v2(ctx, flags, device), ctx);
}

CUresult hook_cuVDPAUCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device, uint32_t vdp_device, void *get_proc)
{
	return note_created(gp_real.cuVDPAUCtxCreate(ctx, flags, device, vdp_device, get_proc), ctx);
}

CUresult hook_cuVDPAUCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device, uint32_t vdp_device, void *get_proc)
{
	return note_created(gp_real.cuVDPAUCtxCreate_v2(ctx, flags, device, vdp_device, get_proc), ctx);
}

CUresult hook_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned flags)
{
	CUresult r = gp_real.cuGreenCtxCreate(green, resources, device, flags);

	if (!r && green)
		gp_green_created(*green, device);
	return r;
}

CUresult hook_cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green)
{
	CUresult r = gp_real.cuCtxFromGreenCtx(ctx, green);

	if (!r && ctx)
		gp_green_converted(green, *ctx);
	return r;
}

/* Forgets the current context again, since a callback during the driver's call may have made gpupool store it. */
static CUresult after_change(CUresult r)
{
	gp_thread_forget_current();
	return r;
}

static void before_change(CUcontext ctx)
{
	gp_thread_forget_current();
	gp_context_seen(ctx);
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
	before_change(ctx);
	return after_change(gp_real.cuCtxSetCurrent(ctx));
}

CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
	before_change(ctx);
	return after_change(gp_real.cuCtxPushCurrent(ctx));
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
	before_change(ctx);
	return after_change(gp_real.cuCtxPushCurrent_v2(ctx));
}

CUresult hook_cuCtxPopCurrent(CUcontext *ctx)
{
	gp_thread_forget_current();
	return after_change(gp_real.cuCtxPopCurrent(ctx));
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *ctx)
{
	gp_thread_forget_current();
	return after_change(gp_real.cuCtxPopCurrent_v2(ctx));
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	CUresult r = gp_real.cuDevicePrimaryCtxRetain(ctx, device);

	if (!r && ctx)
		gp_context_seen_primary(*ctx, device);
	return r;
}

static CUresult call_destroy(const struct gp_context_end *end)
{
	return gp_real.cuCtxDestroy(end->handle);
}

static CUresult call_destroy_v2(const struct gp_context_end *end)
{
	return gp_real.cuCtxDestroy_v2(end->handle);
}

static CUresult call_detach(const struct gp_context_end *end)
{
	return gp_real.cuCtxDetach(end->handle);
}

static CUresult call_release(const struct gp_context_end *end)
{
	return gp_real.cuDevicePrimaryCtxRelease(end->device);
}

static CUresult call_release_v2(const struct gp_context_end *end)
{
	return gp_real.cuDevicePrimaryCtxRelease_v2(end->device);
}

static CUresult call_reset(const struct gp_context_end *end)
{
	return gp_real.cuDevicePrimaryCtxReset(end->device);
}

static CUresult call_reset_v2(const struct gp_context_end *end)
{
	return gp_real.cuDevicePrimaryCtxReset_v2(end->device);
}

/* The end of a context waits at most that long until memory that is asleep, and would outlive it, has woken. */
#define WAKE_MAX_NS UINT64_C(5000000000)

static bool has_ended(const struct gp_context_end *end, CUresult r)
{
	if (end->when == GP_END_SURELY)
		return true;
	return end->handle ? !r : !gp_context_is_primary_active(end->device);
}

/*
 * Memory that outlives a context must be on the device at its end, so the process is awake from before the end until
 * after it. If it cannot wake, the memory that is asleep ends with the context.
 */
static CUresult end_context(const struct gp_context_end *end)
{
	CUdevice device = end->device;
	bool may_leave = gp_context_end_may_leave_survivors(end, &device), visits = false, is_awake = true;
	struct gp_sleep_result result = {0};
	CUresult r;

	while (may_leave && is_awake && !visits) {
		visits = gp_submission_visit(&gp_submitted);
		if (!visits)
			is_awake = gp_wake(WAKE_MAX_NS, &result);
	}
	r = gp_context_end(end);
	if (visits)
		gp_submit_end_visit();
	if (!is_awake && has_ended(end, r))
		gp_log(GP_LOG_WARN,
			"memory in stream order on device %d has ended with its context, since it was asleep and could "
			"not wake: %s",
			device, result.refusal.why);
	return r;
}

/* The driver refuses to destroy a primary context, so its end is not certain. */
static enum gp_end_when when_destroyed(CUcontext ctx)
{
	return gp_context_is_seen_primary(ctx) ? GP_END_PERHAPS : GP_END_SURELY;
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .when = when_destroyed(ctx), .driver = call_destroy};

	return ctx ? end_context(&end) : gp_real.cuCtxDestroy(ctx);
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .when = when_destroyed(ctx), .driver = call_destroy_v2};

	return ctx ? end_context(&end) : gp_real.cuCtxDestroy_v2(ctx);
}

CUresult hook_cuCtxAttach(CUcontext *ctx, unsigned flags)
{
	CUresult r = gp_real.cuCtxAttach(ctx, flags);

	gp_thread_forget_current();
	if (!r && ctx)
		gp_context_attach(*ctx);
	return r;
}

/* The last detach ends a context, if the program created it and it is current. */
CUresult hook_cuCtxDetach(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .when = GP_END_ON_SUCCESS, .driver = call_detach};
	CUresult r;

	if (ctx && !gp_context_is_attached(ctx) && !gp_context_is_seen_primary(ctx))
		return end_context(&end);
	r = gp_real.cuCtxDetach(ctx);
	if (!r)
		gp_context_detach(ctx);
	return r;
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
	return end_context(&(struct gp_context_end){.device = device, .driver = call_release});
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return end_context(&(struct gp_context_end){.device = device, .driver = call_release_v2});
}

/* The driver refuses a reset while the device has green contexts. */
CUresult hook_cuDevicePrimaryCtxReset(CUdevice device)
{
	return end_context(&(struct gp_context_end){.device = device, .when = GP_END_ON_SUCCESS, .driver = call_reset});
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return end_context(
		&(struct gp_context_end){.device = device, .when = GP_END_ON_SUCCESS, .driver = call_reset_v2});
}

/* The flag that the program has set for memory of the context stays (memops.h). */
CUresult hook_cuCtxSetFlags(unsigned flags)
{
	CUcontext current = NULL;

	if (!gp_real.cuCtxGetCurrent(&current) && current)
		flags |= gp_memops_flags(current);
	return gp_real.cuCtxSetFlags(flags);
}

/* These flags are also those of the next primary context of the device, which must not get that one. */
CUresult hook_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
	CUresult r = gp_real.cuDevicePrimaryCtxSetFlags(device, flags);

	gp_memops_restore(device);
	return r;
}

CUresult hook_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	CUresult r = gp_real.cuDevicePrimaryCtxSetFlags_v2(device, flags);

	gp_memops_restore(device);
	return r;
}

struct green_end {
	struct gp_context_end end; /* first, for the cast in call_green_destroy */
	CUgreenCtx green;
};

static CUresult call_green_destroy(const struct gp_context_end *end)
{
	return gp_real.cuGreenCtxDestroy(((const struct green_end *)end)->green);
}

/* A green context holds a reference to its primary context, which may be the last one. */
CUresult hook_cuGreenCtxDestroy(CUgreenCtx green)
{
	struct green_end end = {{.device = gp_green_device(green), .driver = call_green_destroy}, green};
	CUresult r = end_context(&end.end);

	if (!r)
		gp_green_destroyed(green);
	return r;
}
