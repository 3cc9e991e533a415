/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The driver's own functions, found by dlsym. */

#include <dlfcn.h>

#include "bench.h"
#include "tests/apps/cuda_min.h"

static CUcontext primary;
static __typeof__(&cuCtxSetCurrent) set_current;
static __typeof__(&cuMemAlloc_v2) mem_alloc;
static __typeof__(&cuMemFree_v2) mem_free;
static __typeof__(&cuMemHostAlloc) host_alloc;
static __typeof__(&cuMemFreeHost) host_free;

static int thread_init(void)
{
	return set_current(primary);
}

static int init(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(&cuInit) initialize = driver ? (__typeof__(&cuInit))dlsym(driver, "cuInit") : NULL;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	int error;

	if (!initialize)
		return CUDA_ERROR_NOT_FOUND;
	retain = (__typeof__(retain))dlsym(driver, "cuDevicePrimaryCtxRetain");
	set_current = (__typeof__(set_current))dlsym(driver, "cuCtxSetCurrent");
	mem_alloc = (__typeof__(mem_alloc))dlsym(driver, "cuMemAlloc_v2");
	mem_free = (__typeof__(mem_free))dlsym(driver, "cuMemFree_v2");
	host_alloc = (__typeof__(host_alloc))dlsym(driver, "cuMemHostAlloc");
	host_free = (__typeof__(host_free))dlsym(driver, "cuMemFreeHost");
	error = initialize(0);
	if (!error)
		error = retain(&primary, 0);
	return error ? error : thread_init();
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return mem_alloc((CUdeviceptr *)ptr, bytes);
}

static int release(void *ptr, size_t bytes, void *stream)
{
	return mem_free((uintptr_t)ptr);
}

static int pinned_alloc(void **ptr, size_t bytes)
{
	return host_alloc(ptr, bytes, 0);
}

static int pinned_free(void *ptr)
{
	return host_free(ptr);
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, pinned_alloc, pinned_free};
