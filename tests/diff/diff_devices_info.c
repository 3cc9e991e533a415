/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The free memory of each of several devices. No other process may use them meanwhile. */

#include "devices.h"

/* An allocation on one device does not reduce the free memory of another. */
static void info(void)
{
	size_t before[2], after[2], total[2];
	CUdeviceptr ptr;

	if (!devices_start(2))
		return;
	for (int d = 0; d < 2; d++) {
		devices_enter(d);
		APP_MUST(cuMemGetInfo_v2(&before[d], &total[d]));
	}
	devices_enter(0);
	ptr = app_alloc(256 * MIB);
	for (int d = 0; d < 2; d++) {
		devices_enter(d);
		APP_MUST(cuMemGetInfo_v2(&after[d], &total[d]));
		app_result("less by 256 MiB", before[d] - after[d] >= 256 * MIB && after[d] < before[d]);
	}
	APP_MUST(cuMemFree_v2(ptr));
	devices_enter(0);
	APP_MUST(cuMemGetInfo_v2(&after[0], &total[0]));
	app_result("all back", after[0] + 8 * MIB >= before[0]);
}

const struct app_scenario app_scenarios[] = {
	{"info", info, 0},
	{0},
};
