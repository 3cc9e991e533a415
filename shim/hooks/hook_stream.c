/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Hooks of streams: they note whether work may overlap, and which streams are capturing. */

#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/driver/driver_table.h"

/*
 * Notes that the program has created a stream, so that work may overlap. From now on a GPU wait costs overlap, and the
 * pool avoids it (pool/reuse.c).
 */
static void note_stream(CUresult r)
{
	struct gp_context *context = r ? NULL : gp_context_current();

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

/* Destroying a stream also ends its capture. */
static CUresult destroy(CUstream stream, CUresult (*driver)(CUstream))
{
	struct gp_capture capture;
	CUresult r;

	gp_capture_end(&capture, stream, false);
	r = driver(stream);
	gp_capture_ended(&capture, r);
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
 * Bodies of the hooks that begin or end a capture. call: the driver's function; is_per_thread: a stream of NULL is
 * the thread's own default stream.
 */
#define BEGIN(is_per_thread, call)                         \
	struct gp_capture capture;                         \
	CUresult r;                                        \
                                                           \
	gp_capture_begin(&capture, stream, is_per_thread); \
	r = gp_real.call;                                  \
	gp_capture_begun(&capture, r);                     \
	return r

#define END(is_per_thread, call)                         \
	struct gp_capture capture;                       \
	CUresult r;                                      \
                                                         \
	gp_capture_end(&capture, stream, is_per_thread); \
	r = gp_real.call;                                \
	gp_capture_ended(&capture, r);                   \
	gp_context_settle_completion();                  \
	return r

CUresult hook_cuStreamBeginCapture(CUstream stream)
{
	BEGIN(false, cuStreamBeginCapture(stream));
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN(true, cuStreamBeginCapture_ptsz(stream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	BEGIN(false, cuStreamBeginCapture_v2(stream, mode));
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	BEGIN(true, cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	BEGIN(false, cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	BEGIN(true, cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback, void *data)
{
	BEGIN(false, cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data));
}

CUresult hook_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *callback, void *data)
{
	BEGIN(true, cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, data));
}

CUresult hook_cuStreamBeginCaptureToCig(CUstream stream, void *parameters)
{
	BEGIN(false, cuStreamBeginCaptureToCig(stream, parameters));
}

CUresult hook_cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *parameters)
{
	BEGIN(true, cuStreamBeginCaptureToCig_ptsz(stream, parameters));
}

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	END(false, cuStreamEndCapture(stream, graph));
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	END(true, cuStreamEndCapture_ptsz(stream, graph));
}

CUresult hook_cuStreamEndCaptureToCig(CUstream stream)
{
	END(false, cuStreamEndCaptureToCig(stream));
}

CUresult hook_cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
	END(true, cuStreamEndCaptureToCig_ptsz(stream));
}
