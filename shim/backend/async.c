/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Segments from the driver's stream-ordered allocator, for GPUPOOL_BACKEND=async.
 *
 * Each context has a private driver pool. The device's default pool belongs to the program, which chooses its
 * settings and the devices that may access it. Memory that is freed to the private pool goes back to the driver
 * when the host synchronises with the stream of the free, since a driver pool keeps nothing by default.
 *
 * Memory is allocated on one private stream and freed on another. The stream of the frees may wait for the
 * program's work, but the stream of the allocations is always idle: the host synchronises with it, which waits for
 * the allocation alone, and then any stream may use the memory. For the same reason
 * CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES is off: with it the driver may serve an allocation from memory
 * whose free has not finished, and make the stream of the allocations wait for that.
 *
 * Memory is allocated, freed and trimmed in the relaxed capture mode, since these calls do not touch the program's
 * streams.
 */

#include "async.h"

#include <stdlib.h>

#include "fence_call.h"
#include "peer_access.h"
#include "shim/context/capture.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

bool gp_async_is_possible(const struct gp_context *context)
{
	return gp_real.cuMemPoolCreate && gp_real.cuMemPoolDestroy && gp_real.cuMemPoolSetAttribute &&
	       gp_real.cuMemPoolSetAccess && gp_real.cuMemAllocFromPoolAsync && gp_real.cuMemFreeAsync &&
	       gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
}

static CUresult set_access(CUmemoryPool pool, CUdevice device, int flags)
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags};

	return gp_real.cuMemPoolSetAccess(pool, &access, 1);
}

/*
 * Gives access to the devices that have it so far (peer_access.h). hooks/hook_peer.c adds later ones: the pool is
 * already stored in the context when this function looks, so that none is missed.
 */
static void allow_peers(const struct gp_context *context, CUmemoryPool pool)
{
	uint64_t peers = gp_peer_access_devices(context->handle) & ~(UINT64_C(1) << context->device->index);

	for (; peers; peers &= peers - 1)
		(void)set_access(pool, __builtin_ctzll(peers), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Returns the context's private pool, and creates it at first use. */
static CUresult find_pool(struct gp_context *context, CUmemoryPool *ret_pool)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->device->index},
	};
	CUmemoryPool pool = atomic_load(&context->async_pool), none = NULL;
	CUresult r = CUDA_SUCCESS;
	int off = 0;

	if (gp_likely(pool != NULL)) {
		*ret_pool = pool;
		return CUDA_SUCCESS;
	}
	r = gp_real.cuMemPoolCreate(&pool, &properties);
	if (r)
		return r;
	r = gp_real.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
	if (!r && atomic_compare_exchange_strong(&context->async_pool, &none, pool)) {
		allow_peers(context, pool);
	} else {
		(void)gp_real.cuMemPoolDestroy(pool);
		pool = none;
	}
	*ret_pool = pool;
	return r;
}

CUresult gp_async_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes)
{
	CUmemoryPool pool;
	CUstream stream;
	CUresult r = find_pool(context, &pool);

	if (!r)
		r = gp_driver_stream(&context->async_stream, &stream);
	if (!r)
		r = gp_real.cuMemAllocFromPoolAsync(ptr, bytes, pool, stream);
	return r ? r : gp_real.cuStreamSynchronize(stream);
}

CUresult gp_async_release(struct gp_context *context, CUdeviceptr ptr)
{
	CUstream stream;
	CUresult r = gp_driver_wait_for_context();

	if (!r)
		r = gp_driver_stream(&context->async_stream, &stream);
	if (!r)
		r = gp_real.cuMemFreeAsync(ptr, stream);
	return r ? r : gp_real.cuStreamSynchronize(stream);
}

bool gp_async_trim(struct gp_context *context)
{
	CUmemoryPool pool = atomic_load(&context->async_pool);

	return pool && !gp_real.cuMemPoolTrimTo(pool, 0);
}

CUresult gp_async_set_access(struct gp_context *context, CUdevice device, int flags)
{
	CUmemoryPool pool = atomic_load(&context->async_pool);

	return pool ? set_access(pool, device, flags) : CUDA_SUCCESS;
}

/* The segments of all pools of a context. Pools list their blocks segment by segment. */
struct segments {
	uint64_t *bases;
	size_t n, room;
};

static bool note_segment(void *arg, const struct gp_block_info *info)
{
	struct segments *segments = arg;

	if (segments->n && segments->bases[segments->n - 1] == info->segment_base)
		return true;
	if (segments->n == segments->room) {
		size_t room = segments->room ? segments->room * 2 : 256;
		uint64_t *more = realloc(segments->bases, room * sizeof(*more));

		if (!more)
			return false;
		segments->bases = more;
		segments->room = room;
	}
	segments->bases[segments->n++] = info->segment_base;
	return true;
}

static void note_pool(void *arg, struct gp_pool *pool)
{
	gp_pool_each_block(pool, note_segment, arg);
}

/* Makes the stream wait for all work of the context so far. While any stream captures only the host can wait. */
static CUresult wait_for_work(struct gp_context *context, CUstream stream)
{
	CUevent event = NULL;
	CUresult r;

	if (!gp_capture_is_none())
		return gp_driver_wait_for_context();
	r = gp_backend_event(context, &event);
	if (!r)
		r = gp_backend_record(context, event, true);
	return r ? r : gp_real.cuStreamWaitEvent(stream, event, 0);
}

static void free_segments(struct gp_context *context, CUmemoryPool pool, const struct segments *segments)
{
	struct gp_driver_scope scope;
	CUstream stream;

	if (gp_driver_enter(&scope, context->handle))
		return;
	if (!gp_driver_stream(&context->release_stream, &stream) && !wait_for_work(context, stream))
		for (size_t i = 0; i < segments->n; i++)
			(void)gp_real.cuMemFreeAsync(segments->bases[i], stream);
	/* The driver destroys the pool once none of its memory is in use. */
	(void)gp_real.cuMemPoolDestroy(pool);
	gp_driver_leave(&scope);
}

bool gp_async_end(struct gp_context *context)
{
	CUmemoryPool pool = atomic_exchange(&context->async_pool, NULL);
	struct segments segments = {NULL};

	if (!pool || atomic_load(&context->lost_to))
		return false;
	gp_context_each_pool(context, note_pool, &segments);
	free_segments(context, pool, &segments);
	free(segments.bases);
	return true;
}
