/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared by the GPU test programs. These are ordinary CUDA programs that know nothing of gpupool, and do the same raw
 * and under the preload. They print each result to stdout as a line of "key=value" pairs.
 */

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)

static inline void gpu_check(cudaError_t error, const char *call, const char *file, int line)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
	fflush(stdout);
	_Exit(1); /* not exit(): its handlers would destroy CUDA's state while other threads use it */
}

static inline double now_ns()
{
	auto now = std::chrono::steady_clock::now().time_since_epoch();

	return std::chrono::duration<double, std::nano>(now).count();
}

static inline double median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

/* Nanoseconds of the GPU's global timer, which does not depend on the clock frequency. */
static __device__ __forceinline__ unsigned long long gpu_clock_ns()
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* Delays the whole thread block. */
static __device__ __forceinline__ void gpu_delay(unsigned long long ns)
{
	if (threadIdx.x == 0)
		for (unsigned long long start = gpu_clock_ns(); gpu_clock_ns() - start < ns;)
			;
	__syncthreads();
}

/*
 * Exits with 77, which test harnesses take for "skipped", if there is no GPU.
 */
static inline void gpu_require()
{
	int n = 0;
	cudaError_t error = cudaGetDeviceCount(&n);

	if (error == cudaSuccess && n > 0)
		return;
	printf("skip reason=\"%s\"\n", cudaGetErrorString(error));
	exit(77);
}

/* Returns an instantiated graph of one memset. It lives as long as the process. */
static inline cudaGraphExec_t gpu_fill_graph(char *p, int value, size_t bytes)
{
	cudaMemsetParams fill = {};
	cudaGraphExec_t exec;
	cudaGraphNode_t node;
	cudaGraph_t graph;

	fill.dst = p;
	fill.elementSize = 1;
	fill.width = bytes;
	fill.height = 1;
	fill.value = (unsigned)value;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &fill));
	CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}
