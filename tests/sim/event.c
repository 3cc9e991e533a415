/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "capture.h"
#include "share.h"

static const struct sim_op record_op = {.kind = SIM_MARK, .name = "cuEventRecord"};
static const struct sim_op wait_op = {.kind = SIM_MARK, .name = "cuStreamWaitEvent"};

/* All events. An event ends with its context. */
static struct sim_event *events;

static CUresult event_of(CUevent handle, struct sim_event **event)
{
	*event = sim_object_of(handle, SIM_EVENT);
	return *event ? sim_ctx_check((*event)->ctx) : CUDA_ERROR_INVALID_HANDLE;
}

void sim_event_free(struct sim_event *event)
{
	if (event->prev)
		event->prev->next = event->next;
	else
		events = event->next;
	if (event->next)
		event->next->prev = event->prev;
	sim_work_unref(event->mark);
	sim_clock_free(&event->clock);
	sim_share_free(event->share);
	sim_object_free(event);
}

void sim_events_close(struct sim_ctx *ctx)
{
	for (struct sim_event *event = events, *next; event; event = next) {
		next = event->next;
		if (event->ctx == ctx)
			sim_event_free(event);
	}
}

struct sim_event *sim_event_new(struct sim_ctx *ctx, unsigned flags)
{
	struct sim_event *event = sim_object_new(SIM_EVENT, sizeof(*event));

	event->ctx = ctx;
	event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
	event->interprocess = flags & CU_EVENT_INTERPROCESS;
	event->next = events;
	if (events)
		events->prev = event;
	events = event;
	return event;
}

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuEventCreate);
	if (!handle || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	*handle = (CUevent)sim_event_new(ctx, flags);
	return CUDA_SUCCESS;
}

static CUresult destroy(CUevent handle)
{
	struct sim_event *event = sim_object_of(handle, SIM_EVENT);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_event_free(event);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle)
{
	SIM_BEGIN(cuEventDestroy);
	return destroy(handle);
}

CUresult cuEventDestroy_v2(CUevent handle)
{
	SIM_BEGIN(cuEventDestroy_v2);
	return destroy(handle);
}

/*
 * CUDA's manual leaves open whether the record of an event is an action of its stream, and GPUs differ. On an H200
 * later work of blocking streams did not wait for a record on the legacy stream, and the reverse. On an H100 it did
 * (driver 580.159.04 on both), as for an operation, and the event covered the earlier work of all blocking streams. So
 * programs may rely on neither. Without SIMGPU_RECORDS_ARE_OPERATIONS an event covers only what its stream has done or
 * waited for.
 */
static struct sim_work *mark_apart(struct sim_event *event, const struct sim_stream *stream)
{
	const struct sim_family *family = stream->family;
	struct sim_work *work = sim_work_new(stream->ctx, &record_op);

	work->stream_number = stream->number;
	sim_work_after(work, family->gate);
	sim_work_after(work, stream->tail);
	sim_work_submit(work);
	sim_clock_assign(&event->clock, &stream->clock);
	sim_clock_join(&event->clock, &family->gate_clock);
	sim_clock_join(&event->clock, sim_host_clock());
	return work;
}

static struct sim_work *mark_in_order(struct sim_event *event, struct sim_stream *stream)
{
	(void)sim_stream_push(stream, &record_op, NULL);
	sim_clock_assign(&event->clock, &stream->clock);
	return sim_work_ref(stream->tail);
}

static void mark(struct sim_event *event, struct sim_stream *stream)
{
	struct sim_work *work =
		sim.config.records_are_operations ? mark_in_order(event, stream) : mark_apart(event, stream);

	sim_work_unref(event->mark);
	event->mark = work;
}

/*
 * Other processes have their own clocks, so the recording of an interprocess event waits for its
 * work. Other processes then never have to wait for the event.
 */
static CUresult record(CUevent handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream;
	struct sim_event *event;

	SIM_TRY(event_of(handle, &event));
	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	if (event->ctx != stream->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture) {
		if (stream->capture->invalid)
			return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		event->captured_in = stream->capture->id;
		event->captured_by = stream;
		event->captured_at = stream->captured_ops;
		return CUDA_SUCCESS;
	}
	SIM_TRY(sim_capture_implicit(stream));
	event->captured_in = 0;
	event->recorded = true;
	mark(event, stream);
	return event->interprocess ? sim_stream_wait(stream) : CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuEventRecord, _ptsz, (CUevent event, CUstream stream), record(event, stream, per_thread))

static CUresult stream_wait(CUstream stream_handle, CUevent handle, bool per_thread)
{
	struct sim_stream *stream;
	struct sim_event *event;

	SIM_TRY(event_of(handle, &event));
	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	if (event->captured_in || stream->capture)
		return sim_capture_join(stream, event);
	SIM_TRY(sim_capture_implicit(stream));
	if (!event->recorded)
		return CUDA_SUCCESS;
	sim_clock_join(&stream->clock, &event->clock);
	return sim_stream_push(stream, &wait_op, event->mark);
}

SIM_STREAM_PAIR(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
	stream_wait(stream, event, per_thread))

CUresult cuEventQuery(CUevent handle)
{
	struct sim_event *event;
	CUresult unsafe;

	SIM_BEGIN(cuEventQuery);
	SIM_TRY(event_of(handle, &event));
	/* An unsafe query invalidates captures even if the event itself belongs to a capture. */
	unsafe = sim_capture_unsafe();
	if (event->captured_in)
		return CUDA_ERROR_CAPTURED_EVENT;
	SIM_TRY(unsafe);
	if (!sim_work_done(event->mark)) {
		sim_wait_polled();
		SIM_TRY(sim_ctx_check(event->ctx));
		return CUDA_ERROR_NOT_READY;
	}
	sim_host_learn(&event->clock);
	return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle)
{
	struct sim_clock clock = {0};
	struct sim_event *event;
	struct sim_work *mark;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuEventSynchronize);
	SIM_TRY(event_of(handle, &event));
	if (event->captured_in)
		return CUDA_ERROR_CAPTURED_EVENT;
	SIM_TRY(sim_capture_unsafe());
	ctx = event->ctx;
	mark = sim_work_ref(event->mark);
	sim_clock_assign(&clock, &event->clock);
	sim_wait_for(mark);
	sim_work_unref(mark);
	sim_host_learn(&clock);
	sim_clock_free(&clock);
	return sim_ctx_check(ctx);
}

static CUresult elapsed(float *ms, CUevent start_handle, CUevent end_handle)
{
	struct sim_event *start, *end;

	SIM_TRY(event_of(start_handle, &start));
	SIM_TRY(event_of(end_handle, &end));
	if (!ms || !start->timing || !end->timing || !start->mark || !end->mark)
		return ms ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	if (!sim_work_done(start->mark) || !sim_work_done(end->mark))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end->mark->finished_ns - start->mark->finished_ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	SIM_BEGIN(cuEventElapsedTime);
	return elapsed(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	SIM_BEGIN(cuEventElapsedTime_v2);
	return elapsed(ms, start, end);
}
