/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A plug-in that brings the driver, and holds memory from its constructor to its destructor. */

#include "lib_plugin.h"

#include "tests/apps/cuda_min.h"

static CUcontext ctx;
static CUdeviceptr kept;
static int result;

__attribute__((constructor)) static void start(void)
{
	result = cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) || cuMemAlloc_v2(&kept, 4096);
}

__attribute__((destructor)) static void end(void)
{
	(void)(cuMemFree_v2(kept) || cuCtxSetCurrent(NULL) || cuDevicePrimaryCtxRelease_v2(0));
}

int lib_plugin_use(unsigned rounds)
{
	for (unsigned i = 0; i < rounds && !result; i++) {
		CUdeviceptr ptr = 0;

		result = cuMemAlloc_v2(&ptr, (size_t)512 << i % 12) || cuMemsetD8_v2(ptr, 1, 64) || cuMemFree_v2(ptr);
	}
	return result;
}
