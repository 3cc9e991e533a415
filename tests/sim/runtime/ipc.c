/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "runtime.h"

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
	return RT_CALL(cuIpcGetMemHandle, handle, address(ptr));
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned flags)
{
	return RT_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr *)ptr, handle, flags);
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
	return RT_CALL(cuIpcCloseMemHandle, address(ptr));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	return RT_CALL(cuIpcGetEventHandle, handle, event);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	return RT_CALL(cuIpcOpenEventHandle, event, handle);
}
