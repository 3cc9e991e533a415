/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A tracer that interposes one function that submits work. Tests preload it after the library or before it. */

#include <dlfcn.h>
#include <stdio.h>

#include "tests/apps/cuda_min.h"

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream stream)
{
	CUresult (*next)(CUdeviceptr, unsigned, size_t, CUstream) = dlsym(RTLD_NEXT, "cuMemsetD32Async");

	printf("traced\n");
	return next(dst, value, n, stream);
}
