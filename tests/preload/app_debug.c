/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Writes to memory that the program does not own, next to a small and a large block. A GPU would not notice these
 * writes.
 */

#include <time.h>

#include "app_driver.h"

#define WRONG 0x2a2a2a2au

enum writer { BY_COPY, BY_KERNEL, BY_CPU };

static const size_t sizes[] = {1000, 3 * MIB + 4};

static CUdeviceptr get(enum writer writer, size_t bytes)
{
	void *host = NULL;

	if (writer != BY_CPU)
		return app_alloc(bytes);
	APP_MUST(cuMemHostAlloc(&host, bytes, 0));
	return (CUdeviceptr)(uintptr_t)host;
}

static void put(enum writer writer, CUdeviceptr ptr)
{
	if (writer == BY_CPU)
		app_result("free", cuMemFreeHost((void *)(uintptr_t)ptr));
	else
		app_result("free", cuMemFree_v2(ptr));
}

/* Writes four bytes. */
static void write_wrong_word(enum writer writer, CUdeviceptr ptr)
{
	const uint32_t wrong = WRONG;

	if (writer == BY_COPY)
		APP_MUST(cuMemcpyHtoD_v2(ptr, &wrong, sizeof(wrong)));
	else if (writer == BY_KERNEL)
		app_fill(NULL, ptr, sizeof(wrong), wrong);
	else
		*(volatile uint32_t *)(uintptr_t)ptr = wrong;
}

static void after_free(enum writer writer)
{
	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = get(writer, sizes[i]);

		put(writer, ptr);
		write_wrong_word(writer, ptr + 16);
		APP_MUST(cuCtxSynchronize());
		put(writer, get(writer, sizes[i]));
	}
	app_pause("end");
}

/* Writes next to a block, then frees the block. The write may not have completed by then. */
static void around(enum writer writer, bool is_before)
{
	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = get(writer, sizes[i]);

		write_wrong_word(writer, is_before ? ptr - 4 : ptr + sizes[i]);
		put(writer, ptr);
	}
	app_pause("end");
}

static void after_free_copy(void)
{
	after_free(BY_COPY);
}

static void after_free_kernel(void)
{
	after_free(BY_KERNEL);
}

static void after_free_cpu(void)
{
	after_free(BY_CPU);
}

static void past_end_copy(void)
{
	around(BY_COPY, false);
}

static void past_end_kernel(void)
{
	around(BY_KERNEL, false);
}

static void past_end_cpu(void)
{
	around(BY_CPU, false);
}

static void before_start_copy(void)
{
	around(BY_COPY, true);
}

static void before_start_kernel(void)
{
	around(BY_KERNEL, true);
}

/*
 * Writes next to a block that is never freed and into a freed block that is never reused. Only a requested check
 * finds these writes, and it reports each once.
 */
static void unseen(void)
{
	CUdeviceptr held, freed, host;

	app_start();
	held = get(BY_COPY, 1000);
	host = get(BY_CPU, 1000);
	freed = get(BY_COPY, 3 * MIB);
	put(BY_COPY, freed);
	app_pause("free below");
	write_wrong_word(BY_COPY, held + 1004);
	write_wrong_word(BY_CPU, host + 1000);
	write_wrong_word(BY_COPY, freed + 2 * MIB);
	write_wrong_word(BY_COPY, freed + 8);
	APP_MUST(cuCtxSynchronize());
	app_pause("wrong words");
	app_pause("free again");
	put(BY_COPY, held);
	put(BY_CPU, host);
}

/* Memory goes back to the driver after a wrong write. This is the last moment at which the write can be found. */
static void given_back(void)
{
	CUdeviceptr ptr;

	app_start();
	ptr = app_alloc(8 * MIB);
	put(BY_COPY, ptr);
	write_wrong_word(BY_COPY, ptr + 4);
	APP_MUST(cuCtxSynchronize());
	app_pause("reclaim");
	app_pause("end");
}

/* Repeats the same mistake 100 times. */
static void often(void)
{
	app_start();
	for (int i = 0; i < 100; i++) {
		CUdeviceptr ptr = app_alloc(1000);

		write_wrong_word(BY_COPY, ptr + 1000);
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_pause("end");
}

/* Nothing is checked during a capture. Blocks that were freed during it are checked later, as far as possible. */
static void capture(void)
{
	CUdeviceptr freed, ptr;
	CUstream stream;
	CUgraph graph;

	app_start();
	stream = app_stream();
	freed = app_alloc(1000);
	ptr = app_alloc(1000);
	APP_MUST(cuMemFree_v2(ptr));
	write_wrong_word(BY_COPY, freed + 1000);
	APP_MUST(cuCtxSynchronize());
	app_result("begin", cuStreamBeginCapture_v2(stream, 0));
	app_fill(stream, freed, 1000, 1);
	app_result("free", cuMemFree_v2(freed));
	app_result("alloc", cuMemAlloc_v2(&ptr, 1000));
	app_result("free", cuMemFree_v2(ptr));
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_result("graph", graph != NULL);
	for (int i = 0; i < 4; i++)
		APP_MUST(cuMemAlloc_v2(&ptr, 1000));
	app_pause("end");
}

/* Queries about memory answer with the size that the program requested. */
static void exact(void)
{
	static const size_t asked[] = {1, 512, 1000, MIB, 3 * MIB + 4};

	app_start();
	for (size_t i = 0; i < LENGTH(asked); i++) {
		CUdeviceptr ptr = app_alloc(asked[i]), base = 0;
		size_t bytes = 0;

		APP_MUST(cuMemGetAddressRange_v2(&base, &bytes, ptr + asked[i] / 2));
		app_say("range", "%d %zu", base == ptr, bytes);
		app_result("aligned", ptr % 512 == 0);
		app_result("free inside", cuMemFree_v2(ptr + 256));
		app_result("free below", cuMemFree_v2(ptr - 512));
		app_result("free", cuMemFree_v2(ptr));
		app_result("free again", cuMemFree_v2(ptr));
	}
}

/* Writes only to memory that the program owns. */
static void innocent(void)
{
	CUdeviceptr kept[64] = {0};
	size_t bytes[64] = {0};
	unsigned state = 7, wrong = 0;
	CUstream streams[2];

	app_start();
	streams[0] = app_stream();
	streams[1] = app_stream();
	for (int i = 0; i < 2000; i++) {
		unsigned n = app_random(&state) % LENGTH(kept);
		CUstream stream = streams[i % 2];

		if (kept[n]) {
			wrong += app_count_wrong(stream, kept[n], bytes[n], n) != 0;
			APP_MUST(cuMemFree_v2(kept[n]));
			kept[n] = 0;
			continue;
		}
		bytes[n] = (size_t)4 << app_random(&state) % 18;
		bytes[n] += bytes[n] / 4 * (app_random(&state) % 4);
		bytes[n] -= bytes[n] % 4;
		kept[n] = app_alloc(bytes[n]);
		app_fill(stream, kept[n], bytes[n], n);
		APP_MUST(cuStreamSynchronize(stream));
	}
	app_result("wrong words", (int)wrong);
	app_pause("end");
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Prints the time of a pair of an allocation and a free. The first pairs, which may not be typical, do not count. */
static void print_cost(enum writer writer, size_t bytes)
{
	enum { FIRST = 3, MOST = 200 };
	uint64_t start = 0, spent = 0;
	unsigned n;

	for (n = 0; n < FIRST + MOST && spent < 300 * MS; n++) {
		CUdeviceptr ptr;

		if (n == FIRST)
			start = now_ns();
		ptr = get(writer, bytes);
		if (writer == BY_CPU)
			APP_MUST(cuMemFreeHost((void *)(uintptr_t)ptr));
		else
			APP_MUST(cuMemFree_v2(ptr));
		spent = n >= FIRST ? now_ns() - start : 0;
	}
	printf("cost memory=%s bytes=%zu ns=%llu\n", writer == BY_CPU ? "pinned" : "device", bytes,
		(unsigned long long)(spent / (n - FIRST)));
}

/* Prints times for people and for tests/gpu. */
static void cost(void)
{
	static const size_t device[] = {512, 64 * KIB, MIB, 16 * MIB, 256 * MIB, 1024 * MIB};
	static const size_t pinned[] = {4 * KIB, MIB, 64 * MIB};

	app_start();
	for (size_t i = 0; i < LENGTH(device); i++)
		print_cost(BY_COPY, device[i]);
	for (size_t i = 0; i < LENGTH(pinned); i++)
		print_cost(BY_CPU, pinned[i]);
}

const struct app_scenario app_scenarios[] = {
	{"after-free-copy", after_free_copy},
	{"after-free-kernel", after_free_kernel},
	{"after-free-cpu", after_free_cpu},
	{"past-end-copy", past_end_copy},
	{"past-end-kernel", past_end_kernel},
	{"past-end-cpu", past_end_cpu},
	{"before-start-copy", before_start_copy},
	{"before-start-kernel", before_start_kernel},
	{"unseen", unseen},
	{"given-back", given_back},
	{"often", often},
	{"capture", capture},
	{"exact", exact},
	{"innocent", innocent},
	{"cost", cost},
	{0},
};
