/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory that is shared with other processes by legacy IPC handles. The driver makes the handle of a block that is a
 * whole driver allocation. gpupool makes the handle of a block that is a part of a segment, or mapped (ipc.h).
 */

#include "shim/backend/backend_supply.h"
#include "shim/backend/deep.h"
#include "shim/backend/spill.h"
#include "shim/base/log.h"
#include "shim/context/context_end.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/ipc/ipc.h"
#include "shim/process.h"
#include "shim/record/record.h"

static const char why[] = "the program exported memory to other processes";

/*
 * Passes the call to the driver, which has no legacy handles for this memory. Logs once how to get memory that has.
 * why_not_mapped: why mapped memory cannot be exported; NULL for other memory.
 */
static CUresult let_driver_refuse(CUipcMemHandle *handle, CUdeviceptr ptr, const char *why_not_mapped)
{
	static _Atomic bool is_logged;
	CUresult r = gp_real.cuIpcGetMemHandle(handle, ptr);

	if (!r || atomic_exchange(&is_logged, true))
		return r;
	if (why_not_mapped)
		gp_log(GP_LOG_WARN,
			"cuIpcGetMemHandle fails with error %d for memory of GPUPOOL_POOL=vmm: %s; use "
			"GPUPOOL_POOL=binned to share memory with other processes",
			r, why_not_mapped);
	else
		gp_log(GP_LOG_WARN,
			"cuIpcGetMemHandle fails with error %d, since memory of GPUPOOL_BACKEND=%s has no IPC handles; "
			"use GPUPOOL_BACKEND=device to share memory with other processes",
			r, gp_backend_name(gp_backend_of(ptr)));
	return r;
}

/* The driver refuses to export mapped memory. Logs once under which pool type the program can share memory. */
static CUresult refuse_mapped(CUresult r)
{
	static _Atomic bool is_logged;
	bool is_auto = gp_state.config.pool == GP_CONFIG_POOL_AUTO;

	if (!atomic_exchange(&is_logged, true))
		gp_log(GP_LOG_WARN,
			"cuIpcGetMemHandle fails with error %d: the driver refuses to export memory of the pool type "
			"vmm%s; use GPUPOOL_POOL=split to share memory with other processes",
			r, is_auto ? ", which GPUPOOL_POOL=auto has chosen" : "");
	return r;
}

static CUresult export_mapped(CUipcMemHandle *handle, CUdeviceptr ptr, const struct gp_block_info *info)
{
	CUresult r;
	const char *why_not = gp_ipc_why_not_mapped(ptr, &r);

	if (why_not)
		return r ? refuse_mapped(r) : let_driver_refuse(handle, ptr, why_not);
	if (!gp_spill_settle(ptr))
		return CUDA_ERROR_OUT_OF_MEMORY;
	gp_record(NULL, EXPORT, ptr);
	(void)gp_pool_export(&gp_state.device_map, ptr);
	gp_context_need_completion(why);
	return gp_ipc_export_mapped(handle, info);
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct gp_block_info info;

	gp_deep_note_refused("memory that other processes may use");
	gp_context_settle(&gp_state.device_map, ptr);
	if (!handle || gp_debug_info(&gp_state.device_map, ptr, &info))
		return gp_real.cuIpcGetMemHandle(handle, ptr);
	/* Memory of a pool of the driver has no legacy handles. */
	if (!info.is_used || info.is_of_stream)
		return CUDA_ERROR_INVALID_VALUE;
	if (info.is_mapped)
		return export_mapped(handle, ptr, &info);
	if (gp_backend_of(ptr) != GP_CONFIG_BACKEND_DEVICE)
		return let_driver_refuse(handle, ptr, NULL);
	gp_context_need_whole(why);
	gp_record(NULL, EXPORT, ptr);
	(void)gp_pool_export(&gp_state.device_map, ptr);
	gp_context_need_completion(why);
	return info.is_whole ? gp_real.cuIpcGetMemHandle(handle, ptr) : gp_ipc_export(handle, &info);
}

static CUresult open_handle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags, gp_ipc_open_fn driver)
{
	gp_deep_note_refused("memory of another process");
	if (!ptr || !gp_ipc_is_ours(&handle))
		return driver(ptr, handle, flags);
	gp_process_start();
	return gp_ipc_open(ptr, &handle, flags, driver);
}

/*
 * This older function of the driver opens an allocation only once, and would refuse a second block of a segment (error
 * 208, measured). So this hook opens gpupool's handles by the newer function. It refuses a handle that is open already.
 */
CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	if (gp_ipc_is_ours(&handle) && gp_ipc_is_open(&handle))
		return CUDA_ERROR_ALREADY_MAPPED;
	if (gp_ipc_is_ours(&handle) && gp_real.cuIpcOpenMemHandle_v2)
		return open_handle(ptr, handle, flags, gp_real.cuIpcOpenMemHandle_v2);
	return open_handle(ptr, handle, flags, gp_real.cuIpcOpenMemHandle);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	return open_handle(ptr, handle, flags, gp_real.cuIpcOpenMemHandle_v2);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	CUresult r;

	if (gp_ipc_close_mapped(ptr, &r))
		return r;
	r = gp_real.cuIpcCloseMemHandle(gp_ipc_close_base(ptr));
	if (!r)
		gp_ipc_closed(ptr);
	return r;
}
