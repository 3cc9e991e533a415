/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that gpupool counts and passes through: each hook names its size and makes the driver's call. */

#include "capture.h"
#include "real.h"
#include "unpooled.h"

/*
 * A hook of the shape "the driver's function with these arguments": the arguments travel in a struct through the retry
 * rounds, since the call may be made more than once.
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
		.bytes = bytes,
		.is_context_bound = true,
		.call = call_managed,
		.arg = &a,
		.id = ptr,
	};

	return ptr ? gp_unpooled_alloc(&allocation) : call_managed(&a);
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
		.bytes = a->bytes,
		.call = call_async,
		.arg = a,
		.id = a->ptr,
	};

	/* In a capture this becomes a node of a graph, which allocates when it runs: nothing to count. */
	if (!a->ptr || gp_capture_is_on(a->stream, a->is_per_thread))
		return call_async(a);
	return gp_unpooled_alloc(&allocation);
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
	return alloc_async(
		&(struct async){ptr, bytes, pool, stream, true, NULL, gp_real.cuMemAllocFromPoolAsync_ptsz});
}

struct create {
	CUmemGenericAllocationHandle *handle;
	size_t bytes;
	const void *properties;
	unsigned long long flags;
};

static CUresult call_create(void *arg)
{
	struct create *a = arg;

	return gp_real.cuMemCreate(a->handle, a->bytes, a->properties, a->flags);
}

CUresult hook_cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const void *properties, unsigned long long flags)
{
	struct create a = {handle, bytes, properties, flags};
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_HANDLE,
		.bytes = bytes,
		.call = call_create,
		.arg = &a,
		.id = handle,
	};

	return handle ? gp_unpooled_alloc(&allocation) : call_create(&a);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	gp_unpooled_forget(GP_UNPOOLED_HANDLE, handle);
	return gp_real.cuMemRelease(handle);
}

/* Bytes of one channel of a CUarray_format; the block-compressed and video formats are counted as one. */
static uint64_t format_bytes(int format)
{
	switch (format) {
	case 0x02: /* UNSIGNED_INT16 */
	case 0x09: /* SIGNED_INT16 */
	case 0x10: /* HALF */
		return 2;
	case 0x03: /* UNSIGNED_INT32 */
	case 0x0a: /* SIGNED_INT32 */
	case 0x20: /* FLOAT */
		return 4;
	default:
		return 1;
	}
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t rows = gp_max(d->Height, 1) * gp_max(d->Depth, 1);

	return gp_max(d->Width, 1) * rows * gp_max(d->NumChannels, 1) * format_bytes(d->Format);
}

struct array {
	void *array; /* CUarray * or CUmipmappedArray * */
	const void *descriptor;
	unsigned levels;
	uint64_t id;
};

static CUresult call_array(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuArrayCreate_v2(a->array, a->descriptor);

	a->id = r ? 0 : (uint64_t)(uintptr_t)*(CUarray *)a->array;
	return r;
}

static CUresult call_array_3d(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuArray3DCreate_v2(a->array, a->descriptor);

	a->id = r ? 0 : (uint64_t)(uintptr_t)*(CUarray *)a->array;
	return r;
}

static CUresult call_mipmapped(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuMipmappedArrayCreate(a->array, a->descriptor, a->levels);

	a->id = r ? 0 : (uint64_t)(uintptr_t)*(CUmipmappedArray *)a->array;
	return r;
}

static CUresult alloc_array(struct array *a, enum gp_unpooled_kind kind, uint64_t bytes, CUresult (*call)(void *))
{
	struct gp_unpooled allocation = {
		.kind = kind,
		.bytes = bytes,
		.is_context_bound = true,
		.call = call,
		.arg = a,
		.id = &a->id,
	};

	return a->array && a->descriptor ? gp_unpooled_alloc(&allocation) : call(a);
}

CUresult hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	struct array a = {.array = array, .descriptor = descriptor};
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	if (!descriptor)
		return gp_real.cuArrayCreate_v2(array, descriptor);
	d.Width = descriptor->Width;
	d.Height = descriptor->Height;
	d.Format = descriptor->Format;
	d.NumChannels = descriptor->NumChannels;
	return alloc_array(&a, GP_UNPOOLED_ARRAY, array_bytes(&d), call_array);
}

CUresult hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	struct array a = {.array = array, .descriptor = descriptor};

	if (!descriptor)
		return gp_real.cuArray3DCreate_v2(array, descriptor);
	return alloc_array(&a, GP_UNPOOLED_ARRAY, array_bytes(descriptor), call_array_3d);
}

CUresult hook_cuArrayDestroy(CUarray array)
{
	gp_unpooled_forget(GP_UNPOOLED_ARRAY, (uint64_t)(uintptr_t)array);
	return gp_real.cuArrayDestroy(array);
}

CUresult hook_cuMipmappedArrayCreate(
	CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
	struct array a = {.array = array, .descriptor = descriptor, .levels = levels};

	if (!descriptor)
		return gp_real.cuMipmappedArrayCreate(array, descriptor, levels);
	/* Each level has a quarter (an eighth in 3D) of the one before: a third more is never too little. */
	return alloc_array(
		&a, GP_UNPOOLED_MIPMAPPED, array_bytes(descriptor) / 3 * (levels > 1 ? 4 : 3), call_mipmapped);
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	gp_unpooled_forget(GP_UNPOOLED_MIPMAPPED, (uint64_t)(uintptr_t)array);
	return gp_real.cuMipmappedArrayDestroy(array);
}
