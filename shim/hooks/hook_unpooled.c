/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Managed memory and the driver's stream-ordered pools. Each hook finds the size and the device of an allocation, and
 * makes the driver's call.
 */

#include <stdlib.h>

#include "shim/context/capture.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"
#include "unpooled_alloc.h"

/* Writes a pointer of 0 on out-of-memory, as the driver does: if a limit has refused, the driver was not called. */
static CUresult clear_if_oom(CUresult r, CUdeviceptr *ptr)
{
	if (r == CUDA_ERROR_OUT_OF_MEMORY && ptr)
		*ptr = 0;
	return r;
}

/*
 * Each hook keeps its arguments in a struct, since the retry rounds may make the driver's call several times.
 */

struct managed {
	CUdeviceptr *ptr;
	size_t bytes;
	unsigned flags;
};

static CUresult call_managed(void *arg)
{
	struct managed *a = arg;

	return gp_real.cuMemAllocManaged(a->ptr, a->bytes, a->flags);
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	struct managed a = {ptr, bytes, flags};
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_POINTER,
		.bytes = ptr ? bytes : 0,
		.device = GP_UNPOOLED_CURRENT,
		.end = GP_UNPOOLED_ENDS_WITH_CONTEXT,
		.call = call_managed,
		.arg = &a,
		.id = ptr,
	};

	return clear_if_oom(gp_unpooled_alloc(&allocation), ptr);
}

/* Pools that the program has made with cuMemPoolCreate, and the devices of their memory. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct made {
	CUmemoryPool pool;
	int device; /* GP_UNPOOLED_HOST: host; GP_UNPOOLED_CURRENT: not specified */
} * made;
static unsigned n_made, n_room;

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const void *properties)
{
	const struct gp_memory_head *place = properties;
	CUresult r = gp_real.cuMemPoolCreate(pool, properties);
	int device = GP_UNPOOLED_HOST;

	if (r)
		return r;
	if (place->location_type == CU_MEM_LOCATION_TYPE_DEVICE)
		device = place->location_id;
	else if (place->location_type == CU_MEM_LOCATION_TYPE_INVALID)
		device = GP_UNPOOLED_CURRENT;
	gp_mutex_lock(&lock);
	if (n_made == n_room) {
		unsigned room = n_room ? n_room * 2 : 16;
		struct made *more = realloc(made, room * sizeof(*more));

		if (more) {
			made = more;
			n_room = room;
		}
	}
	if (n_made < n_room)
		made[n_made++] = (struct made){*pool, device};
	gp_mutex_unlock(&lock);
	return r;
}

/* Allocations from a destroyed pool stay valid, so they stay counted. */
CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	gp_mutex_lock(&lock);
	for (unsigned i = n_made; i-- > 0;)
		if (made[i].pool == pool)
			made[i] = made[--n_made];
	gp_mutex_unlock(&lock);
	return gp_real.cuMemPoolDestroy(pool);
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

static int device_of_pool(CUmemoryPool pool)
{
	bool is_known = false;
	int device = 0;

	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_made && !is_known; i++) {
		is_known = made[i].pool == pool;
		device = made[i].device;
	}
	gp_mutex_unlock(&lock);
	return is_known ? device : device_of_default_pool(pool);
}

/* The stream's device, which need not be the current context's. */
static int device_of_stream(CUstream stream)
{
	CUcontext ctx = NULL, current = NULL;
	struct gp_driver_scope scope;
	CUdevice device;
	CUresult r;

	if ((uintptr_t)stream <= 2 || !gp_real.cuStreamGetCtx)
		return GP_UNPOOLED_CURRENT; /* one of the default streams */
	if (gp_real.cuStreamGetCtx(stream, &ctx) || gp_real.cuCtxGetCurrent(&current) || ctx == current)
		return GP_UNPOOLED_CURRENT;
	if (gp_driver_enter(&scope, ctx))
		return GP_UNPOOLED_CURRENT;
	r = gp_real.cuCtxGetDevice(&device);
	gp_driver_leave(&scope);
	return r ? GP_UNPOOLED_CURRENT : device;
}

struct async {
	CUdeviceptr *ptr;
	size_t bytes;
	CUmemoryPool pool;
	CUstream stream;
	bool is_per_thread;
	CUresult (*from_device)(CUdeviceptr *, size_t, CUstream);
	CUresult (*from_pool)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
};

static CUresult call_async(void *arg)
{
	struct async *a = arg;

	if (a->from_pool)
		return a->from_pool(a->ptr, a->bytes, a->pool, a->stream);
	return a->from_device(a->ptr, a->bytes, a->stream);
}

static CUresult alloc_async(struct async *a)
{
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_POINTER,
		.bytes = a->ptr ? a->bytes : 0,
		.end = GP_UNPOOLED_ENDS_WITH_PRIMARY,
		.call = call_async,
		.arg = a,
		.id = a->ptr,
	};

	/* During a capture this becomes a graph node, which allocates when it runs, so nothing is counted. */
	if (gp_capture_is_on(a->stream, a->is_per_thread))
		return call_async(a);
	allocation.device = a->from_pool ? device_of_pool(a->pool) : device_of_stream(a->stream);
	return clear_if_oom(gp_unpooled_alloc(&allocation), a->ptr);
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
