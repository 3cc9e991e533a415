/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A kernel that touches another device's memory without peer access, which is an error in the program. */

#include "devices.h"

enum { SMS = 16 };

/* Without access the kernel fails, and its context with it. The other device's context still works. */
static void unreachable(bool was_enabled)
{
	CUdeviceptr ptr;
	CUcontext again;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	if (was_enabled) {
		devices_enable_access(1, 0);
		devices_fill_and_wait(1, ptr, 5);
		app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
		devices_enter(1);
		app_result("disable", cuCtxDisablePeerAccess(devices[0].ctx));
		app_result("disable again", cuCtxDisablePeerAccess(devices[0].ctx));
	}
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	devices_fill_and_wait(0, ptr, 7);
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 7));
	app_result("free", cuMemFree_v2(ptr));
	app_result("reset", cuDevicePrimaryCtxReset_v2(1));
	APP_MUST(cuDevicePrimaryCtxRetain(&again, 1));
	app_result("the same handle", again == devices[1].ctx);
	devices_start_one(1);
	ptr = app_alloc(16 * MIB);
	devices_fill_and_wait(1, ptr, 8);
	app_result("wrong words", (int)devices_count_wrong(1, ptr, 8));
	app_result("free", cuMemFree_v2(ptr));
}

static void never_enabled(void)
{
	unreachable(false);
}

static void disabled(void)
{
	unreachable(true);
}

/* Resets the peer's context and creates it again. Calls that need the earlier access return the driver's answers. */
static void reset(void)
{
	CUdeviceptr ptr;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	devices_enable_access(1, 0);
	devices_fill_and_wait(1, ptr, 5);
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	devices_start_one(0);
	devices_enable_access(1, 0);
	devices_enter(0);
	ptr = app_alloc(16 * MIB);
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 6));
}

/* Access to a green context reaches the peer's memory, because that memory belongs to its primary context. */
static void green(void)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUcontext ctx;
	CUdeviceptr ptr;
	unsigned n = 1;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	APP_MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	APP_MUST(cuDevSmResourceSplitByCount(&part, &n, &all, &rest, 0, SMS));
	APP_MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	APP_MUST(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_MUST(cuCtxFromGreenCtx(&ctx, green));
	devices_enter(1);
	app_result("enable", cuCtxEnablePeerAccess(ctx, 0));
	app_result("launch", devices_fill(1, ptr, 5));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
}

const struct app_scenario app_scenarios[] = {
	{"never-enabled", never_enabled, 0},
	{"disabled", disabled, 0},
	{"reset", reset, 0},
	{"green", green, 0},
	{0},
};
