/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Queries about pointers, and handles that let devices reach the memory behind them. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctx.h"

static uint64_t size_of(const struct sim_block *block)
{
	return block->range.hi - block->range.lo;
}

static CUcontext context_of(const struct sim_block *block)
{
	if (block->kind == SIM_MAPPED || block->kind == SIM_POOLED)
		return NULL; /* mapped memory and pools belong to the device */
	return (CUcontext)(block->ctx ? block->ctx : block->device->primary);
}

/* Returns P2P tokens. As documented, this makes synchronous operations on the memory really synchronous. */
static void give_tokens(struct sim_block *block, unsigned long long *tokens)
{
	block->sync_memops = true;
	tokens[0] = block->id;
	tokens[1] = 0;
}

/* Returns true if the block is mapped memory that was created for GPUDirect RDMA. */
static bool is_capable(const struct sim_block *block)
{
	return block->kind == SIM_MAPPED && sim_physical_properties(block->physical)->allocFlags.gpuDirectRDMACapable;
}

/* Returns true for memory of the host, also where it is mapped at reserved addresses. */
static bool is_of_host(const struct sim_block *block)
{
	return block->kind > SIM_MANAGED || (block->kind == SIM_MAPPED && !sim_physical_device(block->physical));
}

static int handle_types(const struct sim_block *block)
{
	return block->kind == SIM_MAPPED ? sim_physical_properties(block->physical)->requestedHandleTypes : 0;
}

/* For mapped memory the context decides. */
static bool syncs_memops(const struct sim_block *block)
{
	struct sim_ctx *ctx;

	if (block->kind != SIM_MAPPED)
		return block->sync_memops;
	return !sim_ctx_current(&ctx) && ctx->flags & CU_CTX_SYNC_MEMOPS;
}

#define PUT(type, value)                           \
	do {                                       \
		type put_ = (type)(value);         \
		memcpy(data, &put_, sizeof(put_)); \
		return CUDA_SUCCESS;               \
	} while (0)

static CUresult get_attribute(void *data, int attribute, CUdeviceptr ptr, struct sim_block *block)
{
	bool on_device = block->kind <= SIM_IMPORTED;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		PUT(CUcontext, context_of(block));
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		PUT(int, is_of_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		PUT(CUdeviceptr, ptr);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (on_device)
			return CUDA_ERROR_INVALID_VALUE;
		PUT(uint64_t, ptr);
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		if (block->kind > SIM_MAPPED || is_of_host(block))
			return CUDA_ERROR_INVALID_VALUE;
		give_tokens(block, data);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		PUT(unsigned, syncs_memops(block));
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		PUT(uint64_t, block->id);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		PUT(unsigned, block->kind == SIM_MANAGED);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		PUT(int, block->device->ordinal);
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		PUT(unsigned, block->kind == SIM_DEVICE);
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		PUT(unsigned, block->kind == SIM_DEVICE || is_capable(block));
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		PUT(CUdeviceptr, block->range.lo);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		PUT(size_t, size_of(block));
	case CU_POINTER_ATTRIBUTE_MAPPED:
		PUT(unsigned, 1);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		PUT(uint64_t, handle_types(block));
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		PUT(unsigned, 3); /* read and write */
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		PUT(void *, block->kind == SIM_POOLED ? block->pool : NULL);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static struct sim_block *live_block(CUdeviceptr ptr)
{
	struct sim_block *block = sim_block_at(ptr);

	return block && !block->freed ? block : NULL;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct sim_block *block;

	SIM_BEGIN(cuPointerGetAttribute);
	block = live_block(ptr);
	if (!data || !block)
		return CUDA_ERROR_INVALID_VALUE;
	return get_attribute(data, attribute, ptr, block);
}

static size_t size_of_attribute(int attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return sizeof(int);
	}
	return sizeof(void *);
}

static bool is_range(int attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
}

/*
 * The batch never fails for a pointer that does not belong to CUDA: the attributes are zero, and the
 * outputs for ranges are left unchanged.
 */
CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	struct sim_block *block;

	SIM_BEGIN(cuPointerGetAttributes);
	if (!n || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	block = live_block(ptr);
	for (unsigned i = 0; i < n; i++) {
		if (block && get_attribute(data[i], attributes[i], ptr, block) == CUDA_SUCCESS)
			continue;
		if (is_range(attributes[i]))
			continue;
		memset(data[i], 0, size_of_attribute(attributes[i]));
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr ptr)
{
	struct sim_block *block;

	SIM_BEGIN(cuPointerSetAttribute);
	block = live_block(ptr);
	if (!value || !block)
		return CUDA_ERROR_INVALID_VALUE;
	if (block->kind == SIM_MAPPED)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	block->sync_memops = *(const unsigned *)value;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
	const struct sim_block *block;

	SIM_BEGIN(cuMemGetAddressRange_v2);
	block = live_block(dptr);
	if (!block)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = block->range.lo;
	if (size)
		*size = size_of(block);
	return CUDA_SUCCESS;
}

/* Returns true if the range consists of whole pages of the host. The driver exports no other range. */
static bool is_of_pages(CUdeviceptr dptr, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return bytes && dptr % page == 0 && bytes % page == 0;
}

/* The descriptor only represents the memory: it does not share the memory's contents. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t bytes, int type, unsigned long long flags)
{
	const struct sim_block *block;
	int fd;

	SIM_BEGIN(cuMemGetHandleForAddressRange);
	if (sim_lacks(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
		return CUDA_ERROR_NOT_SUPPORTED;
	block = live_block(dptr);
	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !is_of_pages(dptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!block || (block->kind != SIM_DEVICE && block->kind != SIM_MAPPED) || bytes > sim_block_reach(block) - dptr)
		return CUDA_ERROR_INVALID_VALUE;
	fd = memfd_create("simgpu-dmabuf", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}
