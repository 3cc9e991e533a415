/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Contexts: their life, their faults, and calls that affect all of their work. */

#include "ctx.h"

#include <stdlib.h>

#include "capture.h"

struct sim_ctx *sim_contexts;

struct sim_ctx *sim_ctx_new(struct sim_device *device, bool primary, unsigned flags)
{
	struct sim_ctx *ctx = sim_object_new(SIM_CTX, sizeof(*ctx));

	ctx->device = device;
	ctx->primary = primary;
	ctx->flags = flags;
	ctx->next = sim_contexts;
	sim_contexts = ctx;
	return ctx;
}

uint64_t sim_ctx_next_id(void)
{
	static uint64_t ids;

	return ++ids;
}

CUresult sim_ctx_open(struct sim_ctx *ctx)
{
	if (ctx->alive)
		return CUDA_SUCCESS;
	SIM_TRY(sim_device_charge(ctx->device, sim.config.context_bytes));
	ctx->alive = true;
	ctx->sticky = CUDA_SUCCESS;
	ctx->id = sim_ctx_next_id();
	ctx->peers = 0;
	sim_family_open(&ctx->own, ctx, NULL);
	return CUDA_SUCCESS;
}

void sim_ctx_close(struct sim_ctx *ctx)
{
	if (!ctx->alive)
		return;
	sim_captures_close(ctx);
	while (ctx->works)
		sim_work_drop(ctx->works);
	for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
		sim_stream_release_freed(stream);
	sim_modules_close(ctx);
	sim_events_close(ctx);
	while (ctx->streams)
		sim_stream_free(ctx->streams);
	sim_blocks_close(ctx);
	sim_arrays_close(ctx);
	while (ctx->own.next)
		sim_family_close(ctx->own.next);
	sim_family_close(&ctx->own);
	sim_device_discharge(ctx->device, sim.config.context_bytes);
	ctx->alive = false;
	sim_timeline_progress();
}

void sim_ctx_fault(struct sim_ctx *ctx, CUresult code)
{
	if (!ctx->alive)
		return;
	if (!ctx->sticky)
		ctx->sticky = code;
	while (ctx->works)
		sim_work_drop(ctx->works);
	sim_timeline_progress();
}

CUresult sim_ctx_check(struct sim_ctx *ctx)
{
	return ctx->alive ? ctx->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_ctx_current(struct sim_ctx **ctx)
{
	return sim_ctx_of(NULL, ctx);
}

CUresult sim_ctx_of(CUcontext handle, struct sim_ctx **ctx)
{
	struct sim_family *family;

	SIM_TRY(sim_family_of(handle, &family));
	*ctx = family->ctx;
	return CUDA_SUCCESS;
}

/* A context other than the owner needs peer access. Without an owner, the memory belongs to the device. */
bool sim_ctx_may_touch(const struct sim_ctx *ctx, const struct sim_ctx *owner)
{
	return !owner || ctx == owner || ctx->peers & 1u << owner->device->ordinal;
}

CUresult sim_ctx_synchronize(struct sim_ctx *ctx)
{
	return sim_family_synchronize(&ctx->own);
}

static CUresult synchronize(struct sim_family *family)
{
	SIM_TRY(sim_capture_refuse(family));
	return sim_family_synchronize(family);
}

CUresult cuCtxSynchronize(void)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxSynchronize);
	SIM_TRY(sim_family_current(&family));
	return synchronize(family);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxSynchronize_v2);
	SIM_TRY(sim_family_of(handle, &family));
	return synchronize(family);
}

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxRecordEvent);
	SIM_TRY(sim_family_of(handle, &family));
	return sim_family_record(family, event);
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxWaitEvent);
	SIM_TRY(sim_family_of(handle, &family));
	return sim_family_wait(family, event);
}
