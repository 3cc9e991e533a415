/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The part of CUDA's binary interface that the simulated driver needs beyond shim/driver/cuda_abi.h: values
 * as in cuda.h, and the prototype of every function in functions.def.
 */

#include "tests/apps/green_abi.h"
#include "tests/apps/ipc_abi.h"
#include "shim/driver/launch_abi.h"

#define SIM_EXPORT __attribute__((visibility("default")))

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
	CUdeviceptr dst;
	size_t pitch;
	unsigned value, elementSize;
	size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

/* The id of the driver's interface for the CUDA runtime, and what the simulator has of it. */
#define SIM_RUNTIME_INTERFACE "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"
struct sim_runtime_interface {
	size_t bytes;
	void *unknown;
	CUresult (*primary_handle)(CUcontext *ctx, CUdevice device);
	CUresult (*primary_retain)(CUcontext *ctx, CUdevice device);
	CUresult (*set_current)(CUcontext ctx);
};

/* CUcheckpointLockArgs */
struct sim_lock_args {
	unsigned timeout_ms, reserved0;
	uint64_t reserved1[7];
};

enum {
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
	CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
	CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
};

enum {
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
	CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1,
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
	CU_GRAPH_NODE_TYPE_KERNEL = 0,
	CU_MEMORYTYPE_HOST = 1,
	CU_MEM_LOCATION_TYPE_HOST = 2,
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
	CU_MEM_ATTACH_SINGLE = 4,
	CU_EVENT_INTERPROCESS = 4,
	CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
	CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
	CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
	CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
	CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
};

#define CU_STREAM_LEGACY     ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

#define SIM_FN(name, public, version, ns, params) SIM_EXPORT CUresult name params;
#define SIM_STREAM_FN(name, suffix, public, version, ns, params) \
	SIM_EXPORT CUresult name params;                         \
	SIM_EXPORT CUresult name##suffix params;
#include "functions.def"
#undef SIM_FN
#undef SIM_STREAM_FN
