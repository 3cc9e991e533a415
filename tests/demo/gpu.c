/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "gpu.h"

#include <dlfcn.h>

#include "tests/apps/kernels.h"

enum { NO_GPU = 3, BLOCK = 256, GRID_MAX = 1024 };

void gpu_check(const struct gpu *gpu, const char *what, CUresult result)
{
	const char *name = "unknown error";

	if (!result)
		return;
	if (gpu->cuGetErrorName)
		gpu->cuGetErrorName(result, &name);
	fflush(stdout);
	fprintf(stderr, "demo: %s failed: %s (%d)\n", what, name, result);
	exit(1);
}

static void load(struct gpu *gpu)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "demo: there is no NVIDIA driver here: %s\n", dlerror());
		exit(NO_GPU);
	}
#define ROW(name)                                                                       \
	*(void **)&gpu->name = dlsym(library, #name);                                   \
	if (!gpu->name) {                                                               \
		fprintf(stderr, "demo: the NVIDIA driver is too old: %s\n", dlerror()); \
		exit(NO_GPU);                                                           \
	}
	GPU_FUNCTIONS(ROW)
#undef ROW
}

void gpu_find(struct gpu *gpu, unsigned ordinal)
{
	const char *name = "unknown error";
	CUresult result;
	int n = 0;

	load(gpu);
	result = gpu->cuInit(0);
	if (!result)
		result = gpu->cuDeviceGetCount(&n);
	if (result) {
		gpu->cuGetErrorName(result, &name);
		fprintf(stderr, "demo: the NVIDIA driver does not work: %s (%d)\n", name, result);
		exit(NO_GPU);
	}
	if (ordinal >= (unsigned)n) {
		fprintf(stderr, "demo: there is no GPU %u; the driver has %d\n", ordinal, n);
		exit(NO_GPU);
	}
	GPU_CALL(gpu, cuDeviceGet, &gpu->device, (int)ordinal);
}

void gpu_print_info(const struct gpu *gpu)
{
	char name[128] = "";
	size_t bytes = 0;
	int version = 0;

	GPU_CALL(gpu, cuDeviceGetName, name, sizeof(name), gpu->device);
	GPU_CALL(gpu, cuDeviceTotalMem_v2, &bytes, gpu->device);
	GPU_CALL(gpu, cuDriverGetVersion, &version);
	printf("%s, %.1f GiB, driver for CUDA %d.%d\n", name, (double)bytes / (1 << 30), version / 1000,
		version % 1000 / 10);
}

void gpu_open(struct gpu *gpu)
{
	CUmodule module;

	GPU_CALL(gpu, cuDevicePrimaryCtxRetain, &gpu->ctx, gpu->device);
	GPU_CALL(gpu, cuCtxSetCurrent, gpu->ctx);
	GPU_CALL(gpu, cuModuleLoadData, &module, kernels_ptx);
	GPU_CALL(gpu, cuModuleGetFunction, &gpu->fill, module, "fill");
	GPU_CALL(gpu, cuModuleGetFunction, &gpu->count_wrong, module, "count_wrong");
	demo_measurements_start(&gpu->measured);
}

void gpu_close(struct gpu *gpu)
{
	GPU_CALL(gpu, cuDevicePrimaryCtxRelease_v2, gpu->device);
}

CUdeviceptr gpu_malloc(struct gpu *gpu, size_t bytes)
{
	uint64_t begin = demo_now_ns();
	CUdeviceptr ptr;

	GPU_CALL(gpu, cuMemAlloc_v2, &ptr, bytes);
	gpu->measured.alloc_ns += demo_now_ns() - begin;
	gpu->measured.mallocs++;
	return ptr;
}

void gpu_free(struct gpu *gpu, CUdeviceptr ptr)
{
	uint64_t begin = demo_now_ns();

	GPU_CALL(gpu, cuMemFree_v2, ptr);
	gpu->measured.alloc_ns += demo_now_ns() - begin;
	gpu->measured.frees++;
}

void *gpu_malloc_pinned(struct gpu *gpu, size_t bytes)
{
	uint64_t begin = demo_now_ns();
	void *ptr;

	GPU_CALL(gpu, cuMemHostAlloc, &ptr, bytes, 0);
	gpu->measured.alloc_ns += demo_now_ns() - begin;
	gpu->measured.mallocs++;
	return ptr;
}

void gpu_free_pinned(struct gpu *gpu, void *ptr)
{
	uint64_t begin = demo_now_ns();

	GPU_CALL(gpu, cuMemFreeHost, ptr);
	gpu->measured.alloc_ns += demo_now_ns() - begin;
	gpu->measured.frees++;
}

static void launch(struct gpu *gpu, CUfunction function, uint64_t words, void **params)
{
	uint64_t grid = (words + BLOCK - 1) / BLOCK;

	if (grid > GRID_MAX)
		grid = GRID_MAX;
	GPU_CALL(gpu, cuLaunchKernel, function, (unsigned)grid, 1, 1, BLOCK, 1, 1, 0, NULL, params, NULL);
}

void gpu_fill(struct gpu *gpu, CUdeviceptr ptr, uint64_t words, uint32_t value)
{
	launch(gpu, gpu->fill, words, (void *[]){&ptr, &words, &value});
}

void gpu_count_wrong(struct gpu *gpu, CUdeviceptr ptr, uint64_t words, uint32_t expected, CUdeviceptr result)
{
	launch(gpu, gpu->count_wrong, words, (void *[]){&ptr, &words, &expected, &result});
}
