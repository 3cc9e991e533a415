/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Arrays and physical memory. Arrays only count against the device's memory: no work reads or writes
 * them. Work can touch the memory of a physical handle where it is mapped (virtual.c).
 *
 * Memory that is exported moves to a file of its own, which a descriptor gives to other processes. The
 * file outlives its owner while another process has it open. After the memory, it has a struct trailer.
 * Memory of the host is in a file of its own from the beginning, and takes none of a device.
 */

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture.h"
#include "share.h"

#define TRAILER_MAGIC 0x53494d5048595301ull

struct trailer {
	uint64_t magic, bytes;
	CUmemAllocationProp properties;
};

struct sim_physical {
	struct sim_object object;
	struct sim_device *device; /* NULL: memory of the host */
	const struct sim_ctx *ctx; /* owner of an array, which ends with it; or NULL */
	size_t bytes;
	uint64_t addr; /* of handles on a device: the address of the memory there */
	bool dirty;
	int fd;           /* of memory in a file of its own; -1: it is in the device's file */
	bool is_imported; /* memory of another process, which is charged to that process */
	CUmemAllocationProp properties;
	unsigned n_handles, n_mappings; /* each of them keeps the memory of a physical handle */
	struct sim_physical *prev, *next;
};

static struct sim_physical *all;

static size_t round_to_chunks(size_t bytes)
{
	return (bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
}

static void enter(struct sim_physical *physical)
{
	physical->fd = -1;
	physical->next = all;
	if (all)
		all->prev = physical;
	all = physical;
}

/* Gives memory of the host a file. */
static CUresult take_host(struct sim_physical *physical)
{
	physical->fd = memfd_create("simgpu-host", MFD_CLOEXEC);
	return physical->fd < 0 || ftruncate(physical->fd, (off_t)physical->bytes) ? CUDA_ERROR_OUT_OF_MEMORY
										   : CUDA_SUCCESS;
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
	enter(physical);
	*(struct sim_physical **)handle = physical;
	return device ? CUDA_SUCCESS : take_host(physical);
}

static void physical_free(struct sim_physical *physical)
{
	if (physical->prev)
		physical->prev->next = physical->next;
	else
		all = physical->next;
	if (physical->next)
		physical->next->prev = physical->prev;
	if (physical->fd >= 0)
		close(physical->fd);
	if (physical->is_imported)
		; /* its owner is charged */
	else if (physical->addr)
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

int sim_physical_fd(const struct sim_physical *physical)
{
	return physical->fd >= 0 ? physical->fd : physical->device->fd;
}

off_t sim_physical_offset(const struct sim_physical *physical)
{
	return physical->fd >= 0 ? 0 : (off_t)(physical->addr - physical->device->base);
}

bool sim_physical_is_shared(const struct sim_physical *physical)
{
	return physical->fd >= 0 && physical->device;
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

static bool write_trailer(const struct sim_physical *physical, int fd)
{
	struct trailer trailer = {TRAILER_MAGIC, physical->bytes, physical->properties};

	return pwrite(fd, &trailer, sizeof(trailer), (off_t)physical->bytes) == sizeof(trailer);
}

/* Moves the memory to a file of its own, once. */
static CUresult move_to_file(struct sim_physical *physical)
{
	struct sim_device *device = physical->device;
	uint64_t offset = (uint64_t)sim_physical_offset(physical);
	int fd;

	if (physical->fd >= 0)
		return CUDA_SUCCESS;
	fd = memfd_create("simgpu-physical", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)physical->bytes) || !write_trailer(physical, fd) ||
		!sim_share_copy(device, offset, physical->bytes, fd)) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	physical->fd = fd;
	physical->dirty = true; /* other processes may write to it */
	return sim_physical_moved(physical);
}

/* Needs the type of the handle at the creation, as the driver does. */
CUresult cuMemExportToShareableHandle(
	void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
	struct sim_physical *physical;
	int fd;

	SIM_BEGIN(cuMemExportToShareableHandle);
	physical = sim_physical_of(handle);
	if (!shareable || !physical || !physical->device || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags ||
		!(physical->properties.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(move_to_file(physical));
	fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(shareable, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

static bool is_same_file(int fd, const struct stat *wanted)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_dev == wanted->st_dev && st.st_ino == wanted->st_ino;
}

/* Returns the memory of a file that this process has already, its own or imported, or NULL. */
static struct sim_physical *find_by_file(const struct stat *st)
{
	struct sim_physical *physical = all;

	while (physical && !is_same_file(physical->fd, st))
		physical = physical->next;
	return physical;
}

static bool read_trailer(int fd, const struct stat *st, struct trailer *trailer)
{
	off_t at = st->st_size - (off_t)sizeof(*trailer);

	return S_ISREG(st->st_mode) && at > 0 && pread(fd, trailer, sizeof(*trailer), at) == sizeof(*trailer) &&
	       trailer->magic == TRAILER_MAGIC && trailer->bytes == (uint64_t)at;
}

static CUresult import(int fd, const struct trailer *trailer, struct sim_physical **ret_physical)
{
	struct sim_physical *physical;
	struct sim_device *device;
	int own;

	SIM_TRY(sim_device_of(trailer->properties.location.id, &device));
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	physical = sim_object_new(SIM_PHYSICAL, sizeof(*physical));
	physical->device = device;
	physical->bytes = trailer->bytes;
	physical->properties = trailer->properties;
	enter(physical);
	physical->fd = own;
	physical->is_imported = true;
	physical->dirty = true; /* as far as this process knows */
	*ret_physical = physical;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
	int fd = (int)(intptr_t)shareable;
	struct sim_physical *physical;
	struct trailer trailer;
	struct stat st;

	SIM_BEGIN(cuMemImportFromShareableHandle);
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st) ||
		!read_trailer(fd, &st, &trailer))
		return CUDA_ERROR_INVALID_VALUE;
	physical = find_by_file(&st);
	if (!physical)
		SIM_TRY(import(fd, &trailer, &physical));
	*handle = sim_physical_retain(physical);
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

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
	CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, unsigned long long flags)
{
	SIM_BEGIN(cuMulticastBindMem_v2);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr ptr,
	size_t bytes, unsigned long long flags)
{
	SIM_BEGIN(cuMulticastBindAddr_v2);
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
