/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Streams and launches, as declared by cuda.h of the CUDA Toolkit 13.0. */

#include "cuda_abi.h"

/* The default streams, which exist without being created. NULL means one of them, depending on the function. */
#define CU_STREAM_LEGACY     ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

/* With one of these attributes of a launch, the kernel may begin before earlier work is done. */
enum {
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
};

typedef struct CUlaunchAttribute_st {
	int id;
	union {
		char bytes[64];
		void *alignment;
		int programmaticStreamSerializationAllowed;
	} value;
} CUlaunchAttribute;

struct CUlaunchConfig_st {
	unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned numAttrs;
};
