/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "shim/cuda_abi.h"

/* In a plug-in. Opened with RTLD_DEEPBIND: straight to the driver, past everything preloaded. */
__attribute__((visibility("default"))) CUresult lib_deep_alloc(CUdeviceptr *ptr, size_t bytes);
__attribute__((visibility("default"))) CUresult lib_deep_free(CUdeviceptr ptr);

/* Has the GPU write without anybody's seeing it. */
__attribute__((visibility("default"))) CUresult lib_deep_set(
	CUdeviceptr ptr, unsigned value, size_t n, CUstream stream);

/* Its destructor frees this one, when the plug-in is closed or the process ends, and says what it was told. */
__attribute__((visibility("default"))) void lib_deep_keep(CUdeviceptr ptr);
