/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Contexts are created and destroyed with memory in them: live, cached, and pending behind unfinished work. Creating a
 * context takes a fifth of a second on a real GPU, so there are fewer rounds there.
 */

#include <malloc.h>
#include <pthread.h>

#include "tests/apps/kernels.h"
#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

static bool is_simulated(void)
{
	return app_calls("cuInit") > 0;
}

static unsigned rounds(unsigned simulated, unsigned real)
{
	return is_simulated() ? simulated : real;
}

static unsigned n_bad;

/* Counts calls that failed although they should succeed, and prints the first of them. */
static bool expect_ok(CUresult r, const char *what)
{
	if (r && !n_bad++)
		app_result(what, r);
	return !r;
}

#define EXPECT_OK(call) expect_ok((call), #call)

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr ptr = 0;

	EXPECT_OK(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

static bool is_current(CUcontext ctx)
{
	CUcontext now = NULL;

	APP_MUST(cuCtxGetCurrent(&now));
	return now == ctx;
}

static CUcontext create(void)
{
	CUcontext ctx = NULL;

	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	return ctx;
}

static const size_t sizes[] = {300, 512, 70 * KIB, MIB, MIB + 1, 5 * MIB, 16 * MIB};

/* Checks that a block is valid: writes a value to it and reads the value back. */
static void check_block(CUdeviceptr ptr, uint32_t value)
{
	uint32_t word = 0;

	EXPECT_OK(cuMemsetD32_v2(ptr, value, 16));
	EXPECT_OK(cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	expect_ok(word == value ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, "wrong word");
}

/* Leaves blocks of every size behind: one in use, one cached, and one freed while a stream still writes to it. */
static void populate(void)
{
	CUstream stream = NULL;
	void *host = NULL;

	EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr live = alloc(sizes[i]), cached = alloc(sizes[i]), busy;

		check_block(live, 1);
		EXPECT_OK(cuMemFree_v2(cached));
		busy = alloc(sizes[i]);
		EXPECT_OK(cuMemsetD32Async(busy, 7, 64, stream));
		EXPECT_OK(cuMemFree_v2(busy));
		check_block(alloc(sizes[i]), 2);
	}
	EXPECT_OK(cuMemHostAlloc(&host, 64 * KIB, 0));
	EXPECT_OK(cuMemFreeHost(host));
	EXPECT_OK(cuMemHostAlloc(&host, 64 * KIB, CU_MEMHOSTALLOC_PORTABLE));
}

/*
 * T8.2: leaves all memory to the destruction of its context, in a loop. Handles and addresses may repeat. (diff_leaks.c
 * checks the device's free memory.)
 */
static void cycles(void)
{
	unsigned n = rounds(1000, 12), wrong_owner = 0;
	size_t host = 0;

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUcontext ctx = create(), owner = NULL;

		populate();
		EXPECT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, alloc(MIB)));
		wrong_owner += owner != ctx;
		EXPECT_OK(cuCtxDestroy_v2(ctx));
		EXPECT_OK(cuCtxSetCurrent(app_ctx));
		if (i == n / 2)
			host = mallinfo2().uordblks;
	}
	app_result("memory of another context", (int)wrong_owner);
	if (is_simulated())
		app_result("host memory lost", mallinfo2().uordblks > host + 256 * KIB);
	populate();
	app_result("bad", (int)n_bad);
}

/* T8.5: makes calls without a current context, while the cache is full. */
static void nothing_current(void)
{
	CUdeviceptr ptr, other = 0x5a5a;
	size_t pitch = 7, available = 7, total = 7;
	void *host, *other_host = &host;

	app_start();
	ptr = alloc(MIB);
	APP_MUST(cuMemFree_v2(alloc(MIB)));
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	APP_MUST(cuMemHostAlloc(&other_host, MIB, 0));
	APP_MUST(cuMemFreeHost(other_host));
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("alloc", cuMemAlloc_v2(&other, MIB));
	app_result("alloc of zero bytes", cuMemAlloc_v2(&other, 0));
	app_result("pitched alloc", cuMemAllocPitch_v2(&other, &pitch, 1000, 10, 4));
	app_result("managed alloc", cuMemAllocManaged(&other, MIB, 1));
	app_result("async alloc", cuMemAllocAsync(&other, MIB, NULL));
	app_result("outputs unchanged", other == 0x5a5a && pitch == 7);
	app_result("pinned alloc", cuMemHostAlloc(&other_host, MIB, 0));
	app_result("pinned alloc by cuMemAllocHost", cuMemAllocHost_v2(&other_host, MIB));
	app_result("memory info", cuMemGetInfo_v2(&available, &total));
	app_result("outputs unchanged", available == 7 && total == 7);
	app_result("free", cuMemFree_v2(ptr));
	app_result("free again", cuMemFree_v2(ptr));
	app_result("pinned free", cuMemFreeHost(host));
	app_result("free of NULL", cuMemFree_v2(0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(alloc(MIB)));
	app_result("bad", (int)n_bad);
}

static void report_owner(const char *what, CUdeviceptr ptr, CUcontext ctx)
{
	CUcontext owner = NULL;
	CUresult r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);

	app_say(what, "%d, as expected: %d", r, owner == ctx);
}

/* A stack of current contexts. Each allocation comes from the context on top. */
static void stack(void)
{
	CUcontext first, second, popped = NULL;
	CUdeviceptr ptr[3];

	app_start();
	first = create();
	ptr[0] = alloc(MIB);
	second = create();
	ptr[1] = alloc(MIB);
	APP_MUST(cuCtxPushCurrent_v2(app_ctx));
	ptr[2] = alloc(MIB);
	report_owner("the primary's", ptr[2], app_ctx);
	APP_MUST(cuMemFree_v2(ptr[0]));
	app_result("pop", cuCtxPopCurrent_v2(&popped));
	app_result("popped", popped == app_ctx);
	report_owner("the second's", ptr[1], second);
	app_result("pop", cuCtxPopCurrent_v2(NULL));
	ptr[0] = alloc(MIB);
	report_owner("the first's", ptr[0], first);
	app_result("destroy of a context that is not current", cuCtxDestroy_v2(second));
	app_result("the current context stays current", is_current(first));
	app_result("free of memory of the ended context", cuMemFree_v2(ptr[1]));
	app_result("destroy of the current", cuCtxDestroy_v2(first));
	app_result("the context below is current", is_current(app_ctx));
	app_result("free", cuMemFree_v2(ptr[2]));
	app_result("pop", cuCtxPopCurrent_v2(&popped));
	app_result("pop of an empty stack", cuCtxPopCurrent_v2(&popped));
	app_result("push NULL", cuCtxPushCurrent_v2(NULL));
	app_result("alloc", cuMemAlloc_v2(&ptr[0], MIB));
	app_result("bad", (int)n_bad);
}

static CUdeviceptr floating_ptr;

static void *float_through(void *arg)
{
	CUcontext ctx = arg, popped = NULL;

	EXPECT_OK(cuCtxPushCurrent_v2(ctx));
	check_block(floating_ptr, 5);
	EXPECT_OK(cuMemFree_v2(floating_ptr));
	floating_ptr = alloc(70 * KIB);
	check_block(floating_ptr, 6);
	populate();
	EXPECT_OK(cuCtxPopCurrent_v2(&popped));
	expect_ok(popped == ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "popped another");
	expect_ok(
		cuMemAlloc_v2(&(CUdeviceptr){0}, MIB) == CUDA_ERROR_INVALID_CONTEXT ? 0 : 1, "alloc without a context");
	return NULL;
}

/* A floating context: at first it is current in no thread, and then in several threads in turn. */
static void floating(void)
{
	CUcontext ctx, popped = NULL;
	pthread_t thread;

	app_start();
	ctx = create();
	floating_ptr = alloc(70 * KIB);
	for (unsigned i = 0; i < 4; i++) {
		APP_MUST(cuCtxPopCurrent_v2(&popped));
		pthread_create(&thread, NULL, float_through, ctx);
		pthread_join(thread, NULL);
		APP_MUST(cuCtxPushCurrent_v2(ctx));
		check_block(floating_ptr, i);
		report_owner("owner", floating_ptr, ctx);
	}
	app_result("destroy", cuCtxDestroy_v2(ctx));
	app_result("the primary is current", is_current(app_ctx));
	app_result("bad", (int)n_bad);
}

/* Contexts end while their kernels run, with the kernels' memory freed or live. */
static void under_work(void)
{
	unsigned n = rounds(100, 4);

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUcontext ctx = create();
		CUfunction spin_fill;
		CUdeviceptr freed, live;
		uint64_t words = 64, ns = MS;
		uint32_t value = i;
		CUmodule module;

		EXPECT_OK(cuModuleLoadData(&module, kernels_ptx));
		EXPECT_OK(cuModuleGetFunction(&spin_fill, module, "spin_fill"));
		for (size_t k = 0; k < LENGTH(sizes); k++) {
			freed = alloc(sizes[k]);
			live = alloc(sizes[k]);
			for (unsigned which = 0; which < 2; which++) {
				void *params[] = {which ? &freed : &live, &words, &value, &ns};

				EXPECT_OK(cuLaunchKernel(spin_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
			}
			if (i % 2)
				EXPECT_OK(cuMemFree_v2(freed));
			else
				EXPECT_OK(cuMemFreeAsync(freed, NULL));
		}
		EXPECT_OK(cuCtxDestroy_v2(ctx));
		EXPECT_OK(cuCtxSetCurrent(app_ctx));
	}
	populate();
	app_result("bad", (int)n_bad);
}

/* T8.4: a cached block is never served in another context, even if that context was current at the free. */
static void two(void)
{
	CUcontext ctx[2], owner;
	unsigned wrong_owner = 0;
	unsigned seed = 11;

	app_start();
	ctx[0] = app_ctx;
	ctx[1] = create();
	for (unsigned i = 0; i < 400; i++) {
		CUdeviceptr ptr[2];
		size_t bytes = sizes[app_random(&seed) % LENGTH(sizes)];

		for (unsigned k = 0; k < 2; k++) {
			EXPECT_OK(cuCtxSetCurrent(ctx[k]));
			ptr[k] = alloc(bytes);
			EXPECT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr[k]));
			wrong_owner += owner != ctx[k];
		}
		EXPECT_OK(cuCtxSetCurrent(ctx[app_random(&seed) % 2]));
		EXPECT_OK(cuMemFree_v2(ptr[i % 2]));
		EXPECT_OK(cuMemFree_v2(ptr[!(i % 2)]));
	}
	app_result("memory of another context", (int)wrong_owner);
	APP_MUST(cuCtxDestroy_v2(ctx[1]));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	populate();
	app_result("bad", (int)n_bad);
}

/* Pinned memory belongs to a context, too, whether it is portable or not. */
static void pinned(void)
{
	static const unsigned flags[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP};
	CUcontext second, owner;
	char *here, *there, *kept;

	app_start();
	for (size_t i = 0; i < LENGTH(flags); i++) {
		APP_MUST(cuMemHostAlloc((void **)&here, 100000, flags[i]));
		second = create();
		APP_MUST(cuMemHostAlloc((void **)&there, 100000, flags[i]));
		APP_MUST(cuMemHostAlloc((void **)&kept, 100000, flags[i]));
		owner = NULL;
		app_result("owner",
			cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)there));
		app_result("is the second", owner == second);
		memset(there, 1, 100000);
		app_result("free of the first's in the second", cuMemFreeHost(here));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_result("free of the second's in the first", cuMemFreeHost(there));
		APP_MUST(cuCtxDestroy_v2(second));
		app_result("free of pinned memory of the second context", cuMemFreeHost(kept));
	}
	populate();
	app_result("bad", (int)n_bad);
}

/* Memory that belongs to a device, and not to a context, outlives the context. */
static void of_the_device(void)
{
	CUdeviceptr ptr, managed;
	CUcontext second;
	CUstream stream;

	app_start();
	second = create();
	APP_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuMemAllocManaged(&managed, MIB, 1));
	APP_MUST(cuCtxDestroy_v2(second));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free of stream-ordered memory", cuMemFree_v2(ptr));
	app_result("free of managed memory", cuMemFree_v2(managed));
	populate();
	app_result("bad", (int)n_bad);
}

/* A context that was attached twice outlives one detach, with all of its memory. */
static void attached(void)
{
	CUcontext ctx, same = NULL;
	CUdeviceptr ptr, small;

	app_start();
	ctx = create();
	ptr = alloc(MIB);
	small = alloc(300);
	app_result("attach", cuCtxAttach(&same, 0));
	app_result("the same", same == ctx);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("detach of a context that is not current", cuCtxDetach(ctx));
	APP_MUST(cuCtxSetCurrent(ctx));
	check_block(ptr, 1);
	app_result("detach", cuCtxDetach(ctx));
	app_result("current", is_current(ctx));
	APP_MUST(cuCtxSetCurrent(ctx));
	check_block(ptr, 2);
	check_block(small, 3);
	app_result("free", cuMemFree_v2(small));
	populate();
	app_result("the last detach", cuCtxDetach(ctx));
	app_result("current", is_current(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free of memory of the ended context", cuMemFree_v2(ptr));
	populate();
	app_result("bad", (int)n_bad);
}

/* If the driver refuses to end a context, all memory stays valid. */
static void refused(void)
{
	CUdeviceptr ptr, small;

	app_start();
	ptr = alloc(5 * MIB);
	small = alloc(300);
	app_result("destroy of the primary", cuCtxDestroy_v2(app_ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	check_block(ptr, 1);
	app_result("destroy of NULL", cuCtxDestroy_v2(NULL));
	app_result("detach of NULL", cuCtxDetach(NULL));
	app_result("release of no device", cuDevicePrimaryCtxRelease_v2(99));
	app_result("reset of no device", cuDevicePrimaryCtxReset_v2(99));
	app_result("reset of device -1", cuDevicePrimaryCtxReset_v2(-1));
	check_block(ptr, 2);
	check_block(small, 3);
	app_result("free", cuMemFree_v2(ptr));
	app_result("free", cuMemFree_v2(small));
	populate();
	app_result("bad", (int)n_bad);
}

static void report_flags(const char *what)
{
	unsigned flags = 99;
	int active = 99;
	CUresult r = cuDevicePrimaryCtxGetState(0, &flags, &active);

	app_say(what, "%d, flags %u, active %d", r, flags, active);
}

/* Flags of the primary context before it exists, while it is active, and after its release. */
static void flags(void)
{
	CUdeviceptr ptr;

	APP_MUST(cuInit(0));
	report_flags("at first");
	app_result("set", cuDevicePrimaryCtxSetFlags_v2(0, 4));
	report_flags("set");
	app_start();
	ptr = alloc(MIB);
	app_result("set while active", cuDevicePrimaryCtxSetFlags_v2(0, 1));
	report_flags("set while active");
	check_block(ptr, 1);
	app_result("free", cuMemFree_v2(ptr));
	populate();
	app_result("release", cuDevicePrimaryCtxRelease_v2(0));
	report_flags("released");
	app_result("alloc", cuMemAlloc_v2(&ptr, MIB));
	app_start();
	populate();
	report_flags("retained");
	app_result("bad", (int)n_bad);
}

/* T8.1: a reset ends all memory of the context, and no earlier block is handed out again. */
static void resets(void)
{
	unsigned n = rounds(60, 4);

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUdeviceptr live = alloc(16 * MIB), small = alloc(300), other = 0;
		void *host = NULL;

		populate();
		EXPECT_OK(cuMemHostAlloc(&host, MIB, 0));
		EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
		if (i == 0) {
			app_result("alloc", cuMemAlloc_v2(&other, MIB));
			app_result("free", cuMemFree_v2(live));
			app_result("pinned alloc", cuMemHostAlloc(&host, MIB, 0));
			app_result("set current", cuCtxSetCurrent(app_ctx));
		}
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		if (i == 0) {
			app_result("free of memory of the ended context", cuMemFree_v2(live));
			app_result("free of memory of the ended context", cuMemFree_v2(small));
			app_result("pinned free of memory of the ended context", cuMemFreeHost(host));
		}
		populate();
	}
	app_result("bad", (int)n_bad);
}

/* A reset of the primary context does not touch a second context. */
static void reset_beside(void)
{
	CUdeviceptr ptr, small;
	CUcontext second;

	app_start();
	populate();
	second = create();
	ptr = alloc(5 * MIB);
	small = alloc(300);
	populate();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	check_block(ptr, 1);
	check_block(small, 2);
	populate();
	app_result("free", cuMemFree_v2(ptr));
	app_result("free", cuMemFree_v2(small));
	APP_MUST(cuCtxDestroy_v2(second));
	app_start();
	populate();
	app_result("bad", (int)n_bad);
}

const struct app_scenario app_scenarios[] = {
	{"cycles", cycles, 0},
	{"nothing-current", nothing_current, APP_TOGETHER},
	{"stack", stack, APP_TOGETHER},
	{"floating", floating, APP_TOGETHER},
	{"under-work", under_work, APP_TOGETHER},
	{"two", two, APP_TOGETHER},
	{"pinned", pinned, APP_TOGETHER},
	{"of-the-device", of_the_device, APP_TOGETHER},
	{"attached", attached, APP_TOGETHER},
	{"refused", refused, APP_TOGETHER},
	{"flags", flags, 0},
	{"resets", resets, 0},
	{"reset-beside", reset_beside, 0},
	{0},
};
