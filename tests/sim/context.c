/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Contexts: life, faults, and the work of all their streams taken together. */

#include "ctx.h"

#include <stdlib.h>

#include "capture.h"

struct sim_ctx *sim_contexts;

#define GATE_NS 900 /* what a context-wide wait costs the GPU */

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

CUresult sim_ctx_open(struct sim_ctx *ctx)
{
	static uint64_t ids;

	if (ctx->alive)
		return CUDA_SUCCESS;
	SIM_TRY(sim_device_charge(ctx->device, sim.config.context_bytes));
	ctx->alive = true;
	ctx->sticky = CUDA_SUCCESS;
	ctx->id = ++ids;
	ctx->peers = 0;
	ctx->legacy = sim_stream_new(ctx, false);
	ctx->legacy->is_default = true;
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
		sim_stream_give_back(stream);
	sim_modules_close(ctx);
	sim_events_close(ctx);
	while (ctx->streams)
		sim_stream_free(ctx->streams);
	ctx->legacy = NULL;
	sim_blocks_close(ctx);
	sim_arrays_close(ctx);
	sim_work_replace(&ctx->gate, NULL);
	sim_clock_free(&ctx->gate_clock);
	for (int i = 0; i < 2; i++) {
		sim_work_replace(&ctx->departed[i].tail, NULL);
		sim_clock_free(&ctx->departed[i].clock);
	}
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
	const struct sim_thread *self = sim_thread_self();

	if (!self->depth || !self->stack[self->depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*ctx = self->stack[self->depth - 1];
	return sim_ctx_check(*ctx);
}

CUresult sim_ctx_of(CUcontext handle, struct sim_ctx **ctx)
{
	if (!handle)
		return sim_ctx_current(ctx);
	*ctx = sim_object_of(handle, SIM_CTX);
	return *ctx ? sim_ctx_check(*ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

/*
 * Contexts that are not the owner see the memory only as peers; no owner means the device's own
 * memory.
 */
bool sim_ctx_may_touch(const struct sim_ctx *ctx, const struct sim_ctx *owner)
{
	return !owner || ctx == owner || ctx->peers & 1u << owner->device->ordinal;
}

struct sim_work *sim_ctx_mark(struct sim_ctx *ctx, struct sim_clock *clock)
{
	static const struct sim_op op = {.kind = SIM_MARK, .name = "context mark"};
	struct sim_work *mark = sim_work_new(ctx, &op);

	sim_clock_assign(clock, sim_host_clock());
	sim_clock_join(clock, &ctx->gate_clock);
	sim_work_after(mark, ctx->gate);
	for (int i = 0; i < 2; i++) {
		sim_work_after(mark, ctx->departed[i].tail);
		sim_clock_join(clock, &ctx->departed[i].clock);
	}
	for (const struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
		sim_work_after(mark, stream->tail);
		sim_clock_join(clock, &stream->clock);
	}
	sim_work_submit(mark);
	return mark;
}

CUresult sim_ctx_synchronize(struct sim_ctx *ctx)
{
	struct sim_clock clock = {0};
	struct sim_work *mark = sim_ctx_mark(ctx, &clock);
	uint64_t id = ctx->id;

	sim_wait_for(mark);
	sim_work_unref(mark);
	sim_host_learn(&clock);
	sim_clock_free(&clock);
	if (ctx->id != id)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	SIM_TRY(sim_ctx_check(ctx));
	for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
		sim_stream_give_back(stream);
	sim_pool_trim(ctx->device, ctx->device->pool.threshold);
	return CUDA_SUCCESS;
}

static CUresult synchronize(struct sim_ctx *ctx)
{
	SIM_TRY(sim_capture_refuse(ctx));
	return sim_ctx_synchronize(ctx);
}

CUresult cuCtxSynchronize(void)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxSynchronize);
	SIM_TRY(sim_ctx_current(&ctx));
	return synchronize(ctx);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxSynchronize_v2);
	SIM_TRY(sim_ctx_of(handle, &ctx));
	return synchronize(ctx);
}

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event_handle)
{
	struct sim_event *event;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxRecordEvent);
	SIM_TRY(sim_ctx_of(handle, &ctx));
	event = sim_object_of(event_handle, SIM_EVENT);
	if (!event || event->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_refuse(ctx));
	sim_work_unref(event->mark);
	event->mark = sim_ctx_mark(ctx, &event->clock);
	event->recorded = true;
	event->captured_in = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event_handle)
{
	static const struct sim_op op = {
		.kind = SIM_MARK, .name = "cuCtxWaitEvent", .duration_ns = GATE_NS};
	struct sim_event *event;
	struct sim_ctx *ctx;
	struct sim_work *gate;

	SIM_BEGIN(cuCtxWaitEvent);
	SIM_TRY(sim_ctx_of(handle, &ctx));
	event = sim_object_of(event_handle, SIM_EVENT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_refuse(ctx));
	if (event->captured_in)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	sim_clock_join(&ctx->gate_clock, &event->clock);
	if (sim_work_done(event->mark))
		return CUDA_SUCCESS;
	gate = sim_work_new(ctx, &op);
	sim_work_after(gate, ctx->gate);
	sim_work_after(gate, event->mark);
	sim_work_submit(gate);
	sim_work_unref(ctx->gate);
	ctx->gate = gate;
	return CUDA_SUCCESS;
}
