/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "gpu_work.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/apps/cuda_min.h"
#include "tests/apps/kernels.h"

#define CALL(symbol, parameters) CUresult symbol parameters;
#include "shim/driver/hooks.def"

#define FUNCTIONS(FUNCTION)            \
	FUNCTION(cuCtxCreate_v2)       \
	FUNCTION(cuCtxPopCurrent_v2)   \
	FUNCTION(cuCtxSynchronize)     \
	FUNCTION(cuLaunchHostFunc)     \
	FUNCTION(cuLaunchKernel)       \
	FUNCTION(cuMemAlloc_v2)        \
	FUNCTION(cuMemHostAlloc)       \
	FUNCTION(cuMemcpyDtoHAsync_v2) \
	FUNCTION(cuMemcpyHtoDAsync_v2) \
	FUNCTION(cuModuleGetFunction)  \
	FUNCTION(cuModuleLoadData)     \
	FUNCTION(cuStreamCreate)

enum { WORDS = 64, CONTEXT_BLOCK = 4096 };

static struct {
#define FUNCTION(name) __typeof__(&name) name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUstream streams[BENCH_STREAMS_MAX];
static unsigned n_streams, n_contexts;
static CUfunction spin_fill;
static void *buffers_in[BENCH_STREAMS_MAX], *buffers_out[BENCH_STREAMS_MAX];
static size_t buffer_bytes;

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define FUNCTION(name) driver.name = library ? (__typeof__(&name))dlsym(library, #name) : NULL;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
}

#define HAS(name) (pthread_once(&once, load) == 0 && driver.name)

static void do_nothing(void *unused)
{
}

/* Use the stream once: the library may ignore a stream that never got work. */
static int make_stream(CUstream *stream)
{
	int error;

	if (!HAS(cuStreamCreate) || !HAS(cuLaunchHostFunc))
		return CUDA_ERROR_NOT_FOUND;
	error = driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
	return error ? error : driver.cuLaunchHostFunc(*stream, do_nothing, NULL);
}

int gpu_work_streams(unsigned n)
{
	if (n > BENCH_STREAMS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	while (n_streams < n) {
		int error = make_stream(&streams[n_streams]);

		if (error)
			return error;
		n_streams++;
	}
	return CUDA_SUCCESS;
}

void *gpu_work_stream(unsigned n)
{
	return n_streams ? streams[n % n_streams] : NULL;
}

int gpu_work_contexts(unsigned n)
{
	CUcontext created;
	CUdeviceptr block;
	int error = CUDA_SUCCESS;

	if (!HAS(cuCtxCreate_v2) || !HAS(cuMemAlloc_v2) || !HAS(cuCtxPopCurrent_v2))
		return CUDA_ERROR_NOT_FOUND;
	for (; n_contexts < n && !error; n_contexts++) {
		error = driver.cuCtxCreate_v2(&created, 0, 0);
		if (!error)
			error = driver.cuMemAlloc_v2(&block, CONTEXT_BLOCK);
		if (!error)
			error = driver.cuCtxPopCurrent_v2(&created);
	}
	return error;
}

static int load_kernels(void)
{
	CUmodule module;
	int error;

	if (!HAS(cuModuleLoadData) || !HAS(cuLaunchKernel))
		return CUDA_ERROR_NOT_FOUND;
	error = driver.cuModuleLoadData(&module, kernels_ptx);
	return error ? error : driver.cuModuleGetFunction(&spin_fill, module, "spin_fill");
}

int gpu_work_prepare(size_t copy_bytes)
{
	unsigned n = n_streams ? n_streams : 1;
	int error = spin_fill ? CUDA_SUCCESS : load_kernels();

	if (copy_bytes <= buffer_bytes)
		return error;
	for (unsigned i = 0; i < n && !error; i++) {
		error = driver.cuMemHostAlloc(&buffers_in[i], copy_bytes, 0);
		if (!error)
			error = driver.cuMemHostAlloc(&buffers_out[i], copy_bytes, 0);
	}
	buffer_bytes = error ? 0 : copy_bytes;
	return error;
}

int gpu_work_kernel(void *ptr, unsigned us, void *stream)
{
	uint64_t address = (uintptr_t)ptr, words = WORDS, ns = us * UINT64_C(1000);
	unsigned value = 1;
	void *params[] = {&address, &words, &value, &ns};

	return driver.cuLaunchKernel(spin_fill, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

int gpu_work_submit(void *stream)
{
	return HAS(cuLaunchHostFunc) ? driver.cuLaunchHostFunc(stream, do_nothing, NULL) : CUDA_ERROR_NOT_FOUND;
}

int gpu_work_copy_in(void *ptr, size_t bytes, unsigned n)
{
	n %= n_streams ? n_streams : 1;
	return driver.cuMemcpyHtoDAsync_v2((uintptr_t)ptr, buffers_in[n], bytes, gpu_work_stream(n));
}

int gpu_work_copy_out(void *ptr, size_t bytes, unsigned n)
{
	n %= n_streams ? n_streams : 1;
	return driver.cuMemcpyDtoHAsync_v2(buffers_out[n], (uintptr_t)ptr, bytes, gpu_work_stream(n));
}

int gpu_work_synchronize(void)
{
	return driver.cuCtxSynchronize();
}
