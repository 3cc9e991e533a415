/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Questions about memory, whose answers must fit what the program believes: that each of its blocks is an allocation
 * of its own, and that cached memory is free. And the ways in which memory leaves the process's hands: a block that
 * is a whole driver allocation may go, and is never handed to another owner afterwards; for a piece of a shared
 * segment the driver would give the neighbours away, so it is refused, or goes by other means (ipc.h). From the
 * first such call on new blocks are whole.
 */

#include "backend.h"
#include "debug.h"
#include "ipc.h"
#include "log.h"
#include "real.h"
#include "record.h"
#include "unpooled.h"

/* Above every id of the driver's: a new one for each hand-out of a block. */
#define BUFFER_ID_BASE (UINT64_C(1) << 62)

struct held {
	struct gp_device *device;
	uint64_t idle_bytes; /* cached, pending or returning: free as far as the program is concerned */
};

static void add_idle_of(void *arg, struct gp_pool *pool)
{
	struct held *held = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	held->idle_bytes += stats.cached_bytes + stats.pending_bytes + stats.returning_bytes;
}

static void add_idle(void *arg, struct gp_context *context)
{
	const struct held *held = arg;

	if (context->device == held->device)
		gp_context_each_pool(context, add_idle_of, arg);
}

/*
 * Managed memory is on the device, or is not, as it was touched last. The program believes that all of its blocks are
 * there: what was ever seen to be free is, but for those. What others have taken since shows as soon as it leaves less
 * than what is not ours.
 */
static uint64_t left_of_managed(const struct held *held, uint64_t driver_free)
{
	uint64_t charged = atomic_load(&held->device->budget.charged_bytes);
	uint64_t used = charged - gp_min(held->idle_bytes, charged);
	uint64_t most = atomic_load(&held->device->most_free_bytes), without_us;

	while (most < driver_free && !atomic_compare_exchange_weak(&held->device->most_free_bytes, &most, driver_free))
		;
	without_us = gp_min(driver_free + charged, gp_max(most, driver_free));
	return without_us - gp_min(used, without_us);
}

/* What a program sees that believes that it has no pool. */
static void look_without_pool(struct gp_context *context, size_t *free_bytes, size_t *total_bytes)
{
	struct held held = {.device = context->device};
	uint64_t limit = atomic_load(&context->device->budget.limit_bytes);
	uint64_t left = gp_budget_left(&context->device->budget), seen;

	gp_context_each(add_idle, &held);
	seen = gp_backend_is(context, GP_CONFIG_BACKEND_MANAGED) ? left_of_managed(&held, *free_bytes)
								 : *free_bytes + held.idle_bytes;
	*total_bytes = gp_min(*total_bytes, limit);
	*free_bytes = gp_min(seen, *total_bytes);
	if (left != GP_NO_LIMIT)
		*free_bytes = gp_min(*free_bytes, left + held.idle_bytes);
}

CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	struct gp_context *context;
	size_t driver_free = 0, driver_total = 0;
	CUresult r;

	if (!free_bytes && !total_bytes)
		return gp_real.cuMemGetInfo_v2(NULL, NULL);
	r = gp_real.cuMemGetInfo_v2(&driver_free, &driver_total);
	if (r)
		return gp_real.cuMemGetInfo_v2(free_bytes, total_bytes); /* which may write even so */
	context = gp_context_current();
	if (context) {
		look_without_pool(context, &driver_free, &driver_total);
		gp_context_put(context);
	}
	if (free_bytes)
		*free_bytes = driver_free;
	if (total_bytes)
		*total_bytes = driver_total;
	return CUDA_SUCCESS;
}

/* The program's block around an address; false if it is none of ours or free. */
static bool find_block(CUdeviceptr ptr, struct gp_block_info *info)
{
	gp_context_settle(&gp_state.device_map, ptr);
	return gp_debug_info(&gp_state.device_map, ptr, info) == 0 && info->is_used;
}

/* The same, or another process's that was opened here. */
static bool find_any_block(CUdeviceptr ptr, struct gp_block_info *info)
{
	return find_block(ptr, info) || gp_ipc_find(ptr, info);
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r = gp_real.cuMemGetAddressRange_v2(base, bytes, ptr);

	if (r || !find_any_block(ptr, &info))
		return r;
	if (base)
		*base = info.addr;
	if (bytes)
		*bytes = info.size;
	return CUDA_SUCCESS;
}

/* What belongs to no context, as far as the driver knows; what cuMemAlloc gives does. */
static bool is_ownerless(const struct gp_block_info *info)
{
	return info->is_mapped || gp_backend_of(info->addr) == GP_CONFIG_BACKEND_ASYNC;
}

static CUcontext owner_of(const struct gp_block_info *info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, info->addr);
	CUcontext handle = pool ? ((struct gp_context *)gp_pool_owner(pool))->handle : NULL;

	gp_pool_put(pool);
	return handle;
}

/* Puts our answer over the driver's, for the attributes that tell one allocation from another. */
static void answer_attribute(void *data, int attribute, const struct gp_block_info *info)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (is_ownerless(info))
			*(CUcontext *)data = owner_of(info);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = NULL; /* what there may be is none of the program's */
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = info->addr;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = info->size;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = BUFFER_ID_BASE + info->serial;
		break;
	default:
		break;
	}
}

/* The block is nobody else's afterwards, and those to come can go as the driver's own do. */
static void give_out(CUdeviceptr ptr, const char *how)
{
	gp_state_need_whole(how);
	gp_record(NULL, EXPORT, ptr);
	(void)gp_pool_export(&gp_state.device_map, ptr);
	gp_state_need_completion(how);
}

/*
 * Tokens for remote access stay with the allocation, as an export does. Who has them reaches the block by its address,
 * so they may be those of a shared segment.
 */
static void before_attribute(int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;

	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS && find_block(ptr, &info) && !info.is_mapped &&
		gp_backend_of(ptr) == GP_CONFIG_BACKEND_DEVICE)
		give_out(ptr, "peer-to-peer tokens");
}

CUresult hook_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r;

	before_attribute(attribute, ptr);
	r = gp_real.cuPointerGetAttribute(data, attribute, ptr);
	/* A driver may have no answer where we have one. */
	if (r && data && attribute == CU_POINTER_ATTRIBUTE_CONTEXT && find_block(ptr, &info) && is_ownerless(&info))
		r = CUDA_SUCCESS;
	if (!r && data && find_any_block(ptr, &info))
		answer_attribute(data, attribute, &info);
	return r;
}

CUresult hook_cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r;

	for (unsigned i = 0; attributes && i < n; i++)
		before_attribute(attributes[i], ptr);
	r = gp_real.cuPointerGetAttributes(n, attributes, data, ptr);
	if (!r && attributes && data && find_any_block(ptr, &info))
		for (unsigned i = 0; i < n; i++)
			if (data[i])
				answer_attribute(data[i], attributes[i], &info);
	return r;
}

/* The driver refuses it for what cuMemAlloc has not given; this says what to do. */
static void say_no_sync_memops(const struct gp_block_info *info, CUresult r)
{
	static _Atomic bool is_said;
	enum gp_config_backend backend = gp_backend_of(info->addr);

	if ((!info->is_mapped && backend == GP_CONFIG_BACKEND_DEVICE) || atomic_exchange(&is_said, true))
		return;
	if (info->is_mapped)
		gp_log(GP_LOG_WARN,
			"CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of memory of the kind vmm fails with error %d: "
			"GPUPOOL_POOL=split can have it",
			r);
	else
		gp_log(GP_LOG_WARN,
			"CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of memory of GPUPOOL_BACKEND=%s fails with error %d: "
			"GPUPOOL_BACKEND=device can have it",
			gp_backend_name(backend), r);
}

CUresult hook_cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r = CUDA_SUCCESS;
	bool is_block = find_block(ptr, &info), is_ours = is_block && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;

	/*
	 * It sticks to the driver's allocation, which is then kept from other owners. Who asks for it lets a device
	 * read the memory, and some do so when it was refused, too.
	 */
	if (is_ours)
		give_out(ptr, "synchronous memory operations for remote access");
	r = gp_real.cuPointerSetAttribute(value, attribute, ptr);
	if (r && is_ours)
		say_no_sync_memops(&info, r);
	/* Of mapped memory the driver says so of every attribute; of cuMemAlloc's, that there is no other to set. */
	if (r == CUDA_ERROR_NOT_SUPPORTED && is_block && !is_ours && info.is_mapped)
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}

/*
 * A range is exported as it is, so a piece of a shared segment may go, as long as it is one block's. If the block is a
 * whole driver allocation, the driver decides whether more may be exported than the block has.
 */
CUresult hook_cuMemGetHandleForAddressRange(
	void *handle, CUdeviceptr ptr, size_t bytes, int type, unsigned long long flags)
{
	static const char how[] = "a dma-buf handle";
	struct gp_block_info info;
	bool is_unlikely = false;
	CUresult r;

	gp_context_settle(&gp_state.device_map, ptr);
	if (gp_debug_info(&gp_state.device_map, ptr, &info) == 0) {
		if (!info.is_used || (!info.is_whole && bytes > info.addr + info.rounded - ptr))
			return CUDA_ERROR_INVALID_VALUE;
		/* Of other memory there may be none: who asks whether there is shall lose nothing by it. */
		is_unlikely = gp_backend_of(ptr) != GP_CONFIG_BACKEND_DEVICE;
		if (!is_unlikely)
			give_out(ptr, how);
	}
	r = gp_real.cuMemGetHandleForAddressRange(handle, ptr, bytes, type, flags);
	if (!r && is_unlikely)
		give_out(ptr, how);
	return r;
}
