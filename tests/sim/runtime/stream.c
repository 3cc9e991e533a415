/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "runtime.h"

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return RT_CALL(cuStreamCreate, stream, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return RT_CALL(cuStreamCreate, stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	return RT_CALL(cuStreamCreateWithPriority, stream, flags, priority);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	return RT_CALL(cuCtxGetStreamPriorityRange, least, greatest);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return RT_CALL(cuStreamDestroy_v2, stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return RT_CALL(cuStreamSynchronize, stream);
}

RT_PER_THREAD(cudaStreamSynchronize_ptsz, (cudaStream_t stream), cuStreamSynchronize_ptsz, stream)

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return RT_CALL(cuStreamQuery, stream);
}

RT_PER_THREAD(cudaStreamQuery_ptsz, (cudaStream_t stream), cuStreamQuery_ptsz, stream)

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	return RT_CALL(cuStreamWaitEvent, stream, event, flags);
}

RT_PER_THREAD(cudaStreamWaitEvent_ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
	cuStreamWaitEvent_ptsz, stream, event, flags)

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode)
{
	return RT_CALL(cuStreamBeginCapture_v2, stream, mode);
}

RT_PER_THREAD(cudaStreamBeginCapture_ptsz, (cudaStream_t stream, int mode), cuStreamBeginCapture_v2_ptsz, stream, mode)

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	return RT_CALL(cuStreamEndCapture, stream, graph);
}

RT_PER_THREAD(
	cudaStreamEndCapture_ptsz, (cudaStream_t stream, cudaGraph_t *graph), cuStreamEndCapture_ptsz, stream, graph)

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status)
{
	return RT_CALL(cuStreamIsCapturing, stream, status);
}

RT_PER_THREAD(cudaStreamIsCapturing_ptsz, (cudaStream_t stream, int *status), cuStreamIsCapturing_ptsz, stream, status)

#if RT_VERSION >= 13000 /* in older versions these have fewer parameters */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int *status, unsigned long long *id, cudaGraph_t *graph,
	const cudaGraphNode_t **nodes, const void **edges, size_t *n_nodes)
{
	return RT_CALL(cuStreamGetCaptureInfo_v3, stream, status, (uint64_t *)id, graph, nodes, edges, n_nodes);
}

RT_PER_THREAD(cudaStreamGetCaptureInfo_ptsz,
	(cudaStream_t stream, int *status, unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
		const void **edges, size_t *n_nodes),
	cuStreamGetCaptureInfo_v3_ptsz, stream, status, (uint64_t *)id, graph, nodes, edges, n_nodes)

/* The simulator's graphs have no nodes that a program could name. */
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, void *edges, size_t *n_nodes)
{
	return rt_done(cudaErrorInvalidValue);
}
#endif

cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode)
{
	return RT_CALL(cuThreadExchangeStreamCaptureMode, mode);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return RT_CALL(cuEventCreate, event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	return RT_CALL(cuEventCreate, event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return RT_CALL(cuEventRecord, event, stream);
}

RT_PER_THREAD(cudaEventRecord_ptsz, (cudaEvent_t event, cudaStream_t stream), cuEventRecord_ptsz, event, stream)

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return RT_CALL(cuEventQuery, event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return RT_CALL(cuEventSynchronize, event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return RT_CALL(cuEventDestroy_v2, event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	return RT_CALL(cuEventElapsedTime, ms, start, end);
}
