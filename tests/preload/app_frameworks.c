/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program whose libraries allocate. LIBRARIES names them, separated by colons; each is a copy of lib_caller. */

#include <dlfcn.h>

#include "app.h"
#include "app_driver.h"
#include "lib_caller.h"

static void allocate_with(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CUdeviceptr ptr;

	if (!handle) {
		puts(dlerror());
		exit(73);
	}
	APP_MUST(((__typeof__(&caller_alloc))dlsym(handle, "caller_alloc"))(&ptr, MIB));
}

static void allocate(void)
{
	char paths[1024];
	CUdeviceptr ptr;

	app_start();
	/* Without libraries the program itself allocates. */
	APP_MUST(cuMemAlloc_v2(&ptr, MIB));
	snprintf(paths, sizeof(paths), "%s", getenv("LIBRARIES"));
	for (char *path = strtok(paths, ":"); path; path = strtok(NULL, ":"))
		allocate_with(path);
	app_pause("held");
}

/* The libraries are loaded, but only the program allocates. */
static void load(void)
{
	char paths[1024];
	CUdeviceptr ptr;

	app_start();
	snprintf(paths, sizeof(paths), "%s", getenv("LIBRARIES"));
	for (char *path = strtok(paths, ":"); path; path = strtok(NULL, ":"))
		if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
			exit(73);
	APP_MUST(cuMemAlloc_v2(&ptr, MIB));
	app_pause("held");
}

const struct app_scenario app_scenarios[] = {{"allocate", allocate}, {"load", load}, {NULL}};
