/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The runtime's functions, as a program with a shared runtime calls them. What the pool has at hand is handed out at
 * once, and what it takes back is taken back at once: the way through the runtime to the driver's functions and to the
 * very same pool would only take longer. Everything else goes that way, and all errors do: the runtime remembers them
 * for cudaGetLastError.
 *
 * A call is served only where one of the same runtime's has succeeded before, in the same thread and context
 * (runtime.c).
 */

#include <errno.h>

#include "caller.h"
#include "libraries.h"
#include "memory.h"
#include "runtime.h"

#define EXPORT	 __attribute__((visibility("default")))
#define CALLER() ((uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)))

/* Of the file that calls, where it is served. */
#define NUMBER() (gp_runtime_callers[0].number)

/* The runtime's own function; what it says of an error is what it will remember. */
#define CALL(caller, symbol, ...)                                                                                      \
	({                                                                                                             \
		int saved_errno_ = errno;                                                                              \
		uintptr_t behind_;                                                                                     \
		__typeof__(&symbol) function_ = gp_runtime_of(caller)->symbol;                                         \
		cudaError_t r_ = cudaErrorInitializationError;                                                         \
                                                                                                                       \
		behind_ = gp_caller_stand_behind(caller);                                                              \
		errno = saved_errno_;                                                                                  \
		if (function_)                                                                                         \
			r_ = function_(__VA_ARGS__);                                                                   \
		saved_errno_ = errno;                                                                                  \
		(void)gp_caller_stand_behind(behind_);                                                                 \
		if (!r_)                                                                                               \
			gp_runtime_succeeded(caller);                                                                  \
		errno = saved_errno_;                                                                                  \
		r_;                                                                                                    \
	})

/* The bit of the caller's runtime where it may be served, or 0; not 0 only in a thread that gpupool knows. */
static unsigned bit_of(uintptr_t caller)
{
	return gp_thread_self && !gp_is_unusual(GP_UNUSUAL_END | GP_UNUSUAL_BYPASS) ? gp_runtime_bit(caller) : 0;
}

/* The thread's cache for that context, if the caller's runtime has worked there; else NULL. */
static struct gp_thread_cache *place_in(CUcontext handle, unsigned bit)
{
	struct gp_thread_cache *first = &gp_thread_self->caches[0];

	return gp_thread_is_usable(first, handle) && (first->runtimes & bit) ? first : NULL;
}

/* The thread's cache for the current context, for an allocation: this has to know which one it is. */
static struct gp_thread_cache *place_to_alloc(uintptr_t caller)
{
	unsigned bit = bit_of(caller);
	CUcontext handle = bit ? gp_thread_ask_current() : NULL;

	if (!handle)
		return NULL;
	gp_thread_self->current = handle;
	return place_in(handle, bit);
}

static struct gp_thread_cache *place_to_free(uintptr_t caller)
{
	unsigned bit = bit_of(caller);
	CUcontext handle = bit ? gp_thread_self->current : NULL;

	return handle ? place_in(handle, bit) : place_to_alloc(caller);
}

/* The same for either, if it is at hand. */
static inline struct gp_thread_cache *place_at_hand(uintptr_t caller, unsigned unusual)
{
	const struct gp_runtime_caller *known = &gp_runtime_callers[0];
	struct gp_thread_cache *place;

	if (gp_unlikely(caller - known->begin >= known->bytes || !gp_runtime_is_sure(known)))
		return NULL;
	place = gp_memory_place_at_hand(unusual);
	return gp_likely(place && (place->runtimes & known->runtime.bit)) ? place : NULL;
}

static bool alloc_hit(uintptr_t caller, void **ptr, size_t bytes)
{
	bool was_at_hand = place_at_hand(caller, GP_UNUSUAL_TO_ALLOC) != NULL; /* and was asked in vain */
	struct gp_thread_cache *place;
	uint64_t addr;
	int r;

	gp_libraries_see();
	place = place_to_alloc(caller);
	if (!place)
		return false;
	r = was_at_hand ? gp_tcache_alloc_more(place->tcache, bytes, NUMBER(), true, &addr)
			: gp_tcache_alloc_hit(place->tcache, bytes, NUMBER(), &addr);
	if (r)
		return false;
	gp_origin_given(addr, bytes);
	*ptr = (void *)(uintptr_t)addr;
	return true;
}

static bool alloc_slow(uintptr_t caller, void **ptr, size_t bytes)
{
	int saved_errno = errno;
	bool is_hit = ptr && bytes && alloc_hit(caller, ptr, bytes);

	errno = saved_errno;
	return is_hit;
}

static __attribute__((noinline)) cudaError_t malloc_slow(uintptr_t caller, void **ptr, size_t bytes)
{
	return alloc_slow(caller, ptr, bytes) ? cudaSuccess : CALL(caller, cudaMalloc, ptr, bytes);
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	struct gp_thread_cache *place = place_at_hand(CALLER(), GP_UNUSUAL_TO_ALLOC);
	uint64_t addr = 0;

	if (gp_likely(place && ptr))
		addr = gp_tcache_take(place->tcache, bytes, NUMBER());
	if (gp_unlikely(!addr))
		return malloc_slow(CALLER(), ptr, bytes);
	*ptr = (void *)(uintptr_t)addr;
	return cudaSuccess;
}

/* Freed, with an error that the runtime is to know of. */
static cudaError_t free_failed(uintptr_t caller, void *ptr, CUresult r)
{
	cudaError_t error;

	gp_memory_owe(ptr, r);
	error = CALL(caller, cudaFree, ptr);
	gp_memory_owe(NULL, CUDA_SUCCESS);
	return error;
}

/* r: GP_E_FOREIGN, or what the thread's cache says to it. */
static __attribute__((noinline)) cudaError_t free_slow(uintptr_t caller, void *ptr, int r)
{
	int saved_errno = errno;
	CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr;
	struct gp_thread_cache *place = r == GP_E_FOREIGN && ptr ? place_to_free(caller) : NULL;

	if (place)
		r = gp_memory_free_to(place, addr);
	if (r == -ENOENT)
		r = gp_memory_free(addr);
	errno = saved_errno;
	if (r == CUDA_SUCCESS)
		return cudaSuccess;
	return r == GP_E_FOREIGN ? CALL(caller, cudaFree, ptr) : free_failed(caller, ptr, r);
}

EXPORT cudaError_t cudaFree(void *ptr)
{
	struct gp_thread_cache *place = place_at_hand(CALLER(), GP_UNUSUAL_TO_FREE);
	int r = GP_E_FOREIGN;

	if (gp_likely(place && ptr && gp_capture_is_none()))
		r = gp_tcache_put(place->tcache, (CUdeviceptr)(uintptr_t)ptr);
	return gp_likely(!r) ? cudaSuccess : free_slow(CALLER(), ptr, r);
}

static bool alloc_host_hit(uintptr_t caller, void **ptr, size_t bytes, unsigned flags)
{
	int saved_errno = errno;
	bool is_hit = ptr && bytes && flags < GP_PINNED_ALLOC_HOST && place_to_alloc(caller) &&
		      gp_memory_alloc_host_hit(ptr, bytes, flags, NUMBER());

	errno = saved_errno;
	return is_hit;
}

/* A thread that allocates no device memory has no cache where its runtime could be known. */
static cudaError_t make_place(cudaError_t r)
{
	int saved_errno = errno;
	CUcontext handle = NULL;

	if (r || !gp_real_ready() || !gp_state_is_enabled() || !gp_state.config.is_pinned_pooled ||
		gp_is_unusual(GP_UNUSUAL_BYPASS))
		return r;
	if (!gp_real.cuCtxGetCurrent(&handle) && handle)
		(void)gp_thread_cache(handle);
	errno = saved_errno;
	return r;
}

EXPORT cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
	uintptr_t caller = CALLER();

	if (alloc_host_hit(caller, ptr, bytes, 0))
		return cudaSuccess;
	return make_place(CALL(caller, cudaMallocHost, ptr, bytes));
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	uintptr_t caller = CALLER();

	if (alloc_host_hit(caller, ptr, bytes, flags))
		return cudaSuccess;
	return make_place(CALL(caller, cudaHostAlloc, ptr, bytes, flags));
}

static __attribute__((noinline)) cudaError_t free_host_slow(uintptr_t caller, void *ptr)
{
	return CALL(caller, cudaFreeHost, ptr);
}

EXPORT cudaError_t cudaFreeHost(void *ptr)
{
	int saved_errno = errno;
	uintptr_t caller = CALLER();
	int r = ptr && place_to_free(caller) ? gp_memory_free_host(ptr) : GP_E_FOREIGN;
	cudaError_t error;

	errno = saved_errno;
	if (gp_likely(r == CUDA_SUCCESS))
		return cudaSuccess;
	if (r == GP_E_FOREIGN)
		return free_host_slow(caller, ptr);
	gp_memory_owe(ptr, r);
	error = free_host_slow(caller, ptr);
	gp_memory_owe(NULL, CUDA_SUCCESS);
	return error;
}
