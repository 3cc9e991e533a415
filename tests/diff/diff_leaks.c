/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* T8.2: all of the device's memory is free again after contexts have ended. No other process may use it meanwhile. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

static const size_t sizes[] = {300, MIB, 5 * MIB, 64 * MIB};

static unsigned rounds(unsigned simulated, unsigned real)
{
	return app_calls("cuInit") ? simulated : real;
}

static size_t available_bytes(void)
{
	size_t available = 0, total;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemGetInfo_v2(&available, &total));
	return available;
}

/*
 * Prints 1 if the free memory is less than after the first rounds by more than 32 MiB, about half a round's memory. The
 * first rounds may leave some memory behind for good.
 */
static void report_lost(size_t before)
{
	app_result("lost", available_bytes() + 32 * MIB < before);
}

/* Leaves memory that is not pooled, and blocks of each size: one in use, one cached, one freed while work uses it. */
static void populate(void)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .Format = 0x20, .NumChannels = 1};
	CUdeviceptr managed;
	CUarray array;
	void *host;

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr busy;

		(void)app_alloc(sizes[i]);
		APP_MUST(cuMemFree_v2(app_alloc(sizes[i])));
		busy = app_alloc(sizes[i]);
		APP_MUST(cuMemsetD32Async(busy, 1, 64, NULL));
		APP_MUST(cuMemFree_v2(busy));
	}
	APP_MUST(cuMemAllocManaged(&managed, MIB, 1));
	APP_MUST(cuArrayCreate_v2(&array, &shape));
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
}

static void of_contexts(void)
{
	unsigned n = rounds(200, 8);
	size_t before = 0;

	app_start();
	for (unsigned i = 0; i < n; i++) {
		CUcontext ctx;

		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		populate();
		APP_MUST(cuCtxDestroy_v2(ctx));
		if (i == 1)
			before = available_bytes();
	}
	report_lost(before);
}

static void of_resets(void)
{
	unsigned n = rounds(100, 8);
	size_t before = 0;

	for (unsigned i = 0; i < n; i++) {
		app_start();
		if (i == 1)
			before = available_bytes();
		populate();
		if (i % 2)
			APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		else
			APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
	}
	app_start();
	report_lost(before);
}

/* In a loop on one context, all memory is reused or released to the driver. */
static void of_a_loop(void)
{
	unsigned n = rounds(400, 200);
	size_t before = 0;

	app_start();
	for (unsigned i = 0; i < n; i++) {
		for (size_t k = 0; k < LENGTH(sizes); k++) {
			CUdeviceptr ptr = app_alloc(sizes[k]);

			APP_MUST(cuMemsetD32Async(ptr, i, 64, NULL));
			APP_MUST(cuMemFree_v2(ptr));
		}
		if (i == 20)
			before = available_bytes();
	}
	APP_MUST(cuCtxSynchronize());
	report_lost(before);
}

const struct app_scenario app_scenarios[] = {
	{"contexts", of_contexts, 0},
	{"resets", of_resets, 0},
	{"loop", of_a_loop, 0},
	{0},
};
