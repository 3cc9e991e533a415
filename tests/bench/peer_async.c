/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * cudaMallocAsync and cudaFreeAsync, with a raised release threshold, as in real programs, so that all memory is kept.
 */

#include <dlfcn.h>

#include "bench.h"
#include "tests/apps/cudart_min.h"

enum { ATTRIBUTE_RELEASE_THRESHOLD = 4 }; /* CUmemPool_attribute */

static int raise_threshold(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	uint64_t threshold = UINT64_MAX;
	CUmemoryPool pool;
	int (*get)(CUmemoryPool * pool, CUdevice device);
	int (*set)(CUmemoryPool pool, int attribute, void *value);
	int error;

	if (!driver)
		return CUDA_ERROR_NOT_FOUND;
	get = (__typeof__(get))dlsym(driver, "cuDeviceGetDefaultMemPool");
	set = (__typeof__(set))dlsym(driver, "cuMemPoolSetAttribute");
	if (!get || !set)
		return CUDA_ERROR_NOT_FOUND;
	error = get(&pool, 0);
	return error ? error : set(pool, ATTRIBUTE_RELEASE_THRESHOLD, &threshold);
}

static int thread_init(void)
{
	return cudaSetDevice(0);
}

static int init(void)
{
	int error = thread_init();

	if (!error)
		error = cudaFree(NULL);
	return error ? error : raise_threshold();
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return cudaMallocAsync(ptr, bytes, stream);
}

static int release(void *ptr, size_t bytes, void *stream)
{
	return cudaFreeAsync(ptr, stream);
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, NULL, NULL};
