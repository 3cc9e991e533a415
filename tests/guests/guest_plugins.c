/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program without CUDA that opens and closes libraries which use it. */

#include <dlfcn.h>

#include "lib_plugin.h"
#include "tests/preload/app.h"

enum { ROUNDS = 16 };

static void *open_library(const char *name)
{
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		printf("%s: %s\n", name, dlerror());
		exit(73);
	}
	return handle;
}

static void use_plugin(void *plugin)
{
	__typeof__(&lib_plugin_use) use = (__typeof__(use))dlsym(plugin, "lib_plugin_use");

	app_result("use", use ? use(64) : -1);
}

/* Unloads the plug-in, and the driver with it unless another library holds the driver. */
static void open_and_close(void)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *plugin = open_library(PLUGIN);

		use_plugin(plugin);
		app_result("close", dlclose(plugin));
	}
}

/* Closes one of two libraries that hold the driver. */
static void close_one_of_two(void)
{
	void *driver = open_library("libcuda.so.1");
	CUresult (*alloc)(CUdeviceptr *, size_t) = (__typeof__(alloc))dlsym(driver, "cuMemAlloc_v2");
	CUresult (*free_)(CUdeviceptr) = (__typeof__(free_))dlsym(driver, "cuMemFree_v2");
	void *plugin = open_library(PLUGIN);

	use_plugin(plugin);
	app_result("close", dlclose(driver));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = 0;

		app_result("alloc", alloc(&ptr, MIB));
		app_result("free", free_(ptr));
		use_plugin(plugin);
	}
	app_report_driver();
	app_result("close", dlclose(plugin));
}

const struct app_scenario app_scenarios[] = {
	{"open-and-close", open_and_close},
	{"close-one-of-two", close_one_of_two},
	{0},
};
