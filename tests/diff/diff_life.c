/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Contexts that come and go, with memory in them: live, cached, and behind unfinished work. A context takes a real GPU
 * a fifth of a second, so there are fewer rounds there.
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

/* Counts what should have succeeded and has not; the first of them is told. */
static bool is_well(CUresult r, const char *what)
{
	if (r && !n_bad++)
		app_result(what, r);
	return !r;
}

#define WELL(call) is_well((call), #call)

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr ptr = 0;

	WELL(cuMemAlloc_v2(&ptr, bytes));
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

/* Whether the block is there: takes a write, and gives it back. */
static void check_block(CUdeviceptr ptr, uint32_t value)
{
	uint32_t word = 0;

	WELL(cuMemsetD32_v2(ptr, value, 16));
	WELL(cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	is_well(word == value ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, "wrong word");
}

/* Leaves blocks of every size behind: one in use, one cached, and one freed while a stream still writes to it. */
static void furnish(void)
{
	CUstream stream = NULL;
	void *host = NULL;

	WELL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr live = alloc(sizes[i]), cached = alloc(sizes[i]), busy;

		check_block(live, 1);
		WELL(cuMemFree_v2(cached));
		busy = alloc(sizes[i]);
		WELL(cuMemsetD32Async(busy, 7, 64, stream));
		WELL(cuMemFree_v2(busy));
		check_block(alloc(sizes[i]), 2);
	}
	WELL(cuMemHostAlloc(&host, 64 * KIB, 0));
	WELL(cuMemFreeHost(host));
	WELL(cuMemHostAlloc(&host, 64 * KIB, CU_MEMHOSTALLOC_PORTABLE));
}

/*
 * T8.2: everything is left to the destruction, again and again. What handles and addresses come again makes no
 * difference. (diff_leaks.c asks about the device's memory.)
 */
static void cycles(void)
{
	unsigned n = rounds(1000, 12), wrong_owner = 0;
	size_t host = 0;

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUcontext ctx = create(), owner = NULL;

		furnish();
		WELL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, alloc(MIB)));
		wrong_owner += owner != ctx;
		WELL(cuCtxDestroy_v2(ctx));
		WELL(cuCtxSetCurrent(app_ctx));
		if (i == n / 2)
			host = mallinfo2().uordblks;
	}
	app_result("memory of another context", (int)wrong_owner);
	if (is_simulated())
		app_result("host memory lost", mallinfo2().uordblks > host + 256 * KIB);
	furnish();
	app_result("bad", (int)n_bad);
}

/* T8.5: with a full cache, and no context to serve it in. */
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
	app_result("alloc of nothing", cuMemAlloc_v2(&other, 0));
	app_result("pitched alloc", cuMemAllocPitch_v2(&other, &pitch, 1000, 10, 4));
	app_result("managed alloc", cuMemAllocManaged(&other, MIB, 1));
	app_result("async alloc", cuMemAllocAsync(&other, MIB, NULL));
	app_result("left alone", other == 0x5a5a && pitch == 7);
	app_result("pinned alloc", cuMemHostAlloc(&other_host, MIB, 0));
	app_result("pinned alloc, the old way", cuMemAllocHost_v2(&other_host, MIB));
	app_result("memory info", cuMemGetInfo_v2(&available, &total));
	app_result("left alone", available == 7 && total == 7);
	app_result("free", cuMemFree_v2(ptr));
	app_result("free again", cuMemFree_v2(ptr));
	app_result("pinned free", cuMemFreeHost(host));
	app_result("free of NULL", cuMemFree_v2(0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(alloc(MIB)));
	app_result("bad", (int)n_bad);
}

static void tell_owner(const char *what, CUdeviceptr ptr, CUcontext ctx)
{
	CUcontext owner = NULL;
	CUresult r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);

	app_say(what, "%d, as expected: %d", r, owner == ctx);
}

/* Contexts on top of each other; each allocates in its own. */
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
	tell_owner("the primary's", ptr[2], app_ctx);
	APP_MUST(cuMemFree_v2(ptr[0]));
	app_result("pop", cuCtxPopCurrent_v2(&popped));
	app_result("popped", popped == app_ctx);
	tell_owner("the second's", ptr[1], second);
	app_result("pop", cuCtxPopCurrent_v2(NULL));
	ptr[0] = alloc(MIB);
	tell_owner("the first's", ptr[0], first);
	app_result("destroy of what is not current", cuCtxDestroy_v2(second));
	app_result("the current is left", is_current(first));
	app_result("free of what went", cuMemFree_v2(ptr[1]));
	app_result("destroy of the current", cuCtxDestroy_v2(first));
	app_result("the one below is current", is_current(app_ctx));
	app_result("free", cuMemFree_v2(ptr[2]));
	app_result("pop", cuCtxPopCurrent_v2(&popped));
	app_result("pop of none", cuCtxPopCurrent_v2(&popped));
	app_result("push NULL", cuCtxPushCurrent_v2(NULL));
	app_result("alloc", cuMemAlloc_v2(&ptr[0], MIB));
	app_result("bad", (int)n_bad);
}

static CUdeviceptr floating_ptr;

static void *float_through(void *arg)
{
	CUcontext ctx = arg, popped = NULL;

	WELL(cuCtxPushCurrent_v2(ctx));
	check_block(floating_ptr, 5);
	WELL(cuMemFree_v2(floating_ptr));
	floating_ptr = alloc(70 * KIB);
	check_block(floating_ptr, 6);
	furnish();
	WELL(cuCtxPopCurrent_v2(&popped));
	is_well(popped == ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "popped another");
	is_well(cuMemAlloc_v2(&(CUdeviceptr){0}, MIB) == CUDA_ERROR_INVALID_CONTEXT ? 0 : 1, "alloc without a context");
	return NULL;
}

/* A context that floats: current to nobody, then to one thread after the other. */
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
		tell_owner("owner", floating_ptr, ctx);
	}
	app_result("destroy", cuCtxDestroy_v2(ctx));
	app_result("the primary is current", is_current(app_ctx));
	app_result("bad", (int)n_bad);
}

/* Contexts that end while their kernels run, with what those use freed and live. */
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

		WELL(cuModuleLoadData(&module, kernels_ptx));
		WELL(cuModuleGetFunction(&spin_fill, module, "spin_fill"));
		for (size_t k = 0; k < LENGTH(sizes); k++) {
			freed = alloc(sizes[k]);
			live = alloc(sizes[k]);
			for (unsigned which = 0; which < 2; which++) {
				void *params[] = {which ? &freed : &live, &words, &value, &ns};

				WELL(cuLaunchKernel(spin_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
			}
			if (i % 2)
				WELL(cuMemFree_v2(freed));
			else
				WELL(cuMemFreeAsync(freed, NULL));
		}
		WELL(cuCtxDestroy_v2(ctx));
		WELL(cuCtxSetCurrent(app_ctx));
	}
	furnish();
	app_result("bad", (int)n_bad);
}

/* T8.4: what one context has cached is never served in another, whichever was current at the free. */
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
			WELL(cuCtxSetCurrent(ctx[k]));
			ptr[k] = alloc(bytes);
			WELL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr[k]));
			wrong_owner += owner != ctx[k];
		}
		WELL(cuCtxSetCurrent(ctx[app_random(&seed) % 2]));
		WELL(cuMemFree_v2(ptr[i % 2]));
		WELL(cuMemFree_v2(ptr[!(i % 2)]));
	}
	app_result("memory of another context", (int)wrong_owner);
	APP_MUST(cuCtxDestroy_v2(ctx[1]));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	furnish();
	app_result("bad", (int)n_bad);
}

/* Pinned memory belongs to a context too, portable or not. */
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
		app_result("owner", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT,
					    (CUdeviceptr)(uintptr_t)there));
		app_result("is the second", owner == second);
		memset(there, 1, 100000);
		app_result("free of the first's in the second", cuMemFreeHost(here));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_result("free of the second's in the first", cuMemFreeHost(there));
		APP_MUST(cuCtxDestroy_v2(second));
		app_result("free of what went with the second", cuMemFreeHost(kept));
	}
	furnish();
	app_result("bad", (int)n_bad);
}

/* What belongs to a device and not to a context survives it. */
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
	furnish();
	app_result("bad", (int)n_bad);
}

/* Attached twice a context outlives a detach, with all that is in it. */
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
	app_result("detach of what is not current", cuCtxDetach(ctx));
	APP_MUST(cuCtxSetCurrent(ctx));
	check_block(ptr, 1);
	app_result("detach", cuCtxDetach(ctx));
	app_result("current", is_current(ctx));
	APP_MUST(cuCtxSetCurrent(ctx));
	check_block(ptr, 2);
	check_block(small, 3);
	app_result("free", cuMemFree_v2(small));
	furnish();
	app_result("the last detach", cuCtxDetach(ctx));
	app_result("current", is_current(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free of what went", cuMemFree_v2(ptr));
	furnish();
	app_result("bad", (int)n_bad);
}

/* Ends that the driver refuses leave everything where it is. */
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
	furnish();
	app_result("bad", (int)n_bad);
}

static void tell_flags(const char *what)
{
	unsigned flags = 99;
	int active = 99;
	CUresult r = cuDevicePrimaryCtxGetState(0, &flags, &active);

	app_say(what, "%d, flags %u, active %d", r, flags, active);
}

/* Flags of the primary context, before it is there, while it is, and when it is gone. */
static void flags(void)
{
	CUdeviceptr ptr;

	APP_MUST(cuInit(0));
	tell_flags("at first");
	app_result("set", cuDevicePrimaryCtxSetFlags_v2(0, 4));
	tell_flags("set");
	app_start();
	ptr = alloc(MIB);
	app_result("set while active", cuDevicePrimaryCtxSetFlags_v2(0, 1));
	tell_flags("set while active");
	check_block(ptr, 1);
	app_result("free", cuMemFree_v2(ptr));
	furnish();
	app_result("release", cuDevicePrimaryCtxRelease_v2(0));
	tell_flags("released");
	app_result("alloc", cuMemAlloc_v2(&ptr, MIB));
	app_start();
	furnish();
	tell_flags("retained");
	app_result("bad", (int)n_bad);
}

/* T8.1: all that was there is gone, and none of it comes back. */
static void resets(void)
{
	unsigned n = rounds(60, 4);

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUdeviceptr live = alloc(16 * MIB), small = alloc(300), other = 0;
		void *host = NULL;

		furnish();
		WELL(cuMemHostAlloc(&host, MIB, 0));
		WELL(cuDevicePrimaryCtxReset_v2(0));
		if (i == 0) {
			app_result("alloc", cuMemAlloc_v2(&other, MIB));
			app_result("free", cuMemFree_v2(live));
			app_result("pinned alloc", cuMemHostAlloc(&host, MIB, 0));
			app_result("set current", cuCtxSetCurrent(app_ctx));
		}
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		if (i == 0) {
			app_result("free of what went", cuMemFree_v2(live));
			app_result("free of what went", cuMemFree_v2(small));
			app_result("pinned free of what went", cuMemFreeHost(host));
		}
		furnish();
	}
	app_result("bad", (int)n_bad);
}

/* A context beside the primary one is not touched by its end. */
static void reset_beside(void)
{
	CUdeviceptr ptr, small;
	CUcontext second;

	app_start();
	furnish();
	second = create();
	ptr = alloc(5 * MIB);
	small = alloc(300);
	furnish();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	check_block(ptr, 1);
	check_block(small, 2);
	furnish();
	app_result("free", cuMemFree_v2(ptr));
	app_result("free", cuMemFree_v2(small));
	APP_MUST(cuCtxDestroy_v2(second));
	app_start();
	furnish();
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
