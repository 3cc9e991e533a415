/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Arrays and physical memory. Arrays only count against the device's memory: no work reads or writes
 * them. Work can touch the memory of a physical handle where it is mapped (virtual.c).
 */

#include <stdint.h>

#include "capture.h"

struct sim_physical {
	struct sim_object object;
	struct sim_device *device; /* NULL: memory of the host */
	const struct sim_ctx *ctx; /* owner of an array, which ends with it; or NULL */
	size_t bytes;
	uint64_t addr; /* of handles on a device: the address of the memory there */
	bool dirty;
	CUmemAllocationProp properties;
	unsigned n_handles, n_mappings; /* each of them keeps the memory of a physical handle */
	struct sim_physical *prev, *next;
};

static struct sim_physical *all;

static size_t round_to_chunks(size_t bytes)
{
	return (bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
}

static CUresult create(
	enum sim_magic magic, const struct sim_ctx *ctx, struct sim_device *device, size_t bytes, void *handle)
{
	struct sim_physical *physical;
	uint64_t addr = 0;

	if (device && magic == SIM_PHYSICAL)
		SIM_TRY(sim_device_take(device, bytes, &addr));
	else if (device)
		SIM_TRY(sim_device_charge(device, bytes));
	physical = sim_object_new(magic, sizeof(*physical));
	physical->device = device;
	physical->ctx = ctx;
	physical->bytes = bytes;
	physical->addr = addr;
	physical->next = all;
	if (all)
		all->prev = physical;
	all = physical;
	*(struct sim_physical **)handle = physical;
	return CUDA_SUCCESS;
}

static void physical_free(struct sim_physical *physical)
{
	if (physical->prev)
		physical->prev->next = physical->next;
	else
		all = physical->next;
	if (physical->next)
		physical->next->prev = physical->prev;
	if (physical->addr)
		sim_device_give(physical->device, physical->addr, physical->bytes, physical->dirty);
	else if (physical->device)
		sim_device_discharge(physical->device, physical->bytes);
	sim_object_free(physical);
}

void sim_arrays_close(const struct sim_ctx *ctx)
{
	for (struct sim_physical *physical = all, *next; physical; physical = next) {
		next = physical->next;
		if (physical->ctx == ctx)
			physical_free(physical);
	}
}

static CUresult destroy(const void *handle, enum sim_magic magic, CUresult stale)
{
	struct sim_physical *physical = sim_object_of(handle, magic);

	if (!physical)
		return stale;
	physical_free(physical);
	return CUDA_SUCCESS;
}

static CUresult device_of_location(int type, int id, struct sim_device **device)
{
	*device = NULL;
	if (type == CU_MEM_LOCATION_TYPE_DEVICE)
		return sim_device_of(id, device);
	return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? CUDA_SUCCESS
											   : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_device *device;

	SIM_BEGIN(cuMemCreate);
	if (!handle || !bytes || bytes % sim.config.granularity_bytes || !prop || flags ||
		prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(device_of_location(prop->location.type, prop->location.id, &device));
	SIM_TRY(create(SIM_PHYSICAL, NULL, device, bytes, handle));
	(*(struct sim_physical **)handle)->n_handles = 1;
	(*(struct sim_physical **)handle)->properties = *prop;
	return CUDA_SUCCESS;
}

/* Returns NULL for a handle that the program has released, even while its memory is mapped. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
	struct sim_physical *physical = sim_object_of((const void *)(uintptr_t)handle, SIM_PHYSICAL);

	return physical && physical->n_handles ? physical : NULL;
}

size_t sim_physical_bytes(const struct sim_physical *physical)
{
	return physical->bytes;
}

struct sim_device *sim_physical_device(const struct sim_physical *physical)
{
	return physical->device;
}

off_t sim_physical_offset(const struct sim_physical *physical)
{
	return (off_t)(physical->addr - physical->device->base);
}

bool *sim_physical_dirty(struct sim_physical *physical)
{
	return &physical->dirty;
}

const CUmemAllocationProp *sim_physical_properties(const struct sim_physical *physical)
{
	return &physical->properties;
}

CUmemGenericAllocationHandle sim_physical_retain(struct sim_physical *physical)
{
	physical->n_handles++;
	return (uintptr_t)physical;
}

void sim_physical_map(struct sim_physical *physical)
{
	physical->n_mappings++;
}

static void free_if_unused(struct sim_physical *physical)
{
	if (!physical->n_handles && !physical->n_mappings)
		physical_free(physical);
}

void sim_physical_unmap(struct sim_physical *physical)
{
	physical->n_mappings--;
	free_if_unused(physical);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_physical *physical;

	SIM_BEGIN(cuMemRelease);
	physical = sim_physical_of(handle);
	if (!physical)
		return CUDA_ERROR_INVALID_VALUE;
	physical->n_handles--;
	free_if_unused(physical);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	const struct sim_physical *physical;

	SIM_BEGIN(cuMemGetAllocationPropertiesFromHandle);
	physical = sim_physical_of(handle);
	if (!prop || !physical)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = physical->properties;
	return CUDA_SUCCESS;
}

/* No simulated device supports multicast (attribute 132), so a multicast handle never exists. */
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *prop)
{
	SIM_BEGIN(cuMulticastCreate);
	return handle && prop ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
	SIM_BEGIN(cuMulticastAddDevice);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
	size_t memory_offset, size_t bytes, unsigned long long flags)
{
	SIM_BEGIN(cuMulticastBindMem);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindAddr(
	CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr ptr, size_t bytes, unsigned long long flags)
{
	SIM_BEGIN(cuMulticastBindAddr);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes)
{
	SIM_BEGIN(cuMulticastUnbind);
	return CUDA_ERROR_INVALID_VALUE;
}

/* Returns the bytes of one channel for a CU_AD_FORMAT_* value. */
static unsigned channel_bytes(int format)
{
	switch (format) {
	case 0x01: /* 8-bit integers */
	case 0x08:
		return 1;
	case 0x02: /* 16-bit integers and floats */
	case 0x09:
	case 0x10:
		return 2;
	case 0x03: /* 32-bit integers and floats */
	case 0x0a:
	case 0x20:
		return 4;
	}
	return 0;
}

static CUresult array_create(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels, void *handle)
{
	size_t bytes = 0, width = shape->Width, height = shape->Height, depth = shape->Depth;
	size_t element = (size_t)channel_bytes(shape->Format) * shape->NumChannels;
	struct sim_ctx *ctx;

	if (!width || !element || shape->NumChannels > 4 || !levels)
		return CUDA_ERROR_INVALID_VALUE;
	if (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		width = 0; /* the program maps memory into it later */
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	while (levels--) {
		bytes += width * (height ? height : 1) * (depth ? depth : 1) * element;
		width = width > 1 ? width / 2 : width;
		height = height > 1 ? height / 2 : height;
		if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
			depth = depth > 1 ? depth / 2 : depth;
	}
	return create(SIM_ARRAY, ctx, ctx->device, round_to_chunks(bytes), handle);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
	CUDA_ARRAY3D_DESCRIPTOR full = {0};

	SIM_BEGIN(cuArrayCreate_v2);
	if (!array || !shape)
		return CUDA_ERROR_INVALID_VALUE;
	full.Width = shape->Width;
	full.Height = shape->Height;
	full.Format = shape->Format;
	full.NumChannels = shape->NumChannels;
	return array_create(&full, 1, array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	SIM_BEGIN(cuArray3DCreate_v2);
	return array && shape ? array_create(shape, 1, array) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayDestroy(CUarray array)
{
	SIM_BEGIN(cuArrayDestroy);
	return destroy(array, SIM_ARRAY, CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
	SIM_BEGIN(cuMipmappedArrayCreate);
	return array && shape ? array_create(shape, levels, array) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	SIM_BEGIN(cuMipmappedArrayDestroy);
	return destroy(array, SIM_ARRAY, CUDA_ERROR_INVALID_HANDLE);
}
