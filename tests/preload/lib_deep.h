/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "shim/driver/cuda_abi.h"

/*
 * Functions of a plug-in. If it is opened with RTLD_DEEPBIND, they call the driver and bypass all preloaded
 * libraries.
 */
__attribute__((visibility("default"))) CUresult lib_deep_alloc(CUdeviceptr *ptr, size_t bytes);
__attribute__((visibility("default"))) CUresult lib_deep_free(CUdeviceptr ptr);

/* Makes the GPU write to memory without any preloaded library noticing. */
__attribute__((visibility("default"))) CUresult lib_deep_set(
	CUdeviceptr ptr, unsigned value, size_t n, CUstream stream);

/* The plug-in's destructor frees this block when the plug-in is closed or the process ends, and prints the result. */
__attribute__((visibility("default"))) void lib_deep_keep(CUdeviceptr ptr);
