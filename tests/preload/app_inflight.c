/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * One thread launches a graph that sets a flag and then writes to a block for a while. As soon as the flag is set,
 * another thread frees the block and allocates again. A correct program may do that: the driver's own free waits for
 * the graph. The launching thread is still inside the driver at that time: the simulated driver holds it there.
 */

#include <pthread.h>
#include <sched.h>

#include "app_driver.h"

#define LARGE (64 * MIB)

enum { TOUCHED = 32 * 1024, SPIN_NS = 50000000, N_OWNERS = 2, STALE = 0xdead };

struct memory {
	size_t bytes;
	bool is_pinned;
};

static CUstream launching, other;
static CUgraphExec graph;
static uint32_t *flag;

static CUdeviceptr alloc_memory(const struct memory *memory)
{
	void *host;

	if (!memory->is_pinned)
		return app_alloc(memory->bytes);
	APP_MUST(cuMemHostAlloc(&host, memory->bytes, 0));
	return (uintptr_t)host;
}

static void free_memory(const struct memory *memory, CUdeviceptr ptr)
{
	if (memory->is_pinned)
		APP_MUST(cuMemFreeHost((void *)(uintptr_t)ptr));
	else
		APP_MUST(cuMemFree_v2(ptr));
}

/*
 * Records fences by freeing blocks that are too large for a thread cache. Nothing is submitted after the second free.
 */
static void record_fences(bool is_pinned)
{
	const struct memory large = {.bytes = LARGE, .is_pinned = is_pinned};
	CUdeviceptr first = alloc_memory(&large), second = alloc_memory(&large);

	free_memory(&large, first);
	APP_MUST(cuCtxSynchronize());
	free_memory(&large, second);
}

static void prepare(const struct memory *memory, CUdeviceptr block)
{
	CUgraph captured;

	launching = app_stream();
	other = app_stream();
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	APP_MUST(cuStreamBeginCapture_v2(launching, 0));
	app_fill(launching, (uintptr_t)flag, sizeof(*flag), 1);
	app_spin_fill(launching, block, TOUCHED, STALE, SPIN_NS);
	APP_MUST(cuStreamEndCapture(launching, &captured));
	APP_MUST(cuGraphInstantiateWithFlags(&graph, captured, 0));
	record_fences(memory->is_pinned);
}

static void *launch(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuGraphLaunch(graph, launching));
	return NULL;
}

static void await_flag(void)
{
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != 1)
		(void)cuStreamQuery(other); /* the simulated GPU runs during calls of the driver */
}

/* Returns how many words the new owners of the freed memory find wrong. */
static size_t reuse(const struct memory *memory, CUdeviceptr freed, pthread_t launcher)
{
	CUdeviceptr owners[N_OWNERS];
	size_t n_wrong = 0;

	free_memory(memory, freed);
	for (uint32_t i = 0; i < N_OWNERS; i++) {
		owners[i] = alloc_memory(memory);
		app_fill(other, owners[i], TOUCHED, i);
	}
	app_release_calls();
	APP_MUST(pthread_join(launcher, NULL));
	APP_MUST(cuCtxSynchronize());
	for (uint32_t i = 0; i < N_OWNERS; i++)
		n_wrong += app_count_wrong(other, owners[i], TOUCHED, i);
	return n_wrong;
}

static void run(size_t bytes, bool is_pinned, bool records_before_submission)
{
	const struct memory memory = {.bytes = bytes, .is_pinned = is_pinned};
	pthread_t launcher;
	CUdeviceptr block;

	app_start();
	block = alloc_memory(&memory);
	prepare(&memory, block);
	if (records_before_submission)
		app_stop_calls("cuGraphLaunch", false);
	app_stop_calls("cuGraphLaunch", true);
	APP_MUST(pthread_create(&launcher, NULL, launch, NULL));
	if (records_before_submission) {
		/* Record this fence after the launch has begun and before the GPU has the graph. */
		app_await_stopped_call();
		record_fences(is_pinned);
		app_release_calls();
	}
	await_flag();
	app_await_stopped_call();
	printf("wrong words: %zu\n", reuse(&memory, block, launcher));
	app_report_driver();
}

static void large_returning(void)
{
	run(LARGE, false, false);
}

static void large_entering(void)
{
	run(LARGE, false, true);
}

static void small_returning(void)
{
	run(64 * KIB, false, false);
}

static void small_entering(void)
{
	run(64 * KIB, false, true);
}

static void pinned_returning(void)
{
	run(64 * KIB, true, false);
}

static void pinned_entering(void)
{
	run(64 * KIB, true, true);
}

const struct app_scenario app_scenarios[] = {
	{"large-returning", large_returning},
	{"large-entering", large_entering},
	{"small-returning", small_returning},
	{"small-entering", small_entering},
	{"pinned-returning", pinned_returning},
	{"pinned-entering", pinned_entering},
	{0},
};
