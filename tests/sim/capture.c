/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "capture.h"

#include <stdlib.h>

static struct sim_capture *captures;

void sim_capture_invalidate(struct sim_capture *capture)
{
	capture->invalid = true;
}

static bool captures_in(const struct sim_capture *capture, const struct sim_ctx *ctx)
{
	for (const struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
		if (stream->capture == capture)
			return true;
	return false;
}

static bool captures_in_family(const struct sim_capture *capture, const struct sim_family *family)
{
	for (const struct sim_stream *s = family->ctx->streams; s; s = s->next)
		if (s->capture == capture && s->family == family)
			return true;
	return false;
}

/*
 * Refuses calls that conflict with every capture of the family, whatever the modes of the capture
 * and of the thread. Captures in green contexts do not conflict with calls in the primary context
 * (measured).
 */
CUresult sim_capture_refuse(const struct sim_family *family)
{
	CUresult result = CUDA_SUCCESS;

	for (struct sim_capture *capture = captures; capture; capture = capture->next) {
		if (!captures_in_family(capture, family))
			continue;
		sim_capture_invalidate(capture);
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

/* Refuses potentially unsafe calls. The thread's mode decides which captures conflict with them. */
CUresult sim_capture_unsafe(void)
{
	const struct sim_thread *self = sim_thread_self();
	CUresult result = CUDA_SUCCESS;

	if (self->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct sim_capture *capture = captures; capture; capture = capture->next) {
		bool forbids = capture->thread == self->id
				       ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
				       : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
						 self->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (!forbids)
			continue;
		sim_capture_invalidate(capture);
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

static struct sim_capture *implicit_conflict(const struct sim_stream *stream)
{
	if (stream != stream->family->legacy)
		return NULL;
	for (const struct sim_stream *other = stream->ctx->streams; other; other = other->next)
		if (other->capture && !other->non_blocking && other->family == stream->family)
			return other->capture;
	return NULL;
}

CUresult sim_capture_implicit(struct sim_stream *stream)
{
	struct sim_capture *capture = implicit_conflict(stream);

	if (!capture)
		return CUDA_SUCCESS;
	sim_capture_invalidate(capture);
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult sim_capture_add(struct sim_stream *stream, const struct sim_op *op)
{
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	sim_graph_add(stream->capture->graph, op);
	stream->captured_ops++;
	stream->unjoined = stream != stream->capture->origin;
	return CUDA_SUCCESS;
}

/* Marks the event's stream as joined, if the event follows all that the stream has captured. */
static void mark_joined(const struct sim_event *event)
{
	struct sim_stream *stream = sim_object_of(event->captured_by, SIM_STREAM);

	if (stream && stream->capture && stream->capture->id == event->captured_in &&
		stream->captured_ops == event->captured_at)
		stream->unjoined = false;
}

/* A stream that waits for an event of a capture joins the capture. A capture cannot wait for an event outside. */
CUresult sim_capture_join(struct sim_stream *stream, const struct sim_event *event)
{
	struct sim_capture *capture = captures;

	while (capture && capture->id != event->captured_in)
		capture = capture->next;
	if (stream->capture && stream->capture != capture) {
		sim_capture_invalidate(stream->capture);
		return capture ? CUDA_ERROR_STREAM_CAPTURE_MERGE : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (!capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (capture->invalid)
		return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_INVALID_VALUE;
	if (stream == stream->family->legacy) {
		sim_capture_invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	stream->capture = capture;
	stream->unjoined = stream != capture->origin;
	mark_joined(event);
	return CUDA_SUCCESS;
}

static void forget(struct sim_capture *capture)
{
	struct sim_capture **link = &captures;

	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	for (struct sim_ctx *ctx = sim_contexts; ctx; ctx = ctx->next)
		for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
			if (stream->capture == capture)
				stream->capture = NULL;
	free(capture);
}

static void abandon(struct sim_capture *capture)
{
	if (!capture->to_graph)
		sim_graph_free(capture->graph);
	forget(capture);
}

/*
 * Handles the destruction of a capturing stream, which invalidates the capture. Without its origin
 * stream no call can end the capture, so it is dropped.
 */
void sim_capture_leave(struct sim_stream *stream)
{
	if (stream->capture->origin == stream)
		abandon(stream->capture);
	else
		sim_capture_invalidate(stream->capture);
}

void sim_captures_close(struct sim_ctx *ctx)
{
	for (struct sim_capture *capture = captures, *next; capture; capture = next) {
		next = capture->next;
		if (captures_in(capture, ctx))
			abandon(capture);
	}
}

static CUresult begin(CUstream handle, bool per_thread, struct sim_graph *graph, int mode)
{
	static uint64_t ids;
	struct sim_capture *capture;
	struct sim_stream *stream;

	if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	if (stream == stream->family->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = sim_alloc_zeroed(1, sizeof(*capture));
	capture->id = ++ids;
	capture->thread = sim_thread_self()->id;
	capture->mode = mode;
	capture->origin = stream;
	capture->to_graph = graph;
	capture->graph = graph ? graph : sim_graph_new();
	capture->next = captures;
	captures = capture;
	stream->capture = capture;
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(
	cuStreamBeginCapture, _ptsz, (CUstream stream), begin(stream, per_thread, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL))
SIM_STREAM_PAIR(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int mode), begin(stream, per_thread, NULL, mode))

static CUresult begin_to_graph(CUstream stream, bool per_thread, CUgraph handle, int mode)
{
	struct sim_graph *graph = sim_object_of(handle, SIM_GRAPH);

	return graph ? begin(stream, per_thread, graph, mode) : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
	(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *data, size_t n, int mode),
	begin_to_graph(stream, per_thread, graph, mode))

static bool has_unjoined(const struct sim_capture *capture)
{
	for (const struct sim_ctx *ctx = sim_contexts; ctx; ctx = ctx->next)
		for (const struct sim_stream *stream = ctx->streams; stream; stream = stream->next)
			if (stream->capture == capture && stream->unjoined)
				return true;
	return false;
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *graph)
{
	struct sim_capture *capture;
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	capture = stream->capture;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread_self()->id)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (capture->origin != stream) {
		sim_capture_invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->invalid || has_unjoined(capture)) {
		CUresult result =
			capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;

		abandon(capture);
		if (graph)
			*graph = NULL;
		return result;
	}
	if (graph)
		*graph = (CUgraph)capture->graph;
	forget(capture);
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), end(stream, per_thread, graph))

/* Sets *capture to NULL unless the stream has a valid capture. */
static CUresult capture_of(CUstream handle, bool per_thread, int *status, const struct sim_capture **capture)
{
	struct sim_stream *stream;

	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	if (implicit_conflict(stream))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		  : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	*capture = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? stream->capture : NULL;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, bool per_thread, int *status)
{
	const struct sim_capture *capture;

	return capture_of(stream, per_thread, status, &capture);
}

SIM_STREAM_PAIR(cuStreamIsCapturing, _ptsz, (CUstream stream, int *status), is_capturing(stream, per_thread, status))

/* The simulator's graphs have no nodes that a program could name. */
static CUresult get_info(
	CUstream stream, bool per_thread, int *status, uint64_t *id, CUgraph *graph, bool wants_nodes, bool wants_edges)
{
	const struct sim_capture *capture;

	if (wants_edges && !wants_nodes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(capture_of(stream, per_thread, status, &capture));
	if (!capture)
		return CUDA_SUCCESS;
	if (wants_nodes)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (id)
		*id = capture->id;
	if (graph)
		*graph = (CUgraph)capture->graph;
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetCaptureInfo_v2, _ptsz,
	(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *n_nodes),
	get_info(stream, per_thread, status, id, graph, nodes || n_nodes, false))
SIM_STREAM_PAIR(cuStreamGetCaptureInfo_v3, _ptsz,
	(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes, const void **edges,
		size_t *n_nodes),
	get_info(stream, per_thread, status, id, graph, nodes || n_nodes, edges))

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	struct sim_thread *self = sim_thread_self();
	int old = self->capture_mode;

	SIM_BEGIN(cuThreadExchangeStreamCaptureMode);
	if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	self->capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
