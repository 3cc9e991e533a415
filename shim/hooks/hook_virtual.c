/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The virtual-memory functions. Physical memory is counted once, from its creation until its last handle and its last
 * mapping have ended. The memory has the same handle for as long as it is mapped.
 *
 * Memory that the program creates, maps, unmaps and releases in the usual way stays mapped and is handed out again
 * (kept.h). Each hook first tries to serve the call that way. If it cannot, it ends what the driver's answer could
 * depend on, and calls the driver.
 */

#include <stdlib.h>

#include "shim/backend/backend_device.h"
#include "shim/backend/deep.h"
#include "shim/context/context.h"
#include "shim/context/context_end.h"
#include "shim/context/kept.h"
#include "shim/context/program_map.h"
#include "shim/context/survivor.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/trace/module.h"
#include "shim/ipc/ipc.h"
#include "unpooled_alloc.h"

struct create {
	CUmemGenericAllocationHandle *handle;
	size_t bytes;
	const CUmemAllocationProp *properties;
	unsigned long long flags;
};

static CUresult call_create(void *arg)
{
	struct create *a = arg;

	return gp_real.cuMemCreate(a->handle, a->bytes, a->properties, a->flags);
}

/* Serves a request from a kept mapping. Its bytes are charged already. */
static bool create_from_kept(const struct create *a)
{
	struct gp_kept *kept;

	if (!a->handle || !a->properties || a->flags)
		return false;
	kept = gp_kept_create(a->bytes, a->properties);
	if (!kept)
		return false;
	*a->handle = gp_kept_handle(kept);
	gp_unpooled_add(gp_kept_device(kept),
		&(struct gp_unpooled_info){
			.kind = GP_UNPOOLED_HANDLE, .id = *a->handle, .bytes = a->bytes, .module = gp_module_now()},
		NULL);
	gp_kept_done(kept);
	return true;
}

/* Leaves GPUPOOL_RESERVE free on the device, as the pools do. may_be_kept: the memory that was created. */
static void keep_reserve_free(int device_index, bool may_be_kept)
{
	struct gp_device *device = gp_device_if_used(device_index);
	struct gp_context *context;
	uint64_t available;

	if (!device || !gp_state.config.reserve_bytes || (!may_be_kept && !gp_kept_unused(device)))
		return;
	context = gp_context_use_on(device);
	if (!context)
		return;
	available = gp_device_available(context);
	gp_context_put(context);
	if (available != UINT64_MAX)
		(void)gp_kept_note_available(device, available);
}

/*
 * Returns the device of which the call would take memory, or GP_UNPOOLED_HOST. Calls that the driver refuses whatever
 * the size is get its error, not that of a limit, and no cache is emptied for them.
 */
static int device_of_create(const struct create *a)
{
	enum { PAGE_BYTES = 4096 }; /* every granularity is a multiple of it */
	const CUmemAllocationProp *p = a->properties;

	if (!a->handle || !p || a->flags || a->bytes % PAGE_BYTES || p->type <= 0 ||
		p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->location.id < 0)
		return GP_UNPOOLED_HOST;
	return p->location.id;
}

CUresult hook_cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const void *properties, unsigned long long flags)
{
	struct create a = {handle, bytes, properties, flags};
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_HANDLE,
		.bytes = bytes,
		.device = device_of_create(&a),
		.call = call_create,
		.arg = &a,
		.id = handle,
	};
	CUresult r;

	if (create_from_kept(&a))
		return CUDA_SUCCESS;
	r = gp_unpooled_alloc(&allocation);
	if (!r && allocation.device != GP_UNPOOLED_HOST && gp_unpooled_is_known(GP_UNPOOLED_HANDLE, *handle))
		keep_reserve_free(allocation.device, gp_kept_note_created(*handle, bytes, properties));
	return r;
}

/* Drops a reference to memory that stays mapped. */
static void drop_kept(struct gp_kept *kept)
{
	struct gp_unpooled_drop drop = gp_unpooled_begin_drop(GP_UNPOOLED_HANDLE, gp_kept_handle(kept));
	bool is_known = drop.is_known;

	gp_unpooled_end_drop_charged(drop);
	gp_kept_drop_end(kept, is_known);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept = gp_kept_release(handle);
	CUmemAllocationProp properties;
	struct gp_unpooled_drop drop;
	bool is_noted;
	size_t bytes;
	CUresult r;

	if (kept) {
		drop_kept(kept);
		return CUDA_SUCCESS;
	}
	r = gp_kept_end_handle(handle);
	if (r)
		return r;
	is_noted = gp_kept_forget_created(handle, &bytes, &properties);
	drop = gp_unpooled_begin_drop(GP_UNPOOLED_HANDLE, handle);
	r = gp_real.cuMemRelease(handle);
	gp_unpooled_end_drop(drop, !r);
	if (r && is_noted)
		(void)gp_kept_note_created(handle, bytes, &properties);
	return r;
}

/*
 * Returns true if the address is in a mapped block of the pool, or of another process that was opened by a legacy
 * handle. The program must not get a handle of it, just as it gets none of memory from cuMemAlloc.
 */
static bool is_mapped_block(const void *addr)
{
	struct gp_block_info info;
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;

	gp_context_settle(&gp_state.device_map, ptr);
	return (gp_pool_info(&gp_state.device_map, ptr, &info) == 0 || gp_ipc_find(ptr, &info) ||
		       gp_survivor_find(ptr, &info, NULL)) &&
	       info.is_mapped;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct gp_kept *kept;
	CUresult r;

	if (is_mapped_block(addr))
		return CUDA_ERROR_INVALID_VALUE;
	kept = handle ? gp_kept_retain((CUdeviceptr)(uintptr_t)addr) : NULL;
	if (kept) {
		*handle = gp_kept_handle(kept);
		(void)gp_unpooled_retain(GP_UNPOOLED_HANDLE, *handle);
		gp_kept_done(kept);
		return CUDA_SUCCESS;
	}
	r = gp_kept_end((CUdeviceptr)(uintptr_t)addr, 1);
	if (!r)
		r = gp_real.cuMemRetainAllocationHandle(handle, addr);
	if (!r)
		(void)gp_unpooled_retain(GP_UNPOOLED_HANDLE, *handle);
	return r;
}

/* Memory of another process is charged to that process. Memory of this process gets another reference. */
CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
	CUresult r = gp_real.cuMemImportFromShareableHandle(handle, shareable, type);

	if (!r)
		(void)gp_unpooled_retain(GP_UNPOOLED_HANDLE, *handle);
	gp_deep_note_refused("memory of another process");
	return r;
}

CUresult hook_cuMemExportToShareableHandle(
	void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
	CUresult r = gp_kept_share_handle(handle);

	gp_deep_note_refused("memory that other processes may use");
	return r ? r : gp_real.cuMemExportToShareableHandle(shareable, handle, type, flags);
}

CUresult hook_cuMemGetAllocationPropertiesFromHandle(void *properties, CUmemGenericAllocationHandle handle)
{
	CUresult r = gp_kept_is_released(handle) ? gp_kept_end_handle(handle) : CUDA_SUCCESS;

	return r ? r : gp_real.cuMemGetAllocationPropertiesFromHandle(properties, handle);
}

CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
	CUmemGenericAllocationHandle handle, size_t handle_offset, size_t bytes, unsigned long long flags)
{
	CUresult r = gp_kept_share_handle(handle);

	return r ? r : gp_real.cuMulticastBindMem(multicast, offset, handle, handle_offset, bytes, flags);
}

CUresult hook_cuMulticastBindAddr(
	CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr ptr, size_t bytes, unsigned long long flags)
{
	CUresult r = gp_kept_end(ptr, bytes);

	return r ? r : gp_real.cuMulticastBindAddr(multicast, offset, ptr, bytes, flags);
}

CUresult hook_cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
	CUmemGenericAllocationHandle handle, size_t handle_offset, size_t bytes, unsigned long long flags)
{
	CUresult r = gp_kept_share_handle(handle);

	return r ? r : gp_real.cuMulticastBindMem_v2(multicast, device, offset, handle, handle_offset, bytes, flags);
}

CUresult hook_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
	CUdeviceptr ptr, size_t bytes, unsigned long long flags)
{
	CUresult r = gp_kept_end(ptr, bytes);

	return r ? r : gp_real.cuMulticastBindAddr_v2(multicast, device, offset, ptr, bytes, flags);
}

/*
 * True if the range begins or ends in memory of the pool, or in that of another process that was opened by a legacy
 * handle. The program may neither unmap it nor change its access, just as it may not with memory of cuMemAlloc.
 */
static bool touches_pool(CUdeviceptr ptr, size_t bytes)
{
	const CUdeviceptr ends[] = {ptr, ptr + bytes - (bytes != 0)};
	struct gp_pool *pool;

	for (unsigned i = 0; i < 2; i++) {
		/* Also settles what ended contexts have left: the driver may have given the addresses away. */
		if (is_mapped_block((const void *)(uintptr_t)ends[i]))
			return true;
		pool = gp_addrmap_pool_of(&gp_state.device_map, ends[i]);
		gp_pool_put(pool);
		if (pool)
			return true;
	}
	return false;
}

/* The call may map any memory into a sparse array. The list has many forms, so it is not read. */
static CUresult map_array(
	void *list, unsigned n, CUstream stream, CUresult (*driver)(void *list, unsigned n, CUstream stream))
{
	CUresult r = gp_kept_stop();

	return r ? r : driver(list, n, stream);
}

CUresult hook_cuMemMapArrayAsync(void *list, unsigned n, CUstream stream)
{
	return map_array(list, n, stream, gp_real.cuMemMapArrayAsync);
}

CUresult hook_cuMemMapArrayAsync_ptsz(void *list, unsigned n, CUstream stream)
{
	return map_array(list, n, stream, gp_real.cuMemMapArrayAsync_ptsz);
}

/* Kept mappings take addresses, which the program would have without gpupool. */
static bool may_try_again(CUresult r)
{
	return r == CUDA_ERROR_OUT_OF_MEMORY && gp_kept_trim(-1, UINT64_MAX);
}

CUresult hook_cuMemAddressReserve(
	CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	CUresult r;

	if (ptr && !hint && !flags && gp_kept_reserve(ptr, bytes, alignment))
		return CUDA_SUCCESS;
	r = hint ? gp_kept_end_unmapped(hint, bytes) : CUDA_SUCCESS;
	if (r)
		return r;
	r = gp_real.cuMemAddressReserve(ptr, bytes, alignment, hint, flags);
	if (may_try_again(r))
		r = gp_real.cuMemAddressReserve(ptr, bytes, alignment, hint, flags);
	if (!r && !hint)
		gp_kept_note_reserved(*ptr, bytes);
	return r;
}

CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	size_t noted_bytes;
	bool is_noted;
	CUresult r;

	if (gp_kept_address_free(ptr, bytes))
		return CUDA_SUCCESS;
	if (touches_pool(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = gp_kept_end(ptr, bytes);
	if (r)
		return r;
	is_noted = gp_kept_forget_reserved(ptr, &noted_bytes);
	r = gp_real.cuMemAddressFree(ptr, bytes);
	if (r && is_noted)
		gp_kept_note_reserved(ptr, noted_bytes);
	return r;
}

static void note_mapping(const struct gp_kept_mapping *mapping, CUdeviceptr ptr, size_t bytes, size_t offset)
{
	bool is_known = gp_unpooled_retain(GP_UNPOOLED_HANDLE, mapping->handle);
	struct gp_program_map *map;

	if (gp_kept_note_mapped(mapping, ptr, bytes, offset))
		return;
	map = malloc(sizeof(*map));
	if (!map)
		return;
	*map = (struct gp_program_map){.addr = ptr, .bytes = bytes, .handle = is_known ? mapping->handle : 0};
	gp_program_map_add(map);
}

CUresult hook_cuMemMap(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct gp_kept *kept = gp_kept_map(ptr, bytes, offset, handle, flags);
	struct gp_kept_mapping mapping;
	CUresult r;

	if (kept) {
		(void)gp_unpooled_retain(GP_UNPOOLED_HANDLE, handle);
		gp_kept_done(kept);
		return CUDA_SUCCESS;
	}
	r = gp_kept_end_unmapped(ptr, bytes);
	if (!r)
		r = gp_kept_begin_mapping(&mapping, handle);
	if (r)
		return r;
	r = gp_real.cuMemMap(ptr, bytes, offset, handle, flags);
	if (r)
		gp_kept_cancel_mapping(&mapping);
	else
		note_mapping(&mapping, ptr, bytes, offset);
	return r;
}

CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	CUresult r;

	if (gp_kept_set_access(ptr, bytes, access, n, &r))
		return r;
	if (touches_pool(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = gp_kept_end(ptr, bytes);
	return r ? r : gp_real.cuMemSetAccess(ptr, bytes, access, n);
}

CUresult hook_cuMemGetAccess(unsigned long long *flags, const void *location, CUdeviceptr ptr)
{
	CUresult r = gp_kept_settle(ptr);

	return r ? r : gp_real.cuMemGetAccess(flags, location, ptr);
}

/*
 * Another thread may map the addresses again as soon as the driver has unmapped them. So gpupool removes its own
 * entries before the driver's call, and adds them again if the call fails.
 */
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	struct gp_program_map *taken = NULL, *next;
	struct gp_kept *kept = gp_kept_unmap(ptr, bytes);
	CUresult r;

	if (kept) {
		drop_kept(kept);
		return CUDA_SUCCESS;
	}
	if (touches_pool(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = gp_kept_end(ptr, bytes);
	if (r)
		return r;
	for (CUdeviceptr at = ptr; at - ptr < bytes;) {
		struct gp_program_map *map = gp_program_map_take(at);

		if (!map)
			break;
		map->next = taken;
		taken = map;
		at += map->bytes;
	}
	r = gp_real.cuMemUnmap(ptr, bytes);
	for (; taken; taken = next) {
		next = taken->next;
		if (r) {
			gp_program_map_add(taken);
			continue;
		}
		if (taken->handle)
			gp_unpooled_end_drop(gp_unpooled_begin_drop(GP_UNPOOLED_HANDLE, taken->handle), true);
		free(taken);
	}
	return r;
}
