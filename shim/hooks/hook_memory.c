/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Hooks of device and pinned memory: allocations and frees that the pool serves. A call that the pool cannot answer
 * goes to the driver with the program's own arguments.
 */

#include <errno.h>

#include "hook_memory.h"
#include "shim/backend/backend_device.h"
#include "shim/backend/backend_pinned.h"
#include "shim/backend/first_chunk.h"
#include "shim/backend/foreign_free.h"
#include "shim/backend/registered.h"
#include "shim/backend/unpooled.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/context/region.h"
#include "shim/context/stream_order.h"
#include "shim/context/survivor.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "shim/driver/submit.h"
#include "shim/oom/oom.h"
#include "shim/oom/oom_hook.h"
#include "shim/process.h"
#include "shim/record/record.h"
#include "shim/record/record_stacks.h"
#include "shim/trace/module.h"
#include "shim/usage/bad_free.h"

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

static int alloc_device(
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
		r = alloc_device(context, bytes, options, ret_addr);
	gp_context_put(context);
	return r;
}

/*
 * Allocates through the thread's cache. was_tried: the fast path has looked into the cache without success. On
 * out-of-memory, tries again if the program's hook asks for it.
 */
static int alloc_cached(struct gp_tcache *tcache, bool was_tried, uint64_t bytes,
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

static bool is_served(const struct gp_context *context)
{
	if (context)
		gp_process_start();
	return context && gp_likely(!gp_context_is(context, GP_CONTEXT_BROKEN));
}

/*
 * Returns true if the call must write its outputs. On out-of-memory, but on no other error, the driver writes a pointer
 * of 0, and the pitch (measured).
 */
static bool writes_outputs(CUresult r)
{
	return gp_likely(r == CUDA_SUCCESS) || r == CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the thread's cache for the current context, or NULL. Caches do not serve while a stream captures. */
static inline struct gp_tcache *cache_to_alloc(void)
{
	CUcontext handle = gp_thread_ask_current();

	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_CAPTURE)))
		return NULL;

	return handle ? gp_thread_cache(handle) : NULL;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	const struct gp_thread_cache *tried = gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC);
	struct gp_context *context;
	struct gp_tcache *tcache;
	CUresult r = CUDA_SUCCESS;
	bool answered = false;
	struct gp_failure failure;
	struct gp_alloc_options options = {.ret_failure = &failure};
	uint64_t addr = 0;

	if (gp_unlikely(!ptr || !bytes))
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	gp_libraries_see();
	gp_foreign_poll();
	gp_first_chunk_expect(bytes);
	failure.bytes = 0;
	options.module = gp_module_now();
	tcache = cache_to_alloc();
	if (gp_likely(tcache)) {
		options.first = gp_thread_missed_step(tcache, bytes);
		answered =
			gp_memory_is_answered(alloc_cached(tcache, tried || options.first, bytes, &options, &addr), &r);
	} else {
		context = gp_context_current();
		if (is_served(context))
			answered = gp_memory_is_answered(alloc_device(context, bytes, &options, &addr), &r);
		gp_context_put(context);
	}
	gp_first_chunk_settle();
	if (gp_unlikely(!answered))
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	if (gp_likely(r == CUDA_SUCCESS))
		gp_alloc_info_note_alloc(addr, bytes);
	else if (r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device(bytes, &failure);
	if (writes_outputs(r))
		*ptr = addr;
	return r;
}

/*
 * Returns the number that divides every pitch on this device, or 0 if the driver refuses. It is found out once for each
 * context, also during a capture, from an allocation of one byte, which is given back without a wait if possible.
 */
static size_t learn_pitch(struct gp_context *context)
{
	size_t pitch = atomic_load_explicit(&context->pitch, memory_order_relaxed);
	struct gp_driver_scope scope;
	CUdeviceptr probe;
	CUresult r;

	if (pitch)
		return pitch;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuMemAllocPitch_v2(&probe, &pitch, 1, 1, 4);
		gp_driver_leave(&scope);
	}
	if (r)
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
	struct gp_failure failure = {0};
	struct gp_alloc_options options = {.module = gp_module_now(), .ret_failure = &failure};
	size_t multiple = 0, row;
	uint64_t addr = 0;

	gp_libraries_see();
	gp_foreign_poll();
	if (is_pitch_request(ptr, pitch, width, height, element_bytes))
		context = gp_context_current();
	if (is_served(context))
		multiple = learn_pitch(context);
	row = multiple ? (width + multiple - 1) / multiple * multiple : 0;
	if (row && row <= SIZE_MAX / height)
		answered = gp_memory_is_answered(alloc_device(context, (uint64_t)row * height, &options, &addr), &r);
	if (answered && r == CUDA_SUCCESS)
		gp_alloc_info_note_alloc(addr, (uint64_t)row * height);
	else if (answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device((uint64_t)row * height, &failure);
	if (answered && writes_outputs(r))
		*ptr = addr;
	if (answered && writes_outputs(r))
		*pitch = row;
	gp_context_put(context);
	return answered ? r : gp_real.cuMemAllocPitch_v2(ptr, pitch, width, height, element_bytes);
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

static CUresult wait_before_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode)
{
	gp_context_settle(map, addr);
	return gp_unlikely(gp_state.config.is_free_synchronous) ? wait_for_block(map, addr, mode) : CUDA_SUCCESS;
}

/*
 * An address that no allocation has. A pointer into a segment must never reach the driver's free. For this address the
 * driver returns the error of a wrong free, in every state of the context and the process.
 */
#define NEVER_ALLOCATED ((CUdeviceptr)1)

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

/* Frees on the stream with that number. */
static int release_on(CUdeviceptr ptr, uint64_t stream)
{
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		gp_record(NULL, FREE, ptr, GP_FREE_UNFENCED, false, flags_of_work(), stream);
	return gp_pool_free_on(&gp_state.device_map, ptr, stream);
}

/* Translates a result of gp_pool_free to the driver's. *ret_is_ours becomes false if no pool has the memory. */
static CUresult freed(CUdeviceptr ptr, int r, bool *ret_is_ours)
{
	struct gp_block_info survivor;

	if (r == GP_E_DEAD && gp_survivor_find(ptr, &survivor, NULL) && survivor.addr == ptr)
		r = GP_E_FOREIGN; /* it has left the pool just now */
	*ret_is_ours = r != GP_E_FOREIGN;
	switch (r) {
	case GP_E_DEAD:
		/*
		 * The block ended with its context just now. The driver must not free the address, which may belong
		 * to another allocation already.
		 */
		return CUDA_ERROR_INVALID_VALUE;
	case GP_E_NOT_PERMITTED:
		gp_alloc_info_undo_free(ptr);
		return CUDA_ERROR_NOT_PERMITTED;
	case GP_E_NOT_USED:
		gp_bad_free_report(&gp_state.device_map, ptr, GP_BAD_FREE_DOUBLE);
		return gp_real.cuMemFree_v2(NEVER_ALLOCATED);
	case GP_E_INTERIOR:
		gp_bad_free_report(&gp_state.device_map, ptr, GP_BAD_FREE_INTERIOR);
		return gp_real.cuMemFree_v2(NEVER_ALLOCATED);
	default:
		return r;
	}
}

/* stream: as in gp_memory_free_on; only with GP_FREE_UNFENCED, and not while GPUPOOL_DEBUG is set. */
static CUresult free_device(CUdeviceptr ptr, enum gp_free_mode mode, uint64_t stream, bool *ret_is_ours)
{
	int r;

	gp_alloc_info_note_free(ptr);
	if (stream)
		r = release_on(ptr, stream);
	else if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		r = release_watched(&gp_state.device_map, ptr, mode == GP_FREE_SYNCED, mode);
	else
		r = release(&gp_state.device_map, ptr, mode);
	return freed(ptr, r, ret_is_ours);
}

/* Frees on a stream of another context than the block's. */
static int free_foreign(CUdeviceptr ptr, CUstream handle, const struct gp_stream *stream)
{
	bool is_ours;
	int r;

	gp_alloc_info_note_free(ptr);
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		gp_record(NULL, FREE, ptr, GP_FREE_UNFENCED, false, flags_of_work());
	r = gp_foreign_free(ptr, handle, stream);
	if (r > 0 && r < GP_E_FOREIGN)
		gp_alloc_info_undo_free(ptr);
	r = freed(ptr, r, &is_ours);
	return is_ours ? r : GP_E_FOREIGN;
}

/* Frees memory that has outlived its context. */
static int free_survivor(CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUcontext current;
	int r;

	/* Once the driver has shut down, the program gets the driver's own error. */
	if (!gp_survivor_find(ptr, &info, NULL) || gp_real.cuCtxGetCurrent(&current))
		return GP_E_FOREIGN;
	r = gp_foreign_free_survivor(ptr);
	if (r && r != GP_E_FOREIGN)
		gp_alloc_info_undo_free(ptr);
	return r;
}

int gp_memory_free(CUdeviceptr ptr)
{
	enum gp_free_mode mode = GP_FREE_NORMAL;
	CUresult r = wait_before_free(&gp_state.device_map, ptr, &mode);
	bool is_ours = false;

	if (gp_unlikely(r))
		return r;
	r = free_device(ptr, mode, 0, &is_ours);
	return is_ours ? r : free_survivor(ptr);
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

/* True if the thread has freed ptr already, and only its error has to be returned. */
static bool has_deferred_error(const void *ptr)
{
	return gp_unlikely(deferred_error.r && deferred_error.ptr == ptr);
}

/*
 * Frees into the thread's cache and returns the result of cuMemFree. Returns -ENOENT if the cache cannot take the
 * block. It cannot if gp_memory_cache_to_free finds a cache, since the fast path has tried that one.
 */
static int free_to_thread(CUdeviceptr ptr)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = gp_likely(self) ? gp_thread_current(self) : NULL;

	if (gp_unlikely(!self) || gp_memory_cache_to_free())
		return -ENOENT;
	/*
	 * The query also detects that the driver has shut down. A free with another context current may have to return
	 * that context's error, so this cache does not serve it.
	 */
	if (gp_unlikely(!handle && (gp_real.cuCtxGetCurrent(&handle) || !handle)))
		return -ENOENT;
	if (gp_unlikely(!gp_thread_is_usable(&self->caches[0], handle)))
		return -ENOENT;
	return gp_memory_free_to(&self->caches[0], ptr);
}

CUresult hook_cuMemFree_v2(CUdeviceptr ptr)
{
	struct gp_unpooled_drop drop;
	int r;

	if (gp_unlikely(!ptr))
		return gp_real.cuMemFree_v2(ptr);
	/* With a destroyed context current the driver frees nothing, not even memory of other contexts (measured). */
	if (gp_unlikely(gp_context_is_current_gone()))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = free_to_thread(ptr);
	if (gp_likely(r != -ENOENT))
		return r;
	if (has_deferred_error((const void *)(uintptr_t)ptr))
		return deferred_error.r;
	r = gp_memory_free(ptr);
	if (gp_likely(r != GP_E_FOREIGN))
		return r;
	drop = gp_unpooled_begin_drop(GP_UNPOOLED_POINTER, ptr);
	r = gp_real.cuMemFree_v2(ptr);
	gp_unpooled_end_drop(drop, !r);
	if (gp_unlikely(r == CUDA_ERROR_INVALID_VALUE))
		gp_bad_free_refused(ptr);
	return r;
}

/* Checks a default stream by its context alone: a query of the stream could invalidate a capture. */
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

enum gp_async_left gp_memory_why_async_left(void)
{
	if (gp_unlikely(!gp_state.config.is_async_pooled))
		return GP_ASYNC_LEFT_OFF;
	if (gp_unlikely(gp_state_kind() == GP_KIND_NONE))
		return GP_ASYNC_LEFT_POOL_TYPE;
	if (gp_unlikely(gp_debug_is_on()))
		return GP_ASYNC_LEFT_DEBUG;
	if (gp_unlikely(!gp_capture_is_none()))
		return GP_ASYNC_LEFT_CAPTURE;
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END)))
		return GP_ASYNC_LEFT_EXIT;
	return gp_unlikely(gp_scope_no_caches) ? GP_ASYNC_LEFT_NO_CACHES : GP_ASYNC_LEFT_NONE;
}

int gp_memory_free_on(CUdeviceptr ptr, uint64_t stream)
{
	bool is_ours = false;
	CUresult r = free_device(ptr, GP_FREE_UNFENCED, stream, &is_ours);

	return is_ours ? r : GP_E_FOREIGN;
}

/*
 * Finds the stream of a free if the pool serves allocations in stream order, and the call would not fail in the driver.
 */
static bool find_stream(
	const struct gp_context *context, CUstream handle, bool is_per_thread, struct gp_stream *ret_stream)
{
	return gp_memory_why_async_left() == GP_ASYNC_LEFT_NONE &&
	       !gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN) &&
	       gp_stream_identify(handle, is_per_thread, gp_thread_ask_current(), ret_stream);
}

/* As gp_memory_reuses_at_once, for a stream of the pool's context. */
static bool can_reuse_at_once(const struct gp_stream *stream, struct gp_pool *pool)
{
	return gp_stream_is(GP_STREAM_IN_ORDER) && gp_stream_settle_order(stream, pool);
}

/*
 * Frees a block of the pool in stream order. Later allocations on the same stream may reuse it at once if it is a
 * stream of the pool's context: the fences of that context cover no work of others.
 */
static int free_pooled(struct gp_pool *pool, CUdeviceptr ptr, CUstream handle, bool is_per_thread)
{
	const struct gp_context *context = gp_pool_owner(pool);
	struct gp_stream stream;
	CUresult r;

	if (gp_likely(find_stream(context, handle, is_per_thread, &stream))) {
		if (gp_likely(stream.ctx == context->handle))
			return gp_memory_free_on(ptr, can_reuse_at_once(&stream, pool) ? stream.number : 0);
		return free_foreign(ptr, !handle && is_per_thread ? CU_STREAM_PER_THREAD : handle, &stream);
	}
	/* During a capture only allocations of the graph itself may be freed. */
	r = gp_capture_is_on(handle, is_per_thread) ? CUDA_ERROR_INVALID_VALUE : check_stream(handle);
	return r ? r : gp_memory_free_on(ptr, 0);
}

/* Frees memory that has outlived its context, in stream order. Returns GP_E_FOREIGN if it is none. */
static int free_survivor_on(CUdeviceptr ptr, CUstream handle, bool is_per_thread)
{
	struct gp_block_info info;
	struct gp_stream stream;
	CUresult r;

	if (!gp_survivor_find(ptr, &info, NULL) || info.addr != ptr)
		return GP_E_FOREIGN;
	if (gp_stream_identify(handle, is_per_thread, gp_thread_ask_current(), &stream))
		return free_foreign(ptr, !handle && is_per_thread ? CU_STREAM_PER_THREAD : handle, &stream);
	r = check_stream(handle);
	return r ? r : gp_memory_free(ptr);
}

/*
 * Frees a block of the thread's own pool on a stream that reuses it at once: nearly every free of a loop that the fast
 * path does not serve. Returns -ENOENT if free_pooled has to decide.
 */
static int free_at_once(CUdeviceptr ptr, CUstream handle, bool is_per_thread)
{
	const struct gp_thread_cache *slot = gp_memory_cache_to_free();
	struct gp_stream stream;

	if (gp_unlikely(!slot || !slot->streamed || !gp_state.config.is_async_pooled || gp_scope_no_caches))
		return -ENOENT;
	/* So a free of the driver's memory does not ask about its stream. */
	if (!gp_addrmap_is_seen(&gp_state.device_map, ptr))
		return -ENOENT;
	/* Another context may be current by now. */
	if (gp_stream_is_default(handle) && gp_slow_path_is_any(GP_SLOW_PATH_CONTEXTS))
		return -ENOENT;
	if (gp_unlikely(!gp_stream_identify(handle, is_per_thread, slot->context->handle, &stream) ||
			stream.ctx != slot->context->handle ||
			!can_reuse_at_once(&stream, gp_tcache_pool(slot->streamed)) || !stream.number))
		return -ENOENT;
	return gp_tcache_free_on(&gp_state.device_map, ptr, stream.number, slot->streamed);
}

/*
 * A stream-ordered free must not wait. So no fence is recorded for the block, and no GPU wait will be made for it. The
 * next fence covers the work that the stream has not finished.
 */
static CUresult free_async(
	CUdeviceptr ptr, CUstream stream, bool is_per_thread, CUresult (*driver)(CUdeviceptr, CUstream))
{
	struct gp_unpooled_drop drop;
	struct gp_pool *pool;
	int r = free_at_once(ptr, stream, is_per_thread);

	if (gp_likely(r != -ENOENT))
		return r == GP_E_DEAD ? CUDA_ERROR_INVALID_VALUE : r;
	r = GP_E_FOREIGN;
	gp_context_settle(&gp_state.device_map, ptr);
	pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	if (pool) {
		r = free_pooled(pool, ptr, stream, is_per_thread);
		gp_pool_put(pool);
	} else if (gp_capture_is_on(stream, is_per_thread)) {
		return driver(ptr, stream);
	}
	if (r == GP_E_FOREIGN)
		r = free_survivor_on(ptr, stream, is_per_thread);
	if (r != GP_E_FOREIGN)
		return r;
	drop = gp_unpooled_begin_drop(GP_UNPOOLED_POINTER, ptr);
	r = driver(ptr, stream);
	gp_unpooled_end_drop(drop, !r);
	return r;
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
	struct gp_failure failure = {0};
	struct gp_alloc_options options = {.module = gp_module_now(), .ret_failure = &failure};
	CUresult r = CUDA_SUCCESS;
	uint64_t addr = 0;

	options.first = pool ? gp_thread_missed_step(pool, bytes) : GP_STEP_cache;
	*ret_is_answered =
		pool && gp_memory_is_answered(gp_memory_alloc(pool, GP_OOM_HOOK_PINNED, bytes, &options, &addr), &r);
	if (*ret_is_answered && r == CUDA_SUCCESS)
		gp_alloc_info_note_alloc(addr, bytes);
	else if (*ret_is_answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_pinned(bytes, &failure);
	if (*ret_is_answered && writes_outputs(r))
		*ptr = (void *)(uintptr_t)addr;
	gp_context_put(context);
	return r;
}

bool gp_memory_alloc_host_hit(void **ptr, size_t bytes, unsigned kind, uint32_t module)
{
	bool is_tried = gp_state.config.is_pinned_pooled && gp_capture_is_none();
	struct gp_context *context = is_tried ? gp_context_current() : NULL;
	struct gp_pool *pool = is_served(context) ? gp_pinned_get(context, kind) : NULL;
	struct gp_alloc_options options = {.module = module, .end = GP_STEP_gpuwait};
	uint64_t addr = 0;
	int r = pool ? gp_pool_alloc_with(pool, bytes, &options, &addr) : GP_E_DEAD;

	if (!r)
		gp_alloc_info_note_alloc(addr, bytes);
	if (!r)
		*ptr = (void *)(uintptr_t)addr;
	if (r == -ENOENT)
		gp_thread_note_miss(pool, bytes);
	gp_context_put(context);
	return !r;
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
	gp_alloc_info_note_free(addr);
	/* The mode stays GP_FREE_NORMAL: the wait covered one context, and every context can use pinned memory. */
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_WATCHED)))
		r = release_watched(&gp_state.pinned_map, addr, mode == GP_FREE_SYNCED, GP_FREE_NORMAL);
	else
		r = release(&gp_state.pinned_map, addr, GP_FREE_NORMAL);
	switch (r) {
	case GP_E_DEAD:
		return CUDA_ERROR_INVALID_VALUE;
	case GP_E_NOT_PERMITTED:
		gp_alloc_info_undo_free(addr);
		return CUDA_ERROR_NOT_PERMITTED;
	case GP_E_NOT_USED:
	case GP_E_INTERIOR:
		gp_bad_free_report(
			&gp_state.pinned_map, addr, r == GP_E_NOT_USED ? GP_BAD_FREE_DOUBLE : GP_BAD_FREE_INTERIOR);
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return r;
	}
}

CUresult hook_cuMemFreeHost(void *ptr)
{
	int r = has_deferred_error(ptr) ? deferred_error.r : gp_memory_free_host(ptr);

	return r == GP_E_FOREIGN ? gp_real.cuMemFreeHost(ptr) : r;
}

/* A registration of gpupool is always portable. The driver reports that for its own memory only if it was asked. */
CUresult hook_cuMemHostGetFlags(unsigned *flags, void *ptr)
{
	CUresult r = gp_real.cuMemHostGetFlags(flags, ptr);
	bool is_portable;

	if (!r && flags && gp_registered_at((uint64_t)(uintptr_t)ptr, &is_portable) && !is_portable)
		*flags &= ~(unsigned)CU_MEMHOSTREGISTER_PORTABLE;
	return r;
}

/* A registration of gpupool is an allocation to the program, which the driver does not register again. */
CUresult hook_cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	CUresult r = gp_real.cuMemHostRegister_v2(ptr, bytes, flags);

	if (r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && gp_registered_at((uint64_t)(uintptr_t)ptr, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}

/*
 * A registration of gpupool is an allocation to the program, which the driver does not unregister: it returns "invalid
 * value" for each address in it, and "not registered" for other memory of the host. So the driver is asked about such
 * memory, and any other error that it has to report is passed on.
 */
CUresult hook_cuMemHostUnregister(void *ptr)
{
	static char unregistered;
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct gp_block_info info;
	CUresult r;

	if (gp_likely(!gp_registered_at(addr, NULL)))
		return gp_real.cuMemHostUnregister(ptr);
	r = gp_real.cuMemHostUnregister(&unregistered);
	if (r == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED && !gp_debug_info(&gp_state.pinned_map, addr, &info) &&
		info.is_used)
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}
