/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library that looks up the driver's function with RTLD_NEXT, and so bypasses everything preloaded. */

#include "lib_next.h"

#include <dlfcn.h>

CUresult next_set(CUdeviceptr dst, unsigned value, size_t n, CUstream stream)
{
	CUresult (*next)(CUdeviceptr, unsigned, size_t, CUstream) = dlsym(RTLD_NEXT, "cuMemsetD32Async");

	return next(dst, value, n, stream);
}
