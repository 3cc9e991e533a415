/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A plug-in that is linked with an MPI library. Its constructor uses GPU memory while the loader still holds its lock.
 */

#include <stdlib.h>

#include "app.h"

extern int lib_foreign;

__attribute__((constructor)) static void start(void)
{
	for (int i = 0; i < 8; i++) {
		CUdeviceptr ptr = 0;

		if (cuMemAlloc_v2(&ptr, 4 * MIB) || cuMemFree_v2(ptr))
			exit(74);
	}
	lib_foreign++;
}
