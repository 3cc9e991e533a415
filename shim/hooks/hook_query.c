/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Hooks of queries about memory, whose answers must match what the program expects: each of its blocks is a separate
 * allocation, and cached memory is free.
 *
 * Also hooks that export memory. A block that is a whole driver allocation may be exported, and is never handed to
 * another owner afterwards. The driver would export a part of a segment together with its neighbours, so such an
 * export is refused, or goes by other means (ipc.h). From the first export on every new block is a whole driver
 * allocation.
 */

#include "shim/backend/backend_supply.h"
#include "made_pool.h"
#include "shim/backend/default_pool.h"
#include "shim/backend/pointer_answers.h"
#include "shim/backend/sleep.h"
#include "shim/backend/spill.h"
#include "shim/base/log.h"
#include "shim/backend/foreign_free.h"
#include "shim/context/group.h"
#include "shim/context/context_end.h"
#include "shim/context/kept.h"
#include "shim/context/kept_table.h"
#include "shim/context/memops.h"
#include "shim/context/program_map.h"
#include "shim/context/survivor.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/ipc/ipc.h"
#include "shim/process.h"
#include "shim/record/record.h"

/*
 * Base of the buffer ids of blocks, above every id of the driver. A block gets a new id each time it is handed out.
 */
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
	/* The program cannot get memory that is retained for a graph. */
	held->idle_bytes += stats.cached_bytes + stats.pending_bytes - stats.retained_bytes + stats.returning_bytes;
}

static void add_idle(void *arg, struct gp_context *context)
{
	const struct held *held = arg;

	if (context->device == held->device)
		gp_context_each_pool(context, add_idle_of, arg);
}

/*
 * Returns the free memory to report with managed memory, of which the driver moves pages on and off the device. The
 * program expects all of its blocks to be on the device. So the answer is the memory that would be free without
 * gpupool, less the program's blocks. The former is estimated as the most that was ever seen free, but at most the free
 * memory now plus that of gpupool: other users of the device have taken the rest.
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

static bool shows_own_memory(void)
{
	const struct gp_config *config = &gp_state.config;

	if (config->view == GP_CONFIG_VIEW_AUTO)
		return config->source[GP_OPTION_LIMIT] == GP_CONFIG_SCHEDULER;
	return config->view == GP_CONFIG_VIEW_OWN;
}

/* Changes the driver's answer to the one that the program would get if all of its freed memory had gone back. */
static void count_idle_as_free(struct gp_context *context, size_t *free_bytes, size_t *total_bytes)
{
	struct held held = {.device = context->device, .idle_bytes = gp_kept_unused(context->device)};
	uint64_t limit = gp_min(atomic_load(&context->device->budget.limit_bytes), gp_group_limit(context->device));
	uint64_t left = gp_budget_left_of_all(&context->device->budget), seen;

	gp_context_each(add_idle, &held);
	/* The process takes back what is asleep before its next work, so that is not free. */
	*free_bytes -= gp_min(*free_bytes, gp_sleep_bytes_of(context->device->index));
	seen = gp_context_backend_is(context, GP_CONFIG_BACKEND_MANAGED) ? left_of_managed(&held, *free_bytes)
									 : *free_bytes + held.idle_bytes;
	*total_bytes = gp_min(*total_bytes, limit);
	/* Programs size themselves by this answer, which must not depend on the memory of their neighbours. */
	*free_bytes = gp_min(left != GP_NO_LIMIT && shows_own_memory() ? UINT64_MAX : seen, *total_bytes);
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
	gp_foreign_poll();
	r = gp_real.cuMemGetInfo_v2(&driver_free, &driver_total);
	if (r)
		return gp_real.cuMemGetInfo_v2(free_bytes, total_bytes); /* may write its outputs despite the error */
	context = gp_context_current();
	if (context) {
		/* The process joins its group here, and may have to say that it cannot. */
		if (context->device->budget.group)
			gp_process_start();
		count_idle_as_free(context, &driver_free, &driver_total);
		gp_context_put(context);
	}
	if (free_bytes)
		*free_bytes = driver_free;
	if (total_bytes)
		*total_bytes = driver_total;
	return CUDA_SUCCESS;
}

/*
 * Finds the program's block around an address. Returns false if the address is not in a segment, or in a free block.
 */
static bool find_block(CUdeviceptr ptr, struct gp_block_info *info)
{
	gp_context_settle(&gp_state.device_map, ptr);
	return gp_debug_info(&gp_state.device_map, ptr, info) == 0 && info->is_used;
}

/* Works like find_block, and also finds a block of another process that is open here, or of an ended context. */
static bool find_any_block(CUdeviceptr ptr, struct gp_block_info *info)
{
	return find_block(ptr, info) || gp_ipc_find(ptr, info) || gp_survivor_find(ptr, info, NULL);
}

/*
 * True if the memory is not gpupool's: it is not pooled, here or in another process, and the process has no memory that
 * gpupool keeps mapped (kept.h), or has kept so. Such memory does not move, and the driver's answers about it stand.
 */
static bool is_foreign(CUdeviceptr ptr)
{
	struct gp_block_info info;
	struct gp_pool *pool;

	if (gp_kept_is_any() || gp_program_map_is_any_id())
		return false;
	pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	gp_pool_put(pool);
	return !pool && !gp_ipc_find(ptr, &info) && !gp_survivor_find(ptr, &info, NULL);
}

/* Results of gate(). */
enum gate {
	VISITS, /* the gate is open, and the call is a visit: gp_submit_end_visit must follow */
	PASSES, /* the memory is not pooled: it does not move, so the driver may be asked */
	AWAY    /* a block of the program whose memory may be asleep: answer without the driver, or begin a visit */
};

/*
 * Begins a query about an address. While the process is asleep, most queries wake nothing: about blocks of the program
 * the pool knows the answers, and other memory stays where it is.
 */
static enum gate gate(CUdeviceptr ptr, struct gp_block_info *info, int *ret_device)
{
	struct gp_pool *pool;

	if (gp_likely(gp_submission_visit(&gp_submitted)))
		return VISITS;
	pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	if (!pool)
		return PASSES;
	*ret_device = ((struct gp_context *)gp_pool_owner(pool))->device->index;
	gp_pool_put(pool);
	if (find_block(ptr, info) && info->is_mapped)
		return AWAY;
	gp_submit_visit_again();
	return VISITS;
}

static CUresult pass(enum gate gate, CUresult r)
{
	if (gate == VISITS)
		gp_submit_end_visit();
	return r;
}

static CUresult answer_range(CUdeviceptr *base, size_t *bytes, const struct gp_block_info *info)
{
	if (base)
		*base = info->addr;
	if (bytes)
		*bytes = info->size;
	return CUDA_SUCCESS;
}

static CUresult ask_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r = gp_kept_settle(ptr);

	if (!r)
		r = gp_real.cuMemGetAddressRange_v2(base, bytes, ptr);
	return r || !find_any_block(ptr, &info) ? r : answer_range(base, bytes, &info);
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	struct gp_block_info info;
	enum gate begun;
	int device;

	if (is_foreign(ptr))
		return gp_real.cuMemGetAddressRange_v2(base, bytes, ptr);
	begun = gate(ptr, &info, &device);
	return begun == AWAY ? answer_range(base, bytes, &info) : pass(begun, ask_range(base, bytes, ptr));
}

/* Returns true if the driver knows no context for the block's memory: it is mapped, or from a stream-ordered pool. */
static bool is_ownerless(const struct gp_block_info *info)
{
	return info->is_mapped || gp_backend_of(info->addr) == GP_CONFIG_BACKEND_ASYNC;
}

/* Returns false for a block of another process that is open here, or of an ended context. */
static bool is_own(const struct gp_block_info *info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, info->addr);

	gp_pool_put(pool);
	return pool != NULL;
}

static CUcontext owner_of(const struct gp_block_info *info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, info->addr);
	CUcontext handle = pool ? ((struct gp_context *)gp_pool_owner(pool))->handle : gp_ipc_context_of(info->addr);

	gp_pool_put(pool);
	return handle;
}

/* Returns the pool that the program takes a block that it allocated in stream order to be from. */
static CUmemoryPool pool_at(const struct gp_block_info *info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, info->addr);
	const struct gp_device *device = pool ? ((struct gp_context *)gp_pool_owner(pool))->device : NULL;
	struct gp_block_info survivor;

	gp_pool_put(pool);
	if (!device && !gp_survivor_find(info->addr, &survivor, &device))
		return NULL;
	return info->account ? gp_made_pool_of(device->index, info->account) : gp_default_pool(device);
}

/* Returns the device of a block, of a living context or an ended one; NULL: the memory is not pooled. */
static const struct gp_device *device_of(CUdeviceptr ptr, bool *ret_is_rdma_capable)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	const struct gp_context *context = pool ? gp_pool_owner(pool) : NULL;
	const struct gp_device *device = context ? context->device : NULL;
	struct gp_block_info survivor;

	*ret_is_rdma_capable = context && context->is_rdma_capable;
	gp_pool_put(pool);
	if (!device)
		(void)gp_survivor_find(ptr, &survivor, &device);
	return device;
}

/* Memory that is in the host for a while is device memory to the program. */
static void answer_as_device(void *data, int attribute, CUdeviceptr ptr)
{
	bool is_rdma_capable;
	const struct gp_device *device = device_of(ptr, &is_rdma_capable);

	if (device && attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
	else if (device && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*(int *)data = device->index;
	else if (device && attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
		*(void **)data = NULL;
	else if (device && attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)
		*(unsigned char *)data = is_rdma_capable;
}

/* True if the memory may be in the host. Memory that has outlived its context stays there. */
static bool may_be_in_host(CUdeviceptr ptr)
{
	struct gp_block_info survivor;

	return gp_spill_is_there(ptr) || (gp_state.config.spill_bytes && gp_survivor_find(ptr, &survivor, NULL));
}

/* True if a legacy IPC handle of the mapped block could be made. */
static bool is_ipc_capable(const struct gp_block_info *info)
{
	CUresult error;

	return is_own(info) && !gp_ipc_why_not_mapped(info->addr, &error);
}

/* True if the program has set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS for mapped memory of the block's context. */
static bool is_synchronised(const struct gp_block_info *info)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, info->addr);
	const struct gp_context *context = pool ? gp_pool_owner(pool) : NULL;
	bool is_so = context && atomic_load(&context->syncs_memops);

	gp_pool_put(pool);
	return is_so;
}

/* Replaces the driver's answer for attributes that tell one allocation from another. */
static void answer_attribute(void *data, int attribute, const struct gp_block_info *info)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		/* Memory of the driver's pools has no context. */
		if (is_ownerless(info))
			*(CUcontext *)data = info->is_of_stream ? NULL : owner_of(info);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		/* A pool that gpupool made is not the program's. */
		*(CUmemoryPool *)data = info->is_of_stream ? pool_at(info) : NULL;
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
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		/* The first byte is enough, of whatever size the driver's 0 or 1 is. */
		if (info->is_of_stream)
			*(unsigned char *)data = 0;
		else if (info->is_mapped && is_ipc_capable(info))
			*(unsigned char *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		/* With the flag all memory of the context has it. Blocks that are not exported do not show it. */
		if (info->is_mapped && is_synchronised(info))
			*(unsigned char *)data = info->is_retired;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		if (info->is_mapped)
			*(unsigned char *)data = 0; /* as of memory from cuMemAlloc; all types are in the first byte */
		break;
	default:
		break;
	}
}

/*
 * Marks a block as exported: it is not handed to another owner, and new blocks of its sort are whole driver allocations
 * unless they are mapped.
 */
static void mark_exported(CUdeviceptr ptr, const struct gp_block_info *info, const char *why)
{
	if (!info->is_mapped)
		gp_context_need_whole(why);
	gp_record(NULL, EXPORT, ptr);
	(void)gp_pool_export(&gp_state.device_map, ptr);
	gp_context_need_completion(why);
}

/*
 * Tokens for remote access stay valid as long as the driver allocation, like an export. A holder of tokens reaches the
 * block by its address, so the segment may have other blocks.
 */
static void before_attribute(int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;

	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		(void)gp_kept_end(ptr, 1);
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS && find_block(ptr, &info) &&
		gp_backend_of(ptr) == GP_CONFIG_BACKEND_DEVICE)
		mark_exported(ptr, &info, "the program asked for peer-to-peer tokens");
}

/* Memory that the program maps itself has a new buffer id each time it is handed out, too. */
static void answer_kept_buffer_id(void *data, CUdeviceptr ptr)
{
	uint64_t id = gp_kept_buffer_id(ptr);

	if (id)
		*(unsigned long long *)data = id;
}

/* Answers without the driver, as it has answered about other memory of the device. The answer must be known. */
static void answer_away(
	void *data, int attribute, CUdeviceptr ptr, const struct gp_block_info *info, int device, bool is_of_list)
{
	(void)gp_pointer_answer(device, attribute, is_of_list, data);
	if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
		*(CUdeviceptr *)data = ptr;
	answer_attribute(data, attribute, info);
}

static CUresult ask_attribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r;

	before_attribute(attribute, ptr);
	r = gp_kept_settle(ptr);
	if (!r)
		r = gp_real.cuPointerGetAttribute(data, attribute, ptr);
	/* The driver may have no answer for memory of which gpupool knows the context. */
	if (r && data && attribute == CU_POINTER_ATTRIBUTE_CONTEXT && find_any_block(ptr, &info) && is_ownerless(&info))
		r = CUDA_SUCCESS;
	/* The driver has no answer for device memory. */
	if (!r && data && attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && may_be_in_host(ptr))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && data && may_be_in_host(ptr))
		answer_as_device(data, attribute, ptr);
	if (!r && data && find_any_block(ptr, &info))
		answer_attribute(data, attribute, &info);
	else if (!r && data && attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		answer_kept_buffer_id(data, ptr);
	return r;
}

CUresult hook_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;
	enum gate begun;
	int device;

	if (is_foreign(ptr))
		return gp_real.cuPointerGetAttribute(data, attribute, ptr);
	begun = gate(ptr, &info, &device);
	/* The driver may have no answer about the context of mapped memory, but gpupool does. */
	if (begun == AWAY && data &&
		(attribute == CU_POINTER_ATTRIBUTE_CONTEXT || gp_pointer_answer(device, attribute, false, NULL))) {
		answer_away(data, attribute, ptr, &info, device, false);
		return CUDA_SUCCESS;
	}
	if (begun == AWAY) {
		gp_submit_visit_again();
		begun = VISITS;
	}
	return pass(begun, ask_attribute(data, attribute, ptr));
}

static CUresult ask_attributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	struct gp_block_info info;
	bool is_block;
	CUresult r;

	for (unsigned i = 0; attributes && i < n; i++)
		before_attribute(attributes[i], ptr);
	r = gp_kept_settle(ptr);
	if (r)
		return r;
	r = gp_real.cuPointerGetAttributes(n, attributes, data, ptr);
	if (r || !attributes || !data)
		return r;
	is_block = find_any_block(ptr, &info);
	for (unsigned i = 0; may_be_in_host(ptr) && i < n; i++)
		if (data[i])
			answer_as_device(data[i], attributes[i], ptr);
	for (unsigned i = 0; i < n; i++) {
		if (data[i] && is_block)
			answer_attribute(data[i], attributes[i], &info);
		else if (data[i] && attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
			answer_kept_buffer_id(data[i], ptr);
	}
	return r;
}

/* True if all answers are known. */
static bool are_known(unsigned n, const int *attributes, void **data, int device)
{
	for (unsigned i = 0; i < n; i++)
		if (!attributes || !data || !data[i] || !gp_pointer_answer(device, attributes[i], true, NULL))
			return false;
	return n != 0;
}

CUresult hook_cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	struct gp_block_info info;
	enum gate begun;
	int device;

	if (is_foreign(ptr))
		return gp_real.cuPointerGetAttributes(n, attributes, data, ptr);
	begun = gate(ptr, &info, &device);
	if (begun == AWAY && are_known(n, attributes, data, device)) {
		for (unsigned i = 0; i < n; i++)
			answer_away(data[i], attributes[i], ptr, &info, device, true);
		return CUDA_SUCCESS;
	}
	if (begun == AWAY) {
		gp_submit_visit_again();
		begun = VISITS;
	}
	return pass(begun, ask_attributes(n, attributes, data, ptr));
}

/* Logs once that the attribute cannot be set for memory that is not from cuMemAlloc, and how to get that. */
static void log_no_sync_memops(const struct gp_block_info *info, CUresult r)
{
	static _Atomic bool is_logged;
	enum gp_config_backend backend = gp_backend_of(info->addr);

	if (info->is_mapped ? r != CUDA_ERROR_NOT_SUPPORTED : backend == GP_CONFIG_BACKEND_DEVICE)
		return;
	if (atomic_exchange(&is_logged, true))
		return;
	if (info->is_mapped)
		gp_log(GP_LOG_WARN,
			"setting CU_POINTER_ATTRIBUTE_SYNC_MEMOPS fails with error %d, since mapped memory needs a "
			"driver of CUDA 12.1 for it; use %s",
			r, info->is_of_stream ? "GPUPOOL_ASYNC=off" : "GPUPOOL_POOL=split");
	else
		gp_log(GP_LOG_WARN,
			"setting CU_POINTER_ATTRIBUTE_SYNC_MEMOPS fails with error %d, since memory of "
			"GPUPOOL_BACKEND=%s does not support it; use GPUPOOL_BACKEND=device",
			r, gp_backend_name(backend));
}

/* Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of mapped memory; in the current context if the memory belongs to no pool. */
static CUresult synchronise_memops(CUdeviceptr ptr, const unsigned *value)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	struct gp_context *current = pool ? NULL : gp_context_current();
	struct gp_context *context = pool ? gp_pool_owner(pool) : current;
	CUresult r = context && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (!r && *value)
		r = gp_memops_synchronise(context);
	gp_context_put(current);
	gp_pool_put(pool);
	return r;
}

CUresult hook_cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr ptr)
{
	struct gp_block_info info;
	CUresult r = CUDA_SUCCESS;
	bool is_block = find_block(ptr, &info) || gp_survivor_find(ptr, &info, NULL);
	bool is_imported = !is_block && gp_ipc_find(ptr, &info);
	bool is_ours = is_block && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
	bool is_mapped = (is_block || is_imported) && info.is_mapped;

	/*
	 * The attribute stays set for the whole driver allocation, so the block must not get another owner. A program
	 * that sets it lets another device read the memory, and some programs do so even if the driver refused.
	 */
	if (is_ours)
		mark_exported(ptr, &info, "the program set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS");
	r = gp_kept_end(ptr, 1);
	if (r)
		return r;
	if (is_mapped && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		r = synchronise_memops(ptr, value);
	else
		r = gp_real.cuPointerSetAttribute(value, attribute, ptr);
	if (r && is_ours)
		log_no_sync_memops(&info, r);
	/*
	 * For mapped memory the driver returns this error for every attribute. For memory of cuMemAlloc, which the
	 * program expects, it returns the error below for attributes that cannot be set.
	 */
	if (r == CUDA_ERROR_NOT_SUPPORTED && is_mapped && attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}

/*
 * The driver exports just the range, so a part of a segment with other blocks may be exported if it lies in one
 * block. If the block is a whole driver allocation, the driver decides whether the range may be larger than the
 * block.
 */
CUresult hook_cuMemGetHandleForAddressRange(
	void *handle, CUdeviceptr ptr, size_t bytes, int type, unsigned long long flags)
{
	static const char why[] = "the program exported a dma-buf";
	struct gp_block_info info;
	bool marks_later = false;
	CUresult r;

	gp_context_settle(&gp_state.device_map, ptr);
	if (gp_debug_info(&gp_state.device_map, ptr, &info) == 0) {
		if (!info.is_used || (!info.is_whole && bytes > info.addr + info.rounded - ptr))
			return CUDA_ERROR_INVALID_VALUE;
		/*
		 * The driver may have no handle for memory that is not from cuMemAlloc. An attempt that fails must have
		 * no effect, so such a block is marked after success.
		 */
		if (!gp_spill_settle(ptr))
			return CUDA_ERROR_OUT_OF_MEMORY;
		marks_later = gp_backend_of(ptr) != GP_CONFIG_BACKEND_DEVICE;
		if (!marks_later)
			mark_exported(ptr, &info, why);
	}
	r = gp_kept_end(ptr, bytes);
	if (r)
		return r;
	r = gp_real.cuMemGetHandleForAddressRange(handle, ptr, bytes, type, flags);
	if (!r && marks_later)
		mark_exported(ptr, &info, why);
	return r;
}
