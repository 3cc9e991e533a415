/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The driver API as many programs use it: functions looked up at run time, and the primary context of one GPU. */

#include "demo.h"
#include "tests/apps/cuda_min.h"

CUresult cuDeviceGetName(char *name, int len, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

#define GPU_FUNCTIONS(ROW)                \
	ROW(cuInit)                       \
	ROW(cuDriverGetVersion)           \
	ROW(cuGetErrorName)               \
	ROW(cuDeviceGetCount)             \
	ROW(cuDeviceGet)                  \
	ROW(cuDeviceGetName)              \
	ROW(cuDeviceTotalMem_v2)          \
	ROW(cuDevicePrimaryCtxRetain)     \
	ROW(cuDevicePrimaryCtxRelease_v2) \
	ROW(cuCtxSetCurrent)              \
	ROW(cuCtxSynchronize)             \
	ROW(cuMemAlloc_v2)                \
	ROW(cuMemFree_v2)                 \
	ROW(cuMemHostAlloc)               \
	ROW(cuMemFreeHost)                \
	ROW(cuMemsetD32Async)             \
	ROW(cuMemcpyHtoDAsync_v2)         \
	ROW(cuMemcpyDtoHAsync_v2)         \
	ROW(cuModuleLoadData)             \
	ROW(cuModuleGetFunction)          \
	ROW(cuLaunchKernel)

struct gpu {
#define ROW(name) __typeof__(name) *name;
	GPU_FUNCTIONS(ROW)
#undef ROW
	CUdevice device;
	CUcontext ctx;
	CUfunction fill, count_wrong;
	struct demo_measurements measured;
};

/* Calls a driver function. An error ends the program. */
#define GPU_CALL(gpu, name, ...) gpu_check((gpu), #name, (gpu)->name(__VA_ARGS__))

void gpu_check(const struct gpu *gpu, const char *what, CUresult result);

/* gpu_find() ends the program with exit status 3 if there is no driver or no such GPU. */
void gpu_find(struct gpu *gpu, unsigned ordinal);
void gpu_print_info(const struct gpu *gpu);

void gpu_open(struct gpu *gpu);
void gpu_close(struct gpu *gpu);

/* Allocate and free memory, and add the time that it takes to the measurements. */
CUdeviceptr gpu_malloc(struct gpu *gpu, size_t bytes);
void gpu_free(struct gpu *gpu, CUdeviceptr ptr);
void *gpu_malloc_pinned(struct gpu *gpu, size_t bytes);
void gpu_free_pinned(struct gpu *gpu, void *ptr);

/* gpu_fill() stores value to the words at ptr. gpu_count_wrong() adds the number of words that differ from expected to
 * the u64 at result. */
void gpu_fill(struct gpu *gpu, CUdeviceptr ptr, uint64_t words, uint32_t value);
void gpu_count_wrong(struct gpu *gpu, CUdeviceptr ptr, uint64_t words, uint32_t expected, CUdeviceptr result);
