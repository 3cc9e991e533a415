/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program that loads a library, named by APP_LIBRARY, before its first allocation or after some. */

#include <dlfcn.h>
#include <pthread.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 20 };

static void load(void)
{
	const char *name = getenv("APP_LIBRARY");

	if (!name || !dlopen(name, RTLD_NOW))
		exit(73);
	printf("loaded\n");
}

/* Returns the id of the driver's allocation that contains a new block. */
static uint64_t allocation_of_new(void)
{
	uint64_t id = 0;

	APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, app_alloc(3 * MIB)));
	return id;
}

static void report_apart(const char *fact)
{
	app_fact(fact, allocation_of_new() != allocation_of_new());
}

/* Requests a block larger than every segment so far, so that the driver is asked. */
static void request_from_driver(void)
{
	APP_MUST(cuMemFree_v2(app_alloc(200 * MIB)));
}

static void early(void)
{
	load();
	app_start();
	request_from_driver();
	app_pause("loaded");
	report_apart("separate after dlopen");
}

static void late(void)
{
	app_start();
	report_apart("separate before dlopen");
	app_pause("not loaded");
	load();
	request_from_driver();
	app_pause("loaded");
	report_apart("separate after dlopen");
}

/* Returns how many of ROUNDS freed blocks are handed out again while a kernel still writes to them. */
static unsigned count_reused_while_busy(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(4 * MIB), new;

		app_spin_fill(NULL, old, 4 * KIB, 1, 50 * MS);
		APP_MUST(cuMemFree_v2(old));
		new = app_alloc(4 * MIB);
		n += new == old &&cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY;
		APP_MUST(cuMemFree_v2(new));
		APP_MUST(cuCtxSynchronize());
	}
	return n;
}

/* The pool serves every request by then, so the driver is never asked for memory again. */
static void warm(void)
{
	app_start();
	app_fact("reused before dlopen", count_reused_while_busy());
	load();
	app_fact("reused after dlopen", count_reused_while_busy());
}

static void *load_in_thread(void *unused)
{
	load();
	return NULL;
}

/* The thread that loads the library never calls CUDA and never looks up a function. */
static void warm_in_thread(void)
{
	pthread_t thread;

	app_start();
	app_fact("reused before dlopen", count_reused_while_busy());
	APP_MUST(pthread_create(&thread, NULL, load_in_thread, NULL));
	APP_MUST(pthread_join(thread, NULL));
	app_fact("reused after dlopen", count_reused_while_busy());
}

const struct app_scenario app_scenarios[] = {
	{"early", early},
	{"late", late},
	{"warm", warm},
	{"warm-in-thread", warm_in_thread},
	{0},
};
