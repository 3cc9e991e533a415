/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared CUDA runtimes: finds the one whose cudaMalloc a caller means, and decides whether gpupool may serve the call.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/context/thread.h"
#include "shim/driver/cuda_abi.h"
#include "shim/driver/dlsym.h"

typedef int cudaError_t;

enum { cudaSuccess = 0, cudaErrorInitializationError = 3 };

/* The exported functions (hook_runtime.c). */
#define RUNTIME(symbol, parameters, arguments) cudaError_t symbol parameters;
#include "runtime.def"

/* A runtime, as a caller's lookups find it. */
struct gp_runtime {
#define RUNTIME(symbol, parameters, arguments) cudaError_t(*symbol) parameters; /* NULL: there is none */
#include "runtime.def"
	cudaError_t (*get_version)(int *version); /* NULL: another library intercepts the functions above */
	bool is_known;                            /* bit is set: the runtime has been asked for its version */
	unsigned bit;                             /* identifies it among all runtimes; 0: never served */
};

/* A caller: a segment of an object in the process. */
struct gp_runtime_caller {
	uintptr_t begin, bytes;
	unsigned long long n_unloads; /* objects unloaded by the process when this was found */
	bool is_lasting;              /* neither it nor its runtime is ever unloaded */
	unsigned n_lookups;           /* gp_dlsym_calls at the last check for unloads */
	uint32_t number;              /* the caller as a calling module: trace/module.h */
	struct gp_runtime runtime;
};

enum { GP_RUNTIME_CALLERS = 4 };

/* The last callers in this thread, the latest first. */
extern _Thread_local struct gp_runtime_caller gp_runtime_callers[GP_RUNTIME_CALLERS]
	__attribute__((tls_model("initial-exec")));

/* True if dlsym has not been called since the last check for unloads, so that the entry is certainly valid. */
static inline bool gp_runtime_is_sure(const struct gp_runtime_caller *found)
{
	return found->n_lookups == atomic_load_explicit(&gp_dlsym_calls, memory_order_relaxed);
}

unsigned gp_runtime_bit_slow(uintptr_t caller);

/* Returns the bit of the caller's runtime, or 0 if the runtime is not served or not certain. */
static inline unsigned gp_runtime_bit(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];

	if (__builtin_expect(caller - first->begin < first->bytes && gp_runtime_is_sure(first), 1))
		return first->runtime.bit;
	return gp_runtime_bit_slow(caller);
}

const struct gp_runtime *gp_runtime_of_slow(uintptr_t caller);
void gp_runtime_succeeded_slow(uintptr_t caller);

/*
 * Returns the caller's runtime, valid until one of its functions is called. Without a runtime all functions are NULL.
 */
static inline const struct gp_runtime *gp_runtime_of(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];

	if (caller - first->begin < first->bytes && first->is_lasting && first->runtime.cudaMalloc)
		return &first->runtime;
	return gp_runtime_of_slow(caller);
}

/* Notes that a call of the caller's runtime has succeeded: from now on it may be served in the current context. */
static inline void gp_runtime_succeeded(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];
	bool is_known = caller - first->begin < first->bytes && first->runtime.is_known;
	unsigned noted = gp_thread_self ? gp_thread_self->caches[0].runtimes : 0;

	/* Nothing is left to note if the runtime is never served, or is served in the thread's cache already. */
	if (!is_known || (first->runtime.bit & ~noted))
		gp_runtime_succeeded_slow(caller);
}
