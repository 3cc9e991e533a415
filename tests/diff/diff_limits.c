/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocates memory block by block, frees all of it and begins again. Under a limit, allocations beyond it fail. */

#include "tests/preload/app_driver.h"

enum { BLOCKS = 24, ROUNDS = 3 };

static void pinned(void)
{
	void *host[BLOCKS];

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			CUresult r = cuMemHostAlloc(&host[i], MIB, 0);

			printf("pinned MiB %u: %d, NULL %d\n", i + 1, r, host[i] == NULL);
		}
		for (unsigned i = 0; i < BLOCKS; i++)
			APP_MUST(cuMemFreeHost(host[i]));
		/* Cached blocks must not make a request for another size fail. */
		app_result("six pinned MiB", cuMemHostAlloc(&host[0], 6 * MIB, 0));
		APP_MUST(cuMemFreeHost(host[0]));
	}
}

static void device(void)
{
	CUdeviceptr ptr[BLOCKS];

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			CUresult r = cuMemAlloc_v2(&ptr[i], 64 * MIB);

			printf("device block %u: %d, 0 %d\n", i + 1, r, ptr[i] == 0);
		}
		for (unsigned i = 0; i < BLOCKS; i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
		app_result("400 MiB", cuMemAlloc_v2(&ptr[0], 400 * MIB));
		APP_MUST(cuMemFree_v2(ptr[0]));
		app_result("400 MiB managed", cuMemAllocManaged(&ptr[0], 400 * MIB, 1));
		APP_MUST(cuMemFree_v2(ptr[0]));
	}
}

static void info(void)
{
	size_t free_bytes = 0, total = 0;
	CUdeviceptr ptr;

	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(64 * MIB)));
	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total));
	printf("total is 512 MiB: %d\n", total == 512 * MIB);
	printf("free is 512 MiB: %d\n", free_bytes == 512 * MIB);
	ptr = app_alloc(128 * MIB);
	APP_MUST(cuMemGetInfo_v2(&free_bytes, NULL));
	printf("free is 384 MiB: %d\n", free_bytes == 384 * MIB);
	APP_MUST(cuMemFree_v2(ptr));
}

const struct app_scenario app_scenarios[] = {
	{"pinned", pinned},
	{"device", device},
	{"info", info},
	{0},
};
