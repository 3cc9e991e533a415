/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* CUB's caching allocator with its default bins, extended to blocks of any size. */

#include <cub/util_allocator.cuh>

#include "bench.h"

/* Bins of powers of 8 from 512 B to 16 GiB, without a limit on cached memory. */
static cub::CachingDeviceAllocator *allocator;

static int thread_init()
{
	return cudaSetDevice(0);
}

static int init()
{
	int error = thread_init();

	allocator = new cub::CachingDeviceAllocator(8, 3, 11, cub::CachingDeviceAllocator::INVALID_SIZE, true);
	return error ? error : cudaFree(nullptr);
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return allocator->DeviceAllocate(ptr, bytes, static_cast<cudaStream_t>(stream));
}

static int release(void *ptr, size_t bytes, void *stream)
{
	(void)bytes;
	(void)stream;
	return allocator->DeviceFree(ptr);
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, nullptr, nullptr};
