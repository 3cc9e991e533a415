/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A look-alike of the CUDA runtime: the public calls, made of the very driver calls the real one
 * makes, found the very way it finds them. Each copy (shared, or static in a program) keeps its own
 * last error per thread.
 */

#ifdef RT_STATIC
#define RT_VISIBILITY "hidden" /* a static runtime is nobody else's, even inside a shared library */
#pragma GCC visibility push(hidden)
#else
#define RT_VISIBILITY "default"
#pragma GCC visibility push(default)
#endif
#include "tests/apps/cudart_min.h"
#pragma GCC visibility pop
#include "tests/sim/abi.h"

/* The version that it says it is; one before 12 leaves the context as it is in cudaSetDevice. */
#ifndef RT_VERSION
#define RT_VERSION 13000
#endif

/*
 * Beyond CUDA, as in simgpu.h: the calls that this copy got for memory to allocate or to free, by this thread. Who
 * stands before it can be seen by what does not arrive.
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

/* Finds and initialises the driver, once, and gives the thread a context. */
cudaError_t rt_enter(void) __attribute__((visibility("hidden")));
cudaError_t rt_enter_without_context(void) __attribute__((visibility("hidden")));

/* The primary context of a device, made and kept if it is not there yet. */
cudaError_t rt_primary(int device, CUcontext *ctx) __attribute__((visibility("hidden")));

/* Remembers an error for cudaGetLastError and passes it on. */
cudaError_t rt_done(cudaError_t error) __attribute__((visibility("hidden")));

#define RT_CALL(name, ...) rt_done(rt_enter() ?: rt_driver.name(__VA_ARGS__))

/* The twins that nvcc names when the default stream is per thread. */
#define RT_PER_THREAD(name, params, ...)                                                           \
	__attribute__((visibility(RT_VISIBILITY))) cudaError_t name params;                        \
	cudaError_t name params                                                                    \
	{                                                                                          \
		return RT_CALL(__VA_ARGS__);                                                       \
	}
