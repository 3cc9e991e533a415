/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Wrong frees, and frees that do not match the allocation: each returns the right code and does no harm. */

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

/* Prints a result under the size of the block. */
static void report(size_t bytes, const char *what, int result)
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

		report(bytes, "inside, at 1", cuMemFree_v2(ptr + 1));
		report(bytes, "inside, at 256", cuMemFree_v2(ptr + 256));
		report(bytes, "inside, in the middle", cuMemFree_v2(ptr + bytes / 2 + 1));
		report(bytes, "as pinned", cuMemFreeHost(host_pointer(ptr)));
		APP_MUST(cuMemsetD8_v2(ptr, 1, bytes));
		report(bytes, "free", cuMemFree_v2(ptr));
		report(bytes, "free again", cuMemFree_v2(ptr));
		report(bytes, "third free", cuMemFree_v2(ptr));
		APP_MUST(cuMemsetD8_v2(neighbour, 2, bytes));
		report(bytes, "free of the neighbour", cuMemFree_v2(neighbour));
		report(bytes, "free of the neighbour again", cuMemFree_v2(neighbour));
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
		report(bytes, "inside, at 1", cuMemFreeHost(ptr + 1));
		report(bytes, "inside, in the middle", cuMemFreeHost(ptr + bytes / 2));
		report(bytes, "as device memory", cuMemFree_v2(address(ptr)));
		memset(ptr, 2, bytes);
		report(bytes, "free", cuMemFreeHost(ptr));
		report(bytes, "free again", cuMemFreeHost(ptr));
		report(bytes, "as device memory, when free", cuMemFree_v2(address(ptr)));
	}
}

/* A block returns to the context that it came from, even if another context is current at the free. */
static void contexts(void)
{
	CUdeviceptr first, second;
	CUcontext other, current;

	app_start();
	first = app_alloc(MIB);
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("free without a current context", cuMemFree_v2(first));
	APP_MUST(cuCtxGetCurrent(&current));
	app_result("still no current context", current == NULL);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	first = app_alloc(MIB);
	app_result("create", cuCtxCreate_v2(&other, 0, 0));
	second = app_alloc(MIB);
	app_result("free from the other", cuMemFree_v2(first));
	app_result("free from the other again", cuMemFree_v2(first));
	APP_MUST(cuCtxGetCurrent(&current));
	app_result("still current", current == other);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free from the first", cuMemFree_v2(second));
	app_result("free from the first again", cuMemFree_v2(second));
	APP_MUST(cuCtxSetCurrent(other));
	first = app_alloc(MIB);
	second = app_alloc(4096);
	APP_MUST(cuMemsetD8_v2(first, 1, MIB));
	app_result("destroy with blocks", cuCtxDestroy_v2(other));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free after the destruction", cuMemFree_v2(first));
	app_result("free of a small block", cuMemFree_v2(second));
	first = app_alloc(MIB);
	app_result("set", cuMemsetD8_v2(first, 2, MIB));
	app_result("free", cuMemFree_v2(first));
}

static void *alloc_in_thread(void *ptr)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	*(CUdeviceptr *)ptr = app_alloc(MIB);
	return NULL;
}

/* If several threads free one block, one of them succeeds. */
static void *free_in_thread(void *ptr)
{
	CUresult r;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	r = cuMemFree_v2(*(CUdeviceptr *)ptr);
	return r == CUDA_SUCCESS ? ptr : NULL;
}

static void threads(void)
{
	enum { THREADS = 4, TIMES = 50 };
	pthread_t thread[THREADS];
	unsigned freed = 0;
	CUdeviceptr ptr;
	void *success;

	app_start();
	/* A real driver crashes if two such frees overlap. */
	if (!app_calls("cuInit")) {
		printf("skipped: only simulated\n");
		return;
	}
	for (unsigned i = 0; i < TIMES; i++) {
		if (pthread_create(&thread[0], NULL, alloc_in_thread, &ptr))
			exit(71);
		pthread_join(thread[0], NULL);
		for (unsigned k = 0; k < THREADS; k++)
			if (pthread_create(&thread[k], NULL, free_in_thread, &ptr))
				exit(71);
		for (unsigned k = 0; k < THREADS; k++) {
			pthread_join(thread[k], &success);
			freed += success != NULL;
		}
	}
	printf("frees of %d blocks that succeed: %u\n", TIMES, freed);
}

const struct app_scenario app_scenarios[] = {
	{"wrong", wrong, APP_TOGETHER},
	{"foreign", foreign, APP_TOGETHER},
	{"pinned", pinned, APP_TOGETHER},
	{"contexts", contexts},
	{"threads", threads},
	{0},
};
