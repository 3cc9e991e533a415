/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that puts itself to sleep and measures it. It fills memory with a kernel, sleeps, wakes by its next kernel,
 * and checks every word, five times. It also replays a graph over memory that was asleep, sees that a kernel that is
 * running keeps it awake, compares the answers to queries awake and asleep, drops content, and works in two contexts.
 *
 *     cc -O2 -iquote . tests/gpu/sleep_probe.c -o sleep_probe -lcuda
 *     GPUPOOL_POOL=vmm GPUPOOL_SLEEP_KEEP=on LD_PRELOAD=.../libgpupool.so ./sleep_probe [GiB]
 *
 * It exits with 1 if anything was wrong. The first sleep pins host memory, and the later ones find it pinned.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/gpupool.h"
#include "tests/gpu/probe.h"

enum { N_ROUNDS = 5, TIMEOUT_MS = 5000 };

static CUfunction spin;

static size_t free_bytes(void)
{
	struct gpupool_status status;

	return gpupool_get_status(0, &status) ? 0 : (size_t)status.device_free_bytes;
}

static void start(void)
{
	MUST(cuModuleGetFunction(&spin, start_driver(), "spin"));
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

/* Answers about a pointer. The driver does not write all bytes of each. */
static const int attributes[] = {1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17};

enum { N_ATTRIBUTES = sizeof(attributes) / sizeof(*attributes), HOST_POINTER = 4 };

struct facts {
	uint64_t alone[N_ATTRIBUTES], of_list[N_ATTRIBUTES + 1];
	CUresult results[N_ATTRIBUTES + 2];
	CUdeviceptr base;
	size_t bytes;
};

static void query(CUdeviceptr ptr, struct facts *facts)
{
	int list[N_ATTRIBUTES + 1];
	void *data[N_ATTRIBUTES + 1];

	memset(facts, 0x77, sizeof(*facts));
	memcpy(list, attributes, sizeof(attributes));
	list[N_ATTRIBUTES] = HOST_POINTER;
	for (int i = 0; i <= N_ATTRIBUTES; i++)
		data[i] = &facts->of_list[i];
	for (int i = 0; i < N_ATTRIBUTES; i++)
		facts->results[i] = cuPointerGetAttribute(&facts->alone[i], attributes[i], ptr);
	facts->results[N_ATTRIBUTES] = cuPointerGetAttributes(N_ATTRIBUTES + 1, list, data, ptr);
	facts->results[N_ATTRIBUTES + 1] = cuMemGetAddressRange_v2(&facts->base, &facts->bytes, ptr);
}

/* A second context, which has no memory, works on the memory of the first; and content that is dropped. */
static void share(CUdeviceptr *blocks)
{
	static const char *const names[] = {"cache"};
	struct gpupool_sleep_options drop = {.timeout_ms = TIMEOUT_MS, .drop = names, .n_drop = 1};
	CUcontext first, second;
	CUdeviceptr cache;
	uint64_t ns = 300000000;
	CUfunction there;
	CUmodule module;

	MUST(cuDevicePrimaryCtxRetain(&first, 0));
	(void)gpupool_region_begin("cache");
	MUST(cuMemAlloc_v2(&cache, 64 * MIB));
	(void)gpupool_region_end();
	fill_words(NULL, cache, 64 * MIB, 5);
	fill_words(NULL, blocks[0], 64 * MIB, 6);
	MUST(cuCtxSynchronize());
	check(gpupool_sleep_as(&drop) > 0, "asleep, with the content of a region dropped");
	check(wrong_words(cache, 64 * MIB, 0) == 0, "dropped content is zero");
	check(wrong_words(blocks[0], 64 * MIB, 6) == 0, "other content is kept");
	MUST(cuCtxCreate_v2(&second, 0, 0));
	MUST(cuModuleLoadData(&module, kernels_ptx));
	MUST(cuModuleGetFunction(&there, module, "spin"));
	MUST(cuLaunchKernel(there, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	check(gpupool_sleep(0) == -EBUSY, "a kernel of a context without memory keeps the process awake");
	MUST(cuCtxSynchronize());
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep with two contexts");
	MUST(cuCtxDestroy_v2(second));
	MUST(cuCtxSetCurrent(first));
	check(wrong_words(blocks[0], 64 * MIB, 6) == 0, "content after a context ended asleep");
}

static void refuse(CUdeviceptr *blocks)
{
	uint64_t ns = 300000000;
	struct facts awake, asleep;

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	check(gpupool_sleep(0) == -EBUSY, "a running kernel keeps the process awake");
	MUST(cuCtxSynchronize());
	query(blocks[0] + 512, &awake);
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep before queries");
	query(blocks[0] + 512, &asleep);
	check(!memcmp(&awake, &asleep, sizeof(awake)), "queries about a pointer have the same answers asleep");
	check(gpupool_sleep(TIMEOUT_MS) == 0, "still asleep after the queries");
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
	share(blocks);
	printf("%d wrong\n", n_failed);
	return n_failed != 0;
}
