/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared by the probes: they fill memory with kernels, and count the words that are wrong. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/apps/cuda_min.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static CUfunction fill, count_wrong;
static CUdeviceptr counter;
static int n_failed;

static void must(CUresult r, const char *call)
{
	if (!r)
		return;
	fprintf(stderr, "%s: error %d\n", call, (int)r);
	exit(1);
}

#define MUST(call) must(call, #call)

static void check(int is_right, const char *what)
{
	printf("%-72s %s\n", what, is_right ? "right" : "WRONG");
	fflush(stdout);
	n_failed += !is_right;
}

/* Returns seconds. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void launch(CUfunction function, CUstream stream, void **params)
{
	MUST(cuLaunchKernel(function, 1056, 1, 1, 512, 1, 1, 0, stream, params, NULL));
}

static void fill_words(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint64_t words = bytes / 4;

	launch(fill, stream, (void *[]){&ptr, &words, &value});
}

static uint64_t wrong_words(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint64_t words = bytes / 4, n = 0;

	MUST(cuMemsetD32_v2(counter, 0, 2));
	launch(count_wrong, NULL, (void *[]){&ptr, &words, &value, &counter});
	MUST(cuMemcpyDtoH_v2(&n, counter, sizeof(n)));
	return n;
}

/* Makes the primary context of the first device current, and returns the module of the kernels. */
static CUmodule start_driver(void)
{
	CUmodule module;
	CUcontext ctx;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cuCtxSetCurrent(ctx));
	MUST(cuModuleLoadData(&module, kernels_ptx));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&count_wrong, module, "count_wrong"));
	MUST(cuMemAlloc_v2(&counter, 512));
	return module;
}
