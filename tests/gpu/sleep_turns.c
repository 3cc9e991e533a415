/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs for sleep:
 *
 *     sleep_turns times MIB ROUNDS   fills memory with a kernel, sleeps, wakes by its next kernel, and checks every word
 *     sleep_turns graphs MIB ROUNDS  the same, and replays a graph after as many sleeps
 *     sleep_turns turns MIB SECONDS  fills memory. For each line of its input checks all of it, works on it for that
 *                                    long, or for as many seconds as the line says, and prints a line
 *     sleep_turns ballast MIB        takes memory until MIB are left, and waits for a line
 *
 *     cc -O2 -iquote . tests/gpu/sleep_turns.c -o sleep_turns -lcuda
 *     GPUPOOL_POOL=vmm GPUPOOL_SLEEP_KEEP=on LD_PRELOAD=.../libgpupool.so ./sleep_turns times 4096 5
 *
 * It exits with 1 if anything was wrong. The first sleep pins host memory. With GPUPOOL_SLEEP_KEEP=on the later ones
 * find it pinned.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "tests/gpu/probe.h"

/* Not in the simulated driver. */
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n, CUgraph child)
	__attribute__((weak));

enum { N_ROUNDS = 5, TIMEOUT_MS = 5000 };

static size_t free_bytes(void)
{
	struct gpupool_status status;

	return gpupool_get_status(0, &status) ? 0 : (size_t)status.device_free_bytes;
}

/* Waits until no more memory goes back: gpupool unpins host memory behind the sleep. */
static size_t settled_free_bytes(void)
{
	size_t bytes = free_bytes();

	for (int unchanged = 0, looks = 0; unchanged < 5 && looks < 100; looks++) {
		size_t before = bytes;

		usleep(50000);
		bytes = free_bytes();
		unchanged = bytes == before ? unchanged + 1 : 0;
	}
	return bytes;
}

static void measure(CUdeviceptr *blocks, size_t n, size_t bytes, int n_rounds, size_t before_blocks)
{
	double gib = (double)n * (double)bytes / (double)GIB;
	uint64_t wrong = 0;

	for (size_t i = 0; i < n; i++)
		fill_words(NULL, blocks[i], bytes, 1000u + (uint32_t)i);
	MUST(cuCtxSynchronize());
	for (int round = 0; round < n_rounds; round++) {
		size_t before = free_bytes(), asleep;
		double t = now(), slept, woke;
		int64_t r = gpupool_sleep(TIMEOUT_MS);

		slept = now() - t;
		asleep = settled_free_bytes();
		if (r < 0) {
			printf("gpupool_sleep: error %d; GPUPOOL_LOG=info says why\n", (int)-r);
			n_failed++;
			return;
		}
		t = now();
		/* The first work wakes the process. */
		MUST(cuMemsetD32_v2(counter, 0, 2));
		woke = now() - t;
		printf("round %d: asleep in %.3f s, %.1f GiB/s; free memory %+.2f GiB; awake in %.3f s, %.1f GiB/s; "
		       "resident %.1f MiB\n",
			round, slept, gib / slept, ((double)asleep - (double)before) / (double)GIB, woke, gib / woke,
			((double)before_blocks - (double)asleep) / (double)MIB);
		fflush(stdout);
		for (size_t i = 0; i < n; i++)
			wrong += wrong_words(blocks[i], bytes, 1000u + (uint32_t)i);
	}
	check(!wrong, "content after sleeps");
}

static void replay(CUdeviceptr *blocks, int n_rounds)
{
	CUgraph graph, child;
	CUgraphNode node;
	CUgraphExec exec;
	CUstream stream;
	uint64_t wrong = 0;

	MUST(cuStreamCreate(&stream, 1));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	check(gpupool_sleep(0) == -EBUSY, "a capture keeps the process awake");
	fill_words(stream, blocks[0], 16 * MIB, 7);
	MUST(cuMemcpyDtoDAsync_v2(blocks[0] + 16 * MIB, blocks[0], 16 * MIB, stream));
	MUST(cuMemsetD32Async(blocks[0] + 32 * MIB, 9, 4 * MIB, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill_words(stream, blocks[0] + 48 * MIB, 8 * MIB, 11);
	MUST(cuStreamEndCapture(stream, &child));
	if (cuGraphAddChildGraphNode)
		MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
	check(gpupool_sleep(TIMEOUT_MS) > 0, "asleep before the graph is instantiated");
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < n_rounds; i++) {
		MUST(cuMemsetD32_v2(blocks[0], 1, 14 * MIB));
		MUST(cuCtxSynchronize());
		if (gpupool_sleep(TIMEOUT_MS) <= 0)
			wrong++;
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		wrong += wrong_words(blocks[0], 32 * MIB, 7) + wrong_words(blocks[0] + 32 * MIB, 16 * MIB, 9) +
			 wrong_words(blocks[0] + 48 * MIB, 8 * MIB, cuGraphAddChildGraphNode ? 11 : 1);
	}
	check(!wrong, "a graph of kernel, copy, fill and child graph after sleeps");
}

/* Allocates all of the memory, in blocks of at most a GiB. */
static CUdeviceptr *allocate(size_t mib, size_t *ret_n, size_t *ret_bytes)
{
	size_t bytes = mib < 1024 ? mib * MIB : GIB, n = mib < 1024 ? 1 : mib / 1024;
	CUdeviceptr *blocks = calloc(n, sizeof(*blocks));

	if (!blocks)
		exit(1);
	for (size_t i = 0; i < n; i++)
		MUST(cuMemAlloc_v2(&blocks[i], bytes));
	*ret_n = n;
	*ret_bytes = bytes;
	return blocks;
}

static void report_line(const char *what, double seconds, uint64_t n, uint64_t wrong)
{
	printf("%s %.3f %llu %llu\n", what, seconds, (unsigned long long)n, (unsigned long long)wrong);
	fflush(stdout);
}

/*
 * A turn that begins asleep begins with the wake. The turn's line has the seconds of the wake, of the check, and of the
 * steps, their number, and the wrong words.
 */
static void take_turns(size_t mib, double default_seconds)
{
	size_t n, bytes;
	double t = now();
	CUdeviceptr *blocks = allocate(mib, &n, &bytes);
	uint32_t value = 0;
	char line[64];

	for (size_t i = 0; i < n; i++)
		fill_words(NULL, blocks[i], bytes, value);
	MUST(cuCtxSynchronize());
	report_line("ready", now() - t, 0, 0);
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t wrong = 0, steps = 0;
		double woke, checked, seconds = strtod(line, NULL);

		if (seconds <= 0)
			seconds = default_seconds;
		t = now();
		wrong = wrong_words(blocks[0], bytes, value);
		woke = now();
		for (size_t i = 1; i < n; i++)
			wrong += wrong_words(blocks[i], bytes, value);
		value++;
		for (size_t i = 0; i < n; i++)
			fill_words(NULL, blocks[i], bytes, value);
		MUST(cuCtxSynchronize());
		checked = now();
		for (; now() - woke < seconds; steps++) {
			fill_words(NULL, blocks[steps % n], bytes, value);
			MUST(cuCtxSynchronize());
		}
		printf("turn %.3f %.3f %.3f %llu %llu\n", woke - t, checked - woke, now() - checked,
			(unsigned long long)steps, (unsigned long long)wrong);
		fflush(stdout);
	}
}

static void hold_ballast(size_t mib)
{
	CUdeviceptr ptr;
	size_t left, total;
	char line[64];

	MUST(cuMemGetInfo_v2(&left, &total));
	while (left > (mib + 64) * MIB && !cuMemAlloc_v2(&ptr, left - mib * MIB > GIB ? GIB : 64 * MIB))
		MUST(cuMemGetInfo_v2(&left, &total));
	report_line("ready", 0, left / MIB, 0);
	(void)fgets(line, sizeof(line), stdin);
}

static void measure_all(size_t mib, int n_rounds, bool has_graphs)
{
	size_t n, bytes, before = free_bytes();
	CUdeviceptr *blocks = allocate(mib, &n, &bytes);

	measure(blocks, n, bytes, has_graphs ? 1 : n_rounds, before);
	if (has_graphs)
		replay(blocks, n_rounds);
	printf("%d wrong\n", n_failed);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	bool is_ballast = strcmp(mode, "ballast") == 0, is_turns = strcmp(mode, "turns") == 0;
	bool has_graphs = strcmp(mode, "graphs") == 0;
	size_t mib = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	double second = argc > 3 ? strtod(argv[3], NULL) : N_ROUNDS;

	if (mib < 64 || (!is_ballast && !is_turns && !has_graphs && strcmp(mode, "times") != 0)) {
		fprintf(stderr,
			"usage: sleep_turns times|graphs|turns|ballast MIB [ROUNDS|SECONDS]; MIB is at least 64\n");
		return 1;
	}
	if (!is_ballast && !gpupool_version()) {
		fprintf(stderr, "sleep_turns: run it with LD_PRELOAD=libgpupool.so\n");
		return 1;
	}
	(void)start_driver();
	if (is_ballast)
		hold_ballast(mib);
	else if (is_turns)
		take_turns(mib, second);
	else
		measure_all(mib, (int)second, has_graphs);
	return n_failed != 0;
}
