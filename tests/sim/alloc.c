/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* cuMemAlloc and similar calls, pinned memory, and the frees that wait for the device. */

#include <stdint.h>

#include "capture.h"
#include "ledger.h"

#define ALLOC_NS_PER_MIB    100
#define FREE_NS_PER_MIB     150
#define PINNED_NS_PER_MIB   115000
#define REGISTER_NS_PER_MIB 15000
#define PITCH               512
#define REGISTER_FLAGS      15u /* portable, mapped, of a device, read-only */

static size_t size_of(const struct sim_block *block)
{
	return block->range.hi - block->range.lo;
}

struct hold {
	const struct sim_ctx *ctx;
	uint64_t id;
};

static bool is_held_back(const void *arg)
{
	const struct hold *hold = arg;

	return hold->ctx->id == hold->id && hold->ctx->alive && !hold->ctx->sticky && hold->ctx->waiting_frees;
}

/* While a thread is inside cuMemFree, other threads cannot allocate device memory in that context. */
static CUresult wait_for_frees(struct sim_ctx *ctx)
{
	struct hold hold = {ctx, ctx->id};

	if (!is_held_back(&hold))
		return CUDA_SUCCESS;
	SIM_TRY(sim_wait_while(is_held_back, &hold));
	return ctx->id == hold.id ? sim_ctx_check(ctx) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult alloc(enum sim_block_kind kind, CUdeviceptr *dptr, size_t bytes)
{
	struct sim_block *block;
	struct sim_ctx *ctx;

	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	if (kind == SIM_DEVICE)
		SIM_TRY(wait_for_frees(ctx));
	*dptr = 0; /* the output of a failed call */
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_block_new(kind, ctx, ctx->device, bytes, &block));
	sim_call_charge_bytes(bytes, ALLOC_NS_PER_MIB);
	*dptr = block->range.lo;
	return CUDA_SUCCESS;
}

/*
 * Waits for all earlier work of the block's context, as the driver does. Other threads cannot launch
 * work there meanwhile. The block counts as freed from the start, so that a second free is detected.
 */
CUresult sim_free_waiting(struct sim_block *block)
{
	struct sim_ctx *ctx = block->ctx;
	uint64_t id = ctx->id;
	CUresult result;

	SIM_TRY(sim_ctx_check(ctx));
	block->freed = true;
	ctx->waiting_frees++;
	result = sim_ctx_synchronize(ctx);
	ctx->waiting_frees--;
	sim_timeline_progress();
	if (ctx->id != id || !ctx->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	SIM_TRY(result);
	sim_call_charge_bytes(size_of(block), block->kind == SIM_PINNED ? PINNED_NS_PER_MIB : FREE_NS_PER_MIB);
	sim_block_free(block);
	return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr dptr)
{
	struct sim_block *block = sim_block_exact(dptr);
	struct sim_ctx *current;
	CUresult result = sim_ctx_current(&current);

	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return result; /* a free without a current context is allowed */
	if (!dptr)
		return CUDA_SUCCESS;
	if (!block || block->kind > SIM_MANAGED || block->kind == SIM_IMPORTED || block->kind == SIM_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	if (block->kind != SIM_POOLED)
		return sim_free_waiting(block);
	if (!block->of_graph)
		sim_pool_take_back(block); /* the driver promises no wait for stream-ordered memory */
	return CUDA_SUCCESS;
}

/* The 32-bit form. No device address fits into its output, as on a real 64-bit machine. */
CUresult cuMemAlloc(unsigned *dptr, unsigned bytes)
{
	SIM_BEGIN(cuMemAlloc);
	return dptr && bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
	SIM_BEGIN(cuMemAlloc_v2);
	return alloc(SIM_DEVICE, dptr, bytes);
}

CUresult cuMemFree(unsigned dptr)
{
	SIM_BEGIN(cuMemFree);
	return mem_free(dptr);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	SIM_BEGIN(cuMemFree_v2);
	return mem_free(dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	size_t row = (width + PITCH - 1) / PITCH * PITCH;
	CUresult result;

	SIM_BEGIN(cuMemAllocPitch_v2);
	if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (row < width || height > SIZE_MAX / row)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = alloc(SIM_DEVICE, dptr, row * height);
	if (!result || result == CUDA_ERROR_OUT_OF_MEMORY)
		*pitch = row;
	return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)
{
	SIM_BEGIN(cuMemAllocManaged);
	if (!flags || flags >= CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc(SIM_MANAGED, dptr, bytes);
}

static CUresult alloc_host(void **ptr, size_t bytes, unsigned flags)
{
	struct sim_block *block;
	struct sim_ctx *ctx;

	if (!ptr || flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
					CU_MEMHOSTALLOC_WRITECOMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	*ptr = NULL;
	if (!bytes)
		return CUDA_SUCCESS;
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_block_new(SIM_PINNED, ctx, ctx->device, bytes, &block));
	sim_call_charge_bytes(bytes, PINNED_NS_PER_MIB);
	/* All pinned memory is mapped and portable. cuMemHostGetFlags reports the former, and not the latter. */
	block->host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
	*ptr = (void *)(uintptr_t)block->range.lo;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	SIM_BEGIN(cuMemAllocHost_v2);
	return alloc_host(ptr, bytes, 0);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	SIM_BEGIN(cuMemHostAlloc);
	return alloc_host(ptr, bytes, flags);
}

CUresult cuMemFreeHost(void *ptr)
{
	struct sim_block *block;

	SIM_BEGIN(cuMemFreeHost);
	if (!ptr)
		return CUDA_SUCCESS;
	block = sim_block_exact((uint64_t)(uintptr_t)ptr);
	if (!block || block->kind != SIM_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	return sim_free_waiting(block);
}

static struct sim_block *host_block(const void *ptr)
{
	struct sim_block *block = sim_block_at((uint64_t)(uintptr_t)ptr);

	return block && block->kind >= SIM_PINNED && !block->freed ? block : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *ptr, unsigned flags)
{
	SIM_BEGIN(cuMemHostGetDevicePointer_v2);
	if (!dptr || flags || !host_block(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr)(uintptr_t)ptr;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *ptr)
{
	const struct sim_block *block;

	SIM_BEGIN(cuMemHostGetFlags);
	block = host_block(ptr);
	if (!flags || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = block->host_flags;
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	const struct sim_range *next;
	const struct sim_block *block;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuMemHostRegister_v2);
	if (!ptr || !bytes || addr + bytes < addr || sim_address_is_device(addr) || flags & ~REGISTER_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	block = host_block(ptr);
	if (block && block->kind == SIM_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	next = sim_range_after(sim_blocks, addr);
	if (next && next->lo < addr + bytes)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	sim_block_enter(SIM_REGISTERED, ctx, addr, bytes)->host_flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
	sim_call_charge_bytes(bytes, REGISTER_NS_PER_MIB);
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *ptr)
{
	struct sim_block *block;

	SIM_BEGIN(cuMemHostUnregister);
	block = sim_block_exact((uint64_t)(uintptr_t)ptr);
	if (!ptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (!block && !host_block(ptr))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (!block || block->kind != SIM_REGISTERED)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_capture_unsafe());
	return sim_free_waiting(block);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuMemGetInfo_v2);
	if (!free_bytes && !total_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	if (free_bytes)
		*free_bytes = ctx->device->capacity - ctx->device->used - sim_ledger_others(ctx->device->ordinal);
	if (total_bytes)
		*total_bytes = ctx->device->capacity;
	return CUDA_SUCCESS;
}
