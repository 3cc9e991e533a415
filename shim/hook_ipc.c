/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory shared with other processes by legacy IPC handles. Whole blocks are the driver's business, parts are ours. */

#include "backend.h"
#include "debug.h"
#include "ipc.h"
#include "log.h"
#include "real.h"
#include "record.h"

/* For some memory the driver has no legacy handles, and says so; this says what to do. */
static CUresult refuse(CUipcMemHandle *handle, CUdeviceptr ptr, const struct gp_block_info *info)
{
	static _Atomic bool is_said;
	CUresult r = gp_real.cuIpcGetMemHandle(handle, ptr);

	if (!r || atomic_exchange(&is_said, true))
		return r;
	if (info->is_mapped)
		gp_log(GP_LOG_WARN,
			"cuIpcGetMemHandle of memory of the kind vmm fails with error %d: GPUPOOL_POOL=split or "
			"GPUPOOL_POOL=binned can share memory with other processes",
			r);
	else
		gp_log(GP_LOG_WARN,
			"cuIpcGetMemHandle of memory of GPUPOOL_BACKEND=%s fails with error %d: "
			"GPUPOOL_BACKEND=device can share memory with other processes",
			gp_backend_name(gp_backend_of(ptr)), r);
	return r;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	static const char why[] = "the program exported memory to other processes";
	struct gp_block_info info;

	gp_context_settle(&gp_state.device_map, ptr);
	if (!handle || gp_debug_info(&gp_state.device_map, ptr, &info))
		return gp_real.cuIpcGetMemHandle(handle, ptr);
	if (!info.is_used)
		return CUDA_ERROR_INVALID_VALUE;
	if (info.is_mapped || gp_backend_of(ptr) != GP_CONFIG_BACKEND_DEVICE)
		return refuse(handle, ptr, &info);
	gp_state_need_whole(why);
	gp_record(NULL, EXPORT, ptr);
	(void)gp_pool_export(&gp_state.device_map, ptr);
	gp_state_need_completion(why);
	return info.is_whole ? gp_real.cuIpcGetMemHandle(handle, ptr) : gp_ipc_export(handle, &info);
}

static CUresult open_handle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags, gp_ipc_open_fn driver)
{
	if (!ptr || !gp_ipc_is_ours(&handle))
		return driver(ptr, handle, flags);
	gp_state_start();
	return gp_ipc_open(ptr, &handle, flags, driver);
}

/* The older one opens an allocation once, and would refuse a second block of a segment (208, measured). */
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
	CUresult r = gp_real.cuIpcCloseMemHandle(gp_ipc_close_base(ptr));

	if (!r)
		gp_ipc_closed(ptr);
	return r;
}
