/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Driver errors that leave the context usable, and one that ends it. */

#include "app_driver.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

enum { LOOPS = 50 };

/* The blocks that the host function frees. */
static CUdeviceptr block;
static void *host;
static int freed, host_freed;

static void free_in_host_function(void *unused)
{
	freed = cuMemFree_v2(block);
	host_freed = cuMemFreeHost(host);
}

/* Frees and allocates blocks so large that the device has room only if the freed memory is available again. */
static void fill_device(CUstream stream)
{
	CUdeviceptr ptr = 0;

	app_result("600 MiB", cuMemAlloc_v2(&ptr, 600 * MIB));
	app_fill(stream, ptr, 4 * KIB, 2);
	app_result("free", cuMemFree_v2(ptr));
	app_result("700 MiB", cuMemAlloc_v2(&ptr, 700 * MIB));
	app_result("free", cuMemFree_v2(ptr));
}

/* Reports how many allocations a loop still requests from the driver. */
static void loop(CUstream stream)
{
	uint64_t before = app_calls("cuMemAlloc_v2") + app_calls("cuMemCreate");

	for (unsigned i = 0; i < LOOPS; i++) {
		CUdeviceptr ptr = app_alloc(8 * MIB);

		app_fill(stream, ptr, 4 * KIB, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_fact("driver allocations in the loop", app_calls("cuMemAlloc_v2") + app_calls("cuMemCreate") - before);
}

/* A free in a host function fails in the driver and does nothing, so that programs which ignore the error go on. */
static void callback(void)
{
	CUdeviceptr large, other;
	CUstream stream;

	app_start();
	stream = app_stream();
	block = app_alloc(4 * MIB);
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	large = app_alloc(600 * MIB);
	app_fill(stream, large, 4 * KIB, 1);
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuMemFree_v2(large));
	app_fill(stream, block, 4 * KIB, 3);
	APP_MUST(cuLaunchHostFunc(stream, free_in_host_function, NULL));
	APP_MUST(cuStreamSynchronize(stream));
	app_result("free in the host function", freed);
	app_result("free of pinned memory there", host_freed);
	other = app_alloc(4 * MIB);
	app_result("handed out again", other == block);
	printf("wrong words: %zu\n", app_count_wrong(stream, block, 4 * KIB, 3));
	app_result("free again", cuMemFree_v2(block));
	app_result("free of pinned memory again", cuMemFreeHost(host));
	APP_MUST(cuMemFree_v2(other));
	loop(stream);
	fill_device(stream);
	app_pause("over");
}

/* Memory that is not pooled: freed in a host function, which the driver refuses, and then by the program. */
static struct {
	CUdeviceptr managed;
	CUarray array;
	CUmipmappedArray mipmapped;
	CUmemGenericAllocationHandle handle;
} unpooled;

static void free_unpooled(const char *where)
{
	printf("%s: %d %d %d %d\n", where, cuMemFree_v2(unpooled.managed), cuArrayDestroy(unpooled.array),
		cuMipmappedArrayDestroy(unpooled.mipmapped), cuMemRelease(unpooled.handle));
}

static void free_unpooled_in_host_function(void *unused)
{
	free_unpooled("in the host function");
}

static void refused(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1024, .Height = 1024, .Format = 0x20, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR levels = {.Width = 1024, .Height = 1024, .Format = 0x20, .NumChannels = 4};
	CUstream stream;

	app_start();
	stream = app_stream();
	APP_MUST(cuMemAllocManaged(&unpooled.managed, 32 * MIB, 1));
	APP_MUST(cuArrayCreate_v2(&unpooled.array, &flat));
	APP_MUST(cuMipmappedArrayCreate(&unpooled.mipmapped, &levels, 2));
	APP_MUST(cuMemCreate(&unpooled.handle, 64 * MIB, &properties, 0));
	app_pause("allocated");
	APP_MUST(cuLaunchHostFunc(stream, free_unpooled_in_host_function, NULL));
	APP_MUST(cuStreamSynchronize(stream));
	app_pause("refused");
	free_unpooled("in the program");
	app_pause("freed");
}

/* The test makes the driver fail once, in a call that the library makes for itself. */
static void fault(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < 4; i++) {
		CUdeviceptr one = app_alloc(150 * MIB), other = app_alloc(450 * MIB);

		app_fill(stream, one, 4 * KIB, i);
		app_result("free", cuMemFree_v2(one));
		app_result("free of the other block", cuMemFree_v2(other));
		APP_MUST(cuStreamSynchronize(stream));
	}
	loop(stream);
	fill_device(stream);
	app_pause("over");
}

/* A sticky error: every call returns it until the context is reset. */
static void sticky(void)
{
	uint64_t ns = 20 * MS;
	CUfunction trap;
	CUmodule module;
	CUdeviceptr ptr = 0, other;

	app_start();
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&trap, module, "trap"));
	ptr = app_alloc(4 * MIB);
	other = app_alloc(4 * MIB);
	app_pause("before");
	APP_MUST(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	app_result("synchronise", cuCtxSynchronize());
	app_result("free", cuMemFree_v2(ptr));
	app_result("malloc", cuMemAlloc_v2(&ptr, 64 * MIB));
	app_result("cuMemFreeAsync", cuMemFreeAsync(other, NULL));
	app_pause("broken");
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_result("retain", cuDevicePrimaryCtxRetain(&app_ctx, 0));
	app_result("set current", cuCtxSetCurrent(app_ctx));
	app_result("malloc", cuMemAlloc_v2(&ptr, 64 * MIB));
	app_pause("reset");
}

/* An error in the context of one device does not affect memory that was pinned in the context of another. */
static void other_device(void)
{
	uint64_t ns = 20 * MS;
	CUcontext other;
	CUfunction trap;
	CUmodule module;

	app_start();
	for (unsigned i = 0; i < 4; i++) {
		APP_MUST(cuMemHostAlloc(&host, MIB, 0));
		APP_MUST(cuMemFreeHost(host));
	}
	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	APP_MUST(cuCtxSetCurrent(other));
	APP_MUST(cuMemFree_v2(app_alloc(4 * MIB)));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&trap, module, "trap"));
	APP_MUST(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	app_result("synchronise", cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 8; i++) {
		APP_MUST(cuMemsetD32Async(app_alloc(4 * KIB), 1, KIB, NULL));
		app_result("malloc", cuMemHostAlloc(&host, MIB, 0));
		app_result("free", cuMemFreeHost(host));
		app_result("device memory", cuMemFree_v2(app_alloc(4 * MIB)));
	}
	app_fact_calls("cuMemHostAlloc");
	app_pause("over");
}

static void free_on(const char *what, CUstream stream)
{
	CUdeviceptr ptr = app_alloc(4 * MIB);

	app_result(what, cuMemFreeAsync(ptr, stream));
	app_result("free", cuMemFree_v2(ptr));
}

/* A free on a stream that no longer exists does nothing. */
static void streams(void)
{
	CUcontext other;
	CUstream destroyed, of_other;

	app_start();
	destroyed = app_stream();
	APP_MUST(cuStreamDestroy_v2(destroyed));
	free_on("destroyed", destroyed);
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	of_other = app_stream();
	APP_MUST(cuCtxDestroy_v2(other));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	free_on("of a destroyed context", of_other);
	app_pause("over");
}

const struct app_scenario app_scenarios[] = {
	{"callback", callback},
	{"fault", fault},
	{"other-device", other_device},
	{"refused", refused},
	{"sticky", sticky},
	{"streams", streams},
	{0},
};
