/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Free memory: the driver reports it correctly, and all of it can be allocated again after it was in use. */

#include <time.h>

#include "tests/preload/app_driver.h"

#define GIB ((size_t)1 << 30)

enum { BLOCKS_MAX = 4096, SAME_MIN = 20, LOOKS_MAX = 1000 };

static bool is_near(size_t a, size_t b)
{
	return (a > b ? a - b : b - a) <= 4 * MIB;
}

/* Free memory goes down by each allocation, and up again as soon as the block is freed. */
static void info(void)
{
	static const size_t bytes[] = {64 * MIB, 1024 * MIB, 8192 * MIB};
	size_t total, before, during, after, total_after;

	app_start();
	for (unsigned i = 0; i < 2 * LENGTH(bytes); i++) {
		size_t n = bytes[i % LENGTH(bytes)];
		CUdeviceptr ptr;

		APP_MUST(cuMemGetInfo_v2(&before, &total));
		ptr = app_alloc(n);
		APP_MUST(cuMemGetInfo_v2(&during, NULL));
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuMemGetInfo_v2(&after, NULL));
		APP_MUST(cuMemGetInfo_v2(NULL, &total_after));
		printf("%zu MiB: allocated memory is not free %d, freed memory is free again %d, total unchanged %d\n",
			n / MIB, is_near(before, during + n), is_near(before, after), total == total_after);
	}
	printf("total: %zu\n", total);
}

static size_t free_bytes(void)
{
	size_t bytes = 0;

	APP_MUST(cuMemGetInfo_v2(&bytes, NULL));
	return bytes;
}

/*
 * Returns the free bytes once they have stayed the same for 100 ms, or after five seconds: the process before may have
 * ended with most of the memory, and a driver may take that back after the end of the process.
 */
static size_t settled_free_bytes(void)
{
	const struct timespec five_ms = {.tv_nsec = 5000000};
	size_t bytes = free_bytes();

	for (unsigned n_same = 0, i = 0; n_same < SAME_MIN && i < LOOKS_MAX; i++) {
		size_t now;

		nanosleep(&five_ms, NULL);
		now = free_bytes();
		n_same = now == bytes ? n_same + 1 : 0;
		bytes = now;
	}
	return bytes;
}

static void compare_free(size_t before)
{
	size_t after = free_bytes();

	printf("all of it is free again: %d\n", is_near(before, after));
	if (!is_near(before, after))
		fprintf(stderr, "free before: %zu bytes, after: %zu bytes\n", before, after);
}

/* Allocates blocks of a size until that fails, and frees all of them. Returns the result of the failed allocation. */
static CUresult fill_up(size_t bytes, size_t *ret_bytes)
{
	static CUdeviceptr ptr[BLOCKS_MAX];
	CUresult r = CUDA_SUCCESS;
	unsigned n = 0;

	while (n < BLOCKS_MAX) {
		r = cuMemAlloc_v2(&ptr[n], bytes);
		if (r)
			break;
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(ptr[(i * 7919u) % n]));
	*ret_bytes = n * bytes;
	return r;
}

static void full(void)
{
	static const size_t sizes[] = {GIB, 300 * MIB, GIB};
	size_t before, taken;
	CUdeviceptr all;

	app_start();
	before = settled_free_bytes();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		app_result("the allocation that fails", fill_up(sizes[i], &taken));
		printf("most of the memory was allocated: %d\n", taken >= before / 100 * 85);
		app_result("nearly all as one block", cuMemAlloc_v2(&all, before - GIB));
		APP_MUST(cuMemsetD8_v2(all + before - GIB - 1, 1, 1));
		APP_MUST(cuMemFree_v2(all));
		compare_free(before);
	}
}

/* Counts the rounds in which nine tenths of the free memory cannot be allocated, after some blocks were freed. */
static void take_most(const char *name, unsigned kept_every)
{
	unsigned n_rounds = app_is_simulated() ? 100 : 10; /* a real device takes a second for all of its memory */
	unsigned seed = 3, failed = 0;
	CUdeviceptr ptr[16], large;

	for (unsigned round = 0; round < n_rounds; round++) {
		CUresult r;

		for (size_t i = 0; i < LENGTH(ptr); i++)
			ptr[i] = app_alloc(1 + app_random(&seed) * (size_t)512);
		for (size_t i = 0; i < LENGTH(ptr); i++)
			if (!kept_every || i % kept_every)
				APP_MUST(cuMemFree_v2(ptr[i]));
		r = cuMemAlloc_v2(&large, free_bytes() / 10 * 9);
		failed += r != CUDA_SUCCESS;
		if (!r)
			APP_MUST(cuMemFree_v2(large));
		for (size_t i = 0; i < LENGTH(ptr) && kept_every; i += kept_every)
			APP_MUST(cuMemFree_v2(ptr[i]));
	}
	printf("%s: failed %u of %u\n", name, failed, n_rounds);
}

static void take_free(void)
{
	app_start();
	take_most("nine tenths of the free memory", 0);
	take_most("nine tenths, with blocks in use", 2);
}

/* Allocations that are not pooled can use the memory that the cache holds. */
static void others_take(void)
{
	CUdeviceptr ptr;
	size_t before, taken;
	CUstream stream;

	app_start();
	stream = app_stream();
	before = free_bytes();
	for (unsigned round = 0; round < 2; round++) {
		(void)fill_up(GIB, &taken);
		app_result("cuMemAllocAsync of nearly all", cuMemAllocAsync(&ptr, before - 2 * GIB, stream));
		app_result("its free", cuMemFreeAsync(ptr, stream));
		APP_MUST(cuStreamSynchronize(stream));
		(void)fill_up(GIB, &taken);
		app_result("cuMemAllocPitch of nearly all",
			cuMemAllocPitch_v2(&ptr, &taken, MIB, (before - 2 * GIB) / MIB, 4));
		app_result("its free", cuMemFree_v2(ptr));
	}
}

const struct app_scenario app_scenarios[] = {
	{"info", info, APP_TOGETHER},
	{"take-free", take_free, APP_TOGETHER},
	{"full", full},
	{"others-take", others_take},
	{0},
};
