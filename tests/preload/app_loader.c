/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * One thread makes the process's first CUDA call while another loads a plug-in, APP_LIBRARY, whose constructor uses
 * CUDA. The loader holds its lock until the constructor has ended.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "app.h"
#include "lib_locked.h"

enum { TOO_LONG_S = 20 };

static _Atomic bool is_loading, is_over;
static _Atomic int caller; /* the id of the thread that makes the first call, set just before that call */
static int first_call, call_inside;

/* Called by the constructor of the plug-in. */
void locked_constructor(void)
{
	CUcontext ctx;

	atomic_store(&is_loading, true);
	while (!atomic_load(&caller))
		sched_yield();
	while (!atomic_load(&is_over) && !app_is_asleep(atomic_load(&caller)))
		sched_yield();
	call_inside = cuDevicePrimaryCtxRetain(&ctx, 0);
}

static void *load(void *unused)
{
	const char *name = getenv("APP_LIBRARY");

	if (!name || !dlopen(name, RTLD_NOW))
		exit(73);
	return NULL;
}

static void first(void)
{
	CUdeviceptr ptr = 0;
	pthread_t thread;
	CUcontext ctx;

	alarm(TOO_LONG_S);
	APP_MUST(cuInit(0));
	/* Interpreters look functions up like this. */
	(void)dlsym(RTLD_DEFAULT, "malloc");
	APP_MUST(pthread_create(&thread, NULL, load, NULL));
	while (!atomic_load(&is_loading))
		sched_yield();
	atomic_store(&caller, gettid());
	first_call = cuDevicePrimaryCtxRetain(&ctx, 0);
	atomic_store(&is_over, true);
	APP_MUST(pthread_join(thread, NULL));
	app_result("first call", first_call);
	app_result("call in the constructor", call_inside);
	APP_MUST(cuCtxSetCurrent(ctx));
	app_result("malloc", cuMemAlloc_v2(&ptr, MIB));
	app_result("free", cuMemFree_v2(ptr));
	app_result("malloc again", cuMemAlloc_v2(&ptr, MIB));
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"first", first},
	{0},
};
