/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* RMM's pool over cudaMalloc, as of RMM 26.10. */

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda/stream_ref>
#include <exception>

#include "bench.h"

enum { FAILED = 1 };

static const size_t FIRST_BYTES = size_t{1} << 30, ALIGN = 256;

static rmm::mr::pool_memory_resource *pool;

/* RMM reports errors as exceptions. */
template <typename F> static int attempt(F call)
{
	try {
		call();
	} catch (const std::exception &) {
		return FAILED;
	}
	return 0;
}

static cuda::stream_ref stream_of(void *stream)
{
	return cuda::stream_ref(static_cast<cudaStream_t>(stream));
}

static int thread_init()
{
	return cudaSetDevice(0);
}

static int init()
{
	int error = thread_init();

	return error ? error : attempt([] {
		pool = new rmm::mr::pool_memory_resource(rmm::mr::cuda_memory_resource(), FIRST_BYTES);
	});
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return attempt([&] { *ptr = pool->allocate(stream_of(stream), bytes, ALIGN); });
}

static int release(void *ptr, size_t bytes, void *stream)
{
	return attempt([&] { pool->deallocate(stream_of(stream), ptr, bytes, ALIGN); });
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, nullptr, nullptr};
