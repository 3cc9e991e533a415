/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_caller.h"

CUresult caller_alloc(CUdeviceptr *ptr, size_t bytes)
{
	CUresult r = cuMemAlloc_v2(ptr, bytes);

	/* Prevent a tail call, which would make the program the caller. */
	return r ? r : CUDA_SUCCESS + (*ptr == 0);
}
