/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The types and values of the driver's interface for green contexts, as in cuda.h. */

#include "shim/driver/cuda_abi.h"

enum {
	CU_DEV_RESOURCE_TYPE_INVALID = 0,
	CU_DEV_RESOURCE_TYPE_SM = 1,
	CU_GREEN_CTX_DEFAULT_STREAM = 1,
};

/* The driver keeps internal data in the padding. Copy the struct as a whole, and read only sm. */
typedef struct CUdevResource_st {
	int type;
	unsigned char padding[92];
	union {
		struct {
			unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
		} sm;
		unsigned char oversize[48];
	};
} CUdevResource;
_Static_assert(sizeof(CUdevResource) == 144, "CUdevResource has another size in the driver");
