/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_deep.h"

#include <stdio.h>

#include "tests/apps/cuda_min.h"

CUresult lib_deep_alloc(CUdeviceptr *ptr, size_t bytes)
{
	return cuMemAlloc_v2(ptr, bytes);
}

CUresult lib_deep_free(CUdeviceptr ptr)
{
	return cuMemFree_v2(ptr);
}

CUresult lib_deep_set(CUdeviceptr ptr, unsigned value, size_t n, CUstream stream)
{
	return cuMemsetD32Async(ptr, value, n, stream);
}

static CUdeviceptr kept;

void lib_deep_keep(CUdeviceptr ptr)
{
	kept = ptr;
}

__attribute__((destructor)) static void free_kept(void)
{
	if (kept)
		printf("free by the plug-in: %d\n", cuMemFree_v2(kept));
}
