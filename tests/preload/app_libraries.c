/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program that loads a library, APP_LIBRARY, before its first allocation or after some. */

#include <dlfcn.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

static void load(void)
{
	const char *name = getenv("APP_LIBRARY");

	if (!name || !dlopen(name, RTLD_NOW))
		exit(73);
	printf("loaded\n");
}

/* The driver's allocation that a new block is in. */
static uint64_t allocation_of_new(void)
{
	uint64_t id = 0;

	APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, app_alloc(3 * MIB)));
	return id;
}

static void tell(const char *fact)
{
	app_fact(fact, allocation_of_new() != allocation_of_new());
}

/* More than was cut so far, so that the driver is asked. */
static void look_around(void)
{
	APP_MUST(cuMemFree_v2(app_alloc(200 * MIB)));
}

static void early(void)
{
	load();
	app_start();
	look_around();
	app_pause("loaded");
	tell("apart then");
}

static void late(void)
{
	app_start();
	tell("apart at first");
	app_pause("not loaded");
	load();
	look_around();
	app_pause("loaded");
	tell("apart then");
}

const struct app_scenario app_scenarios[] = {
	{"early", early},
	{"late", late},
	{0},
};
