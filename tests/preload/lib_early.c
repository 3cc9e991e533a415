/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library whose constructor uses CUDA before the program or a preloaded library has started. */

#include <dlfcn.h>

#include "app.h"
#include "lib_early.h"

static int lookup, early, result;
static CUdeviceptr ptr;

__attribute__((constructor)) static void start(void)
{
	CUcontext ctx;

	lookup = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL && dlsym(RTLD_NEXT, "malloc") != NULL;
	early = cuMemAlloc_v2(&ptr, MIB);
	result = cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) || cuMemAlloc_v2(&ptr, MIB) ||
		 cuMemsetD8_v2(ptr, 1, 64);
}

void lib_early(void)
{
	printf("lookup %d, early %d, later %d\n", lookup, early, result);
	printf("free: %d\n", cuMemFree_v2(ptr));
}
