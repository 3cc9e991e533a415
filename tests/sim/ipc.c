/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Handles of memory and events that other processes open. */

#include <string.h>
#include <unistd.h>

#include "ctx.h"
#include "share.h"

#define MEMORY_MAGIC 0x53494d4d454d0001ull
#define EVENT_MAGIC  0x53494d4556540001ull

_Static_assert(sizeof(struct sim_handle) <= sizeof(CUipcMemHandle), "a handle fits into CUipcMemHandle");
_Static_assert(sizeof(CUipcEventHandle) == sizeof(CUipcMemHandle), "both kinds of handles have the same size");

static void put(void *reserved, const struct sim_handle *handle)
{
	memset(reserved, 0, sizeof(CUipcMemHandle));
	memcpy(reserved, handle, sizeof(*handle));
}

/* Returns false if this is not a handle of that kind. */
static bool take(const char *reserved, uint64_t magic, struct sim_handle *handle)
{
	unsigned rest = 0;

	memcpy(handle, reserved, sizeof(*handle));
	for (size_t i = sizeof(*handle); i < sizeof(CUipcMemHandle); i++)
		rest |= (unsigned char)reserved[i];
	return handle->magic == magic && !rest;
}

/* The handle names the whole block, even if dptr points inside it. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
	struct sim_handle name = {.magic = MEMORY_MAGIC};
	struct sim_block *block;

	SIM_BEGIN(cuIpcGetMemHandle);
	block = sim_block_at(dptr);
	if (!handle || !block || block->freed || block->kind != SIM_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_share_block(block, &name));
	put(handle->reserved, &name);
	return CUDA_SUCCESS;
}

static CUresult open_memory(CUdeviceptr *dptr, const CUipcMemHandle *handle, unsigned flags, bool once)
{
	struct sim_handle name;
	struct sim_block *block;
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_current(&ctx));
	if (!dptr || !(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || !take(handle->reserved, MEMORY_MAGIC, &name))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_import_begin(&name, ctx, once, &block));
	*dptr = block->range.lo;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags)
{
	SIM_BEGIN(cuIpcOpenMemHandle);
	return open_memory(dptr, &handle, flags, true);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags)
{
	SIM_BEGIN(cuIpcOpenMemHandle_v2);
	return open_memory(dptr, &handle, flags, false);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct sim_block *block;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuIpcCloseMemHandle);
	SIM_TRY(sim_ctx_current(&ctx));
	block = sim_block_exact(dptr);
	if (!block || block->kind != SIM_IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_import_close(block);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle)
{
	struct sim_handle name = {.magic = EVENT_MAGIC};
	struct sim_event *event;
	static uint64_t ids;

	SIM_BEGIN(cuIpcGetEventHandle);
	event = sim_object_of(event_handle, SIM_EVENT);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!event || !event->interprocess)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event->share)
		SIM_TRY(sim_share_nothing(++ids, &event->share));
	sim_share_handle(event->share, &name);
	put(handle->reserved, &name);
	return CUDA_SUCCESS;
}

/* The new event always counts as complete, because the other process waited when it recorded the event. */
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct sim_opened opened;
	struct sim_handle name;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuIpcOpenEventHandle);
	SIM_TRY(sim_ctx_current(&ctx));
	if (!event || !take(handle.reserved, EVENT_MAGIC, &name))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_share_open(&name, &opened));
	close(opened.fd);
	if (name.pid == (uint32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	*event = (CUevent)sim_event_new(ctx, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
	return CUDA_SUCCESS;
}
