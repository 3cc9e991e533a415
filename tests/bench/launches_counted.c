/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Usage: launches_counted serial|stream LAUNCHES: makes that many launches for instructions.py, which counts the
 * instructions of launch_one.
 *
 *   serial: on the legacy stream, which leaves serial mode on
 *   stream: on a stream of the program, which has ended serial mode
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/apps/cuda_min.h"
#include "tests/sim/abi.h"

enum { WARM_UP = 16 };

#define FUNCTIONS(FUNCTION)                \
	FUNCTION(cuInit)                   \
	FUNCTION(cuDevicePrimaryCtxRetain) \
	FUNCTION(cuCtxSetCurrent)          \
	FUNCTION(cuMemAlloc_v2)            \
	FUNCTION(cuMemFree_v2)             \
	FUNCTION(cuStreamCreate)           \
	FUNCTION(cuLaunchKernel)

static struct {
#define FUNCTION(name) __typeof__(&name) name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

static CUstream stream;

static void check(const char *call, CUresult error)
{
	if (!error)
		return;
	fprintf(stderr, "launches_counted: %s failed with error %d\n", call, (int)error);
	exit(1);
}

static void find_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define FUNCTION(name)                                                   \
	*(void **)&driver.name = library ? dlsym(library, #name) : NULL; \
	check(#name, driver.name ? 0 : CUDA_ERROR_NOT_FOUND);
	FUNCTIONS(FUNCTION)
#undef FUNCTION
}

/* Not inlined, since callgrind switches its count at its name. */
__attribute__((noinline)) void launch_one(void);

void launch_one(void)
{
	check("cuLaunchKernel", driver.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

int main(int argc, char **argv)
{
	/* The threads of the library start meanwhile. */
	const struct timespec start = {.tv_nsec = 200000000};
	unsigned long n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	bool has_stream = argc == 3 && !strcmp(argv[1], "stream");
	CUdeviceptr ptr;
	CUcontext ctx;

	if (!n || (!has_stream && strcmp(argv[1], "serial") != 0)) {
		fprintf(stderr, "usage: launches_counted serial|stream LAUNCHES\n");
		return 2;
	}
	find_driver();
	check("cuInit", driver.cuInit(0));
	check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&ctx, 0));
	check("cuCtxSetCurrent", driver.cuCtxSetCurrent(ctx));
	check("cuMemAlloc", driver.cuMemAlloc_v2(&ptr, 4096));
	check("cuMemFree", driver.cuMemFree_v2(ptr));
	nanosleep(&start, NULL);
	if (has_stream)
		check("cuStreamCreate", driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < WARM_UP; i++)
		launch_one();
	for (unsigned long i = 0; i < n; i++)
		launch_one();
	return 0;
}
