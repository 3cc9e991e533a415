/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Errors of calls that come too early, and of a kernel that fails, which every later call in the context returns. */

#include "tests/preload/app_driver.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

#include <pthread.h>

/* The memory, stream, event and kernels that the program holds when the kernel fails. */
static struct {
	CUdeviceptr small, large, async;
	void *host;
	CUstream stream;
	CUevent event;
	CUfunction trap, fill;
} held;

static void prepare(void)
{
	CUmodule module;
	void *host;

	app_start();
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&held.trap, module, "trap"));
	APP_MUST(cuModuleGetFunction(&held.fill, module, "fill"));
	held.small = app_alloc(512);
	held.large = app_alloc(8 * MIB);
	held.stream = app_stream();
	APP_MUST(cuMemHostAlloc(&held.host, MIB, 0));
	APP_MUST(cuMemAllocAsync(&held.async, MIB, held.stream));
	APP_MUST(cuEventCreate(&held.event, CU_EVENT_DISABLE_TIMING));
	/* A cache would keep these. */
	APP_MUST(cuMemFree_v2(app_alloc(512)));
	APP_MUST(cuMemFree_v2(app_alloc(2 * MIB)));
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuCtxSynchronize());
}

static void launch_trap(void)
{
	uint64_t ns = 20 * MS;

	APP_MUST(cuLaunchKernel(held.trap, 1, 1, 1, 1, 1, 1, 0, held.stream, (void *[]){&ns}, NULL));
}

static void launch_bad_fill(void)
{
	CUdeviceptr unmapped = 64;
	uint64_t words = 1;
	unsigned value = 1;

	app_spin(held.stream, 20 * MS);
	APP_MUST(cuLaunchKernel(
		held.fill, 1, 1, 1, 1, 1, 1, 0, held.stream, (void *[]){&unmapped, &words, &value}, NULL));
}

/* Makes each call once, in an order that a program might use. */
static void call_all(void)
{
	CUdeviceptr ptr = 0;
	void *host = NULL;
	CUstream stream = NULL;
	CUevent event = NULL;
	CUcontext ctx = NULL;
	size_t bytes = 0;

	app_result("malloc of a cached size", cuMemAlloc_v2(&ptr, 512));
	app_result("malloc of a cached size, larger", cuMemAlloc_v2(&ptr, 2 * MIB));
	app_result("malloc", cuMemAlloc_v2(&ptr, 700 * MIB));
	app_result("malloc of zero bytes", cuMemAlloc_v2(&ptr, 0));
	app_result("malloc without an output", cuMemAlloc_v2(NULL, 64));
	app_result("pitch", cuMemAllocPitch_v2(&ptr, &bytes, 1000, 1000, 4));
	app_result("managed", cuMemAllocManaged(&ptr, MIB, 1));
	app_result("async", cuMemAllocAsync(&ptr, MIB, held.stream));
	app_result("host malloc of a cached size", cuMemHostAlloc(&host, MIB, 0));
	app_result("host malloc", cuMemHostAlloc(&host, 5 * MIB, 0));
	app_result("info", cuMemGetInfo_v2(&bytes, NULL));
	app_result("range", cuMemGetAddressRange_v2(&ptr, &bytes, held.large));
	app_result("set", cuMemsetD8_v2(held.large, 1, MIB));
	app_result("free of the large block", cuMemFree_v2(held.large));
	app_result("free of the large block again", cuMemFree_v2(held.large));
	app_result("free of the small block", cuMemFree_v2(held.small));
	app_result("free inside", cuMemFree_v2(held.small + 64));
	app_result("free of NULL", cuMemFree_v2(0));
	app_result("async free", cuMemFreeAsync(held.async, held.stream));
	app_result("host free", cuMemFreeHost(held.host));
	app_result("stream query", cuStreamQuery(held.stream));
	app_result("event record", cuEventRecord(held.event, held.stream));
	app_result("event query", cuEventQuery(held.event));
	app_result("a stream", cuStreamCreate(&stream, 0));
	app_result("an event", cuEventCreate(&event, 0));
	app_result("synchronise", cuCtxSynchronize());
	app_result("current", cuCtxGetCurrent(&ctx));
	app_result("is the same", ctx == app_ctx);
}

/* Resets the primary context, after which memory can be allocated and used again. */
static void recover(void)
{
	CUdeviceptr ptr;

	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_result("retain", cuDevicePrimaryCtxRetain(&app_ctx, 0));
	app_result("set current", cuCtxSetCurrent(app_ctx));
	app_result("free of an old block", cuMemFree_v2(held.large));
	app_result("host free of an old block", cuMemFreeHost(held.host));
	for (unsigned i = 0; i < 4; i++) {
		app_result("malloc", cuMemAlloc_v2(&ptr, 2 * MIB));
		app_result("set", cuMemsetD8_v2(ptr, 1, 2 * MIB));
		app_result("synchronise", cuCtxSynchronize());
		app_result("free", cuMemFree_v2(ptr));
	}
}

static void until_known(void)
{
	CUresult r;

	do
		r = cuStreamQuery(held.stream);
	while (r == CUDA_ERROR_NOT_READY);
	app_result("stream query", r);
}

static void trap_known(void)
{
	prepare();
	launch_trap();
	app_result("synchronise", cuCtxSynchronize());
	call_all();
	recover();
}

static void address_known(void)
{
	prepare();
	launch_bad_fill();
	app_result("synchronise", cuCtxSynchronize());
	call_all();
	recover();
}

/* The result of the first call that waits for the failed kernel, or that comes after its end. */
static void first_free(void)
{
	prepare();
	launch_trap();
	app_result("free", cuMemFree_v2(held.large));
	app_result("malloc", cuMemAlloc_v2(&held.large, 2 * MIB));
	app_result("synchronise", cuCtxSynchronize());
}

static void first_host_free(void)
{
	prepare();
	launch_trap();
	app_result("host free", cuMemFreeHost(held.host));
	app_result("host malloc", cuMemHostAlloc(&held.host, MIB, 0));
	app_result("synchronise", cuCtxSynchronize());
}

static void first_malloc(void)
{
	prepare();
	launch_trap();
	until_known();
	app_result("malloc", cuMemAlloc_v2(&held.large, 2 * MIB));
	app_result("a large malloc", cuMemAlloc_v2(&held.large, 900 * MIB));
}

/* A queue of pending blocks whose fences fail. */
static void pending(void)
{
	CUdeviceptr ptr[32];

	prepare();
	for (unsigned i = 0; i < LENGTH(ptr); i++)
		ptr[i] = app_alloc(MIB);
	launch_trap();
	for (unsigned i = 0; i < LENGTH(ptr) / 2; i++)
		app_result("free before", cuMemFree_v2(ptr[i]));
	app_result("synchronise", cuCtxSynchronize());
	for (unsigned i = LENGTH(ptr) / 2; i < LENGTH(ptr); i++)
		app_result("free after", cuMemFree_v2(ptr[i]));
	for (unsigned i = 0; i < 4; i++)
		app_result("malloc", cuMemAlloc_v2(&ptr[i], 300 * MIB));
	recover();
}

/* The kernel's error and a second context of the process. */
static void other_context(void)
{
	CUcontext other;
	CUdeviceptr ptr;

	prepare();
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	ptr = app_alloc(MIB);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	launch_trap();
	app_result("synchronise", cuCtxSynchronize());
	app_result("switch", cuCtxSetCurrent(other));
	app_result("set", cuMemsetD8_v2(ptr, 1, MIB));
	app_result("other synchronise", cuCtxSynchronize());
	app_result("other free", cuMemFree_v2(ptr));
	app_result("other malloc", cuMemAlloc_v2(&ptr, MIB));
	app_result("another malloc", cuMemAlloc_v2(&ptr, 500 * MIB));
	app_result("free from there", cuMemFree_v2(held.small));
	app_result("destroy", cuCtxDestroy_v2(other));
}

/* Calls before cuInit, and calls without a context. */
static void too_early(void)
{
	CUdeviceptr ptr = 7;
	void *host = NULL;
	size_t bytes = 7;

	app_result("malloc before cuInit", cuMemAlloc_v2(&ptr, 64));
	app_result("free before cuInit", cuMemFree_v2(64));
	app_result("free of NULL before cuInit", cuMemFree_v2(0));
	app_result("host malloc before cuInit", cuMemHostAlloc(&host, 64, 0));
	app_result("info before cuInit", cuMemGetInfo_v2(&bytes, NULL));
	APP_MUST(cuInit(0));
	app_result("malloc without a context", cuMemAlloc_v2(&ptr, 64));
	app_result("free without a context", cuMemFree_v2(64));
	app_result("free of NULL without a context", cuMemFree_v2(0));
	app_result("host malloc without a context", cuMemHostAlloc(&host, 64, 0));
	app_result("host malloc without a context, of zero bytes", cuMemHostAlloc(&host, 0, 0));
	app_result("host free without a context", cuMemFreeHost(&host));
	app_result("pitch without a context", cuMemAllocPitch_v2(&ptr, &bytes, 64, 64, 4));
	app_result("managed without a context", cuMemAllocManaged(&ptr, 64, 1));
	app_result("async without a context", cuMemAllocAsync(&ptr, 64, NULL));
	app_result("info without a context", cuMemGetInfo_v2(&bytes, NULL));
	app_result("range without a context", cuMemGetAddressRange_v2(NULL, NULL, 64));
	printf("outputs: %llu %d %zu\n", (unsigned long long)ptr, host == NULL, bytes);
}

static void *work_without_context(void *unused)
{
	CUdeviceptr ptr = 7;

	app_result("malloc in a new thread", cuMemAlloc_v2(&ptr, 512));
	app_result("info in a new thread", cuMemGetInfo_v2(&(size_t){0}, NULL));
	app_result("free in a new thread", cuMemFree_v2(held.small));
	app_result("host free in a new thread", cuMemFreeHost(held.host));
	return NULL;
}

/* A thread without a context gets the driver's error, even if the cache has a block. */
static void new_thread(void)
{
	CUdeviceptr ptr = 7;
	pthread_t thread;

	prepare();
	if (pthread_create(&thread, NULL, work_without_context, NULL))
		exit(71);
	pthread_join(thread, NULL);
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("malloc with no context", cuMemAlloc_v2(&ptr, 512));
	app_result("host malloc with no context", cuMemHostAlloc(&held.host, MIB, 0));
	app_result("free with no context", cuMemFree_v2(held.large));
	app_result("current", cuCtxGetCurrent(&app_ctx));
	app_result("no context is current", app_ctx == NULL);
}

const struct app_scenario app_scenarios[] = {
	{"trap", trap_known},
	{"address", address_known},
	{"first-free", first_free},
	{"first-host-free", first_host_free},
	{"first-malloc", first_malloc},
	{"pending", pending},
	{"other-context", other_context},
	{"too-early", too_early},
	{"new-thread", new_thread},
	{0},
};
