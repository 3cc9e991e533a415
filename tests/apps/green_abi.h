/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the driver's binary interface has for green contexts: types and values as in cuda.h. */

#include "shim/cuda_abi.h"

enum {
	CU_DEV_RESOURCE_TYPE_INVALID = 0,
	CU_DEV_RESOURCE_TYPE_SM = 1,
	CU_GREEN_CTX_DEFAULT_STREAM = 1,
};

/* The driver keeps what it needs in the padding: copied as a whole, read through sm alone. */
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
_Static_assert(sizeof(CUdevResource) == 144, "as the driver has it");
