/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Contexts: which ones the program works in, and their end. */

#include "backend.h"
#include "real.h"

static CUresult seen(CUresult r, const CUcontext *ctx)
{
	if (!r && ctx)
		gp_context_seen(*ctx);
	return r;
}

CUresult hook_cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return seen(gp_real.cuCtxCreate_v2(ctx, flags, device), ctx);
}

CUresult hook_cuCtxCreate_v3(CUcontext *ctx, void *affinity, int n, unsigned flags, CUdevice device)
{
	return seen(gp_real.cuCtxCreate_v3(ctx, affinity, n, flags, device), ctx);
}

CUresult hook_cuCtxCreate_v4(CUcontext *ctx, void *parameters, unsigned flags, CUdevice device)
{
	return seen(gp_real.cuCtxCreate_v4(ctx, parameters, flags, device), ctx);
}

CUresult hook_cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green)
{
	CUresult r = gp_real.cuCtxFromGreenCtx(ctx, green);

	if (!r && ctx)
		gp_context_seen_green(*ctx);
	return r;
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
	gp_context_seen(ctx);
	return gp_real.cuCtxSetCurrent(ctx);
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
	gp_context_seen(ctx);
	return gp_real.cuCtxPushCurrent_v2(ctx);
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

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .is_certain = true, .driver = call_destroy};

	return ctx ? gp_context_end(&end) : gp_real.cuCtxDestroy(ctx);
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .is_certain = true, .driver = call_destroy_v2};

	return ctx ? gp_context_end(&end) : gp_real.cuCtxDestroy_v2(ctx);
}

/* Attached more than once a context outlives a detach: then its blocks are the driver's to free, one by one. */
CUresult hook_cuCtxDetach(CUcontext ctx)
{
	struct gp_context_end end = {.handle = ctx, .is_certain = true, .driver = call_detach};

	return ctx ? gp_context_end(&end) : gp_real.cuCtxDetach(ctx);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
	return gp_context_end(&(struct gp_context_end){.device = device, .driver = call_release});
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return gp_context_end(&(struct gp_context_end){.device = device, .driver = call_release_v2});
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice device)
{
	return gp_context_end(
		&(struct gp_context_end){.device = device, .is_certain = true, .driver = call_reset});
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return gp_context_end(
		&(struct gp_context_end){.device = device, .is_certain = true, .driver = call_reset_v2});
}
