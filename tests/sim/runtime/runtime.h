/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A look-alike of the CUDA runtime. Its public calls make the same driver calls as the real runtime,
 * and find them in the same way. Each copy (shared, or static in a program) keeps its own last error
 * per thread.
 */

#ifdef RT_STATIC
#define RT_VISIBILITY "hidden" /* other modules never see a static runtime, even in a shared library */
#pragma GCC visibility push(hidden)
#else
#define RT_VISIBILITY "default"
#pragma GCC visibility push(default)
#endif
#include "tests/apps/cudart_min.h"
#pragma GCC visibility pop
#include "tests/sim/abi.h"

/* The version that the runtime reports. Before version 12, cudaSetDevice leaves the context to the next call. */
#ifndef RT_VERSION
#define RT_VERSION 13000
#endif

/*
 * Beyond CUDA, as in simgpu.h: returns the number of calls by this thread to allocate or free memory that reached this
 * copy of the runtime. Calls that a preloaded library serves by itself do not count.
 */
__attribute__((visibility(RT_VISIBILITY))) unsigned long simgpu_runtime_calls(void);

struct rt_driver {
#define RT_DRIVER(name, public, version, flags) __typeof__(&name) name;
#include "driver.def"
#undef RT_DRIVER
	__typeof__(&cuInit) cuInit;
	__typeof__(&cuGetProcAddress_v2) cuGetProcAddress_v2;
};
extern struct rt_driver rt_driver __attribute__((visibility("hidden")));

/* Find and initialise the driver, once. rt_enter also makes a context current in the thread. */
cudaError_t rt_enter(void) __attribute__((visibility("hidden")));
cudaError_t rt_enter_without_context(void) __attribute__((visibility("hidden")));

/* Returns the primary context of a device. The first call for a device retains it. */
cudaError_t rt_primary(int device, CUcontext *ctx) __attribute__((visibility("hidden")));

/* Stores an error for cudaGetLastError, and returns it. */
cudaError_t rt_done(cudaError_t error) __attribute__((visibility("hidden")));

#define RT_CALL(name, ...) rt_done(rt_enter() ?: rt_driver.name(__VA_ARGS__))

/* Defines a twin, which nvcc calls if the default stream is per thread. */
#define RT_PER_THREAD(name, params, ...)                                    \
	__attribute__((visibility(RT_VISIBILITY))) cudaError_t name params; \
	cudaError_t name params                                             \
	{                                                                   \
		return RT_CALL(__VA_ARGS__);                                \
	}
