/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Functions of the runtime as CUDA 12 declares them, for frameworks that are older than CUDA 13. Force it into each of
 * their files with nvcc's -include.
 */

#ifndef GPUPOOL_TESTS_GPU_CUDA13_H
#define GPUPOOL_TESTS_GPU_CUDA13_H

#include <cuda_runtime_api.h>

#if defined(__cplusplus) && CUDART_VERSION >= 13000

static inline cudaMemLocation location_of(int device)
{
	cudaMemLocation location = {};

	location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
	location.id = device == cudaCpuDeviceId ? 0 : device;
	return location;
}

static inline cudaError_t cudaMemAdvise(const void *memory, size_t size, cudaMemoryAdvise advice, int device)
{
	return cudaMemAdvise(memory, size, advice, location_of(device));
}

static inline cudaError_t cudaMemPrefetchAsync(const void *memory, size_t size, int device, cudaStream_t stream)
{
	return cudaMemPrefetchAsync(memory, size, location_of(device), 0, stream);
}

static inline cudaError_t cudaGraphAddDependencies(
	cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n)
{
	return cudaGraphAddDependencies(graph, from, to, NULL, n);
}

#endif

#endif
