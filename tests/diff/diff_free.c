/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Wrong frees, and frees in other words than those of the allocation: what each returns, and that no harm is done. */

#include "tests/preload/app_driver.h"

#include <pthread.h>

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

static void *host_pointer(CUdeviceptr ptr)
{
	return (void *)(uintptr_t)ptr;
}

/* A result under the name of the size it is about. */
static void say(size_t bytes, const char *what, int result)
{
	printf("%zu %s: %d\n", bytes, what, result);
}

static const size_t sizes[] = {1, 512, 4096, 64 * KIB, MIB, MIB + 1, 5 * MIB, 64 * MIB};

static void wrong(void)
{
	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i]), neighbour = app_alloc(sizes[i]);
		size_t bytes = sizes[i];

		say(bytes, "inside, at 1", cuMemFree_v2(ptr + 1));
		say(bytes, "inside, at 256", cuMemFree_v2(ptr + 256));
		say(bytes, "inside, in the middle", cuMemFree_v2(ptr + bytes / 2 + 1));
		say(bytes, "as pinned", cuMemFreeHost(host_pointer(ptr)));
		APP_MUST(cuMemsetD8_v2(ptr, 1, bytes));
		say(bytes, "free", cuMemFree_v2(ptr));
		say(bytes, "again", cuMemFree_v2(ptr));
		say(bytes, "and again", cuMemFree_v2(ptr));
		APP_MUST(cuMemsetD8_v2(neighbour, 2, bytes));
		say(bytes, "the neighbour", cuMemFree_v2(neighbour));
		say(bytes, "the neighbour again", cuMemFree_v2(neighbour));
	}
}

static void foreign(void)
{
	static int in_data;
	int on_stack = 0;
	void *heap = malloc(64);

	app_start();
	app_result("cuMemFree of NULL", cuMemFree_v2(0));
	app_result("cuMemFree of 1", cuMemFree_v2(1));
	app_result("cuMemFree of all ones", cuMemFree_v2(UINT64_MAX));
	app_result("cuMemFree of the stack", cuMemFree_v2(address(&on_stack)));
	app_result("cuMemFree of data", cuMemFree_v2(address(&in_data)));
	app_result("cuMemFree of the heap", cuMemFree_v2(address(heap)));
	app_result("cuMemFreeHost of NULL", cuMemFreeHost(NULL));
	app_result("cuMemFreeHost of 1", cuMemFreeHost((void *)1));
	app_result("cuMemFreeHost of the stack", cuMemFreeHost(&on_stack));
	app_result("cuMemFreeHost of the heap", cuMemFreeHost(heap));
	free(heap);
}

static void pinned(void)
{
	static const size_t pinned_sizes[] = {64, 4096, MIB, 3 * MIB + 1};

	app_start();
	for (size_t i = 0; i < LENGTH(pinned_sizes); i++) {
		size_t bytes = pinned_sizes[i];
		char *ptr;

		APP_MUST(cuMemHostAlloc((void **)&ptr, bytes, CU_MEMHOSTALLOC_PORTABLE));
		memset(ptr, 1, bytes);
		say(bytes, "inside, at 1", cuMemFreeHost(ptr + 1));
		say(bytes, "inside, in the middle", cuMemFreeHost(ptr + bytes / 2));
		say(bytes, "as device memory", cuMemFree_v2(address(ptr)));
		memset(ptr, 2, bytes);
		say(bytes, "free", cuMemFreeHost(ptr));
		say(bytes, "again", cuMemFreeHost(ptr));
		say(bytes, "as device memory, when free", cuMemFree_v2(address(ptr)));
	}
}

const struct app_scenario app_scenarios[] = {
	{"wrong", wrong, APP_TOGETHER},
	{"foreign", foreign, APP_TOGETHER},
	{"pinned", pinned, APP_TOGETHER},
	{0},
};
