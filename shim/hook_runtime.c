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

#include "memory.h"
#include "runtime.h"

#define EXPORT	 __attribute__((visibility("default")))
#define CALLER() ((uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)))

/* The runtime's own function; what it says of an error is what it will remember. */
#define CALL(caller, symbol, ...)                                                                                      \
	({                                                                                                             \
		int saved_errno_ = errno;                                                                              \
		struct gp_runtime runtime_ = gp_runtime_of(caller);                                                    \
		cudaError_t r_ = cudaErrorInitializationError;                                                         \
                                                                                                                       \
		errno = saved_errno_;                                                                                  \
		if (runtime_.symbol)                                                                                   \
			r_ = runtime_.symbol(__VA_ARGS__);                                                             \
		saved_errno_ = errno;                                                                                  \
		if (!r_)                                                                                               \
			gp_runtime_succeeded(caller);                                                                  \
		errno = saved_errno_;                                                                                  \
		r_;                                                                                                    \
	})

/* The thread's cache for the current context, if the caller's runtime has worked there; else NULL. */
static inline struct gp_thread_cache *place_of(uintptr_t caller)
{
	struct gp_thread *self = gp_thread_self;
	unsigned bit = self ? gp_runtime_bit(caller) : 0;
	CUcontext handle = NULL;

	if (gp_unlikely(!bit || atomic_load_explicit(&gp_runtime_is_over, memory_order_relaxed) ||
			atomic_load_explicit(&gp_bypass, memory_order_relaxed)))
		return NULL;
	if (gp_unlikely(gp_real.cuCtxGetCurrent(&handle) || !handle ||
			!gp_thread_is_usable(&self->caches[0], handle)))
		return NULL;
	return gp_likely(self->caches[0].runtimes & bit) ? &self->caches[0] : NULL;
}

static __attribute__((noinline)) cudaError_t malloc_slow(uintptr_t caller, void **ptr, size_t bytes)
{
	return CALL(caller, cudaMalloc, ptr, bytes);
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	int saved_errno = errno;
	struct gp_thread_cache *place = gp_likely(ptr && bytes) ? place_of(CALLER()) : NULL;
	uint64_t addr;
	bool is_hit = gp_likely(place) && gp_tcache_alloc_hit(place->tcache, bytes, &addr) == 0;

	errno = saved_errno;
	if (gp_unlikely(!is_hit))
		return malloc_slow(CALLER(), ptr, bytes);
	gp_origin_given(addr, bytes);
	*ptr = (void *)(uintptr_t)addr;
	return cudaSuccess;
}

static __attribute__((noinline)) cudaError_t free_slow(uintptr_t caller, void *ptr)
{
	return CALL(caller, cudaFree, ptr);
}

/* Freed, with an error that the runtime is to know of. */
static __attribute__((noinline)) cudaError_t free_failed(uintptr_t caller, void *ptr, CUresult r)
{
	cudaError_t error;

	gp_memory_owe(ptr, r);
	error = free_slow(caller, ptr);
	gp_memory_owe(NULL, CUDA_SUCCESS);
	return error;
}

EXPORT cudaError_t cudaFree(void *ptr)
{
	int saved_errno = errno;
	CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr;
	struct gp_thread_cache *place = gp_likely(ptr) ? place_of(CALLER()) : NULL;
	int r = gp_likely(place) ? gp_memory_free_to(place, addr) : GP_E_FOREIGN;

	if (gp_unlikely(r == -ENOENT))
		r = gp_memory_free(addr);
	errno = saved_errno;
	if (gp_likely(r == CUDA_SUCCESS))
		return cudaSuccess;
	return r == GP_E_FOREIGN ? free_slow(CALLER(), ptr) : free_failed(CALLER(), ptr, r);
}

static bool alloc_host_hit(uintptr_t caller, void **ptr, size_t bytes, unsigned flags)
{
	int saved_errno = errno;
	bool is_hit = ptr && bytes && flags < GP_PINNED_ALLOC_HOST && place_of(caller) &&
		      gp_memory_alloc_host_hit(ptr, bytes, flags);

	errno = saved_errno;
	return is_hit;
}

EXPORT cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
	uintptr_t caller = CALLER();

	if (alloc_host_hit(caller, ptr, bytes, 0))
		return cudaSuccess;
	return CALL(caller, cudaMallocHost, ptr, bytes);
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	uintptr_t caller = CALLER();

	if (alloc_host_hit(caller, ptr, bytes, flags))
		return cudaSuccess;
	return CALL(caller, cudaHostAlloc, ptr, bytes, flags);
}

static __attribute__((noinline)) cudaError_t free_host_slow(uintptr_t caller, void *ptr)
{
	return CALL(caller, cudaFreeHost, ptr);
}

EXPORT cudaError_t cudaFreeHost(void *ptr)
{
	int saved_errno = errno;
	uintptr_t caller = CALLER();
	int r = ptr && place_of(caller) ? gp_memory_free_host(ptr) : GP_E_FOREIGN;
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
