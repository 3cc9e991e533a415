/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Functions of the runtime that a program with a shared runtime calls. They hand out cached memory, and take back
 * memory of the pool, without calling the runtime: through the runtime the call would reach the driver's functions, and
 * the same pool, only later. All other calls go through the runtime, and so do all errors, which the runtime stores for
 * cudaGetLastError.
 *
 * A call is served only if an earlier call of the same runtime has succeeded in the same thread and context
 * (runtime.c).
 */

#include <errno.h>

#include "hook_memory.h"
#include "memory_calls.h"
#include "runtime.h"
#include "shim/context/libraries.h"
#include "shim/process.h"
#include "shim/trace/module.h"

#define EXPORT   __attribute__((visibility("default")))
#define CALLER() ((uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)))

/* The calling module of a call that is served. */
#define MODULE() (gp_runtime_callers[0].number)

/* Calls the runtime's own function on behalf of the caller. The runtime stores the error that it returns. */
#define CALL(caller, symbol, ...)                                              \
	({                                                                     \
		int saved_errno_ = errno;                                      \
		uintptr_t on_behalf_of_;                                       \
		__typeof__(&symbol) function_ = gp_runtime_of(caller)->symbol; \
		cudaError_t r_ = cudaErrorInitializationError;                 \
                                                                               \
		on_behalf_of_ = gp_module_begin_on_behalf_of(caller);          \
		errno = saved_errno_;                                          \
		if (function_)                                                 \
			r_ = function_(__VA_ARGS__);                           \
		saved_errno_ = errno;                                          \
		(void)gp_module_begin_on_behalf_of(on_behalf_of_);             \
		if (!r_)                                                       \
			gp_runtime_succeeded(caller);                          \
		errno = saved_errno_;                                          \
		r_;                                                            \
	})

/*
 * Returns the bit of the caller's runtime, or 0 if the call may not be served, for example in a thread that gpupool has
 * not seen yet.
 */
static unsigned bit_of(uintptr_t caller)
{
	return gp_thread_self && !gp_slow_path_is_any(GP_SLOW_PATH_END | GP_SLOW_PATH_BYPASS) ? gp_runtime_bit(caller)
											      : 0;
}

/* Returns the thread's cache for the context, or NULL if the caller's runtime has not succeeded there yet. */
static struct gp_thread_cache *cache_in(CUcontext handle, unsigned bit)
{
	struct gp_thread_cache *first = &gp_thread_self->caches[0];

	return gp_thread_is_usable(first, handle) && (first->runtimes & bit) ? first : NULL;
}

/* Returns the thread's cache for an allocation, or NULL. Asks the driver which context is current. */
static struct gp_thread_cache *cache_to_alloc(uintptr_t caller)
{
	unsigned bit = bit_of(caller);
	CUcontext handle = bit ? gp_thread_ask_current() : NULL;

	if (!handle)
		return NULL;
	gp_thread_self->current = handle;
	return cache_in(handle, bit);
}

/* Returns the thread's cache for a free, or NULL. Asks the driver only if the current context is not known. */
static struct gp_thread_cache *cache_to_free(uintptr_t caller)
{
	unsigned bit = bit_of(caller);
	CUcontext handle = bit ? gp_thread_self->current : NULL;

	return handle ? cache_in(handle, bit) : cache_to_alloc(caller);
}

/* Returns the thread's cache for an allocation or a free on the fast path, or NULL. */
static inline struct gp_thread_cache *current_cache(uintptr_t caller, unsigned reasons)
{
	const struct gp_runtime_caller *known = &gp_runtime_callers[0];
	struct gp_thread_cache *slot;

	if (gp_unlikely(caller - known->begin >= known->bytes || !gp_runtime_is_sure(known)))
		return NULL;
	slot = gp_memory_current_cache(reasons);
	return gp_likely(slot && (slot->runtimes & known->runtime.bit)) ? slot : NULL;
}

static bool alloc_hit(uintptr_t caller, void **ptr, size_t bytes)
{
	/* True if cudaMalloc has tried the cache without success. */
	bool was_tried = current_cache(caller, GP_SLOW_PATH_TO_ALLOC) != NULL;
	struct gp_alloc_options options = {.end = GP_STEP_gpuwait};
	struct gp_thread_cache *slot;
	uint64_t addr;
	int r = 0;

	gp_libraries_see();
	/* While a stream captures, the driver's hook serves the call. */
	slot = gp_slow_path_is_any(GP_SLOW_PATH_CAPTURE) ? NULL : cache_to_alloc(caller);
	if (!slot)
		return false;
	options.module = MODULE();
	addr = was_tried ? 0 : gp_tcache_take(slot->tcache, bytes, options.module);
	if (!addr)
		r = gp_tcache_alloc_with(slot->tcache, bytes, &options, &addr);
	if (r == -ENOENT)
		gp_thread_note_miss(slot->tcache, bytes);
	if (r)
		return false;
	gp_alloc_info_note_alloc(addr, bytes);
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
	cudaError_t r;

	if (alloc_slow(caller, ptr, bytes))
		return cudaSuccess;
	r = CALL(caller, cudaMalloc, ptr, bytes);
	gp_thread_note_miss(NULL, 0);
	return r;
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	struct gp_thread_cache *slot = current_cache(CALLER(), GP_SLOW_PATH_TO_ALLOC);
	uint64_t addr = 0;

	if (gp_likely(slot && ptr))
		addr = gp_tcache_take(slot->tcache, bytes, MODULE());
	if (gp_unlikely(!addr))
		return malloc_slow(CALLER(), ptr, bytes);
	*ptr = (void *)(uintptr_t)addr;
	return cudaSuccess;
}

/*
 * Returns the error of a free that has happened. Calls the runtime's cudaFree, which gets the deferred error from the
 * driver's hook and stores it.
 */
static cudaError_t free_failed(uintptr_t caller, void *ptr, CUresult r)
{
	cudaError_t error;

	gp_memory_defer_error(ptr, r);
	error = CALL(caller, cudaFree, ptr);
	gp_memory_defer_error(NULL, CUDA_SUCCESS);
	return error;
}

/* r: the result of the thread's cache, or GP_E_FOREIGN if the cache was not tried. */
static __attribute__((noinline)) cudaError_t free_slow(uintptr_t caller, void *ptr, int r)
{
	int saved_errno = errno;
	CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr;
	struct gp_thread_cache *slot = r == GP_E_FOREIGN && ptr ? cache_to_free(caller) : NULL;

	if (slot)
		r = gp_memory_free_to(slot, addr);
	if (r == -ENOENT)
		r = gp_memory_free(addr);
	errno = saved_errno;
	if (r == CUDA_SUCCESS)
		return cudaSuccess;
	return r == GP_E_FOREIGN ? CALL(caller, cudaFree, ptr) : free_failed(caller, ptr, r);
}

EXPORT cudaError_t cudaFree(void *ptr)
{
	struct gp_thread_cache *slot = current_cache(CALLER(), GP_SLOW_PATH_TO_FREE);
	int r = GP_E_FOREIGN;

	if (gp_likely(slot && ptr && gp_capture_is_none()))
		r = gp_tcache_put(slot->tcache, (CUdeviceptr)(uintptr_t)ptr);
	return gp_likely(!r) ? cudaSuccess : free_slow(CALLER(), ptr, r);
}

static bool alloc_host_hit(uintptr_t caller, void **ptr, size_t bytes, unsigned flags)
{
	int saved_errno = errno;
	bool is_hit = ptr && bytes && flags < GP_PINNED_ALLOC_HOST && cache_to_alloc(caller) &&
		      gp_memory_alloc_host_hit(ptr, bytes, flags, MODULE());

	errno = saved_errno;
	return is_hit;
}

/*
 * To be called after the runtime has allocated pinned memory. Ends the note of a miss, and makes a thread cache: only
 * there can gpupool note that a runtime has succeeded, and a thread without device memory has no cache yet.
 */
static cudaError_t host_allocated(cudaError_t r)
{
	int saved_errno = errno;
	CUcontext handle = NULL;

	gp_thread_note_miss(NULL, 0);
	if (r || !gp_real_ready() || !gp_process_is_on() || !gp_state.config.is_pinned_pooled ||
		gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
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
	return host_allocated(CALL(caller, cudaMallocHost, ptr, bytes));
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	uintptr_t caller = CALLER();

	if (alloc_host_hit(caller, ptr, bytes, flags))
		return cudaSuccess;
	return host_allocated(CALL(caller, cudaHostAlloc, ptr, bytes, flags));
}

static __attribute__((noinline)) cudaError_t free_host_slow(uintptr_t caller, void *ptr)
{
	return CALL(caller, cudaFreeHost, ptr);
}

EXPORT cudaError_t cudaFreeHost(void *ptr)
{
	int saved_errno = errno;
	uintptr_t caller = CALLER();
	int r = ptr && cache_to_free(caller) ? gp_memory_free_host(ptr) : GP_E_FOREIGN;
	cudaError_t error;

	errno = saved_errno;
	if (gp_likely(r == CUDA_SUCCESS))
		return cudaSuccess;
	if (r == GP_E_FOREIGN)
		return free_host_slow(caller, ptr);
	gp_memory_defer_error(ptr, r);
	error = free_host_slow(caller, ptr);
	gp_memory_defer_error(NULL, CUDA_SUCCESS);
	return error;
}

/*
 * In stream order only the fast path is served here. is_per_thread: as in gp_stream_recall.
 */
static inline bool alloc_async_hit(uintptr_t caller, void **ptr, size_t bytes, CUstream stream, bool is_per_thread)
{
	const struct gp_thread_cache *slot = current_cache(caller, GP_SLOW_PATH_TO_ALLOC);
	CUdeviceptr addr;

	if (gp_unlikely(!ptr || gp_memory_take_on(slot, &addr, bytes, stream, is_per_thread, MODULE())))
		return false;
	*ptr = (void *)(uintptr_t)addr;
	return true;
}

static inline bool free_async_hit(uintptr_t caller, void *ptr, CUstream stream, bool is_per_thread)
{
	const struct gp_thread_cache *slot = current_cache(caller, GP_SLOW_PATH_TO_FREE);

	return gp_likely(slot && gp_capture_is_none()) &&
	       gp_memory_put_on(slot, (CUdeviceptr)(uintptr_t)ptr, stream, is_per_thread) == CUDA_SUCCESS;
}

/*
 * The slow paths. bit_of makes sure of the caller's runtime again after a lookup in the process, and moves the caller
 * to the front; then the fast path may serve the call after all. Otherwise the runtime is called.
 */
#define ASYNC_SLOW(caller, hit, call)               \
	int saved_errno = errno;                    \
	bool is_hit = bit_of(caller) != 0 && (hit); \
                                                    \
	errno = saved_errno;                        \
	return is_hit ? cudaSuccess : (call)

#define MALLOC_ASYNC(symbol, is_per_thread)                                                    \
	static __attribute__((noinline))                                                       \
	cudaError_t slow_##symbol(uintptr_t caller, void **ptr, size_t bytes, CUstream stream) \
	{                                                                                      \
		ASYNC_SLOW(caller, alloc_async_hit(caller, ptr, bytes, stream, is_per_thread), \
			CALL(caller, symbol, ptr, bytes, stream));                             \
	}                                                                                      \
	EXPORT cudaError_t symbol(void **ptr, size_t bytes, CUstream stream)                   \
	{                                                                                      \
		if (gp_likely(alloc_async_hit(CALLER(), ptr, bytes, stream, is_per_thread)))   \
			return cudaSuccess;                                                    \
		return slow_##symbol(CALLER(), ptr, bytes, stream);                            \
	}

#define FREE_ASYNC(symbol, is_per_thread)                                                                        \
	static __attribute__((noinline)) cudaError_t slow_##symbol(uintptr_t caller, void *ptr, CUstream stream) \
	{                                                                                                        \
		ASYNC_SLOW(caller, free_async_hit(caller, ptr, stream, is_per_thread),                           \
			CALL(caller, symbol, ptr, stream));                                                      \
	}                                                                                                        \
	EXPORT cudaError_t symbol(void *ptr, CUstream stream)                                                    \
	{                                                                                                        \
		if (gp_likely(free_async_hit(CALLER(), ptr, stream, is_per_thread)))                             \
			return cudaSuccess;                                                                      \
		return slow_##symbol(CALLER(), ptr, stream);                                                     \
	}

MALLOC_ASYNC(cudaMallocAsync, false)
MALLOC_ASYNC(cudaMallocAsync_ptsz, true)
FREE_ASYNC(cudaFreeAsync, false)
FREE_ASYNC(cudaFreeAsync_ptsz, true)
