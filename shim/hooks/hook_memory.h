/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The fast path of allocations and frees, shared by the hooks of the driver and of the runtime. */

#include <errno.h>

#include "pool/tcache_stream.h"
#include "shim/backend/default_pool.h"
#include "shim/trace/module.h"
#include "shim/context/capture.h"
#include "shim/trace/alloc_info.h"
#include "shim/driver/driver_table.h"
#include "shim/context/scope.h"
#include "shim/context/stream_order.h"
#include "shim/context/thread.h"

/*
 * Returns the thread's cache for the current context if the call can stay on the fast path: the context is known and
 * usable, and none of the given slow-path reasons holds. Otherwise returns NULL, and the slow path looks again for a
 * cache. Calls no function outside gpupool.
 */
static inline struct gp_thread_cache *gp_memory_current_cache(unsigned reasons)
{
	struct gp_thread *self = gp_thread_self;

	if (gp_unlikely(!self || !self->current || !gp_thread_is_usable(&self->caches[0], self->current)))
		return NULL;
	return gp_unlikely(gp_slow_path_is_any(reasons)) ? NULL : &self->caches[0];
}

/*
 * Allocates from the thread's cache, which serves nearly every call. Returns -ENOENT if hook_memory.c has to serve the
 * call. Keeps errno.
 */
static inline int hit_cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	const struct gp_thread_cache *slot = gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC);
	uint64_t addr;

	if (gp_unlikely(!slot || !ptr))
		return -ENOENT;
	addr = gp_tcache_take(slot->tcache, bytes, gp_module_now());
	if (gp_unlikely(!addr))
		return -ENOENT;
	*ptr = addr;
	return CUDA_SUCCESS;
}

/* Works like gp_memory_current_cache, for a free. NULL during a capture, when hook_memory.c serves every free. */
static inline struct gp_thread_cache *gp_memory_cache_to_free(void)
{
	return gp_likely(gp_capture_is_none()) ? gp_memory_current_cache(GP_SLOW_PATH_TO_FREE) : NULL;
}

/* Frees into the thread's cache. Returns -ENOENT if hook_memory.c has to serve the call. */
static inline int hit_cuMemFree_v2(CUdeviceptr ptr)
{
	const struct gp_thread_cache *slot = gp_memory_cache_to_free();

	return gp_likely(slot) ? gp_tcache_put(slot->tcache, ptr) : -ENOENT;
}

/*
 * The fast path of allocations and frees in stream order. It serves a stream of the current context, from what the
 * thread has freed on the same stream (tcache_stream.h), without a call outside gpupool.
 */

/* True if gpupool may serve allocations in stream order in this context, in place of the driver's pools. */
static inline bool gp_memory_serves_streams(const struct gp_context *context)
{
	return gp_state.config.is_async_pooled && gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE);
}

/*
 * Allocates from what the thread has freed on the stream. Returns -ENOENT if hook_async.c has to serve the call. slot:
 * that of gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC), or NULL.
 */
static inline int gp_memory_take_on(const struct gp_thread_cache *slot, CUdeviceptr *ptr, size_t bytes, CUstream handle,
	bool is_per_thread, uint32_t module)
{
	struct gp_stream stream;
	uint64_t addr;

	if (gp_unlikely(!slot || !slot->streamed || !ptr || !gp_memory_serves_streams(slot->context) ||
			!gp_default_pool_is_current(slot->context->device)))
		return -ENOENT;
	if (gp_unlikely(!gp_stream_recall(
				&gp_thread_self->streams, handle, is_per_thread, slot->context->handle, &stream) ||
			stream.ctx != slot->context->handle))
		return -ENOENT;
	addr = gp_tcache_take_on(slot->streamed, bytes, stream.number, module, GP_ACCOUNT_NONE);
	if (gp_unlikely(!addr))
		return -ENOENT;
	if (stream.is_legacy)
		gp_side_note_work(GP_SIDE_LEGACY);
	*ptr = addr;
	return CUDA_SUCCESS;
}

/*
 * Returns true if the stream gets at once what was freed on it. The driver's own allocations and frees are operations
 * of their stream; those of the pool are not (stream_order.h).
 */
static inline bool gp_memory_reuses_at_once(const struct gp_stream *stream)
{
	return gp_stream_is(GP_STREAM_IN_ORDER) && gp_stream_is_in_own_order(stream);
}

/* Frees into the thread's cache, likewise. slot: that of gp_memory_cache_to_free, or NULL. */
static inline int gp_memory_put_on(
	const struct gp_thread_cache *slot, CUdeviceptr ptr, CUstream handle, bool is_per_thread)
{
	struct gp_stream stream;

	if (gp_unlikely(!slot || !slot->streamed || !gp_state.config.is_async_pooled))
		return -ENOENT;
	if (gp_unlikely(!gp_stream_recall(
				&gp_thread_self->streams, handle, is_per_thread, slot->context->handle, &stream) ||
			stream.ctx != slot->context->handle || !gp_memory_reuses_at_once(&stream)))
		return -ENOENT;
	return gp_likely(gp_tcache_put_on(slot->streamed, ptr, stream.number)) ? CUDA_SUCCESS : -ENOENT;
}

static inline int hit_cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return gp_memory_take_on(
		gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC), ptr, bytes, stream, false, gp_module_now());
}

static inline int hit_cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return gp_memory_take_on(
		gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC), ptr, bytes, stream, true, gp_module_now());
}

/* Allocates from a pool that the program names, if that is the default pool. */
static inline int gp_memory_take_from(
	CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream, bool is_per_thread, uint32_t module)
{
	const struct gp_thread_cache *slot = gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC);

	if (gp_unlikely(!slot || gp_default_pool(slot->context->device) != pool))
		return -ENOENT;
	return gp_memory_take_on(slot, ptr, bytes, stream, is_per_thread, module);
}

static inline int hit_cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return gp_memory_take_from(ptr, bytes, pool, stream, false, gp_module_now());
}

static inline int hit_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return gp_memory_take_from(ptr, bytes, pool, stream, true, gp_module_now());
}

static inline int hit_cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return gp_memory_put_on(gp_memory_cache_to_free(), ptr, stream, false);
}

static inline int hit_cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return gp_memory_put_on(gp_memory_cache_to_free(), ptr, stream, true);
}

/*
 * Frees into the thread's cache for the current context. Returns what cuMemFree returns, or -ENOENT if the cache cannot
 * take the block.
 */
static inline int gp_memory_free_to(struct gp_thread_cache *cache, CUdeviceptr ptr)
{
	if (!gp_capture_is_none() || gp_slow_path_is_any(GP_SLOW_PATH_WATCHED | GP_SLOW_PATH_WAITING))
		return -ENOENT;
	gp_alloc_info_note_free(ptr);
	return gp_tcache_put(cache->tcache, ptr);
}

/*
 * Returns GP_ASYNC_LEFT_NONE if the pool serves allocations in stream order now, or else the reason. It does not while
 * anything captures: the driver decides what a call does to a capture.
 */
enum gp_async_left gp_memory_why_async_left(void);

/*
 * Frees device memory in stream order: on the stream with that number (context/stream.h), or unfenced if it is 0.
 * Returns the result of cuMemFreeAsync, or GP_E_FOREIGN.
 */
int gp_memory_free_on(CUdeviceptr ptr, uint64_t stream);

/*
 * Free device memory and pinned memory. They return the result of cuMemFree or cuMemFreeHost. If no pool owns the
 * memory, they do nothing and return GP_E_FOREIGN.
 */
int gp_memory_free(CUdeviceptr ptr);
int gp_memory_free_host(void *ptr);

/*
 * Allocates pinned memory if the pool has it cached. Otherwise returns false, and notes the miss for the driver's hook
 * (gp_thread_note_miss). kind: as in gp_pinned_get.
 */
bool gp_memory_alloc_host_hit(void **ptr, size_t bytes, unsigned kind, uint32_t module);
