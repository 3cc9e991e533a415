/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocations in stream order, and the driver's pools. The pool serves what the device's default pool would, and plain
 * pools that the program has made (made_pool.h). The driver serves everything else: other pools, captures, green
 * contexts, and what cannot be kept. Such memory is counted.
 *
 * The pool hands out memory that the stream's later work may use: memory that no work uses or for which all later work
 * of the context waits, or memory that the program has freed on the same stream (hook_memory.c). The fast path is in
 * hook_memory.h.
 *
 * hook_memory.c has the frees.
 */

#include "hook_memory.h"
#include "hook_peer.h"
#include "made_pool.h"
#include "memory_calls.h"
#include "shim/backend/default_pool.h"
#include "shim/backend/driver_pool.h"
#include "shim/backend/first_chunk.h"
#include "shim/backend/foreign_free.h"
#include "shim/context/adopt.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/context/region.h"
#include "shim/context/stream_order.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "shim/oom/oom.h"
#include "shim/process.h"
#include "unpooled_alloc.h"

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const void *properties)
{
	CUresult r = gp_real.cuMemPoolCreate(pool, properties);

	if (r)
		return r;
	gp_process_start();
	gp_made_pool_add(*pool, properties);
	return r;
}

/*
 * Allocations from a destroyed pool stay valid, so they stay counted. If it was a device's current pool, the default
 * pool becomes current.
 */
CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	/* Another thread may get the same handle for a new pool as soon as the driver has destroyed this one. */
	bool is_known = gp_made_pool_begin_remove(pool);
	CUresult r = gp_real.cuMemPoolDestroy(pool);

	if (is_known)
		gp_made_pool_end_remove(pool, !r);
	if (!r && gp_state.config.is_async_pooled)
		gp_default_pool_note_destroyed();
	return r;
}

static int device_of_default_pool(CUmemoryPool pool)
{
	CUmemoryPool known;
	int n = 0;

	if (gp_real.cuDeviceGetDefaultMemPool && !gp_real.cuDeviceGetCount(&n))
		for (int i = 0; i < n; i++)
			if (!gp_real.cuDeviceGetDefaultMemPool(&known, i) && known == pool)
				return i;
	return GP_UNPOOLED_CURRENT;
}

/* The stream's device, which need not be the current context's. */
static int device_of_stream(CUstream stream)
{
	CUcontext ctx = NULL, current = NULL;
	CUdevice device;

	if ((uintptr_t)stream <= 2 || !gp_real.cuStreamGetCtx)
		return GP_UNPOOLED_CURRENT; /* one of the default streams */
	if (gp_real.cuStreamGetCtx(stream, &ctx) || gp_real.cuCtxGetCurrent(&current) || ctx == current)
		return GP_UNPOOLED_CURRENT;
	return gp_driver_device_of(stream, &device) ? GP_UNPOOLED_CURRENT : device;
}

/* The arguments, kept since the retry rounds may make the driver's call several times. */
struct async {
	CUdeviceptr *ptr;
	size_t bytes;
	CUmemoryPool pool;
	CUstream stream;
	bool is_per_thread;
	CUresult (*from_device)(CUdeviceptr *, size_t, CUstream);
	CUresult (*from_pool)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
	bool is_pool_made;        /* the pool is one that the program has made */
	struct gp_made_pool made; /* that one, or the device's current pool */
};

static int device_of(const struct async *a)
{
	if (a->is_pool_made)
		return a->made.device;
	return a->from_pool ? device_of_default_pool(a->pool) : device_of_stream(a->stream);
}

static CUresult call_async(void *arg)
{
	struct async *a = arg;

	if (a->from_pool)
		return a->from_pool(a->ptr, a->bytes, a->pool, a->stream);
	return a->from_device(a->ptr, a->bytes, a->stream);
}

static CUresult alloc_counted(struct async *a)
{
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_POINTER,
		.bytes = a->ptr ? a->bytes : 0,
		.call = call_async,
		.arg = a,
		.id = a->ptr,
	};

	/* During a capture this becomes a graph node, which allocates when it runs, so nothing is counted. */
	if (gp_capture_is_on(a->stream, a->is_per_thread))
		return call_async(a);
	allocation.device = device_of(a);
	return gp_unpooled_clear_if_oom(gp_unpooled_alloc(&allocation), a->ptr);
}

/* The context of an allocation: the current one, or that of its stream. */
struct place {
	CUcontext current; /* the handle, which may be that of a green context */
	struct gp_context *context;
	struct gp_thread_cache *slot; /* the thread's; or NULL */
	struct gp_context *used; /* the same, held, and to be put; or NULL: the thread's cache keeps its own pool */
};

/* Holds the context, and so its pools, which another thread may end. Returns false if it has ended. */
static bool hold(struct place *place)
{
	if (!place->used)
		place->used = gp_context_current();
	return place->used == place->context;
}

/* Finds the context of the calling thread. Returns false if gpupool cannot serve it. */
static bool find_place(struct place *place)
{
	CUcontext handle = gp_thread_ask_current();

	*place = (struct place){.current = handle};
	if (gp_likely(handle && gp_thread_cache(handle))) {
		place->slot = &gp_thread_self->caches[0];
		place->context = place->slot->context;
		return true;
	}
	place->used = gp_context_current();
	if (!place->used)
		return false;
	gp_process_start();
	place->context = place->used;
	return true;
}

/* Goes to the context of the stream, which is not the current one. Returns false if gpupool cannot serve that. */
static bool go_to(struct place *place, CUcontext handle)
{
	struct gp_context *context = gp_context_adopt(handle) ? gp_table_find(handle, -1) : NULL;

	if (!context)
		return false;
	gp_context_put(place->used);
	*place = (struct place){.current = handle, .context = context, .used = context};
	return true;
}

/* Returns GP_ASYNC_LEFT_NONE if gpupool may serve the allocation in this context, or else the reason. */
static enum gp_async_left why_left_in(const struct gp_context *context, struct async *a)
{
	enum gp_async_left why;

	if (gp_unlikely(gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN)))
		return GP_ASYNC_LEFT_NO_CONTEXT;
	if (gp_unlikely(!gp_memory_serves_streams(context)))
		return GP_ASYNC_LEFT_BACKEND;
	if (a->is_pool_made)
		return a->made.device == context->device->index ? a->made.left : GP_ASYNC_LEFT_OTHER_POOL;
	why = gp_default_pool_why_left(context->device, a->pool, !a->from_pool);
	if (gp_unlikely(why == GP_ASYNC_LEFT_CURRENT_POOL) &&
		gp_made_pool_find(atomic_load(&context->device->current_pool), &a->made) && !a->made.left)
		return GP_ASYNC_LEFT_NONE;
	a->made = (struct gp_made_pool){0};
	return why;
}

/*
 * Returns GP_ASYNC_LEFT_NONE if gpupool may serve the allocation, or else the reason. The place is then that of the
 * stream.
 */
static enum gp_async_left why_left_at(struct async *a, struct place *place, struct gp_stream *ret_stream)
{
	enum gp_async_left why = why_left_in(place->context, a);

	if (gp_unlikely(why))
		return why;
	if (gp_unlikely(place->current != place->context->handle))
		return GP_ASYNC_LEFT_GREEN_CONTEXT;
	if (gp_unlikely(!gp_stream_identify(a->stream, a->is_per_thread, place->current, ret_stream)))
		return gp_stream_can_identify() ? GP_ASYNC_LEFT_UNKNOWN_STREAM : GP_ASYNC_LEFT_OLD_DRIVER;
	if (gp_likely(ret_stream->ctx == place->context->handle))
		return GP_ASYNC_LEFT_NONE;
	return go_to(place, ret_stream->ctx) ? why_left_in(place->context, a) : GP_ASYNC_LEFT_STREAM_CONTEXT;
}

/*
 * Allocates from what was freed on the stream. The fast path does not try this once the process has several contexts
 * (GP_SLOW_PATH_CURRENT), but frees go there. Returns the address, or 0.
 */
static uint64_t take_freed(struct place *place, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account)
{
	unsigned others = GP_SLOW_PATH_TO_ALLOC & ~(unsigned)GP_SLOW_PATH_CURRENT;
	struct gp_tcache *tcache;

	if (!place->slot || gp_slow_path_is_any(others) || (!place->slot->streamed && !hold(place)))
		return 0;
	tcache = gp_thread_streamed(place->slot);
	return tcache ? gp_tcache_alloc_on(tcache, bytes, stream, module, account) : 0;
}

/* Allocates at the place. Returns GP_ASYNC_LEFT_NONE, or why the driver must be called. */
static enum gp_async_left alloc_at(struct async *a, struct place *place, CUresult *ret_r)
{
	struct gp_failure failure = {0};
	struct gp_alloc_options options = {.module = gp_module_now(), .ret_failure = &failure};
	struct gp_stream stream;
	enum gp_async_left why = why_left_at(a, place, &stream);
	struct gp_pool *pool;
	uint64_t addr = 0;
	int r;

	if (gp_unlikely(why))
		return why;
	if (a->made.account && !gp_made_pool_serve(&a->made))
		return GP_ASYNC_LEFT_POOL_ACCESS;
	options.stream = stream.number;
	options.account = a->made.account;
	gp_stream_order_watch();
	if (stream.is_legacy)
		gp_side_note_work(GP_SIDE_LEGACY);
	*ret_r = CUDA_SUCCESS;
	addr = take_freed(place, a->bytes, stream.number, options.module, options.account);
	if (addr) {
		*a->ptr = addr;
		return GP_ASYNC_LEFT_NONE;
	}
	if (!hold(place))
		return GP_ASYNC_LEFT_NO_CONTEXT;
	pool = gp_region_streamed_pool(place->context);
	if (gp_unlikely(!pool))
		return GP_ASYNC_LEFT_NO_MAPPING;
	r = gp_memory_alloc(pool, place->context->device->index, a->bytes, &options, &addr);
	if (!gp_memory_is_answered(r, ret_r))
		return GP_ASYNC_LEFT_UNSERVED;
	if (*ret_r == CUDA_ERROR_OUT_OF_MEMORY) {
		gp_oom_on_device(place->context->device->index, a->bytes, &failure);
		*a->ptr = 0;
	}
	if (*ret_r)
		return GP_ASYNC_LEFT_NONE;
	gp_alloc_info_note_alloc(addr, a->bytes);
	*a->ptr = addr;
	return GP_ASYNC_LEFT_NONE;
}

/* Returns GP_ASYNC_LEFT_NONE if *ret_r is the answer, or why the driver must be called. */
static enum gp_async_left alloc_pooled(struct async *a, CUresult *ret_r)
{
	enum gp_async_left why = gp_memory_why_async_left();
	struct place place;

	if (gp_unlikely(why))
		return why;
	if (gp_unlikely(!a->ptr || !a->bytes))
		return GP_ASYNC_LEFT_INVALID;
	/* So a program with such pools makes no driver call more. */
	if (a->made.left)
		return a->made.left;
	gp_libraries_see();
	gp_foreign_poll();
	gp_first_chunk_expect(a->bytes);
	why = find_place(&place) ? alloc_at(a, &place, ret_r) : GP_ASYNC_LEFT_NO_CONTEXT;
	gp_context_put(place.used);
	gp_first_chunk_settle();
	return why;
}

/*
 * Allocates from what was freed on the same stream, in the thread's cache or else in the pool: nearly every allocation
 * of a loop that the fast path does not serve.
 */
static bool alloc_at_once(struct async *a)
{
	const struct gp_thread_cache *slot = gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC);
	struct gp_stream stream;
	uint64_t addr;

	if (gp_unlikely(!slot || !slot->streamed || !gp_capture_is_none() || !a->ptr || !a->bytes ||
			why_left_in(slot->context, a)))
		return false;
	if (gp_unlikely(!gp_stream_identify(a->stream, a->is_per_thread, slot->context->handle, &stream) ||
			stream.ctx != slot->context->handle))
		return false;
	if (a->made.account && !gp_made_pool_serve(&a->made))
		return false;
	if (stream.is_legacy)
		gp_side_note_work(GP_SIDE_LEGACY);
	addr = gp_tcache_alloc_on(slot->streamed, a->bytes, stream.number, gp_module_now(), a->made.account);
	if (addr)
		*a->ptr = addr;
	return addr != 0;
}

static CUresult alloc_async(struct async *a)
{
	enum gp_async_left why;
	CUresult r = CUDA_SUCCESS;

	a->is_pool_made = a->from_pool && gp_made_pool_find(a->pool, &a->made);
	if (!a->made.left && alloc_at_once(a))
		return CUDA_SUCCESS;
	why = alloc_pooled(a, &r);
	if (gp_likely(!why))
		return r;
	gp_async_left_note(why);
	gp_stream_order_note_operation(a->stream, a->is_per_thread);
	return alloc_counted(a);
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return alloc_async(&(struct async){ptr, bytes, NULL, stream, false, gp_real.cuMemAllocAsync, NULL});
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return alloc_async(&(struct async){ptr, bytes, NULL, stream, true, gp_real.cuMemAllocAsync_ptsz, NULL});
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return alloc_async(&(struct async){ptr, bytes, pool, stream, false, NULL, gp_real.cuMemAllocFromPoolAsync});
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return alloc_async(&(struct async){ptr, bytes, pool, stream, true, NULL, gp_real.cuMemAllocFromPoolAsync_ptsz});
}

CUresult hook_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult r = gp_real.cuDeviceSetMemPool(device, pool);

	if (!r && gp_state.config.is_async_pooled)
		gp_default_pool_note_current(device);
	return r;
}

/* For memory of a device, the same under another name. */
CUresult hook_cuMemSetMemPool(void *location, int type, CUmemoryPool pool)
{
	const CUmemLocation *place = location;
	CUresult r = gp_real.cuMemSetMemPool(location, type, pool);

	if (!r && gp_state.config.is_async_pooled && place->type == CU_MEM_LOCATION_TYPE_DEVICE)
		gp_default_pool_note_current(place->id);
	return r;
}

/* From now on the driver serves this pool. Memory of it from before has to be as open as the driver's. */
CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n)
{
	CUresult r = gp_real.cuMemPoolSetAccess(pool, access, n);
	struct gp_device *owner = NULL;

	if (!r && gp_state.config.is_async_pooled)
		owner = gp_made_pool_note_access(pool, access, n);
	if (!r && gp_state.config.is_async_pooled && !owner)
		owner = gp_default_pool_note_access(pool, access, n);
	for (CUdevice device = 0; owner && device < GP_DEVICES_MAX; device++)
		gp_peer_open_pools(device);
	return r;
}

/*
 * Returns the device if gpupool serves allocations in place of this pool, or has done so, and stores the account. NULL:
 * the driver's answers are those of the pool.
 */
static struct gp_device *served_device(CUmemoryPool pool, unsigned *ret_account)
{
	struct gp_made_pool made;

	*ret_account = GP_ACCOUNT_NONE;
	if (!gp_state.config.is_async_pooled)
		return NULL;
	if (!gp_made_pool_find(pool, &made))
		return gp_default_pool_device(pool);
	*ret_account = made.account;
	return made.is_served ? gp_device_if_used(made.device) : NULL;
}

/* Such a pool has what the driver holds for it and what gpupool holds. */
CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult r = gp_real.cuMemPoolGetAttribute(pool, attribute, value);
	struct gp_driver_pool_usage usage;
	struct gp_device *device;
	unsigned account;

	if (r || attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return r;
	device = served_device(pool, &account);
	if (!device)
		return r;
	gp_foreign_poll();
	usage = gp_driver_pool_usage(device, account);
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(uint64_t *)value += usage.reserved_bytes;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(uint64_t *)value += usage.reserved_high_bytes;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(uint64_t *)value += usage.used_bytes;
		break;
	default:
		*(uint64_t *)value += usage.used_high_bytes;
		break;
	}
	return r;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult r = gp_real.cuMemPoolSetAttribute(pool, attribute, value);
	bool is_used = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
	bool is_reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
	unsigned account = GP_ACCOUNT_NONE;
	struct gp_device *device = !r && (is_used || is_reserved) ? served_device(pool, &account) : NULL;

	if (device)
		gp_driver_pool_restart_highs(device, account, is_used, is_reserved);
	return r;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
	CUresult r = gp_real.cuMemPoolTrimTo(pool, keep_bytes);
	unsigned account = GP_ACCOUNT_NONE;
	struct gp_device *device = r ? NULL : served_device(pool, &account);
	uint64_t own, reserved = 0;

	gp_foreign_poll();
	own = device ? gp_driver_pool_usage(device, account).reserved_bytes : 0;
	if (!own || gp_real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
		return r;
	reserved += own;
	if (reserved > keep_bytes)
		gp_driver_pool_trim(device, reserved - keep_bytes);
	return r;
}
