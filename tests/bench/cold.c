/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * cold MIB...     prints the wall time of an allocation of pinned memory of each size, and of its free. No cache has
 *                 memory of that size yet.
 * cold start      prints the wall time in which a process gets its context
 * cold loop MIB   allocates and frees pinned memory of that size until its input ends; prints a line for each turn
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/apps/cuda_min.h"

static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxSetCurrent) set_current;
	__typeof__(&cuCtxSynchronize) synchronize;
	__typeof__(&cuMemHostAlloc) alloc;
	__typeof__(&cuMemFreeHost) release;
} driver;

static void check(int r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "cold: %s: error %d\n", what, r);
	exit(EXIT_FAILURE);
}

static void find_driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	if (!handle) {
		fprintf(stderr, "cold: %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
	driver.init = (__typeof__(driver.init))dlsym(handle, "cuInit");
	driver.retain = (__typeof__(driver.retain))dlsym(handle, "cuDevicePrimaryCtxRetain");
	driver.set_current = (__typeof__(driver.set_current))dlsym(handle, "cuCtxSetCurrent");
	driver.synchronize = (__typeof__(driver.synchronize))dlsym(handle, "cuCtxSynchronize");
	driver.alloc = (__typeof__(driver.alloc))dlsym(handle, "cuMemHostAlloc");
	driver.release = (__typeof__(driver.release))dlsym(handle, "cuMemFreeHost");
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void start(void)
{
	CUcontext primary;

	check(driver.init(0), "cuInit");
	check(driver.retain(&primary, 0), "cuDevicePrimaryCtxRetain");
	check(driver.set_current(primary), "cuCtxSetCurrent");
	check(driver.synchronize(), "cuCtxSynchronize");
}

static void allocate(const char *mib)
{
	size_t bytes = strtoull(mib, NULL, 10) << 20;
	uint64_t start_ns = now_ns(), allocated_ns;
	volatile char *host = NULL;

	check(driver.alloc((void **)&host, bytes, 0), "cuMemHostAlloc");
	allocated_ns = now_ns();
	host[0] = host[bytes - 1] = 1;
	printf("allocation-of-%s-MiB ns=%llu\n", mib, (unsigned long long)(allocated_ns - start_ns));
	start_ns = now_ns();
	check(driver.release((void *)host), "cuMemFreeHost");
	printf("free-of-%s-MiB ns=%llu\n", mib, (unsigned long long)(now_ns() - start_ns));
}

static void loop(const char *mib)
{
	size_t bytes = strtoull(mib, NULL, 10) << 20;
	char byte;

	fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	while (read(STDIN_FILENO, &byte, 1) != 0) {
		void *host;

		check(driver.alloc(&host, bytes, 0), "cuMemHostAlloc");
		check(driver.release(host), "cuMemFreeHost");
		printf("turn n=1\n");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	bool is_start = argc == 2 && strcmp(argv[1], "start") == 0;
	uint64_t start_ns = now_ns();

	find_driver();
	start();
	if (is_start)
		printf("start ns=%llu\n", (unsigned long long)(now_ns() - start_ns));
	else if (argc == 3 && strcmp(argv[1], "loop") == 0)
		loop(argv[2]);
	else
		for (int i = 1; i < argc; i++)
			allocate(argv[i]);
	return EXIT_SUCCESS;
}
