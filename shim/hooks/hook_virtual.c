/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Physical memory of the virtual-memory functions. It is counted once, from its creation until its last handle and its
 * last mapping have ended. The memory has the same handle for as long as it is mapped.
 */

#include <stdlib.h>

#include "shim/context/context.h"
#include "shim/context/context_end.h"
#include "shim/driver/driver_table.h"
#include "unpooled_alloc.h"

struct create {
	CUmemGenericAllocationHandle *handle;
	size_t bytes;
	const struct gp_memory_head *place;
	unsigned long long flags;
};

static CUresult call_create(void *arg)
{
	struct create *a = arg;

	return gp_real.cuMemCreate(a->handle, a->bytes, a->place, a->flags);
}

CUresult hook_cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const void *properties, unsigned long long flags)
{
	struct create a = {handle, bytes, properties, flags};
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_HANDLE,
		.bytes = handle ? bytes : 0,
		.device = GP_UNPOOLED_HOST,
		.call = call_create,
		.arg = &a,
		.id = handle,
	};

	if (properties && a.place->location_type == CU_MEM_LOCATION_TYPE_DEVICE)
		allocation.device = a.place->location_id;
	return gp_unpooled_alloc(&allocation);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct gp_unpooled_drop drop = gp_unpooled_begin_drop(GP_UNPOOLED_HANDLE, handle);
	CUresult r = gp_real.cuMemRelease(handle);

	gp_unpooled_end_drop(drop, !r);
	return r;
}

/*
 * Returns true if the address is in a mapped block of the pool. The program must not get a handle of it, just as it
 * gets none of memory from cuMemAlloc.
 */
static bool is_mapped_block(const void *addr)
{
	struct gp_block_info info;
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;

	gp_context_settle(&gp_state.device_map, ptr);
	return gp_pool_info(&gp_state.device_map, ptr, &info) == 0 && info.is_mapped;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult r;

	if (is_mapped_block(addr))
		return CUDA_ERROR_INVALID_VALUE;
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
	return r;
}

/*
 * A mapping of the program, also of memory that is not counted: to unmap a range with several mappings, gpupool needs
 * the size of each.
 */
struct mapping {
	struct mapping *next;
	CUdeviceptr addr;
	size_t bytes;
	CUmemGenericAllocationHandle handle; /* 0: its memory is not counted */
};

enum { BUCKETS_BITS = 10, PAGE_BITS = 16 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct mapping *buckets[1 << BUCKETS_BITS];

static struct mapping **bucket_of(CUdeviceptr addr)
{
	return &buckets[((addr >> PAGE_BITS) * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - BUCKETS_BITS)];
}

static void add(struct mapping *mapping)
{
	struct mapping **bucket = bucket_of(mapping->addr);

	gp_mutex_lock(&lock);
	mapping->next = *bucket;
	*bucket = mapping;
	gp_mutex_unlock(&lock);
}

static struct mapping *take(CUdeviceptr addr)
{
	struct mapping **at = bucket_of(addr), *found;

	gp_mutex_lock(&lock);
	while (*at && (*at)->addr != addr)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	gp_mutex_unlock(&lock);
	return found;
}

CUresult hook_cuMemMap(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult r = gp_real.cuMemMap(ptr, bytes, offset, handle, flags);
	struct mapping *mapping = r ? NULL : malloc(sizeof(*mapping));

	if (mapping) {
		*mapping = (struct mapping){.addr = ptr, .bytes = bytes};
		if (gp_unpooled_retain(GP_UNPOOLED_HANDLE, handle))
			mapping->handle = handle;
		add(mapping);
	}
	return r;
}

/*
 * Another thread may map the addresses again as soon as the driver has unmapped them. So gpupool removes its own
 * entries before the driver's call, and adds them again if the call fails.
 */
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	struct mapping *taken = NULL, *next;
	CUresult r;

	for (CUdeviceptr at = ptr; at - ptr < bytes;) {
		struct mapping *mapping = take(at);

		if (!mapping)
			break;
		mapping->next = taken;
		taken = mapping;
		at += mapping->bytes;
	}
	r = gp_real.cuMemUnmap(ptr, bytes);
	for (; taken; taken = next) {
		next = taken->next;
		if (r) {
			add(taken);
			continue;
		}
		if (taken->handle)
			gp_unpooled_end_drop(gp_unpooled_begin_drop(GP_UNPOOLED_HANDLE, taken->handle), true);
		free(taken);
	}
	return r;
}
