/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_runtime.h"

#include <stdio.h>

unsigned long simgpu_runtime_calls(void);

/* With LIB_JUMP the compiler may turn last calls into jumps. The return address then makes the program the caller. */
#ifdef LIB_JUMP
#define LAST(call) return call
#else
#define LAST(call)                                 \
	do {                                       \
		cudaError_t r_ = call;             \
		__asm__ volatile("" ::: "memory"); \
		return r_;                         \
	} while (0)
#endif

static int version(void)
{
	int found = 0;

	(void)cudaRuntimeGetVersion(&found);
	return found;
}

static cudaError_t alloc(void **ptr, size_t bytes)
{
	LAST(cudaMalloc(ptr, bytes));
}

static cudaError_t release(void *ptr)
{
	LAST(cudaFree(ptr));
}

static cudaError_t alloc_host(void **ptr, size_t bytes)
{
	LAST(cudaMallocHost(ptr, bytes));
}

static cudaError_t release_host(void *ptr)
{
	LAST(cudaFreeHost(ptr));
}

static cudaError_t device_of(const void *ptr, int *device)
{
	struct cudaPointerAttributes attributes = {.device = -1};
	cudaError_t error = cudaPointerGetAttributes(&attributes, ptr);

	*device = attributes.device;
	return error;
}

static void *kept;

static void keep(void *ptr)
{
	kept = ptr;
}

__attribute__((destructor)) static void free_kept(void)
{
	if (kept)
		printf("free by the plug-in: %d\n", release(kept));
}

const struct lib_runtime *lib_runtime(void)
{
	static const struct lib_runtime functions = {version, simgpu_runtime_calls, alloc, release, alloc_host,
		release_host, cudaSetDevice, cudaDeviceReset, cudaGetLastError, device_of, keep};

	return &functions;
}
