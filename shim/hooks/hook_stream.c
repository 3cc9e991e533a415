/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Hooks of streams: they note whether work may overlap, which streams are capturing, and what lets the work of a
 * capture branch.
 */

#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/context/stream.h"
#include "shim/context/stream_order.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"

/*
 * Notes that the program has created a stream, so that work may overlap. From now on a GPU wait costs overlap, and the
 * pool avoids it (pool/reuse.c).
 */
static void note_stream(CUresult r)
{
	struct gp_context *context = r ? NULL : gp_context_current();

	if (!r)
		gp_stream_forget(); /* if the end of a stream with that handle went unseen */
	if (!context)
		return;
	gp_context_set_overlap(context);
	gp_context_put(context);
}

CUresult hook_cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUresult r = gp_real.cuStreamCreate(stream, flags);

	note_stream(r);
	return r;
}

CUresult hook_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	CUresult r = gp_real.cuStreamCreateWithPriority(stream, flags, priority);

	note_stream(r);
	return r;
}

/*
 * Destroying a stream also ends its capture. Another thread may be given the handle again before this one returns. No
 * thread may take the new stream for the old one then, nor keep what it asks the driver for meanwhile.
 */
static CUresult destroy(CUstream stream, CUresult (*driver)(CUstream))
{
	struct gp_capture capture;
	CUresult r;

	gp_capture_end(&capture, stream, false);
	gp_stream_forget();
	r = driver(stream);
	gp_stream_forget();
	gp_capture_ended(&capture, r, NULL, true);
	return r;
}

CUresult hook_cuStreamDestroy(CUstream stream)
{
	return destroy(stream, gp_real.cuStreamDestroy);
}

CUresult hook_cuStreamDestroy_v2(CUstream stream)
{
	return destroy(stream, gp_real.cuStreamDestroy_v2);
}

/*
 * Bodies of the hooks that begin or end a capture. call: the driver's function; is_per_thread: a stream of NULL is the
 * thread's own default stream; graph: the graph that gets the nodes, or NULL; ret_graph: where the driver stores the
 * graph, or NULL; has_graph: false if what was captured goes elsewhere. A capture does not begin while the process
 * falls asleep: it would be invalidated by the copies.
 */
#define BEGIN(is_per_thread, graph, call)                         \
	struct gp_capture capture;                                \
	CUresult r;                                               \
                                                                  \
	gp_submit_visit();                                        \
	gp_capture_begin(&capture, stream, is_per_thread, graph); \
	r = gp_real.call;                                         \
	gp_capture_begun(&capture, r);                            \
	gp_submit_end_visit();                                    \
	return r

#define END(is_per_thread, ret_graph, has_graph, call)                         \
	struct gp_capture capture;                                             \
	CUgraph *ended = ret_graph;                                            \
	CUresult r;                                                            \
                                                                               \
	gp_capture_end(&capture, stream, is_per_thread);                       \
	r = gp_real.call;                                                      \
	gp_capture_ended(&capture, r, !r && ended ? *ended : NULL, has_graph); \
	gp_context_settle_completion();                                        \
	return r

CUresult hook_cuStreamBeginCapture(CUstream stream)
{
	BEGIN(false, NULL, cuStreamBeginCapture(stream));
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN(true, NULL, cuStreamBeginCapture_ptsz(stream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	BEGIN(false, NULL, cuStreamBeginCapture_v2(stream, mode));
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	BEGIN(true, NULL, cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	BEGIN(false, graph, cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	BEGIN(true, graph, cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback, void *data)
{
	BEGIN(false, graph, cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data));
}

CUresult hook_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *callback, void *data)
{
	BEGIN(true, graph, cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, data));
}

CUresult hook_cuStreamBeginCaptureToCig(CUstream stream, void *parameters)
{
	BEGIN(false, NULL, cuStreamBeginCaptureToCig(stream, parameters));
}

CUresult hook_cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *parameters)
{
	BEGIN(true, NULL, cuStreamBeginCaptureToCig_ptsz(stream, parameters));
}

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	END(false, graph, true, cuStreamEndCapture(stream, graph));
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	END(true, graph, true, cuStreamEndCapture_ptsz(stream, graph));
}

CUresult hook_cuStreamEndCaptureToCig(CUstream stream)
{
	END(false, NULL, false, cuStreamEndCaptureToCig(stream));
}

CUresult hook_cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
	END(true, NULL, false, cuStreamEndCaptureToCig_ptsz(stream));
}

CUresult hook_cuEventRecord(CUevent event, CUstream stream)
{
	gp_capture_see_fork(stream, 0);
	gp_stream_order_note_operation(stream, false);
	return gp_real.cuEventRecord(event, stream);
}

CUresult hook_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	gp_capture_see_fork(stream, 1);
	gp_stream_order_note_operation(stream, true);
	return gp_real.cuEventRecord_ptsz(event, stream);
}

CUresult hook_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	gp_capture_see_fork(stream, 0);
	gp_stream_order_note_operation(stream, false);
	return gp_real.cuEventRecordWithFlags(event, stream, flags);
}

CUresult hook_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
	gp_capture_see_fork(stream, 1);
	gp_stream_order_note_operation(stream, true);
	return gp_real.cuEventRecordWithFlags_ptsz(event, stream, flags);
}

/* A program that knows the graph or the nodes of a running capture can make later nodes depend on any of them. */
#define INFO(is_per_thread, call)                            \
	if (graph || nodes)                                  \
		gp_capture_see_graph(stream, is_per_thread); \
	return gp_real.call

CUresult hook_cuStreamGetCaptureInfo_v2(
	CUstream stream, int *status, uint64_t *id, CUgraph *graph, const void **nodes, size_t *n)
{
	INFO(0, cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, n));
}

CUresult hook_cuStreamGetCaptureInfo_v2_ptsz(
	CUstream stream, int *status, uint64_t *id, CUgraph *graph, const void **nodes, size_t *n)
{
	INFO(1, cuStreamGetCaptureInfo_v2_ptsz(stream, status, id, graph, nodes, n));
}

CUresult hook_cuStreamGetCaptureInfo_v3(
	CUstream stream, int *status, uint64_t *id, CUgraph *graph, const void **nodes, const void **edges, size_t *n)
{
	INFO(0, cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, n));
}

CUresult hook_cuStreamGetCaptureInfo_v3_ptsz(
	CUstream stream, int *status, uint64_t *id, CUgraph *graph, const void **nodes, const void **edges, size_t *n)
{
	INFO(1, cuStreamGetCaptureInfo_v3_ptsz(stream, status, id, graph, nodes, edges, n));
}

CUresult hook_cuStreamUpdateCaptureDependencies(CUstream stream, void *nodes, size_t n, unsigned flags)
{
	gp_capture_see_fork(stream, 0);
	return gp_real.cuStreamUpdateCaptureDependencies(stream, nodes, n, flags);
}

CUresult hook_cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, void *nodes, size_t n, unsigned flags)
{
	gp_capture_see_fork(stream, 1);
	return gp_real.cuStreamUpdateCaptureDependencies_ptsz(stream, nodes, n, flags);
}

CUresult hook_cuStreamUpdateCaptureDependencies_v2(
	CUstream stream, void *nodes, const void *edges, size_t n, unsigned flags)
{
	gp_capture_see_fork(stream, 0);
	return gp_real.cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, n, flags);
}

CUresult hook_cuStreamUpdateCaptureDependencies_v2_ptsz(
	CUstream stream, void *nodes, const void *edges, size_t n, unsigned flags)
{
	gp_capture_see_fork(stream, 1);
	return gp_real.cuStreamUpdateCaptureDependencies_v2_ptsz(stream, nodes, edges, n, flags);
}
