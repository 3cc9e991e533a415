/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The exporter's side runs in the server's thread. It waits neither for the GPU nor for a thread of the program: it
 * takes only the locks of the pool and of its address map, which no thread holds across a driver call. A pin keeps the
 * chunk's handle valid during the export (pool/vmm/pin.h).
 *
 * The importer maps each chunk as soon as it has its descriptor. The mapping keeps the memory, even if the exporter
 * frees the block or ends.
 */

#include "ipc_mapped.h"

#include <errno.h>

#include "pool/vmm/pin.h"
#include "shim/backend/backend_mapping.h"
#include "shim/backend/mapping_setup.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/driver_call.h"
#include "shim/ctl/ctl_request.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"

CUresult gp_ipc_try_export(CUdeviceptr ptr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, ptr);
	CUresult r = pool ? gp_mapping_try_export(gp_pool_owner(pool)) : CUDA_ERROR_INVALID_VALUE;

	gp_pool_put(pool);
	return r;
}

/* Returns the chunk's descriptor, or the negative error of the driver. */
static int export(const struct gp_pin *pin)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	int fd = -1;
	CUresult r =
		gp_real.cuMemExportToShareableHandle(&fd, pin->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	gp_driver_unrelax(&relaxed);
	return r ? -(int)r : fd;
}

static int answer_pinned(const struct gp_pin *pin, uint64_t block_bytes, struct gp_json *out)
{
	int fd = export(pin);

	if (fd < 0)
		return gp_ctl_error(out, GP_CTL_FAILED, "the driver cannot export the memory: error %d", -fd);
	gp_ctl_answer_begin(out, GP_CTL_chunk);
	gp_json_u64(out, "bytes", pin->bytes);
	gp_json_u64(out, "span_bytes", pin->span_bytes);
	gp_json_u64(out, "offset", pin->offset);
	gp_json_u64(out, "block_bytes", block_bytes);
	gp_json_object_end(out);
	gp_ctl_attach(fd);
	return 0;
}

int gp_ipc_answer_chunk_of(uint64_t addr, uint64_t serial, uint64_t at, struct gp_json *out)
{
	struct gp_block_info info;
	struct gp_pin pin;
	int r;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || gp_debug_info(&gp_state.device_map, addr, &info) ||
		!info.is_used || info.addr != addr || info.serial != serial || !info.is_mapped || !info.is_retired ||
		gp_pool_pin(&gp_state.device_map, addr, serial, at, &pin))
		return gp_ctl_error(out, GP_CTL_UNKNOWN, "no such block was exported, or it has been freed");
	r = answer_pinned(&pin, info.size, out);
	gp_pool_unpin(&pin);
	return r;
}

struct import {
	struct gp_context *context;
	struct gp_ipc_mapping mapping;
	uint64_t mapped_bytes;
};

static CUresult map_chunk(struct import *import, const struct gp_ipc_chunk *chunk)
{
	CUmemGenericAllocationHandle handle;
	CUresult r = gp_real.cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)chunk->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (r)
		return r;
	r = gp_real.cuMemMap(import->mapping.base + chunk->at, chunk->bytes, 0, handle, 0);
	if (!r)
		import->mapped_bytes = chunk->at + chunk->bytes;
	(void)gp_real.cuMemRelease(handle);
	return r;
}

static CUresult take_in_context(struct import *import, const struct gp_ipc_chunk *chunk)
{
	struct gp_ipc_mapping *mapping = &import->mapping;
	CUresult r = CUDA_SUCCESS;

	if (!mapping->base) {
		r = gp_real.cuMemAddressReserve(&mapping->base, chunk->span_bytes, GP_MAPPING_GRANULE, 0, 0);
		if (r)
			return r;
		mapping->bytes = chunk->span_bytes;
		mapping->offset = chunk->offset;
		mapping->block_bytes = chunk->block_bytes;
	}
	r = map_chunk(import, chunk);
	if (r || import->mapped_bytes < mapping->bytes)
		return r;
	mapping->devices = gp_mapping_devices(import->context);
	return gp_mapping_allow(import->context, mapping->base, mapping->bytes, mapping->devices);
}

static int take(void *arg, const struct gp_ipc_chunk *chunk)
{
	struct import *import = arg;
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(import->context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, import->context->handle);
	if (!r) {
		r = take_in_context(import, chunk);
		gp_driver_leave(&scope);
	}
	gp_context_leave(import->context);
	return r;
}

/* Returns the driver's error: then the memory stays mapped. Addresses that the driver does not free are lost. */
static CUresult unmap(const struct gp_ipc_mapping *mapping, uint64_t mapped_bytes)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	CUresult r = mapped_bytes ? gp_real.cuMemUnmap(mapping->base, mapped_bytes) : CUDA_SUCCESS;

	if (!r)
		(void)gp_real.cuMemAddressFree(mapping->base, mapping->bytes);
	gp_driver_unrelax(&relaxed);
	return r;
}

static void undo(const struct import *import)
{
	if (import->mapping.base)
		(void)unmap(&import->mapping, import->mapped_bytes);
}

int gp_ipc_map(struct gp_context *context, pid_t pid, uint64_t start_ticks, const uint64_t words[static 3],
	struct gp_ipc_mapping *ret_mapping)
{
	struct import import = {.context = context};
	int r = gp_ipc_ask_chunks(pid, start_ticks, words, take, &import);

	if (r)
		undo(&import);
	else
		*ret_mapping = import.mapping;
	return r;
}

void gp_ipc_allow_new(struct gp_context *context, const struct gp_ipc_mapping *mapping)
{
	uint64_t devices = gp_mapping_devices(context) & ~mapping->devices;
	struct gp_driver_scope scope;

	if (gp_likely(!devices) || !gp_context_enter(context))
		return;
	if (!gp_driver_enter(&scope, context->handle)) {
		(void)gp_mapping_allow(context, mapping->base, mapping->bytes, devices);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
}

CUresult gp_ipc_unmap(const struct gp_ipc_mapping *mapping)
{
	CUresult r;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return CUDA_SUCCESS;
	r = unmap(mapping, mapping->bytes);
	if (r == CUDA_ERROR_DEINITIALIZED)
		return CUDA_SUCCESS;
	if (r)
		gp_log(GP_LOG_WARN, "the driver refused to unmap memory of another process: error %d", r);
	return r;
}

CUresult gp_ipc_wait_for(struct gp_context *context)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_SUCCESS;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_driver_wait_for_context();
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return r;
}
