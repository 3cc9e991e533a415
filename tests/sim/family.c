/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Families of streams: a thread has one of them current, and calls can record, wait for or
 * synchronise all work of a family. On a context such a call includes its green contexts. On a green
 * context it covers that context alone (measured).
 */

#include "capture.h"

#define GATE_NS 900 /* the GPU's time for a context-wide wait */

void sim_family_open(struct sim_family *family, struct sim_ctx *ctx, struct sim_green *green)
{
	*family = (struct sim_family){.ctx = ctx, .green = green};
	if (green) {
		family->next = ctx->own.next;
		ctx->own.next = family;
	}
	family->legacy = sim_stream_new(family, false);
	family->legacy->is_default = true;
}

/* Call this after the family's streams were freed. */
void sim_family_close(struct sim_family *family)
{
	struct sim_family *before = &family->ctx->own;

	while (family->green && before->next != family)
		before = before->next;
	if (family->green)
		before->next = family->next;
	family->legacy = NULL;
	sim_work_replace(&family->gate, NULL);
	sim_work_replace(&family->recorded, NULL);
	sim_clock_free(&family->gate_clock);
	for (int i = 0; i < 2; i++) {
		sim_work_replace(&family->destroyed_work[i].tail, NULL);
		sim_clock_free(&family->destroyed_work[i].clock);
	}
}

CUresult sim_family_check(const struct sim_family *family)
{
	if (family->green && !family->green->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return sim_ctx_check(family->ctx);
}

CUresult sim_family_current(struct sim_family **family)
{
	const struct sim_thread *self = sim_thread_self();

	if (!self->depth || !self->stack[self->depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*family = self->stack[self->depth - 1];
	return sim_family_check(*family);
}

struct sim_family *sim_family_named(CUcontext handle)
{
	struct sim_ctx *ctx = sim_object_of(handle, SIM_CTX);
	char *as_ctx = sim_object_of(handle, SIM_GREEN_CTX);

	if (as_ctx)
		return &((struct sim_green *)(as_ctx - offsetof(struct sim_green, as_ctx)))->family;
	return ctx ? &ctx->own : NULL;
}

CUcontext sim_family_handle(struct sim_family *family)
{
	return family->green ? (CUcontext)&family->green->as_ctx : (CUcontext)family->ctx;
}

CUresult sim_family_of(CUcontext handle, struct sim_family **family)
{
	if (!handle)
		return sim_family_current(family);
	*family = sim_family_named(handle);
	return *family ? sim_family_check(*family) : CUDA_ERROR_INVALID_CONTEXT;
}

static bool covers(const struct sim_family *family, const struct sim_family *other)
{
	return family == other || (!family->green && family->ctx == other->ctx);
}

/* Submits a mark that follows all work of the family so far. */
static struct sim_work *mark(struct sim_family *family, struct sim_clock *clock)
{
	static const struct sim_op op = {.kind = SIM_MARK, .name = "context mark"};
	struct sim_ctx *ctx = family->ctx;
	struct sim_work *work = sim_work_new(ctx, &op);

	sim_clock_assign(clock, sim_host_clock());
	for (struct sim_family *f = &ctx->own; f; f = f->next) {
		if (!covers(family, f))
			continue;
		sim_clock_join(clock, &f->gate_clock);
		sim_work_after(work, f->gate);
		for (int i = 0; i < 2; i++) {
			sim_work_after(work, f->destroyed_work[i].tail);
			sim_clock_join(clock, &f->destroyed_work[i].clock);
		}
	}
	for (const struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
		if (!covers(family, stream->family))
			continue;
		sim_work_after(work, stream->tail);
		sim_clock_join(clock, &stream->clock);
	}
	sim_work_submit(work);
	return work;
}

CUresult sim_family_synchronize(struct sim_family *family)
{
	struct sim_clock clock = {0};
	struct sim_work *work = mark(family, &clock);
	struct sim_ctx *ctx = family->ctx;
	uint64_t id = ctx->id;

	sim_wait_for(work);
	sim_work_unref(work);
	sim_host_learn(&clock);
	sim_clock_free(&clock);
	if (ctx->id != id)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	SIM_TRY(sim_ctx_check(ctx));
	for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
		if (covers(family, stream->family))
			sim_stream_release_freed(stream);
	sim_pools_trim(ctx->device);
	return CUDA_SUCCESS;
}

CUresult sim_family_record(struct sim_family *family, CUevent handle)
{
	struct sim_event *event = sim_object_of(handle, SIM_EVENT);

	if (!event || event->ctx != family->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_refuse(family));
	sim_work_unref(event->mark);
	event->mark = mark(family, &event->clock);
	for (struct sim_family *f = &family->ctx->own; f; f = f->next)
		if (covers(family, f))
			sim_work_replace(&f->recorded, event->mark);
	event->recorded = true;
	event->captured_in = 0;
	return CUDA_SUCCESS;
}

/*
 * A real driver waits for every record that was made before, whichever event the call names. Programs
 * must not rely on that, so the race detector ignores it.
 */
static void submit_gate(struct sim_family *family, const struct sim_event *event)
{
	static const struct sim_op op = {.kind = SIM_MARK, .name = "cuCtxWaitEvent", .duration_ns = GATE_NS};
	struct sim_work *gate;

	sim_clock_join(&family->gate_clock, &event->clock);
	if (sim_work_done(event->mark) && sim_work_done(family->recorded))
		return;
	gate = sim_work_new(family->ctx, &op);
	sim_work_after(gate, family->gate);
	sim_work_after(gate, event->mark);
	sim_work_after(gate, family->recorded);
	sim_work_submit(gate);
	sim_work_unref(family->gate);
	family->gate = gate;
}

CUresult sim_family_wait(struct sim_family *family, CUevent handle)
{
	struct sim_event *event = sim_object_of(handle, SIM_EVENT);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_refuse(family));
	if (event->captured_in)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	for (struct sim_family *f = &family->ctx->own; f; f = f->next)
		if (covers(family, f))
			submit_gate(f, event);
	return CUDA_SUCCESS;
}
