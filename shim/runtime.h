/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared CUDA runtimes: whose functions a caller means by cudaMalloc and the like, and whether ours may answer. */

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"

typedef int cudaError_t;

enum { cudaSuccess = 0, cudaErrorInitializationError = 3 };

/* The exported functions (hook_runtime.c). */
#define RUNTIME(symbol, parameters, arguments) cudaError_t symbol parameters;
#include "runtime.def"

/* A runtime, as one who calls it sees it. */
struct gp_runtime {
#define RUNTIME(symbol, parameters, arguments) cudaError_t(*symbol) parameters; /* NULL: there is none */
#include "runtime.def"
	cudaError_t (*get_version)(int *version); /* NULL: whoever has the others is no runtime */
	bool is_known;				  /* it was asked for its version */
	unsigned bit;				  /* that it has among others; 0: never served */
};

/* Who calls: part of an object of the process. */
struct gp_runtime_caller {
	uintptr_t begin, bytes;
	unsigned long long n_unloads; /* of the process, when the object was there */
	bool is_lasting;	      /* neither it nor its runtime is ever unloaded */
	unsigned n_lookups;	      /* of the process, when that was looked at last */
	uint32_t number;	      /* of its file: caller.h */
	struct gp_runtime runtime;
};

enum { GP_RUNTIME_CALLERS = 4 };

/* Those of the thread; the one of the last call is the first. */
extern _Thread_local struct gp_runtime_caller gp_runtime_callers[GP_RUNTIME_CALLERS]
	__attribute__((tls_model("initial-exec")));

/*
 * Calls of dlsym so far. An object that was opened where another lay is entered through something that was looked up,
 * so until then nobody needs to make sure that the caller is still the one that it was.
 */
extern _Atomic unsigned gp_runtime_lookups;

static inline bool gp_runtime_is_sure(const struct gp_runtime_caller *found)
{
	return found->n_lookups == atomic_load_explicit(&gp_runtime_lookups, memory_order_relaxed);
}

unsigned gp_runtime_bit_slow(uintptr_t caller);

/* The bit of the caller's runtime, or 0 if it is not served, or not known for sure. */
static inline unsigned gp_runtime_bit(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];

	if (__builtin_expect(caller - first->begin < first->bytes && gp_runtime_is_sure(first), 1))
		return first->runtime.bit;
	return gp_runtime_bit_slow(caller);
}

const struct gp_runtime *gp_runtime_of_slow(uintptr_t caller);
void gp_runtime_succeeded_slow(uintptr_t caller);

/* The caller's runtime, until anything of it is called. All is NULL if there is none. */
static inline const struct gp_runtime *gp_runtime_of(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];

	if (caller - first->begin < first->bytes && first->is_lasting && first->runtime.cudaMalloc)
		return &first->runtime;
	return gp_runtime_of_slow(caller);
}

/* A call of the caller's runtime has succeeded: from now on it may be served in the current context. */
static inline void gp_runtime_succeeded(uintptr_t caller)
{
	const struct gp_runtime_caller *first = &gp_runtime_callers[0];

	if (caller - first->begin >= first->bytes || !first->runtime.is_known || first->runtime.bit)
		gp_runtime_succeeded_slow(caller);
}

/* Looks for the caller's functions; those that it has not are NULL. Takes the loader's lock. */
void gp_runtime_find(uintptr_t caller, struct gp_runtime_caller *found);
bool gp_runtime_is_same(struct gp_runtime *a, struct gp_runtime *b);

/* Objects that the process has unloaded so far. */
unsigned long long gp_runtime_unloads(void);

/* For dlsym: the row with that name, or -1; its exported function; and what a lookup finds behind that, or NULL. */
int gp_runtime_index(const char *symbol);
void *gp_runtime_hook(int index);
void *gp_runtime_behind(int index);
void *gp_runtime_anywhere(int index);

void gp_runtime_after_fork_child(void);
