/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Calls at the end of a process or context: in exit handlers and destructors, after a reset, after the last release. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

#include <pthread.h>
#include <unistd.h>

static CUdeviceptr kept, kept_large;
static void *kept_host;
static const char *in_destructor; /* prefix of the destructor's answers; NULL: it makes no calls */

static void keep(void)
{
	kept = app_alloc(512);
	kept_large = app_alloc(4 * MIB);
	APP_MUST(cuMemHostAlloc(&kept_host, MIB, 0));
	APP_MUST(cuMemFree_v2(app_alloc(4 * MIB)));
}

/* Makes the calls that a program or a library may make last. */
static void last_calls(const char *when)
{
	CUdeviceptr ptr = 0;
	CUcontext ctx = NULL;
	void *host = NULL;
	size_t bytes;

	printf("%s, free: %d\n", when, cuMemFree_v2(kept));
	printf("%s, free of a large block: %d\n", when, cuMemFree_v2(kept_large));
	printf("%s, free of the large block again: %d\n", when, cuMemFree_v2(kept_large));
	printf("%s, free of NULL: %d\n", when, cuMemFree_v2(0));
	printf("%s, host free: %d\n", when, cuMemFreeHost(kept_host));
	printf("%s, malloc: %d\n", when, cuMemAlloc_v2(&ptr, 4 * MIB));
	printf("%s, host malloc: %d\n", when, cuMemHostAlloc(&host, MIB, 0));
	printf("%s, info: %d\n", when, cuMemGetInfo_v2(&bytes, NULL));
	printf("%s, synchronise: %d\n", when, cuCtxSynchronize());
	printf("%s, current: %d\n", when, cuCtxGetCurrent(&ctx));
}

static void in_handler(void)
{
	last_calls("in a handler");
}

__attribute__((destructor)) static void destroy(void)
{
	if (in_destructor)
		last_calls(in_destructor);
}

static void handler_before(void)
{
	if (atexit(in_handler))
		exit(71);
	app_start();
	keep();
}

static void handler_after(void)
{
	app_start();
	keep();
	if (atexit(in_handler))
		exit(71);
}

static void destructor(void)
{
	app_start();
	keep();
	in_destructor = "in a destructor";
}

static void *exit_in_thread(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	keep();
	exit(0);
}

/* The main thread waits, as in many programs, while another thread ends the process. */
static void thread_exits(void)
{
	pthread_t thread;

	app_start();
	keep();
	in_destructor = "in a destructor";
	if (pthread_create(&thread, NULL, exit_in_thread, NULL))
		exit(71);
	pthread_join(thread, NULL);
}

static void at_once(void)
{
	app_start();
	keep();
	in_destructor = "in a destructor";
	fflush(stdout);
	_exit(0);
}

static void with_work(void)
{
	app_start();
	keep();
	app_spin_fill(app_stream(), kept_large, MIB, 1, 20 * MS);
	APP_MUST(cuMemFree_v2(kept_large));
	kept_large = app_alloc(4 * MIB);
	in_destructor = "in a destructor";
}

/* A primary context is reset while it has live blocks, and is retained again. */
static void after_reset(void)
{
	app_start();
	for (unsigned i = 0; i < 3; i++) {
		keep();
		app_result("reset", cuDevicePrimaryCtxReset_v2(0));
		last_calls("after the reset");
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		/* Use the old address before new allocations, which may get the same address. */
		app_result("free of an old block", cuMemFree_v2(kept));
		app_result("host free of an old block", cuMemFreeHost(kept_host));
		app_result("set", cuMemsetD8_v2(app_alloc(MIB), 1, MIB));
	}
	keep();
	in_destructor = "in a destructor";
}

static void after_release(void)
{
	CUcontext ctx;

	app_start();
	keep();
	APP_MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	app_result("release", cuDevicePrimaryCtxRelease_v2(0));
	app_result("set", cuMemsetD8_v2(kept_large, 1, MIB));
	app_result("the last release", cuDevicePrimaryCtxRelease_v2(0));
	last_calls("after the release");
	app_result("one more release", cuDevicePrimaryCtxRelease_v2(0));
	in_destructor = "in a destructor";
}

static void after_destroy(void)
{
	CUcontext ctx;
	CUresult r;

	app_start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	keep();
	app_result("destroy", cuCtxDestroy_v2(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	last_calls("with the other context");
	r = cuCtxDestroy_v2(ctx);
	/* A real driver returns either of the two. */
	app_result("destroy again", r == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_INVALID_CONTEXT : r);
}

const struct app_scenario app_scenarios[] = {
	{"handler-before", handler_before},
	{"handler-after", handler_after},
	{"destructor", destructor},
	{"thread-exits", thread_exits},
	{"at-once", at_once},
	{"with-work", with_work},
	{"after-reset", after_reset},
	{"after-release", after_release},
	{"after-destroy", after_destroy},
	{0},
};
