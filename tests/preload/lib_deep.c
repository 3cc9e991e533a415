/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_deep.h"

#include "tests/apps/cuda_min.h"

CUresult lib_deep_alloc(CUdeviceptr *ptr, size_t bytes)
{
	return cuMemAlloc_v2(ptr, bytes);
}

CUresult lib_deep_free(CUdeviceptr ptr)
{
	return cuMemFree_v2(ptr);
}
