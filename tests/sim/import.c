/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Imported memory: it is mapped at addresses of this process, and counts as device memory of the exporter only. */

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctx.h"
#include "share.h"

struct sim_import {
	struct sim_import *next;
	struct sim_block *block;
	uint64_t nonce, id, addr; /* addr is where the whole file is mapped */
	size_t bytes;
	unsigned opens;
};

static struct sim_import *imports;

static struct sim_import *find(const struct sim_handle *handle)
{
	struct sim_import *import = imports;

	while (import && (import->nonce != handle->nonce || import->id != handle->id || import->block->freed))
		import = import->next;
	return import;
}

static char *bytes_of(const struct sim_device *device, uint64_t addr)
{
	return device->bytes + (addr - device->base);
}

static CUresult map_file(const struct sim_opened *opened, struct sim_device *device, uint64_t *addr)
{
	SIM_TRY(sim_device_reserve(device, opened->bytes, addr));
	if (mmap(bytes_of(device, *addr), opened->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		    opened->fd, 0) != MAP_FAILED) {
		madvise(bytes_of(device, *addr), opened->bytes, MADV_DONTDUMP);
		return CUDA_SUCCESS;
	}
	sim_device_unreserve(device, *addr, opened->bytes);
	return CUDA_ERROR_MAP_FAILED;
}

/* Returns the device with the exporter's ordinal, or the context's device if this process has fewer devices. */
static struct sim_device *device_of(const struct sim_opened *opened, struct sim_ctx *ctx)
{
	struct sim_device *device;

	return sim_device_of((CUdevice)opened->device, &device) ? ctx->device : device;
}

static CUresult import(
	const struct sim_handle *handle, const struct sim_opened *opened, struct sim_ctx *ctx, struct sim_block **block)
{
	struct sim_device *device = device_of(opened, ctx);
	struct sim_import *import;
	uint64_t addr;

	SIM_TRY(map_file(opened, device, &addr));
	*block = sim_block_enter(SIM_IMPORTED, ctx, addr + handle->offset, handle->bytes);
	import = sim_alloc_zeroed(1, sizeof(*import));
	import->block = *block;
	import->nonce = handle->nonce;
	import->id = handle->id;
	import->addr = addr;
	import->bytes = opened->bytes;
	import->opens = 1;
	import->next = imports;
	imports = import;
	(*block)->import = import;
	(*block)->device = device;
	(*block)->dirty = true;
	return CUDA_SUCCESS;
}

CUresult sim_import_begin(const struct sim_handle *handle, struct sim_ctx *ctx, bool once, struct sim_block **block)
{
	struct sim_import *known = find(handle);
	struct sim_opened opened;
	CUresult result;

	/* Memory that is open stays available, even if the exporter has ended. */
	if (known && known->block->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE; /* only one context of a process may have it open */
	if (known && once)
		return CUDA_ERROR_ALREADY_MAPPED;
	if (known) {
		known->opens++;
		*block = known->block;
		return CUDA_SUCCESS;
	}
	SIM_TRY(sim_share_open(handle, &opened));
	if (!opened.bytes)
		result = CUDA_ERROR_INVALID_VALUE; /* the file holds no memory */
	else if (handle->pid == (uint32_t)getpid())
		result = CUDA_ERROR_INVALID_CONTEXT; /* the exporter cannot open its own memory */
	else
		result = import(handle, &opened, ctx, block);
	close(opened.fd);
	return result;
}

CUresult sim_import_close(struct sim_block *block)
{
	if (block->import->opens == 1)
		return sim_free_waiting(block);
	block->import->opens--;
	return CUDA_SUCCESS;
}

void sim_import_end(struct sim_block *block)
{
	struct sim_import *import = block->import, **link = &imports;
	struct sim_device *device = block->device;

	while (*link != import)
		link = &(*link)->next;
	*link = import->next;
	if (mmap(bytes_of(device, import->addr), import->bytes, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, device->fd,
		    (off_t)(import->addr - device->base)) == MAP_FAILED)
		sim_print("the host has no address space left for mappings");
	sim_device_unreserve(device, import->addr, import->bytes);
	free(import);
}
