/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Streams: whether work may overlap, and which of them are capturing. */

#include "backend.h"
#include "capture.h"
#include "real.h"

/* A second stream: from now on an order is a barrier that costs something. */
static void note_stream(CUresult r)
{
	struct gp_context *context = r ? NULL : gp_context_current();

	if (!context)
		return;
	gp_pool_set_overlap(context->pool, true);
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

CUresult hook_cuStreamDestroy_v2(CUstream stream)
{
	CUresult r = gp_real.cuStreamDestroy_v2(stream);

	if (!r)
		gp_capture_end(stream, true);
	return r;
}

static CUresult begun(CUstream stream, CUresult r)
{
	gp_capture_begun(stream, r == CUDA_SUCCESS);
	return r;
}

CUresult hook_cuStreamBeginCapture(CUstream stream)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCapture(stream));
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCapture_ptsz(stream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCapture_v2(stream, mode));
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(
	CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t n, int mode)
{
	gp_capture_begin();
	return begun(stream, gp_real.cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, data, n, mode));
}

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUresult r = gp_real.cuStreamEndCapture(stream, graph);

	gp_capture_end(stream, r == CUDA_SUCCESS);
	gp_state_settle_completion();
	return r;
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	CUresult r = gp_real.cuStreamEndCapture_ptsz(stream, graph);

	gp_capture_end(stream, r == CUDA_SUCCESS);
	gp_state_settle_completion();
	return r;
}
