/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that puts itself to sleep and measures it. It fills memory with a kernel, sleeps, wakes by its next kernel,
 * and checks every word, five times. It also replays a graph over memory that was asleep, and sees that a kernel that
 * is running keeps it awake.
 *
 *     cc -O2 -iquote . tests/gpu/sleep_probe.c -o sleep_probe -lcuda
 *     GPUPOOL_POOL=vmm GPUPOOL_SLEEP_KEEP=on LD_PRELOAD=.../libgpupool.so ./sleep_probe [GiB]
 *
 * It exits with 1 if anything was wrong. The first sleep pins host memory, and the later ones find it pinned.
 */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api/gpupool.h"
#include "tests/apps/cuda_min.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

enum { N_ROUNDS = 5, TIMEOUT_MS = 5000 };

static CUfunction fill, count_wrong, spin;
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
	printf("%-60s %s\n", what, is_right ? "right" : "WRONG");
	n_failed += !is_right;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t free_bytes(void)
{
	struct gpupool_status status;

	return gpupool_get_status(0, &status) ? 0 : (size_t)status.device_free_bytes;
}

static void launch(CUfunction function, CUstream stream, void **params)
{
	MUST(cuLaunchKernel(function, 1024, 1, 1, 256, 1, 1, 0, stream, params, NULL));
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

static void start(void)
{
	CUmodule module;
	CUcontext ctx;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cuCtxSetCurrent(ctx));
	MUST(cuModuleLoadData(&module, kernels_ptx));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&count_wrong, module, "count_wrong"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuMemAlloc_v2(&counter, 512));
}

static void measure(CUdeviceptr *blocks, size_t n, size_t bytes)
{
	double gib = (double)n * (double)bytes / (double)GIB;
	uint64_t wrong = 0;

	for (size_t i = 0; i < n; i++)
		fill_words(NULL, blocks[i], bytes, 1000u + (uint32_t)i);
	MUST(cuCtxSynchronize());
	for (int round = 0; round < N_ROUNDS; round++) {
		size_t before = free_bytes(), asleep;
		double t = now(), slept, woke;
		int64_t r = gpupool_sleep(TIMEOUT_MS);

		slept = now() - t;
		asleep = free_bytes();
		if (r < 0) {
			printf("gpupool_sleep: error %d; GPUPOOL_LOG=info says why\n", (int)-r);
			n_failed++;
			return;
		}
		t = now();
		/* The first work wakes the process. */
		MUST(cuMemsetD32_v2(counter, 0, 2));
		woke = now() - t;
		printf("round %d: asleep in %.3f s, %.1f GiB/s; free memory %+.2f GiB; awake in %.3f s, %.1f GiB/s\n",
			round, slept, gib / slept, ((double)asleep - (double)before) / (double)GIB, woke, gib / woke);
		for (size_t i = 0; i < n; i++)
			wrong += wrong_words(blocks[i], bytes, 1000u + (uint32_t)i);
	}
	check(!wrong, "content after five sleeps");
}

static void replay(CUdeviceptr *blocks)
{
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	uint64_t wrong = 0;

	MUST(cuStreamCreate(&stream, 1));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	check(gpupool_sleep(0) == -EBUSY, "a capture keeps the process awake");
	fill_words(stream, blocks[0], 16 * MIB, 7);
	MUST(cuMemcpyDtoDAsync_v2(blocks[0] + 16 * MIB, blocks[0], 16 * MIB, stream));
	MUST(cuMemsetD32Async(blocks[0] + 32 * MIB, 9, 4 * MIB, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep before the graph is instantiated");
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 20; i++) {
		MUST(cuMemsetD32_v2(blocks[0], 1, 12 * MIB));
		MUST(cuCtxSynchronize());
		if (gpupool_sleep(TIMEOUT_MS) <= 0)
			wrong++;
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		wrong += wrong_words(blocks[0], 32 * MIB, 7) + wrong_words(blocks[0] + 32 * MIB, 16 * MIB, 9);
	}
	check(!wrong, "a graph that was replayed after 20 sleeps");
}

static void refuse(CUdeviceptr *blocks)
{
	uint64_t ns = 300000000;
	int type = 0;

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	check(gpupool_sleep(0) == -EBUSY, "a running kernel keeps the process awake");
	MUST(cuCtxSynchronize());
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep before a query");
	MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[0]));
	check(type == 2, "the type of a pointer that was asleep");
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep once more");
	check(gpupool_wake(TIMEOUT_MS) > 0, "awake by a call");
}

int main(int argc, char **argv)
{
	size_t gib = argc > 1 ? strtoul(argv[1], NULL, 0) : 4, bytes = gib ? GIB : 64 * MIB, n = gib ? gib : 1;
	CUdeviceptr *blocks = calloc(n, sizeof(*blocks));

	if (!gpupool_version() || !blocks) {
		fprintf(stderr, "sleep_probe: run it with LD_PRELOAD=libgpupool.so\n");
		return 1;
	}
	start();
	for (size_t i = 0; i < n; i++)
		MUST(cuMemAlloc_v2(&blocks[i], bytes));
	measure(blocks, n, bytes);
	replay(blocks);
	refuse(blocks);
	printf("%d wrong\n", n_failed);
	return n_failed != 0;
}
