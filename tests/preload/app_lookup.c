/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* dlsym in programs that do not use CUDA, or do not use it at first. */

#include <dlfcn.h>

#include "app.h"
#include "lib_who.h"

static void print_error(const char *after)
{
	const char *error = dlerror();

	printf("%s: %s\n", after, error ? error : "none");
}

/* Each lookup leaves the same dlerror as without the library. */
static void errors(void)
{
	void *c_library = dlopen("libc.so.6", RTLD_NOW);

	printf("found %d\n", dlsym(c_library, "printf") != NULL);
	print_error("success");
	printf("found %d\n", dlsym(c_library, "no_such_thing") != NULL);
	print_error("failure");
	print_error("failure, asked again");
	printf("found %d\n", dlsym(c_library, "cuMemAlloc_v2") != NULL);
	print_error("failure of a driver's name");
	printf("found %d\n", dlsym(c_library, "no_such_thing") != NULL);
	printf("found %d\n", dlsym(c_library, "printf") != NULL);
	print_error("failure, then success");
	printf("found %d\n", dlsym(RTLD_DEFAULT, "printf") != NULL);
	print_error("default");
}

/* Programs search for CUDA like this. Without CUDA the lookups must fail. */
static void without_cuda(void)
{
	static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress", "cuGetProcAddress_v2",
		"cudaMalloc", "cublasCreate", "curl_easy_init", "cu"};

	for (size_t i = 0; i < LENGTH(names); i++) {
		puts(names[i]);
		printf("default %d", dlsym(RTLD_DEFAULT, names[i]) != NULL);
		printf(", error %d\n", dlerror() != NULL);
		printf("next %d", dlsym(RTLD_NEXT, names[i]) != NULL);
		printf(", error %d\n", dlerror() != NULL);
	}
	printf("a driver is loaded %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);
}

/* RTLD_NEXT means: after the library that asks. */
static void next(void)
{
	printf("libraries: %d%d%d\n", lib_1(), lib_2(), lib_3());
	printf("who: %d\n", who());
}

/* The driver is opened and closed several times. */
static void reopened(void)
{
	CUresult (*get)(int *) = NULL;
	int version = 0;

	for (unsigned i = 0; i < 3; i++) {
		void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

		get = (CUresult(*)(int *))dlsym(driver, "cuDriverGetVersion");
		app_result("version", get ? get(&version) : -1);
		printf("cuMemAlloc_v2 %d\n", dlsym(driver, "cuMemAlloc_v2") != NULL);
		app_result("close", dlclose(driver));
	}
}

const struct app_scenario app_scenarios[] = {
	{"errors", errors},
	{"without-cuda", without_cuda},
	{"next", next},
	{"reopened", reopened},
	{0},
};
