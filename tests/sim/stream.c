/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Streams: queues of work, and the order between them. A stream's work follows earlier work of the
 * stream and the last context-wide wait. Blocking streams and the legacy stream follow each other.
 */

#include <stdlib.h>

#include "capture.h"
#include "race.h"

#define QUEUE_LIMIT 4096 /* a submission waits if a stream has this many unfinished pieces of work */

struct sim_stream *sim_stream_new(struct sim_family *family, bool non_blocking)
{
	static unsigned numbers;
	struct sim_stream *stream = sim_object_new(SIM_STREAM, sizeof(*stream));
	struct sim_ctx *ctx = family->ctx;

	stream->ctx = ctx;
	stream->family = family;
	stream->number = ++numbers;
	stream->lane = sim_lane_new();
	stream->non_blocking = non_blocking;
	stream->next = ctx->streams;
	if (stream->next)
		stream->next->prev = stream;
	ctx->streams = stream;
	return stream;
}

static void leave_thread(struct sim_stream *stream)
{
	struct sim_stream **link = &stream->thread->defaults;

	while (*link != stream)
		link = &(*link)->next_of_thread;
	*link = stream->next_of_thread;
}

/*
 * Moves the blocks that wait for a synchronisation of this stream to the context, whose synchronisation releases them.
 */
static void move_freed_to_context(struct sim_stream *stream)
{
	struct sim_stream *legacy = stream->ctx->own.legacy;

	while (stream->freed_blocks && legacy != stream) {
		struct sim_block *block = stream->freed_blocks;

		stream->freed_blocks = block->next;
		block->next = legacy->freed_blocks;
		legacy->freed_blocks = block;
	}
}

/* Unfinished work of a destroyed stream stays with its family. */
static void keep_unfinished(struct sim_stream *stream)
{
	static const struct sim_op op = {.kind = SIM_MARK, .name = "destroyed streams"};
	struct sim_family *family = stream->family;
	struct sim_work *mark;

	sim_clock_join(&family->destroyed_work[stream->non_blocking].clock, &stream->clock);
	if (sim_work_done(stream->tail))
		return;
	mark = sim_work_new(stream->ctx, &op);
	sim_work_after(mark, family->destroyed_work[stream->non_blocking].tail);
	sim_work_after(mark, stream->tail);
	sim_work_replace(&family->destroyed_work[stream->non_blocking].tail, mark);
	sim_work_submit(mark);
	sim_work_unref(mark);
}

void sim_stream_free(struct sim_stream *stream)
{
	struct sim_ctx *ctx = stream->ctx;

	for (struct sim_work *work = ctx->works; work; work = work->next)
		if (work->stream == stream)
			work->stream = NULL;
	if (stream->capture)
		sim_capture_leave(stream);
	keep_unfinished(stream);
	move_freed_to_context(stream);
	if (stream->thread)
		leave_thread(stream);
	if (stream->prev)
		stream->prev->next = stream->next;
	else
		ctx->streams = stream->next;
	if (stream->next)
		stream->next->prev = stream->prev;
	sim_lane_retire(stream->lane);
	sim_work_unref(stream->tail);
	sim_clock_free(&stream->clock);
	sim_object_free(stream);
}

/* Returns the thread's default stream in a family, and creates it if needed. */
static struct sim_stream *thread_default(struct sim_family *family)
{
	struct sim_thread *self = sim_thread_self();
	struct sim_stream *stream = self->defaults;

	while (stream && stream->family != family)
		stream = stream->next_of_thread;
	if (stream)
		return stream;
	stream = sim_stream_new(family, false);
	stream->is_default = true;
	stream->thread = self;
	stream->next_of_thread = self->defaults;
	self->defaults = stream;
	return stream;
}

CUresult sim_stream_of(CUstream handle, bool per_thread, struct sim_stream **stream)
{
	struct sim_family *family;

	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		SIM_TRY(sim_family_current(&family));
		*stream = handle == CU_STREAM_LEGACY ? family->legacy : thread_default(family);
		return CUDA_SUCCESS;
	}
	*stream = sim_object_of(handle, SIM_STREAM);
	return *stream ? sim_family_check((*stream)->family) : CUDA_ERROR_INVALID_HANDLE;
}

struct hold {
	const struct sim_ctx *ctx;
	const struct sim_stream *stream;
	uint64_t id;
};

/*
 * Returns true while a launch must wait: another thread is inside cuMemFree in that context, or the
 * stream's queue is full.
 */
static bool is_held_back(const void *arg)
{
	const struct hold *hold = arg;

	if (hold->ctx->id != hold->id || hold->ctx->sticky || !hold->ctx->alive ||
		!sim_object_of(hold->stream, SIM_STREAM))
		return false;
	return hold->ctx->waiting_frees || hold->stream->unfinished >= QUEUE_LIMIT;
}

static CUresult wait_for_room(struct sim_stream *stream)
{
	struct hold hold = {stream->ctx, stream, stream->ctx->id};

	if (!is_held_back(&hold))
		return CUDA_SUCCESS;
	SIM_TRY(sim_wait_while(is_held_back, &hold));
	if (hold.ctx->id != hold.id || !sim_object_of(stream, SIM_STREAM))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return sim_ctx_check(stream->ctx);
}

/* Makes the stream's next work follow work outside the stream. */
static void follow_others(struct sim_stream *stream, struct sim_work *work)
{
	const struct sim_family *family = stream->family;

	sim_work_after(work, family->gate);
	sim_clock_join(&stream->clock, &family->gate_clock);
	sim_clock_join(&stream->clock, sim_host_clock());
	if (stream->non_blocking)
		return;
	if (stream != family->legacy) {
		sim_work_after(work, family->legacy->tail);
		sim_clock_join(&stream->clock, &family->legacy->clock);
		return;
	}
	sim_work_after(work, family->destroyed_work[false].tail);
	sim_clock_join(&stream->clock, &family->destroyed_work[false].clock);
	for (const struct sim_stream *other = stream->ctx->streams; other; other = other->next) {
		if (other->non_blocking || other == stream || other->family != family)
			continue;
		sim_work_after(work, other->tail);
		sim_clock_join(&stream->clock, &other->clock);
	}
}

CUresult sim_stream_push(struct sim_stream *stream, const struct sim_op *op, struct sim_work *also_after)
{
	struct sim_work *work = sim_work_new(stream->ctx, op);
	uint64_t count = sim_lane_tick(stream->lane);

	work->stream = stream;
	work->stream_number = stream->number;
	stream->unfinished++;
	sim_work_after(work, stream->tail);
	sim_work_after(work, also_after);
	follow_others(stream, work);
	sim_clock_set(&stream->clock, stream->lane, count);
	sim_race_enter(work, stream->lane, count, &stream->clock);
	sim_work_replace(&stream->tail, work);
	sim_work_submit(work);
	sim_work_unref(work);
	return CUDA_SUCCESS;
}

CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op)
{
	if (stream->capture)
		return sim_capture_add(stream, op);
	SIM_TRY(sim_capture_implicit(stream));
	SIM_TRY(wait_for_room(stream));
	return sim_stream_push(stream, op, NULL);
}

CUresult sim_stream_wait(struct sim_stream *stream)
{
	struct sim_work *tail = sim_work_ref(stream->tail);
	struct sim_ctx *ctx = stream->ctx;
	struct sim_clock clock = {0};
	uint64_t id = ctx->id;

	sim_clock_assign(&clock, &stream->clock);
	sim_wait_for(tail);
	sim_work_unref(tail);
	sim_host_learn(&clock);
	sim_clock_free(&clock);
	if (ctx->id != id)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	SIM_TRY(sim_ctx_check(ctx));
	if (sim_object_of(stream, SIM_STREAM))
		sim_stream_release_freed(stream);
	sim_pools_trim(ctx->device);
	return CUDA_SUCCESS;
}

static CUresult create(CUstream *handle, unsigned flags)
{
	struct sim_family *family;

	if (!handle || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_family_current(&family));
	*handle = (CUstream)sim_stream_new(family, flags & CU_STREAM_NON_BLOCKING);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
	SIM_BEGIN(cuStreamCreate);
	return create(handle, flags);
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
	SIM_BEGIN(cuStreamCreateWithPriority);
	return create(handle, flags);
}

/* The range of an H200. Priorities have no effect in the simulator. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxGetStreamPriorityRange);
	SIM_TRY(sim_family_current(&family));
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUstream handle)
{
	struct sim_stream *stream;

	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_stream_of(handle, false, &stream));
	if (stream->is_default)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_stream_free(stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle)
{
	SIM_BEGIN(cuStreamDestroy);
	return destroy(handle);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
	SIM_BEGIN(cuStreamDestroy_v2);
	return destroy(handle);
}

/* Submits a mark to the legacy stream. The mark follows all work for which the legacy stream waits. */
static const struct sim_op legacy_op = {.kind = SIM_MARK, .name = "legacy stream"};

static CUresult synchronize(CUstream handle, bool per_thread)
{
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	if (stream->capture) {
		sim_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	SIM_TRY(sim_capture_implicit(stream));
	SIM_TRY(sim_capture_unsafe());
	if (stream == stream->family->legacy)
		SIM_TRY(sim_stream_push(stream, &legacy_op, NULL));
	return sim_stream_wait(stream);
}

SIM_STREAM_PAIR(cuStreamSynchronize, _ptsz, (CUstream stream), synchronize(stream, per_thread))

/* Returns true if a query of `stream` covers the other: a query of the legacy stream covers all blocking streams. */
static bool includes(const struct sim_stream *stream, const struct sim_stream *other)
{
	return other == stream ||
	       (stream == stream->family->legacy && !other->non_blocking && other->family == stream->family);
}

static bool is_finished(const struct sim_stream *stream)
{
	const struct sim_family *family = stream->family;

	if (stream == family->legacy && !sim_work_done(family->destroyed_work[false].tail))
		return false;
	for (const struct sim_stream *other = stream->ctx->streams; other; other = other->next)
		if (includes(stream, other) && !sim_work_done(other->tail))
			return false;
	return true;
}

static void learn_finished(const struct sim_stream *stream)
{
	if (stream == stream->family->legacy)
		sim_host_learn(&stream->family->destroyed_work[false].clock);
	for (const struct sim_stream *other = stream->ctx->streams; other; other = other->next)
		if (includes(stream, other))
			sim_host_learn(&other->clock);
}

static CUresult query(CUstream handle, bool per_thread)
{
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	if (stream->capture) {
		sim_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	SIM_TRY(sim_capture_implicit(stream));
	SIM_TRY(sim_capture_unsafe());
	if (!is_finished(stream)) {
		sim_wait_polled();
		SIM_TRY(sim_ctx_check(stream->ctx));
		return CUDA_ERROR_NOT_READY;
	}
	learn_finished(stream);
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamQuery, _ptsz, (CUstream stream), query(stream, per_thread))

static CUresult get_ctx(CUstream handle, CUcontext *ctx, bool per_thread)
{
	struct sim_stream *stream;

	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	*ctx = sim_family_handle(stream->family);
	return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, unsigned long long *id, bool per_thread)
{
	struct sim_stream *stream;

	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	*id = stream->number;
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id), get_id(stream, id, per_thread))

static CUresult get_flags(CUstream handle, unsigned *flags, bool per_thread)
{
	struct sim_stream *stream;

	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	*flags = stream->non_blocking ? CU_STREAM_NON_BLOCKING : 0;
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned *flags), get_flags(stream, flags, per_thread))

SIM_STREAM_PAIR(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *ctx), get_ctx(stream, ctx, per_thread))
