/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_caller.h"

CUresult caller_alloc(CUdeviceptr *ptr, size_t bytes)
{
	CUresult r = cuMemAlloc_v2(ptr, bytes);

	/* Not by a jump: then it would be the program that calls. */
	return r ? r : CUDA_SUCCESS + (*ptr == 0);
}
