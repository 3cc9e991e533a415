/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Two processes for questions about memory that processes share: an importer, which sends requests, and an exporter,
 * which executes them. Both are forked before the driver is loaded. Built without the toolkit.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/cuda_abi.h"
#include "tests/apps/ipc_abi.h"

#define MIB ((size_t)1 << 20)
#define MS  UINT64_C(1000000)

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

enum {
	SLOTS = 16, /* slots of the exporter, each for a block */
	EVENT_INTERPROCESS = 4,
	ATTACH_GLOBAL = 1,
	LAZY = 1, /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
};

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

/* One row per function that is called: its name and its parameters. */
#define FUNCTIONS(FUNCTION)                                                                                          \
	FUNCTION(cuInit, (unsigned flags))                                                                           \
	FUNCTION(cuDeviceGetCount, (int *count))                                                                     \
	FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                                       \
	FUNCTION(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                                 \
	FUNCTION(cuCtxDestroy_v2, (CUcontext ctx))                                                                   \
	FUNCTION(cuCtxSetCurrent, (CUcontext ctx))                                                                   \
	FUNCTION(cuCtxSynchronize, (void))                                                                           \
	FUNCTION(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                                   \
	FUNCTION(cuMemFree_v2, (CUdeviceptr ptr))                                                                    \
	FUNCTION(cuMemAllocAsync, (CUdeviceptr * ptr, size_t bytes, CUstream stream))                                \
	FUNCTION(cuMemAllocManaged, (CUdeviceptr * ptr, size_t bytes, unsigned flags))                               \
	FUNCTION(cuMemAllocHost_v2, (void **ptr, size_t bytes))                                                      \
	FUNCTION(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream))                                                 \
	FUNCTION(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes,                                  \
				      const CUmemAllocationProp *properties, unsigned long long flags))              \
	FUNCTION(cuMemRelease, (CUmemGenericAllocationHandle handle))                                                \
	FUNCTION(cuMemAddressReserve,                                                                                \
		(CUdeviceptr * ptr, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))     \
	FUNCTION(cuMemAddressFree, (CUdeviceptr ptr, size_t bytes))                                                  \
	FUNCTION(cuMemMap, (CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,       \
				   unsigned long long flags))                                                        \
	FUNCTION(cuMemUnmap, (CUdeviceptr ptr, size_t bytes))                                                        \
	FUNCTION(cuMemSetAccess, (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n))           \
	FUNCTION(cuMemExportToShareableHandle,                                                                       \
		(void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags))          \
	FUNCTION(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void *shareable, int type)) \
	FUNCTION(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                       \
	FUNCTION(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t * bytes, CUdeviceptr ptr))                     \
	FUNCTION(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr ptr))                                \
	FUNCTION(cuMemsetD32_v2, (CUdeviceptr ptr, unsigned value, size_t n))                                        \
	FUNCTION(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                        \
	FUNCTION(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr ptr))                                      \
	FUNCTION(cuIpcOpenMemHandle, (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned flags))                     \
	FUNCTION(cuIpcOpenMemHandle_v2, (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned flags))                  \
	FUNCTION(cuIpcCloseMemHandle, (CUdeviceptr ptr))                                                             \
	FUNCTION(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))                                    \
	FUNCTION(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle))                                   \
	FUNCTION(cuEventCreate, (CUevent * event, unsigned flags))                                                   \
	FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags))                                                \
	FUNCTION(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                               \
	FUNCTION(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                             \
	FUNCTION(cuModuleLoadData, (CUmodule * module, const void *image))                                           \
	FUNCTION(cuModuleGetFunction, (CUfunction * fn, CUmodule module, const char *name))                          \
	FUNCTION(cuLaunchKernel, (CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
					 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra))

#define FUNCTION(name, parameters) extern __attribute__((visibility("hidden"))) CUresult(*name) parameters;
FUNCTIONS(FUNCTION)
#undef FUNCTION

extern CUcontext primary;

/* Prints "ipc.question: answer"; codes are the driver's numbers. */
void print_answer(const char *question, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the process unless the result is 0. */
void check(int result, const char *what);
#define CHECK(call) check((call), #call)

enum op { ALLOC, ALLOC_ASYNC, ALLOC_MANAGED, FREE, HANDLE, FILL, WORD, BUFFER_ID, SELF_OPEN, QUIT };

struct reply {
	CUresult result;
	CUipcMemHandle handle;
	uint64_t value;
};

/* Sends the importer's request to the exporter. n: bytes, an offset, a value or flags. */
struct reply ask(enum op op, int slot, size_t n);

/* Returns once the exporter has ended, and its context with it. */
void end_exporter(void);

/* Runs the section in an importer that has an exporter, and reports a bad exit status. */
void run_section(void (*section)(void), const char *name);
