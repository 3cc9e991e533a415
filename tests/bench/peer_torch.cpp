/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* PyTorch's allocator, without Python; PYTORCH_CUDA_ALLOC_CONF chooses its backend, as in any program. */

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <exception>

#include "bench.h"

/* This is exported, but not in a header: libtorch_cuda gives libc10_cuda its function by it. */
namespace c10::cuda::_internal
{
void setHasPrimaryContext(bool (*function)(c10::DeviceIndex));
}

namespace caching = c10::cuda::CUDACachingAllocator;

enum { FAILED = 1 };

/* PyTorch reports errors as exceptions. */
template <typename F> static int attempt(F call)
{
	try {
		call();
	} catch (const std::exception &) {
		return FAILED;
	}
	return 0;
}

static int thread_init()
{
	return attempt([] { c10::cuda::set_device(0); });
}

/* The stream-ordered backend asks for this. There is a primary context: init makes it. */
static bool has_primary_context(c10::DeviceIndex)
{
	return true;
}

static int init()
{
	return attempt([] {
		c10::cuda::set_device(0);
		c10::cuda::_internal::setHasPrimaryContext(has_primary_context);
		caching::init(c10::cuda::device_count());
		caching::raw_delete(caching::raw_alloc(512));
	});
}

static int allocate(void **ptr, size_t bytes, void *stream)
{
	return attempt([&] { *ptr = caching::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream)); });
}

static int release(void *ptr, size_t bytes, void *stream)
{
	(void)bytes;
	(void)stream;
	return attempt([&] { caching::raw_delete(ptr); });
}

const struct bench_peer bench_peer = {init, thread_init, allocate, release, nullptr, nullptr};
