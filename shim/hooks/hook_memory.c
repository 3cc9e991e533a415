/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Hooks of device memory: allocations and frees that the pool serves. A call that the pool cannot answer goes to the
 * driver with the program's own arguments.
 */

#include <errno.h>

#include "hook_memory.h"
#include "memory_calls.h"
#include "shim/backend/backend_device.h"
#include "shim/backend/first_chunk.h"
#include "shim/backend/foreign_free.h"
#include "shim/backend/unpooled.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/context/stream_order.h"
#include "shim/context/survivor.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "shim/oom/oom.h"
#include "shim/trace/module.h"
#include "shim/usage/bad_free.h"

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
		answered = gp_memory_is_answered(
			gp_memory_alloc_cached(tcache, tried || options.first, bytes, &options, &addr), &r);
	} else {
		context = gp_context_current();
		if (gp_memory_serves(context))
			answered = gp_memory_is_answered(gp_memory_alloc_device(context, bytes, &options, &addr), &r);
		gp_context_put(context);
	}
	gp_first_chunk_settle();
	if (gp_unlikely(!answered))
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	if (gp_likely(r == CUDA_SUCCESS))
		gp_alloc_info_note_alloc(addr, bytes);
	else if (r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device(bytes, &failure);
	if (gp_memory_writes_outputs(r))
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
	if (gp_memory_serves(context))
		multiple = learn_pitch(context);
	row = multiple ? (width + multiple - 1) / multiple * multiple : 0;
	if (row && row <= SIZE_MAX / height)
		answered = gp_memory_is_answered(
			gp_memory_alloc_device(context, (uint64_t)row * height, &options, &addr), &r);
	if (answered && r == CUDA_SUCCESS)
		gp_alloc_info_note_alloc(addr, (uint64_t)row * height);
	else if (answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_device((uint64_t)row * height, &failure);
	if (answered && gp_memory_writes_outputs(r))
		*ptr = addr;
	if (answered && gp_memory_writes_outputs(r))
		*pitch = row;
	gp_context_put(context);
	return answered ? r : gp_real.cuMemAllocPitch_v2(ptr, pitch, width, height, element_bytes);
}

/*
 * An address that no allocation has. A pointer into a segment must never reach the driver's free. For this address the
 * driver returns the error of a wrong free, in every state of the context and the process.
 */
#define NEVER_ALLOCATED ((CUdeviceptr)1)

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
		r = gp_memory_release_on(ptr, stream);
	else
		r = gp_memory_release(&gp_state.device_map, ptr, mode == GP_FREE_SYNCED, mode);
	return freed(ptr, r, ret_is_ours);
}

/* Frees on a stream of another context than the block's. */
static int free_foreign(CUdeviceptr ptr, CUstream handle, const struct gp_stream *stream)
{
	bool is_ours;
	int r;

	gp_alloc_info_note_free(ptr);
	gp_memory_note_free_on(ptr, 0);
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
	CUresult r = gp_memory_wait_before_free(&gp_state.device_map, ptr, &mode);
	bool is_ours = false;

	if (gp_unlikely(r))
		return r;
	r = free_device(ptr, mode, 0, &is_ours);
	return is_ours ? r : free_survivor(ptr);
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
	CUresult deferred;
	int r;

	if (gp_unlikely(!ptr))
		return gp_real.cuMemFree_v2(ptr);
	/* With a destroyed context current the driver frees nothing, not even memory of other contexts (measured). */
	if (gp_unlikely(gp_context_is_current_gone()))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = free_to_thread(ptr);
	if (gp_likely(r != -ENOENT))
		return r;
	if (gp_memory_has_deferred_error((const void *)(uintptr_t)ptr, &deferred))
		return deferred;
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
 * Finds the stream of a free. Returns false if the driver may not be asked or does not know the stream, if it captures,
 * and with GPUPOOL_DEBUG, which knows no stream order.
 */
static bool find_stream(CUstream handle, bool is_per_thread, struct gp_stream *ret_stream)
{
	return !gp_debug_is_on() && !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END) &&
	       !gp_capture_is_on(handle, is_per_thread) &&
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
	bool is_unserved = gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN);
	struct gp_stream stream;
	CUresult r;

	if (gp_likely(find_stream(handle, is_per_thread, &stream))) {
		if (gp_unlikely(stream.ctx != context->handle))
			return free_foreign(ptr, !handle && is_per_thread ? CU_STREAM_PER_THREAD : handle, &stream);
		if (gp_likely(!is_unserved && gp_memory_why_async_left() == GP_ASYNC_LEFT_NONE))
			return gp_memory_free_on(ptr, can_reuse_at_once(&stream, pool) ? stream.number : 0);
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
	gp_stream_order_note_operation(stream, is_per_thread);
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
