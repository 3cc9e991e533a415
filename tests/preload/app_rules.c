/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program with several threads and a library, which rules put into regions. */

#include <pthread.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "lib_caller.h"

static CUdeviceptr once(CUresult (*alloc)(CUdeviceptr *ptr, size_t bytes), size_t bytes)
{
	CUdeviceptr ptr = 0;

	APP_MUST(alloc(&ptr, bytes));
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	return ptr;
}

static void *work(void *arg)
{
	CUdeviceptr first;

	APP_MUST(pthread_setname_np(pthread_self(), (const char *)arg));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	first = once(cuMemAlloc_v2, 3 * MIB);
	(void)once(cuMemAlloc_v2, 64 * KIB);
	(void)gpupool_region_begin("by hand");
	app_fact("by hand", once(cuMemAlloc_v2, 3 * MIB) != first);
	(void)gpupool_region_end();
	app_fact("own block again", once(cuMemAlloc_v2, 3 * MIB) == first);
	return NULL;
}

static void threads(void)
{
	static const char *const names[] = {"loader-1", "loader-2", "other"};
	pthread_t thread;

	app_start();
	(void)once(cuMemAlloc_v2, 3 * MIB);
	for (size_t i = 0; i < LENGTH(names); i++) {
		APP_MUST(pthread_create(&thread, NULL, work, (void *)(uintptr_t)names[i]));
		APP_MUST(pthread_join(thread, NULL));
	}
	app_pause("threads");
}

static void library(void)
{
	CUdeviceptr by_program, by_library;

	app_start();
	by_program = once(cuMemAlloc_v2, 3 * MIB);
	by_library = once(caller_alloc, 3 * MIB);
	app_fact("separate blocks", by_program != by_library);
	app_fact("program's block again", once(cuMemAlloc_v2, 3 * MIB) == by_program);
	app_fact("library's block again", once(caller_alloc, 3 * MIB) == by_library);
	(void)gpupool_region_begin("by hand");
	app_fact("entered region wins", once(caller_alloc, 3 * MIB) != by_library);
	(void)gpupool_region_end();
	app_pause("library");
}

/*
 * The out-of-memory hook for a failing allocation of the library. It frees and allocates, but too little for the retry.
 */
static int make_some_room(void *arg, int device, uint64_t bytes)
{
	CUdeviceptr *spare = arg;

	APP_MUST(cuMemFree_v2(*spare));
	APP_MUST(cuMemAlloc_v2(spare, 4 * KIB));
	return 0;
}

static void full(void)
{
	CUdeviceptr spare, ptr;

	app_start();
	APP_MUST(cuMemAlloc_v2(&spare, 2 * MIB));
	(void)gpupool_set_oom_hook(make_some_room, &spare);
	while (caller_alloc(&ptr, 64 * MIB) == CUDA_SUCCESS)
		;
}

const struct app_scenario app_scenarios[] = {
	{"full", full},
	{"library", library},
	{"threads", threads},
	{NULL},
};
