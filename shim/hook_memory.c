/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Device memory: what the program's allocations and frees become. Every case in which the pool has no answer is the
 * driver's, in the program's own words.
 */

#include <errno.h>

#include "backend.h"
#include "bad_free.h"
#include "caller.h"
#include "debug.h"
#include "in_order.h"
#include "libraries.h"
#include "memory.h"
#include "oom.h"
#include "oom_hook.h"
#include "real.h"
#include "record.h"
#include "region.h"
#include "unpooled.h"

/* What a recording says of a call, by way of that cache if there is one. */
static uint64_t flags_of_call(const struct gp_tcache *tcache)
{
	return (gp_scope_no_caches ? GP_RECORD_CALL_UNCACHED : 0) | (tcache ? GP_RECORD_CALL_BY_THREAD : 0);
}

__attribute__((cold)) static int alloc_watched(
	struct gp_pool *pool, int device, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	int r = gp_debug_is_on() ? gp_debug_alloc(pool, device == GP_OOM_HOOK_PINNED, bytes, caller, ret_addr)
				 : gp_memory_alloc_plain(pool, bytes, caller, ret_addr);

	gp_record(pool, ALLOC, *ret_addr, bytes, (uint64_t)r, flags_of_call(NULL));
	return r;
}

static int alloc(struct gp_pool *pool, int device, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	int r;

	do {
		r = gp_unlikely(gp_is_unusual(GP_UNUSUAL_WATCHED))
			    ? alloc_watched(pool, device, bytes, caller, ret_addr)
			    : gp_memory_alloc_plain(pool, bytes, caller, ret_addr);
	} while (r == -ENOMEM && gp_oom_hook_says_again(pool, device, bytes));
	return r;
}

static int alloc_device(struct gp_context *context, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	return alloc(gp_region_pool(context), context->device->index, bytes, caller, ret_addr);
}

/* The hook may do anything with contexts and caches, so nothing of before is left standing. */
static int alloc_again(uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	struct gp_context *context = gp_context_current();
	int r = -ENOMEM;

	if (context && gp_oom_hook_says_again(gp_region_pool(context), context->device->index, bytes))
		r = alloc_device(context, bytes, caller, ret_addr);
	gp_context_put(context);
	return r;
}

/*
 * By way of the thread's cache, which has been asked in vain if it was at hand. What did not fit anywhere is tried
 * again if the program has made room.
 */
static int alloc_cached(
	struct gp_tcache *tcache, bool was_at_hand, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	int r = was_at_hand ? gp_tcache_alloc_more(tcache, bytes, caller, false, ret_addr)
			    : gp_tcache_alloc(tcache, bytes, caller, ret_addr);

	if (gp_unlikely(gp_is_unusual(GP_UNUSUAL_WATCHED)))
		gp_record(gp_tcache_pool(tcache), ALLOC, *ret_addr, bytes, (uint64_t)r, flags_of_call(tcache));
	if (gp_likely(r != -ENOMEM) || !gp_oom_hook_is_set())
		return r;
	return alloc_again(bytes, caller, ret_addr);
}

/* What gp_pool_alloc said, as the driver would: true if *ret_r is the answer, false if the driver must be asked. */
static bool is_answered(int r, CUresult *ret_r)
{
	switch (r) {
	case 0:
		*ret_r = CUDA_SUCCESS;
		return true;
	case -ENOMEM:
		*ret_r = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	case -ENOBUFS:
	case GP_E_DEAD:
		return false;
	default:
		*ret_r = r > 0 ? r : CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
}

static bool is_served(const struct gp_context *context)
{
	if (context)
		gp_state_start();
	return context && gp_likely(!gp_context_is(context, GP_CONTEXT_BROKEN));
}

/* The driver answers out-of-memory, and no other error, with a pointer of 0, and with the pitch (measured). */
static bool is_pointer_due(CUresult r)
{
	return gp_likely(r == CUDA_SUCCESS) || r == CUDA_ERROR_OUT_OF_MEMORY;
}

/* The thread's cache for the current context, or NULL. */
static inline struct gp_tcache *cache_to_alloc(void)
{
	CUcontext handle = gp_thread_ask_current();

	return handle ? gp_thread_cache(handle) : NULL;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	const struct gp_thread_cache *at_hand = gp_memory_place_at_hand(GP_UNUSUAL_TO_ALLOC);
	struct gp_context *context;
	struct gp_tcache *tcache;
	CUresult r = CUDA_SUCCESS;
	bool answered = false;
	uint64_t addr = 0;
	uint32_t caller;

	if (gp_unlikely(!ptr || !bytes))
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	gp_libraries_see();
	caller = gp_caller_now();
	tcache = cache_to_alloc();
	if (gp_likely(tcache)) {
		answered = is_answered(alloc_cached(tcache, at_hand != NULL, bytes, caller, &addr), &r);
	} else {
		context = gp_context_current();
		if (is_served(context))
			answered = is_answered(alloc_device(context, bytes, caller, &addr), &r);
		gp_context_put(context);
	}
	if (gp_unlikely(!answered))
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	if (gp_likely(r == CUDA_SUCCESS))
		gp_origin_given(addr, bytes);
	else if (r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device(bytes);
	if (is_pointer_due(r))
		*ptr = addr;
	return r;
}

/*
 * What pitches are multiples of on this device: asked once, with an allocation of one byte, which goes back as
 * everything does. 0 if the driver gave none.
 */
static size_t learn_pitch(struct gp_context *context)
{
	size_t pitch = atomic_load_explicit(&context->pitch, memory_order_relaxed);
	CUdeviceptr probe;

	if (pitch)
		return pitch;
	if (gp_real.cuMemAllocPitch_v2(&probe, &pitch, 1, 1, 4))
		return 0;
	gp_device_give_back(context, probe);
	atomic_store_explicit(&context->pitch, pitch, memory_order_relaxed);
	return pitch;
}

static bool is_pitch_request(const void *ptr, const void *pitch, size_t width, size_t height, unsigned element_bytes)
{
	return ptr && pitch && width && height && width < SIZE_MAX / 2 / height &&
	       (element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
{
	struct gp_context *context = NULL;
	CUresult r = CUDA_SUCCESS;
	bool answered = false;
	uint32_t caller = gp_caller_now();
	size_t multiple = 0, row;
	uint64_t addr = 0;

	gp_libraries_see();
	if (is_pitch_request(ptr, pitch, width, height, element_bytes))
		context = gp_context_current();
	if (is_served(context))
		multiple = learn_pitch(context);
	row = multiple ? (width + multiple - 1) / multiple * multiple : 0;
	if (row && row <= SIZE_MAX / height)
		answered = is_answered(alloc_device(context, (uint64_t)row * height, caller, &addr), &r);
	if (answered && r == CUDA_SUCCESS)
		gp_origin_given(addr, (uint64_t)row * height);
	else if (answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device((uint64_t)row * height);
	if (answered && is_pointer_due(r))
		*ptr = addr;
	if (answered && is_pointer_due(r))
		*pitch = row;
	gp_context_put(context);
	return answered ? r : gp_real.cuMemAllocPitch_v2(ptr, pitch, width, height, element_bytes);
}

/*
 * The wait that the driver's own free makes. By a fence: a synchronisation would destroy a capture that begins
 * meanwhile. 0; negative where nobody may wait now; or the driver's error.
 */
static int wait_for(struct gp_context *context)
{
	struct gp_pool *pool;
	int r;

	if (!gp_context_enter(context))
		return 0;
	pool = gp_pool_get(context->pool);
	gp_context_leave(context);
	gp_record(pool, SYNC, 0);
	r = gp_pool_synchronize(pool);
	gp_pool_put(pool);
	return r;
}

/*
 * GPUPOOL_SYNC_FREE: waits as the driver's own free of a block would; *mode becomes what that allows. Not 0: the free
 * is to fail with it. During a capture nobody may wait.
 */
__attribute__((cold)) static CUresult wait_for_block(
	struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode)
{
	struct gp_block_info info;
	struct gp_pool *pool;
	int r;

	if (gp_debug_info(map, addr, &info) || !info.is_used || info.addr != addr)
		return CUDA_SUCCESS;
	pool = gp_addrmap_pool_of(map, addr);
	if (!pool)
		return CUDA_SUCCESS;
	r = wait_for(map == &gp_state.pinned_map ? gp_pinned_context(pool) : gp_pool_owner(pool));
	gp_pool_put(pool);
	if (!r)
		*mode = GP_FREE_SYNCED;
	return r > 0 ? r : CUDA_SUCCESS;
}

static CUresult wait_before_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode)
{
	gp_context_settle(map, addr);
	return gp_unlikely(gp_state.config.is_free_synchronous) ? wait_for_block(map, addr, mode) : CUDA_SUCCESS;
}

/*
 * No pointer into a segment may reach the driver, but what it says of a pointer that nobody has is right in every state
 * of the context and the process.
 */
#define NOBODYS ((CUdeviceptr)1)

/* Threads that free what others allocate have a cache, too, once they have freed some. */
enum { FREES_FOR_CACHE = 32 };

static _Thread_local unsigned n_frees __attribute__((tls_model("initial-exec"))); /* without one */

/* The thread's cache for the current context, if what is freed now may go there; else NULL. */
static struct gp_tcache *cache_for_free(void)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = self ? gp_thread_current(self) : NULL;

	if (!gp_capture_is_none() || gp_state.config.is_free_synchronous || gp_scope_no_caches)
		return NULL;
	if (!self && n_frees < FREES_FOR_CACHE)
		return NULL;
	if (!handle && (gp_real.cuCtxGetCurrent(&handle) || !handle))
		return NULL;
	return gp_thread_cache(handle);
}

static struct gp_tcache *cache_to_release(const struct gp_addrmap *map, enum gp_free_mode mode)
{
	return mode == GP_FREE_NORMAL && map == &gp_state.device_map ? cache_for_free() : NULL;
}

static int release(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	struct gp_tcache *tcache = cache_to_release(map, mode);
	int r;

	if (tcache)
		return gp_pool_free_by(map, addr, tcache);
	r = gp_scope_no_caches ? gp_pool_free_uncached(map, addr, mode) : gp_pool_free(map, addr, mode);
	n_frees += r == 0;
	return r;
}

__attribute__((cold)) static int release_watched(
	struct gp_addrmap *map, uint64_t ptr, bool is_waited, enum gp_free_mode mode)
{
	bool is_pinned = map == &gp_state.pinned_map;
	struct gp_tcache *tcache = cache_to_release(map, mode);
	int r;

	gp_record(tcache ? gp_tcache_pool(tcache) : NULL, FREE, ptr, mode, is_pinned,
		flags_of_call(tcache) | (gp_record_is_calm(gp_work_epoch(&gp_submitted)) ? GP_RECORD_CALL_CALM : 0));
	if (gp_debug_is_on())
		return gp_debug_free(is_pinned, ptr, is_waited, mode, release);
	/* What nobody watches has been there already. */
	r = tcache ? gp_tcache_put(tcache, ptr) : -ENOENT;
	return r == -ENOENT ? release(map, ptr, mode) : r;
}

static CUresult free_device(CUdeviceptr ptr, enum gp_free_mode mode, bool *ret_is_ours)
{
	int r;

	gp_origin_freed(ptr);
	if (gp_unlikely(gp_is_unusual(GP_UNUSUAL_WATCHED)))
		r = release_watched(&gp_state.device_map, ptr, mode == GP_FREE_SYNCED, mode);
	else
		r = release(&gp_state.device_map, ptr, mode);
	*ret_is_ours = r != GP_E_FOREIGN;
	switch (r) {
	case GP_E_DEAD:
		/* It went with its context just now. Not to the driver: the address may be somebody's again. */
		return CUDA_ERROR_INVALID_VALUE;
	case GP_E_NOT_PERMITTED:
		gp_origin_kept(ptr);
		return CUDA_ERROR_NOT_PERMITTED;
	case GP_E_NOT_USED:
		gp_bad_free_report(&gp_state.device_map, ptr, GP_BAD_FREE_DOUBLE);
		return gp_real.cuMemFree_v2(NOBODYS);
	case GP_E_INTERIOR:
		gp_bad_free_report(&gp_state.device_map, ptr, GP_BAD_FREE_INTERIOR);
		return gp_real.cuMemFree_v2(NOBODYS);
	default:
		return r;
	}
}

int gp_memory_free(CUdeviceptr ptr)
{
	enum gp_free_mode mode = GP_FREE_NORMAL;
	CUresult r = wait_before_free(&gp_state.device_map, ptr, &mode);
	bool is_ours = false;

	if (gp_unlikely(r))
		return r;
	r = free_device(ptr, mode, &is_ours);
	return is_ours ? r : GP_E_FOREIGN;
}

static _Thread_local struct {
	const void *ptr;
	CUresult r;
} owed __attribute__((tls_model("initial-exec")));

void gp_memory_owe(const void *ptr, CUresult r)
{
	owed.ptr = ptr;
	owed.r = r;
}

static bool is_owed(const void *ptr)
{
	return gp_unlikely(owed.r && owed.ptr == ptr);
}

/* -ENOENT if the thread has no place for it, as one at hand has said already; else what cuMemFree returns. */
static int free_to_thread(CUdeviceptr ptr)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = gp_likely(self) ? gp_thread_current(self) : NULL;

	if (gp_unlikely(!self) || gp_memory_place_to_free())
		return -ENOENT;
	/* A driver that has shut down says so here; and what is freed in another context may be told of its errors. */
	if (gp_unlikely(!handle && (gp_real.cuCtxGetCurrent(&handle) || !handle)))
		return -ENOENT;
	if (gp_unlikely(!gp_thread_is_usable(&self->caches[0], handle)))
		return -ENOENT;
	return gp_memory_free_to(&self->caches[0], ptr);
}

CUresult hook_cuMemFree_v2(CUdeviceptr ptr)
{
	int r;

	if (gp_unlikely(!ptr))
		return gp_real.cuMemFree_v2(ptr);
	/* There the driver frees nothing, not even what belongs to others (measured). */
	if (gp_unlikely(gp_context_is_current_gone()))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = free_to_thread(ptr);
	if (gp_likely(r != -ENOENT))
		return r;
	if (is_owed((const void *)(uintptr_t)ptr))
		return owed.r;
	r = gp_memory_free(ptr);
	if (gp_likely(r != GP_E_FOREIGN))
		return r;
	gp_unpooled_forget(GP_UNPOOLED_POINTER, ptr);
	r = gp_real.cuMemFree_v2(ptr);
	if (gp_unlikely(r == CUDA_ERROR_INVALID_VALUE))
		gp_bad_free_refused(ptr);
	return r;
}

/* A default stream is checked by its context alone: another question could disturb a capture. */
static CUresult check_default_stream(void)
{
	struct gp_context *context;
	CUcontext current = NULL;
	CUresult r = gp_real.cuCtxGetCurrent(&current);

	if (r || !current)
		return r ? r : CUDA_ERROR_INVALID_CONTEXT;
	if (gp_context_is_current_gone())
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	context = gp_context_current();
	if (context)
		r = atomic_load(&context->lost_to);
	gp_context_put(context);
	return r;
}

/* Checks the stream of a stream-ordered free as the driver would. */
static CUresult check_stream(CUstream stream)
{
	CUcontext ctx;
	CUresult r;

	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !gp_real.cuStreamGetCtx)
		return check_default_stream();
	r = gp_real.cuStreamGetCtx(stream, &ctx);
	return r == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : r;
}

/* Never waits, so no fence may be ordered upon for it; what the stream still does is covered by the next one. */
static CUresult free_async(
	CUdeviceptr ptr, CUstream stream, bool is_per_thread, CUresult (*driver)(CUdeviceptr, CUstream))
{
	struct gp_block_info info;
	bool is_ours = false;
	CUresult r;

	gp_context_settle(&gp_state.device_map, ptr);
	if (gp_pool_info(&gp_state.device_map, ptr, &info) == 0) {
		/* In a capture only a graph's own allocations may be freed. */
		r = gp_capture_is_on(stream, is_per_thread) ? CUDA_ERROR_INVALID_VALUE : check_stream(stream);
		if (r)
			return r;
	} else if (gp_capture_is_on(stream, is_per_thread)) {
		return driver(ptr, stream);
	}
	r = free_device(ptr, GP_FREE_LATE, &is_ours);
	if (is_ours)
		return r;
	gp_unpooled_forget(GP_UNPOOLED_POINTER, ptr);
	return driver(ptr, stream);
}

CUresult hook_cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return free_async(ptr, stream, false, gp_real.cuMemFreeAsync);
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return free_async(ptr, stream, true, gp_real.cuMemFreeAsync_ptsz);
}

/* Pinned memory. */

static CUresult alloc_pinned(void **ptr, size_t bytes, unsigned kind, bool *ret_is_answered)
{
	struct gp_context *context = gp_state.config.is_pinned_pooled ? gp_context_current() : NULL;
	struct gp_pool *pool = is_served(context) ? gp_pinned_get(context, kind) : NULL;
	uint32_t caller = gp_caller_now();
	CUresult r = CUDA_SUCCESS;
	uint64_t addr = 0;

	*ret_is_answered = pool && is_answered(alloc(pool, GP_OOM_HOOK_PINNED, bytes, caller, &addr), &r);
	if (*ret_is_answered && r == CUDA_SUCCESS)
		gp_origin_given(addr, bytes);
	else if (*ret_is_answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_pinned(pool, bytes);
	if (*ret_is_answered && is_pointer_due(r))
		*ptr = (void *)(uintptr_t)addr;
	gp_context_put(context);
	return r;
}

bool gp_memory_alloc_host_hit(void **ptr, size_t bytes, unsigned kind, uint32_t caller)
{
	struct gp_context *context = gp_state.config.is_pinned_pooled ? gp_context_current() : NULL;
	struct gp_pool *pool = is_served(context) ? gp_pinned_get(context, kind) : NULL;
	uint64_t addr = 0;
	bool is_hit = pool && gp_pool_alloc_hit(pool, bytes, caller, &addr) == 0;

	if (is_hit)
		gp_origin_given(addr, bytes);
	if (is_hit)
		*ptr = (void *)(uintptr_t)addr;
	gp_context_put(context);
	return is_hit;
}

CUresult hook_cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	bool is_answered = false;
	CUresult r = CUDA_SUCCESS;

	if (ptr && bytes && flags < GP_PINNED_ALLOC_HOST)
		r = alloc_pinned(ptr, bytes, flags, &is_answered);
	return is_answered ? r : gp_real.cuMemHostAlloc(ptr, bytes, flags);
}

CUresult hook_cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	bool is_answered = false;
	CUresult r = CUDA_SUCCESS;

	if (ptr && bytes)
		r = alloc_pinned(ptr, bytes, GP_PINNED_ALLOC_HOST, &is_answered);
	return is_answered ? r : gp_real.cuMemAllocHost_v2(ptr, bytes);
}

int gp_memory_free_host(void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	enum gp_free_mode mode = GP_FREE_NORMAL;
	int r = wait_before_free(&gp_state.pinned_map, addr, &mode);

	if (gp_unlikely(r))
		return r;
	gp_origin_freed(addr);
	/* The mode is not that of a block that was waited for: other contexts have not been, and may reach it. */
	if (gp_unlikely(gp_is_unusual(GP_UNUSUAL_WATCHED)))
		r = release_watched(&gp_state.pinned_map, addr, mode == GP_FREE_SYNCED, GP_FREE_NORMAL);
	else
		r = release(&gp_state.pinned_map, addr, GP_FREE_NORMAL);
	switch (r) {
	case GP_E_DEAD:
		return CUDA_ERROR_INVALID_VALUE;
	case GP_E_NOT_PERMITTED:
		gp_origin_kept(addr);
		return CUDA_ERROR_NOT_PERMITTED;
	case GP_E_NOT_USED:
	case GP_E_INTERIOR:
		gp_bad_free_report(&gp_state.pinned_map, addr,
			r == GP_E_NOT_USED ? GP_BAD_FREE_DOUBLE : GP_BAD_FREE_INTERIOR);
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return r;
	}
}

CUresult hook_cuMemFreeHost(void *ptr)
{
	int r = is_owed(ptr) ? owed.r : gp_memory_free_host(ptr);

	return r == GP_E_FOREIGN ? gp_real.cuMemFreeHost(ptr) : r;
}
