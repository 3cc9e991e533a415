/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "memory_calls.h"

#include <errno.h>

#include "pool/tcache_stream.h"
#include "shim/backend/foreign_free.h"
#include "shim/context/capture.h"
#include "shim/context/context_end.h"
#include "shim/context/region.h"
#include "shim/context/scope.h"
#include "shim/context/thread.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/oom/oom_hook.h"
#include "shim/record/record.h"
#include "shim/record/record_stacks.h"

/* Returns the flags of a call in the recording. tcache: the thread cache that serves the call, or NULL. */
static uint64_t flags_of_call(const struct gp_tcache *tcache)
{
	return (gp_scope_no_caches ? GP_RECORD_CALL_UNCACHED : 0) | (tcache ? GP_RECORD_CALL_BY_THREAD : 0);
}

/* Returns the flags of a free in the recording that tell about work before it. Called once for each record. */
static uint64_t flags_of_work(void)
{
	return gp_record_is_calm(gp_submission_epoch(&gp_submitted)) ? GP_RECORD_CALL_CALM : 0;
}

/* Returns the number of an allocation's stack in the recording, or 0. r: the result of the allocation. */
__attribute__((cold)) static uint64_t stack_of_call(uint64_t addr, uint64_t bytes, int r)
{
	return gp_record_stack(r ? 0 : addr, bytes);
}

__attribute__((cold)) static int alloc_watched(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	int r = gp_debug_is_on() ? gp_debug_alloc(pool, device == GP_OOM_HOOK_PINNED, bytes, options, ret_addr)
				 : gp_scope_alloc(pool, bytes, options, ret_addr);

	/* The call is tried again. */
	if (r != GP_E_ASLEEP)
		gp_record(pool, ALLOC, *ret_addr, bytes, (uint64_t)r, flags_of_call(NULL),
			stack_of_call(*ret_addr, bytes, r), options->stream);
	return r;
}

static int alloc_once(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	return gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED))
		       ? alloc_watched(pool, device, bytes, options, ret_addr)
		       : gp_scope_alloc(pool, bytes, options, ret_addr);
}

/* After out-of-memory: true if memory has come back since, or the program's hook asks for another attempt. */
static bool is_worth_again(struct gp_pool *pool, int device, uint64_t bytes, unsigned attempt)
{
	if (attempt >= GP_FOREIGN_AWAITS_MAX || !gp_foreign_await(device, bytes))
		return gp_oom_hook_says_again(pool, device, bytes);
	gp_pool_uncount_oom(pool);
	return true;
}

/* On out-of-memory, tries again, from the first step, if that may help. */
static int alloc_again_on_oom(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_alloc_options again = *options;
	int r = alloc_once(pool, device, bytes, options, ret_addr);

	again.first = GP_STEP_cache;
	for (unsigned attempt = 0; r == -ENOMEM && is_worth_again(pool, device, bytes, attempt); attempt++)
		r = alloc_once(pool, device, bytes, &again, ret_addr);
	return r;
}

/*
 * The process may fall asleep between the wake and the growth of the pool. If the memory of the pool never comes back,
 * since its context is lost, the driver is asked instead.
 */
enum { WAKES_MAX = 8 };

static bool is_asleep(int *r, unsigned attempt)
{
	if (gp_likely(*r != GP_E_ASLEEP))
		return false;
	if (attempt < WAKES_MAX)
		return true;
	*r = GP_E_DEAD;
	return false;
}

/* While a stream captures, the block remembers the captures that may use it. */
static int alloc_captured(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_alloc_options captured = *options;
	struct gp_capture_alloc how;
	int r;

	if (gp_likely(!gp_capture_of_alloc(&how)))
		return alloc_again_on_oom(pool, device, bytes, options, ret_addr);
	captured.capture = &how;
	r = alloc_again_on_oom(pool, device, bytes, &captured, ret_addr);
	gp_capture_alloc_done(&how);
	return r;
}

/*
 * An allocation wakes the process, since it would take new memory for what is asleep. (A block out of a cache does not:
 * the first work that uses it does.)
 */
int gp_memory_alloc(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	unsigned attempt = 0;
	int r;

	do {
		if (device != GP_OOM_HOOK_PINNED)
			gp_submit_await();
		r = alloc_captured(pool, device, bytes, options, ret_addr);
	} while (is_asleep(&r, attempt++));
	return r;
}

int gp_memory_alloc_device(
	struct gp_context *context, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	return gp_memory_alloc(gp_region_pool(context), context->device->index, bytes, options, ret_addr);
}

/*
 * Allocates once more if that may help. The program's out-of-memory hook may change the current context and end caches,
 * so the allocation looks up both again.
 */
static int alloc_again(uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_context *context = gp_context_current();
	int r = -ENOMEM;

	if (context && is_worth_again(gp_region_pool(context), context->device->index, bytes, 0))
		r = gp_memory_alloc_device(context, bytes, options, ret_addr);
	gp_context_put(context);
	return r;
}

int gp_memory_alloc_cached(struct gp_tcache *tcache, bool was_tried, uint64_t bytes,
	const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_alloc_options again = {0};
	unsigned attempt = 0;
	int r = 0;

	*ret_addr = was_tried ? 0 : gp_tcache_take(tcache, bytes, options->module);
	if (!*ret_addr) {
		do {
			gp_submit_await();
			r = gp_tcache_alloc_with(tcache, bytes, options, ret_addr);
		} while (is_asleep(&r, attempt++));
	}
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		gp_record(gp_tcache_pool(tcache), ALLOC, *ret_addr, bytes, (uint64_t)r, flags_of_call(tcache),
			stack_of_call(*ret_addr, bytes, r));
	if (gp_likely(r != -ENOMEM) || (!gp_oom_hook_is_set() && !atomic_load(&gp_foreign_n_frees)))
		return r;
	again.module = options->module;
	again.ret_failure = options->ret_failure;
	return alloc_again(bytes, &again, ret_addr);
}

bool gp_memory_is_answered(int r, CUresult *ret_r)
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

/*
 * Waits for the context's work as the driver's own free does. Waits for a fence, because a synchronisation would
 * invalidate a capture that begins meanwhile. Returns 0, a negative code if waiting is not allowed now, or the driver's
 * error.
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
 * GPUPOOL_SYNC_FREE: waits as the driver's own free of the block would. A result other than 0 is the error of the
 * free. After a wait *mode is GP_FREE_SYNCED. During a capture waiting is not allowed, and *mode stays.
 */
__attribute__((cold)) static CUresult wait_for_block(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode)
{
	struct gp_block_info info;
	struct gp_pool *pool;
	int r;

	if (gp_debug_info(map, addr, &info) || !info.is_used || info.addr != addr)
		return CUDA_SUCCESS;
	pool = gp_addrmap_pool_of(map, addr);
	if (!pool)
		return CUDA_SUCCESS;
	r = wait_for(gp_pool_owner(pool));
	gp_pool_put(pool);
	if (!r)
		*mode = GP_FREE_SYNCED;
	return r > 0 ? r : CUDA_SUCCESS;
}

CUresult gp_memory_wait_before_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode)
{
	gp_context_settle(map, addr);
	return gp_unlikely(gp_state.config.is_free_synchronous) ? wait_for_block(map, addr, mode) : CUDA_SUCCESS;
}

/* A thread that only frees what other threads allocate gets a cache after this many frees. */
enum { FREES_FOR_CACHE = 32 };

static _Thread_local unsigned n_frees __attribute__((tls_model("initial-exec"))); /* frees without a cache */

/* Returns the thread's cache for the current context, or NULL if this free must not use it. */
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

/* Frees while a stream captures, or until a moment ago. */
__attribute__((cold)) static int release_captured(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	struct gp_capture_free how;
	bool is_capturing = gp_capture_of_free(&how);
	int r = gp_pool_free_captured(map, addr, mode, gp_scope_no_caches != 0, is_capturing ? &how : NULL);

	if (is_capturing)
		gp_capture_free_done(&how);
	n_frees += r == 0;
	return r;
}

static int release(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode)
{
	struct gp_tcache *tcache = cache_to_release(map, mode);
	int r;

	if (tcache)
		return gp_tcache_free_by(map, addr, tcache);
	if (gp_unlikely(!gp_capture_is_none()))
		return release_captured(map, addr, mode);
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
		flags_of_call(tcache) | flags_of_work());
	if (gp_debug_is_on())
		return gp_debug_free(is_pinned, ptr, is_waited, mode, release);
	/* While frees are watched, no fast path has tried the thread's cache before. */
	r = tcache ? gp_tcache_put(tcache, ptr) : -ENOENT;
	return r == -ENOENT ? release(map, ptr, mode) : r;
}

int gp_memory_release(struct gp_addrmap *map, uint64_t addr, bool is_waited, enum gp_free_mode mode)
{
	return gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)) ? release_watched(map, addr, is_waited, mode)
								      : release(map, addr, mode);
}

void gp_memory_note_free_on(CUdeviceptr ptr, uint64_t stream)
{
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		gp_record(NULL, FREE, ptr, GP_FREE_UNFENCED, false, flags_of_call(NULL) | flags_of_work(), stream);
}

int gp_memory_release_on(CUdeviceptr ptr, uint64_t stream)
{
	gp_memory_note_free_on(ptr, stream);
	return gp_pool_free_on(&gp_state.device_map, ptr, stream);
}

static _Thread_local struct {
	const void *ptr;
	CUresult r;
} deferred_error __attribute__((tls_model("initial-exec")));

void gp_memory_defer_error(const void *ptr, CUresult r)
{
	deferred_error.ptr = ptr;
	deferred_error.r = r;
}

bool gp_memory_has_deferred_error(const void *ptr, CUresult *ret_r)
{
	*ret_r = deferred_error.r;
	return gp_unlikely(deferred_error.r && deferred_error.ptr == ptr);
}
