/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * first: prints the wall time of the first calls of a process in nanoseconds, a line for each call. The process has a
 * second thread, because some system calls take longer then, and a real driver starts threads with the first context.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "tests/apps/cuda_min.h"

enum { BLOCK_BYTES = 1 << 20, RELEASED_BYTES = 48 << 20 };

static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxSetCurrent) set_current;
	__typeof__(&cuCtxSynchronize) synchronize;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) release;
} driver;

static void check(int r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "first: %s: error %d\n", what, r);
	exit(EXIT_FAILURE);
}

static void find_driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	if (!handle) {
		fprintf(stderr, "first: %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
	driver.init = (__typeof__(driver.init))dlsym(handle, "cuInit");
	driver.retain = (__typeof__(driver.retain))dlsym(handle, "cuDevicePrimaryCtxRetain");
	driver.set_current = (__typeof__(driver.set_current))dlsym(handle, "cuCtxSetCurrent");
	driver.synchronize = (__typeof__(driver.synchronize))dlsym(handle, "cuCtxSynchronize");
	driver.alloc = (__typeof__(driver.alloc))dlsym(handle, "cuMemAlloc_v2");
	driver.release = (__typeof__(driver.release))dlsym(handle, "cuMemFree_v2");
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static CUdeviceptr timed_alloc(const char *what, size_t bytes)
{
	CUdeviceptr ptr = 0;
	uint64_t start_ns = now_ns(), end_ns;

	check(driver.alloc(&ptr, bytes), what);
	end_ns = now_ns();
	printf("%s ns=%llu\n", what, (unsigned long long)(end_ns - start_ns));
	return ptr;
}

static void timed_free(const char *what, CUdeviceptr ptr)
{
	uint64_t start_ns = now_ns(), end_ns;

	check(driver.release(ptr), what);
	end_ns = now_ns();
	printf("%s ns=%llu\n", what, (unsigned long long)(end_ns - start_ns));
}

static void *wait_forever(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

int main(void)
{
	CUdeviceptr ptr;
	CUcontext primary;
	pthread_t thread;

	check(pthread_create(&thread, NULL, wait_forever, NULL), "pthread_create");
	find_driver();
	check(driver.init(0), "cuInit");
	check(driver.retain(&primary, 0), "cuDevicePrimaryCtxRetain");
	check(driver.set_current(primary), "cuCtxSetCurrent");
	check(driver.synchronize(), "cuCtxSynchronize");
	ptr = timed_alloc("first-allocation", BLOCK_BYTES);
	timed_free("first-free", ptr);
	ptr = timed_alloc("second-allocation", BLOCK_BYTES);
	timed_free("second-free", ptr);
	/* Memory freed in a no-cache scope goes back to the driver at once. */
	(void)gpupool_no_cache_begin();
	check(driver.alloc(&ptr, RELEASED_BYTES), "an allocation in a no-cache scope");
	timed_free("first-release", ptr);
	(void)gpupool_no_cache_end();
	ptr = timed_alloc("allocation-after-release", 2 * RELEASED_BYTES);
	timed_free("free-after-release", ptr);
	return EXIT_SUCCESS;
}
