/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Stream captures with allocations and frees during the capture. */

#include <pthread.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { HITS = 64, LIVE = 4 };

static const size_t bytes = 256 * KIB;

/* Returns the number of calls so far that invalidate a capture in any mode. */
static uint64_t fence_calls(void)
{
	return app_calls("cuCtxRecordEvent") + app_calls("cuCtxWaitEvent") + app_calls("cuCtxSynchronize");
}

/* Leaves cached blocks that no work can still touch. */
static void warm_up(void)
{
	CUdeviceptr ptr[2 * HITS];

	for (size_t i = 0; i < LENGTH(ptr); i++)
		ptr[i] = app_alloc(bytes);
	for (size_t i = 0; i < LENGTH(ptr); i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
	APP_MUST(cuCtxSynchronize());
	/* Allocate again, which polls the fences and finds them complete. */
	APP_MUST(cuMemFree_v2(app_alloc(bytes)));
	APP_MUST(cuCtxSynchronize());
}

/* Returns the thread's capture mode. The second exchange restores it. */
static int mode_now(void)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED, now;

	APP_MUST(cuThreadExchangeStreamCaptureMode(&mode));
	now = mode;
	APP_MUST(cuThreadExchangeStreamCaptureMode(&mode));
	return now;
}

static unsigned failures;

/* Allocates and frees HITS blocks, all from the cache. In most modes the driver would refuse these calls. */
static void *hit(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < HITS / LIVE; i++) {
		CUdeviceptr ptr[LIVE];

		for (unsigned k = 0; k < LIVE; k++)
			failures += cuMemAlloc_v2(&ptr[k], bytes) != CUDA_SUCCESS;
		for (unsigned k = 0; k < LIVE; k++)
			failures += cuMemFree_v2(ptr[k]) != CUDA_SUCCESS;
	}
	return NULL;
}

static void replay(CUgraph graph, CUdeviceptr target)
{
	CUgraphExec exec;

	APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_MUST(cuMemsetD32_v2(target, 0, bytes / 4));
	APP_MUST(cuGraphLaunch(exec, NULL));
	APP_MUST(cuCtxSynchronize());
	app_result("wrong words after replay", (int)app_count_wrong(NULL, target, bytes, 42));
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(graph));
}

/*
 * Captures with or without allocations and frees. Their results are facts, since without a pool they would be
 * misses, which the driver forbids.
 */
static void capture(int mode, bool other_thread, bool hits)
{
	CUdeviceptr target;
	CUstream stream;
	CUgraph graph = NULL;
	pthread_t thread;
	uint64_t before;

	app_start();
	stream = app_stream();
	target = app_alloc(bytes);
	/* The first work on a stream ends serial mode, which may take calls of the driver. Do it before the capture. */
	app_fill(stream, target, bytes, 1);
	warm_up();
	for (unsigned round = 0; round < 3; round++) {
		before = fence_calls();
		APP_MUST(cuStreamBeginCapture_v2(stream, mode));
		app_fill(stream, target, bytes, 42);
		if (hits && other_thread) {
			pthread_create(&thread, NULL, hit, NULL);
			pthread_join(thread, NULL);
		} else if (hits) {
			hit(NULL);
		}
		app_result("mode", mode_now());
		app_fact("fence calls", fence_calls() - before);
		app_result("end", cuStreamEndCapture(stream, &graph));
		replay(graph, target);
		warm_up();
	}
	app_fact("failures", failures);
	app_report_driver();
}

#define MODE(name, mode)                                              \
	static void name##_quiet(void)                                \
	{                                                             \
		capture(CU_STREAM_CAPTURE_MODE_##mode, false, false); \
	}                                                             \
	static void name##_own(void)                                  \
	{                                                             \
		capture(CU_STREAM_CAPTURE_MODE_##mode, false, true);  \
	}                                                             \
	static void name##_other(void)                                \
	{                                                             \
		capture(CU_STREAM_CAPTURE_MODE_##mode, true, true);   \
	}

MODE(global, GLOBAL)
MODE(local, THREAD_LOCAL)
MODE(relaxed, RELAXED)

/*
 * Requests a block that no cache can serve. Without the library the driver refuses it and invalidates the capture. The
 * pool grows.
 */
static void miss(void)
{
	CUdeviceptr ptr = 0x5a5a;
	CUgraph graph = NULL;
	CUstream stream;

	app_start();
	stream = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	app_result("cuMemAlloc", cuMemAlloc_v2(&ptr, 300 * MIB));
	printf("left alone %d\n", ptr == 0x5a5a);
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_result("cuMemAlloc afterwards", cuMemAlloc_v2(&ptr, 300 * MIB));
	app_result("cuMemFree", cuMemFree_v2(ptr));
}

/* Captures that end badly, in every way, do not keep later frees from recording fences. */
static void bad_ends(void)
{
	CUstream stream, joined;
	CUgraph graph = NULL;
	CUevent event;

	app_start();
	stream = app_stream();
	joined = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	app_result("end without a begin", cuStreamEndCapture(stream, &graph));
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_result("begin again", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	APP_MUST(cuEventRecord(event, stream));
	APP_MUST(cuStreamWaitEvent(joined, event, 0));
	app_spin(joined, 1000);
	app_result("end unjoined", cuStreamEndCapture(stream, &graph));
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	app_result("an event that would not wait", cuCtxRecordEvent(app_ctx, event));
	app_result("end invalidated", cuStreamEndCapture(stream, &graph));
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_result("destroy while capturing", cuStreamDestroy_v2(stream));
	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr ptr = app_alloc(4 * MIB);

		app_fill(NULL, ptr, 4096, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_result("context", cuCtxSynchronize());
	app_report_driver();
}

/* A block that is freed during a capture is reused afterwards, but not before its last use has completed. */
static void freed_inside(void)
{
	CUstream stream, work;
	CUgraph graph = NULL;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	work = app_stream();
	for (unsigned i = 0; i < 24; i++) {
		CUdeviceptr old = app_alloc(4 * MIB), new;

		app_spin_fill(work, old, 4096, 0xdead, 50000);
		APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		app_spin(stream, 1000);
		APP_MUST(cuMemFree_v2(old));
		app_result("end", cuStreamEndCapture(stream, &graph));
		new = app_alloc(4 * MIB);
		app_fill(NULL, new, 4096, i);
		wrong += app_count_wrong(NULL, new, 4096, i);
		APP_MUST(cuMemFree_v2(new));
		APP_MUST(cuGraphDestroy(graph));
	}
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", wrong);
	app_report_driver();
}

enum { RACERS_ROUNDS = 400 };

static _Atomic bool is_over;

static void *free_often(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	while (!is_over) {
		CUdeviceptr ptr;

		/* In a relaxed capture the driver serves allocations, too. */
		APP_MUST(cuMemAlloc_v2(&ptr, bytes));
		APP_MUST(cuMemFree_v2(ptr));
	}
	return NULL;
}

/* One thread records fences while another begins captures. No capture may be invalidated. */
static void race(void)
{
	unsigned destroyed = 0;
	CUdeviceptr target;
	CUgraph graph;
	CUstream stream;
	pthread_t thread;

	app_start();
	stream = app_stream();
	target = app_alloc(bytes);
	pthread_create(&thread, NULL, free_often, NULL);
	for (unsigned i = 0; i < RACERS_ROUNDS; i++) {
		APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		app_fill(stream, target, 4096, i);
		if (cuStreamEndCapture(stream, &graph))
			destroyed++;
		else
			APP_MUST(cuGraphDestroy(graph));
	}
	is_over = true;
	pthread_join(thread, NULL);
	printf("destroyed captures: %u\n", destroyed);
}

const struct app_scenario app_scenarios[] = {
	{"global-quiet", global_quiet},
	{"global-own", global_own},
	{"global-other", global_other},
	{"local-quiet", local_quiet},
	{"local-own", local_own},
	{"local-other", local_other},
	{"relaxed-quiet", relaxed_quiet},
	{"relaxed-own", relaxed_own},
	{"relaxed-other", relaxed_other},
	{"miss", miss},
	{"bad-ends", bad_ends},
	{"freed-inside", freed_inside},
	{"race", race},
	{0},
};
