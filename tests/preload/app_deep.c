/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program and a plug-in that bypasses preloaded libraries. Memory goes from one to the other. */

#include <dlfcn.h>

#include "app_driver.h"
#include "lib_deep.h"

enum { ROUNDS = 32 };

static __typeof__(&lib_deep_alloc) deep_alloc;
static __typeof__(&lib_deep_free) deep_free;

static __typeof__(&lib_deep_keep) deep_keep;
static __typeof__(&lib_deep_set) deep_set;

static void *open_as(int flags)
{
	void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL | flags);

	if (!plugin)
		exit(73);
	deep_alloc = (__typeof__(deep_alloc))dlsym(plugin, "lib_deep_alloc");
	deep_free = (__typeof__(deep_free))dlsym(plugin, "lib_deep_free");
	deep_keep = (__typeof__(deep_keep))dlsym(plugin, "lib_deep_keep");
	deep_set = (__typeof__(deep_set))dlsym(plugin, "lib_deep_set");
	return plugin;
}

static void open_plugin(void)
{
	(void)open_as(RTLD_DEEPBIND);
	app_start();
}

/* Memory that the plug-in allocates is the driver's, no matter which side frees it. */
static void from_plugin(void)
{
	open_plugin();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr, own = app_alloc(MIB);

		app_result("alloc", deep_alloc(&ptr, MIB));
		app_fill(NULL, ptr, 4096, i);
		app_result("wrong words", (int)app_count_wrong(NULL, ptr, 4096, i));
		app_result("free", i % 2 ? cuMemFree_v2(ptr) : deep_free(ptr));
		APP_MUST(cuMemFree_v2(own));
	}
	app_fact("plug-in calls", app_calls("cuMemAlloc_v2"));
}

/*
 * The plug-in frees the program's memory past the pool. The driver may refuse or accept it, but no block gets two
 * owners.
 */
static void from_program(void)
{
	CUdeviceptr live[ROUNDS];
	size_t wrong = 0;

	open_plugin();
	for (unsigned i = 0; i < ROUNDS; i++)
		(void)deep_free(app_alloc(i % 2 ? MIB : 8 * MIB));
	for (unsigned i = 0; i < ROUNDS; i++) {
		live[i] = app_alloc(i % 2 ? MIB : 8 * MIB);
		app_fill(NULL, live[i], 4096, i);
	}
	for (unsigned i = 0; i < ROUNDS; i++)
		wrong += app_count_wrong(NULL, live[i], 4096, i);
	for (unsigned i = 0; i < ROUNDS; i++)
		app_result("free", cuMemFree_v2(live[i]));
	printf("wrong words: %zu\n", wrong);
}

/*
 * The plug-in writes late to memory that the program frees and that gets a new owner. Before that the program frees
 * another block, which no work has touched.
 */
static void write_late(CUstream slow, CUstream quick)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(8 * MIB), other = app_alloc(8 * MIB), new;

		if (quick)
			app_spin(slow, 50000);
		APP_MUST(cuMemFree_v2(other));
		APP_MUST(deep_set(old, 0xdead, MIB / 4, slow));
		APP_MUST(cuMemFree_v2(old));
		for (unsigned k = 0; k < 2; k++) {
			new = app_alloc(8 * MIB);
			app_fill(quick, new, 4096, i);
			wrong += app_count_wrong(quick, new, 4096, i);
			if (k)
				APP_MUST(cuMemFree_v2(new));
			else
				other = new;
		}
		APP_MUST(cuMemFree_v2(other));
	}
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", wrong);
	app_report_driver();
}

static void set(void)
{
	open_plugin();
	write_late(app_stream(), app_stream());
}

/* The program uses only the default stream, while the plug-in has another one. */
static void set_alone(void)
{
	app_start();
	(void)open_as(RTLD_DEEPBIND);
	write_late(app_stream(), NULL);
}

/*
 * Memory that a plug-in has allocated outlives it, and memory that its destructor frees is free. The exit of the
 * process closes the last plug-in.
 */
static void closed(void)
{
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *plugin = open_as(0);
		CUdeviceptr ptr, own = app_alloc(MIB);

		APP_MUST(deep_alloc(&ptr, i % 2 ? MIB : 300));
		app_fill(NULL, ptr, 256, i);
		deep_keep(own);
		if (i + 1 < ROUNDS)
			dlclose(plugin);
		wrong += app_count_wrong(NULL, ptr, 256, i);
		APP_MUST(cuMemFree_v2(ptr));
		if (i + 1 < ROUNDS)
			app_result("free again", cuMemFree_v2(own));
	}
	printf("wrong words: %zu\n", wrong);
}

const struct app_scenario app_scenarios[] = {
	{"from-plugin", from_plugin},
	{"from-program", from_program},
	{"set", set},
	{"set-alone", set_alone},
	{"closed", closed},
	{0},
};
