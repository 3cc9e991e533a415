/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Stream-ordered memory. A freed block stays in its pool, and counts as used device memory, until the
 * host synchronises or trims. The pool then keeps only as much as its release threshold.
 * cuMemFreeAsync also accepts memory of cuMemAlloc: it never waits, and the memory is free once the
 * stream has been synchronised.
 */

#include <stdlib.h>

#include "capture.h"
#include "race.h"

static size_t size_of(const struct sim_block *block)
{
	return block->range.hi - block->range.lo;
}

static void update_peaks(struct sim_pool *pool)
{
	if (pool->used_high < pool->used_bytes)
		pool->used_high = pool->used_bytes;
	if (pool->reserved_high < pool->reserved_bytes)
		pool->reserved_high = pool->reserved_bytes;
}

static struct sim_pool *created_pools; /* the pools that the program created */

void sim_pools_init(struct sim_device *device)
{
	device->pool.device = device;
	device->current_pool = &device->pool;
}

static void trim(struct sim_pool *pool, uint64_t keep_bytes)
{
	while (pool->cached && pool->reserved_bytes > keep_bytes) {
		struct sim_block *block = pool->cached;

		pool->cached = block->next;
		pool->reserved_bytes -= size_of(block);
		sim_block_free(block);
	}
}

void sim_pools_trim(const struct sim_device *device)
{
	struct sim_pool *first = &sim_devices[device->ordinal].pool;

	trim(first, first->threshold);
	for (struct sim_pool *pool = created_pools; pool; pool = pool->next)
		if (pool->device == device)
			trim(pool, pool->threshold);
}

static void free_if_unused(struct sim_pool *pool)
{
	struct sim_pool **link = &created_pools;

	if (!pool->is_destroyed || pool->used_bytes)
		return;
	trim(pool, 0);
	while (*link != pool)
		link = &(*link)->next;
	*link = pool->next;
	free(pool);
}

void sim_pool_take_back(struct sim_block *block)
{
	struct sim_pool *pool = block->pool;

	block->freed = block->released = true;
	block->next = pool->cached;
	pool->cached = block;
	pool->used_bytes -= size_of(block);
	free_if_unused(pool);
}

void sim_stream_release_freed(struct sim_stream *stream)
{
	while (stream->freed_blocks) {
		struct sim_block *block = stream->freed_blocks;

		stream->freed_blocks = block->next;
		sim_block_free(block);
	}
}

static struct sim_block *take_cached(struct sim_pool *pool, size_t bytes)
{
	size_t size = bytes <= SIM_SMALL_BYTES ? sim_slab_round(bytes) : bytes;
	struct sim_block **link = &pool->cached, *block;

	while (*link && size_of(*link) != size)
		link = &(*link)->next;
	block = *link;
	if (!block)
		return NULL;
	*link = block->next;
	block->freed = block->released = false;
	block->requested_bytes = bytes;
	sim_race_forget(block->range.lo, block->range.hi);
	return block;
}

static CUresult take(struct sim_pool *pool, size_t bytes, struct sim_block **block)
{
	*block = take_cached(pool, bytes);
	if (!*block) {
		SIM_TRY(sim_block_new(SIM_POOLED, NULL, pool->device, bytes, block));
		(*block)->pool = pool;
		pool->reserved_bytes += size_of(*block);
	}
	pool->used_bytes += size_of(*block);
	update_peaks(pool);
	return CUDA_SUCCESS;
}

static CUresult alloc_from(struct sim_pool *pool, CUdeviceptr *dptr, size_t bytes, struct sim_stream *stream)
{
	struct sim_op op = {.kind = SIM_MARK, .name = "cuMemAllocAsync"};
	struct sim_block *block;

	SIM_TRY(take(pool ? pool : stream->ctx->device->current_pool, bytes, &block));
	block->of_graph = stream->capture;
	sim_op_touch(&op, block->range.lo, size_of(block), SIM_WRITE);
	if (block->of_graph)
		op.block = block; /* the block lives as long as the graph */
	*dptr = block->range.lo;
	return sim_stream_submit(stream, &op);
}

static struct sim_pool *pool_of(CUmemoryPool handle)
{
	struct sim_pool *pool = created_pools;

	for (unsigned i = 0; i < sim.config.devices; i++)
		if (handle == (CUmemoryPool)&sim_devices[i].pool)
			return &sim_devices[i].pool;
	while (pool && handle != (CUmemoryPool)pool)
		pool = pool->next;
	return pool && !pool->is_destroyed ? pool : NULL;
}

static CUresult alloc_async(
	CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream_handle, bool per_thread, bool named)
{
	struct sim_pool *pool = named ? pool_of(handle) : NULL;
	struct sim_stream *stream;

	if (!dptr || (named && !pool))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	*dptr = 0;
	if (!bytes)
		return CUDA_SUCCESS;
	if (stream->capture && stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	SIM_TRY(sim_capture_implicit(stream));
	if (!stream->capture)
		SIM_TRY(sim_capture_unsafe());
	return alloc_from(pool, dptr, bytes, stream);
}

SIM_STREAM_PAIR(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytes, CUstream stream),
	alloc_async(dptr, bytes, NULL, stream, per_thread, false))
SIM_STREAM_PAIR(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr * dptr, size_t bytes, CUmemoryPool pool, CUstream stream),
	alloc_async(dptr, bytes, pool, stream, per_thread, true))

/* In a capture only memory that the same graph allocates can be freed. It stays until the graph is destroyed. */
static CUresult free_captured(const struct sim_block *block, struct sim_stream *stream)
{
	struct sim_op op = {.kind = SIM_MARK, .name = "cuMemFreeAsync"};

	if (!block->of_graph)
		return CUDA_ERROR_INVALID_VALUE;
	sim_op_touch(&op, block->range.lo, size_of(block), SIM_WRITE);
	return sim_stream_submit(stream, &op);
}

/*
 * In a real driver a second cuMemFreeAsync of cuMemAlloc memory succeeds, and the program crashes
 * later. The simulator returns an error at once, and reports it.
 */
static void report_second_free(CUdeviceptr dptr)
{
	const struct sim_block *block = sim_block_at(dptr);

	if (!block || block->range.lo != dptr || block->kind != SIM_DEVICE)
		return;
	sim.invalid_uses++;
	sim_print("invalid use: %s of %#llx, which was freed before", sim_call_name(), (unsigned long long)dptr);
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream_handle, bool per_thread)
{
	struct sim_op op = {.kind = SIM_RELEASE, .name = "cuMemFreeAsync"};
	struct sim_block *block = sim_block_exact(dptr);
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	if (!dptr)
		return CUDA_SUCCESS;
	if (!block || block->kind > SIM_POOLED) {
		report_second_free(dptr);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (stream->capture || block->of_graph)
		return free_captured(block, stream);
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_capture_implicit(stream));
	if (block->kind == SIM_DEVICE && !sim.config.cost_given[FN_cuMemFreeAsync]) {
		sim_call_spend(4000);
		sim_timeline_pass(4000);
	}
	block->freed = true;
	op.block = block;
	sim_op_touch(&op, block->range.lo, size_of(block), SIM_WRITE);
	return sim_stream_push(stream, &op, NULL);
}

SIM_STREAM_PAIR(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream stream), free_async(dptr, stream, per_thread))

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceGetDefaultMemPool);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*pool = (CUmemoryPool)&device->pool;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceGetMemPool);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*pool = (CUmemoryPool)device->current_pool;
	return CUDA_SUCCESS;
}

static CUresult set_current(CUdevice ordinal, CUmemoryPool handle)
{
	struct sim_pool *pool = pool_of(handle);
	struct sim_device *device;

	SIM_TRY(sim_device_of(ordinal, &device));
	if (!pool || pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	device->current_pool = pool;
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
	SIM_BEGIN(cuDeviceSetMemPool);
	return set_current(ordinal, handle);
}

static bool is_of_device(const CUmemLocation *location, int type)
{
	return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

/* The simulator has only pools of device memory. */
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	struct sim_device *device;

	SIM_BEGIN(cuMemGetMemPool);
	if (!pool || !is_of_device(location, type))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(location->id, &device));
	*pool = (CUmemoryPool)device->current_pool;
	return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool handle)
{
	SIM_BEGIN(cuMemSetMemPool);
	return is_of_device(location, type) ? set_current(location->id, handle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
	struct sim_device *device;
	struct sim_pool *pool;

	SIM_BEGIN(cuMemPoolCreate);
	if (!handle || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
		props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(props->location.id, &device));
	pool = sim_alloc_zeroed(1, sizeof(*pool));
	pool->device = device;
	pool->next = created_pools;
	created_pools = pool;
	*handle = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

/* Memory that is allocated from the pool stays valid. */
CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct sim_pool *pool = pool_of(handle);

	SIM_BEGIN(cuMemPoolDestroy);
	if (!pool || pool == &pool->device->pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool->device->current_pool == pool)
		pool->device->current_pool = &pool->device->pool;
	pool->is_destroyed = true;
	free_if_unused(pool);
	return CUDA_SUCCESS;
}

/* The pool's own device always has access, and cannot be named here. */
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access, size_t n)
{
	struct sim_pool *pool = pool_of(handle);
	struct sim_device *device;

	SIM_BEGIN(cuMemPoolSetAccess);
	if (!pool || !access || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		SIM_TRY(sim_device_of(access[i].location.id, &device));
		if (device == pool->device)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned bit = 1u << access[i].location.id;

		pool->access = access[i].flags ? pool->access | bit : pool->access & ~bit;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes)
{
	struct sim_pool *pool = pool_of(handle);

	SIM_BEGIN(cuMemPoolTrimTo);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	trim(pool, keep_bytes);
	return CUDA_SUCCESS;
}

/* Returns the variable of an attribute. Returns NULL for the reuse policies, which the simulator ignores. */
static uint64_t *attribute_of(struct sim_pool *pool, int attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->reserved_bytes;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->used_bytes;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high;
	}
	return NULL;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value)
{
	struct sim_pool *pool = pool_of(handle);
	uint64_t *variable;

	SIM_BEGIN(cuMemPoolSetAttribute);
	if (!pool || !value || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	variable = attribute_of(pool, attribute);
	if (variable && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*variable = *(uint64_t *)value;
	else if (variable)
		*variable = attribute_of(pool, attribute - 1)[0]; /* restarts a high-water mark */
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value)
{
	struct sim_pool *pool = pool_of(handle);
	const uint64_t *variable;

	SIM_BEGIN(cuMemPoolGetAttribute);
	if (!pool || !value || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	variable = attribute_of(pool, attribute);
	if (variable)
		*(uint64_t *)value = *variable;
	else
		*(int *)value = 1;
	return CUDA_SUCCESS;
}
