/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* cudaMalloc and cudaFree of the shared or static runtime that the player is linked with. */

#include "bench.h"
#include "tests/apps/cudart_min.h"

static int thread_init(void)
{
	return cudaSetDevice(0);
}

static int init(void)
{
	int error = thread_init();

	return error ? error : cudaFree(NULL);
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return cudaMalloc(ptr, bytes);
}

static int release(void *ptr, size_t bytes, void *stream)
{
	return cudaFree(ptr);
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, cudaMallocHost, cudaFreeHost};
