/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory around captures (T5.2):
 *
 * - A block that is freed during a capture is not reused before the capture has ended and a fence has completed.
 * - All memory that was freed before a capture can be allocated in it.
 * - A graph has the same effect at each launch, even if memory is freed in between.
 * - Memory that a graph allocates belongs to the graph.
 */

#include "captures.h"

enum { ROUNDS = 10, BLOCKS = 6, REPLAYS = 8, SLOW_NS = 30000 };

static const size_t bytes = 4 * MIB, touched = 64 * KIB;

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_MUST(cuGraphDestroy(graph));
	return exec;
}

/* Frees blocks in a capture while the old owner's work still runs, and allocates others. Returns the number reused. */
static unsigned reuse_in_capture(int mode, CUstream stream, CUstream slow, CUstream quick, size_t *wrong)
{
	CUdeviceptr old[BLOCKS], new[BLOCKS];
	unsigned same = 0;
	CUgraph graph;

	for (unsigned i = 0; i < BLOCKS; i++) {
		old[i] = app_alloc(bytes);
		app_spin_fill(slow, old[i], touched, 0xdead, SLOW_NS);
	}
	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
	app_spin(stream, 1000);
	for (unsigned i = 0; i < BLOCKS; i++)
		APP_MUST(cuMemFree_v2(old[i]));
	for (unsigned i = 0; i < BLOCKS; i++) {
		new[i] = app_alloc(bytes);
		app_fill(quick, new[i], touched, i);
		for (unsigned k = 0; k < BLOCKS; k++)
			same += new[i] == old[k];
	}
	APP_MUST(cuStreamEndCapture(stream, &graph));
	APP_MUST(cuGraphDestroy(graph));
	for (unsigned i = 0; i < BLOCKS; i++) {
		*wrong += app_count_wrong(quick, new[i], touched, i);
		APP_MUST(cuMemFree_v2(new[i]));
	}
	return same;
}

/* The driver waits and frees at once. gpupool may not reuse any of the blocks before the capture ends. */
static void reuse(void)
{
	CUstream stream, slow, quick;

	app_start();
	stream = app_stream();
	slow = app_stream();
	quick = app_stream();
	exchange(RELAXED);
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		size_t wrong = 0;
		unsigned same = 0;

		for (unsigned i = 0; i < ROUNDS / 2; i++)
			same += reuse_in_capture(mode, stream, slow, quick, &wrong);
		app_say(mode_names[mode], "%zu wrong words", wrong);
		app_fact(mode_names[mode], same);
	}
	check_reuse_after("reuse");
}

/* A block that was freed in a capture is reused right after it, on another stream. */
static void after_capture(void)
{
	CUstream stream, slow, quick;
	size_t wrong = 0;
	CUgraph graph;

	app_start();
	stream = app_stream();
	slow = app_stream();
	quick = app_stream();
	exchange(RELAXED);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(bytes), new;

		APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
		app_spin_fill(slow, old, touched, 0xdead, SLOW_NS);
		APP_MUST(cuMemFree_v2(old));
		APP_MUST(cuStreamEndCapture(stream, &graph));
		APP_MUST(cuGraphDestroy(graph));
		new = app_alloc(bytes);
		app_fill(quick, new, touched, i);
		wrong += app_count_wrong(quick, new, touched, i);
		APP_MUST(cuMemFree_v2(new));
	}
	app_say("after", "%zu wrong words", wrong);
	check_reuse_after("captures");
}

/* Returns a share of the memory that is free now, in whole MiB. */
static size_t share(unsigned percent)
{
	size_t free_bytes, total_bytes;

	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return free_bytes / 100 * percent / MIB * MIB;
}

/* Memory that was freed before a capture began can be allocated in it, even as one block. */
static void freed_before(void)
{
	CUdeviceptr ptr[BLOCKS], all;
	CUstream stream;
	size_t part;
	CUgraph graph = NULL;

	app_start();
	stream = app_stream();
	exchange(RELAXED);
	part = share(90) / BLOCKS;
	for (unsigned i = 0; i < BLOCKS; i++) {
		ptr[i] = app_alloc(part);
		app_fill(stream, ptr[i], touched, i);
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
	APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
	app_spin(stream, 1000);
	app_result("all as one block", cuMemAlloc_v2(&all, part * (BLOCKS - 1)));
	app_result("free", cuMemFree_v2(all));
	app_result("end", cuStreamEndCapture(stream, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	check_reuse_after("frees before a capture");
}

/* Allocates and frees more memory in a capture than the device has, so that a pool cannot keep all of it to the end. */
static void freed_inside(void)
{
	CUstream stream, work;
	size_t part, wrong = 0;
	CUgraph graph = NULL;

	app_start();
	stream = app_stream();
	work = app_stream();
	exchange(RELAXED);
	part = share(12);
	APP_MUST(cuStreamBeginCapture_v2(stream, RELAXED));
	app_spin(stream, 1000);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = 0;

		app_result("allocation in the capture", cuMemAlloc_v2(&ptr, part));
		if (!ptr)
			break;
		app_spin_fill(work, ptr, touched, i, SLOW_NS);
		wrong += app_count_wrong(work, ptr, touched, i);
		app_spin_fill(work, ptr, touched, i, SLOW_NS);
		app_result("free in the capture", cuMemFree_v2(ptr));
	}
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_result("wrong words", (int)wrong);
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	check_reuse_after("frees inside a capture");
}

/*
 * A graph that fills two buffers gives the same result at each launch, even if memory is allocated and freed in
 * between.
 */
static void replays(void)
{
	CUdeviceptr a, b, old;
	CUstream stream, work;
	size_t wrong = 0, wrong_beside = 0;
	CUgraphExec exec;
	CUgraph graph;

	app_start();
	stream = app_stream();
	work = app_stream();
	exchange(RELAXED);
	old = app_alloc(bytes);
	app_spin_fill(work, old, touched, 0xdead, SLOW_NS);
	a = app_alloc(bytes);
	APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
	b = app_alloc(bytes);
	app_spin_fill(stream, a, touched, 42, SLOW_NS);
	app_fill(stream, b, touched, 43);
	APP_MUST(cuMemFree_v2(old));
	APP_MUST(cuStreamEndCapture(stream, &graph));
	exec = instantiate(graph);
	for (unsigned i = 0; i < REPLAYS; i++) {
		CUdeviceptr beside[BLOCKS];

		APP_MUST(cuGraphLaunch(exec, stream));
		for (unsigned k = 0; k < BLOCKS; k++) {
			beside[k] = app_alloc(bytes);
			app_fill(work, beside[k], touched, i);
		}
		for (unsigned k = 0; k < BLOCKS; k++) {
			wrong_beside += app_count_wrong(work, beside[k], touched, i);
			APP_MUST(cuMemFree_v2(beside[k]));
		}
		wrong += app_count_wrong(stream, a, touched, 42) + app_count_wrong(stream, b, touched, 43);
		APP_MUST(cuMemsetD32Async(a, 0, touched / 4, stream));
		APP_MUST(cuMemsetD32Async(b, 0, touched / 4, stream));
	}
	app_say("replays", "%zu wrong words, %zu in other memory", wrong, wrong_beside);
	APP_MUST(cuGraphExecDestroy(exec));
	app_result("free", cuMemFree_v2(a));
	app_result("free", cuMemFree_v2(b));
	check_reuse_after("replays");
}

/* Frees a block while its graph is still running: the next owner's work runs after the graph. */
static void freed_under_a_replay(void)
{
	CUstream stream, work;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	work = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(bytes), new;
		CUgraphExec exec;
		CUgraph graph;

		APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
		app_spin_fill(stream, old, touched, 0xdead, SLOW_NS);
		APP_MUST(cuStreamEndCapture(stream, &graph));
		exec = instantiate(graph);
		APP_MUST(cuGraphLaunch(exec, stream));
		APP_MUST(cuMemFree_v2(old));
		new = app_alloc(bytes);
		app_fill(work, new, touched, i);
		wrong += app_count_wrong(work, new, touched, i);
		APP_MUST(cuMemFree_v2(new));
		APP_MUST(cuStreamSynchronize(stream));
		APP_MUST(cuGraphExecDestroy(exec));
	}
	app_say("under a replay", "%zu wrong words", wrong);
	check_reuse_after("frees under a replay");
}

/* Captures into a graph that the program created before. */
static void to_graph(void)
{
	CUdeviceptr a = 0, old;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph, ended = NULL;

	app_start();
	stream = app_stream();
	exchange(RELAXED);
	old = app_alloc(bytes);
	APP_MUST(cuGraphCreate(&graph, 0));
	app_result("begin", cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, GLOBAL));
	app_result("malloc", cuMemAlloc_v2(&a, bytes));
	app_fill(stream, a, touched, 42);
	app_result("free", cuMemFree_v2(old));
	app_result("end", cuStreamEndCapture(stream, &ended));
	app_result("the same graph", ended == graph);
	exec = instantiate(graph);
	APP_MUST(cuGraphLaunch(exec, stream));
	app_result("wrong words", (int)app_count_wrong(stream, a, touched, 42));
	APP_MUST(cuGraphExecDestroy(exec));
	app_result("free", cuMemFree_v2(a));
	check_reuse_after("a capture to a graph");
}

/* Launches a graph whose nodes allocate and free memory, while the program uses other memory beside it. */
static void replay_nodes(int mode, CUstream stream)
{
	CUdeviceptr node = 0;
	size_t wrong = 0;
	CUgraphExec exec;
	CUgraph graph = NULL;

	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
	app_result("allocation node", cuMemAllocAsync(&node, bytes, stream));
	app_fill(stream, node, touched, 42);
	app_result("free node", cuMemFreeAsync(node, stream));
	app_result("end", cuStreamEndCapture(stream, &graph));
	exec = instantiate(graph);
	for (unsigned i = 0; i < REPLAYS; i++) {
		CUdeviceptr beside = app_alloc(bytes);

		APP_MUST(cuGraphLaunch(exec, stream));
		app_fill(NULL, beside, touched, i);
		wrong += app_count_wrong(NULL, beside, touched, i);
		APP_MUST(cuMemFree_v2(beside));
	}
	app_result("graph", cuStreamSynchronize(stream));
	app_result("wrong words in other memory", (int)wrong);
	APP_MUST(cuGraphExecDestroy(exec));
}

/* Memory nodes, and an attempt to free memory that no node allocated, which a node cannot do. */
static void memory_nodes(void)
{
	CUdeviceptr other;
	CUstream stream;
	CUgraph graph = NULL;

	app_start();
	stream = app_stream();
	other = app_alloc(bytes);
	for (int mode = GLOBAL; mode <= RELAXED; mode++)
		replay_nodes(mode, stream);
	APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
	app_result("free node of other memory", cuMemFreeAsync(other, stream));
	app_result("end", cuStreamEndCapture(stream, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	app_result("free of the other memory", cuMemFree_v2(other));
	check_reuse_after("memory nodes");
}

/* An allocation after a capture reuses the memory freed in it: no more memory is taken from the device. */
static void the_same_again(void)
{
	size_t before, after, total;
	CUdeviceptr ptr;
	CUstream stream;
	CUgraph graph;

	app_start();
	stream = app_stream();
	ptr = app_alloc(512 * MIB);
	app_fill(stream, ptr, touched, 1);
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	APP_MUST(cuStreamBeginCapture_v2(stream, RELAXED));
	app_spin(stream, 1000);
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuStreamEndCapture(stream, &graph));
	APP_MUST(cuGraphDestroy(graph));
	APP_MUST(cuCtxSynchronize());
	ptr = app_alloc(512 * MIB);
	APP_MUST(cuMemGetInfo_v2(&after, &total));
	app_result("as much is free", (before > after ? before - after : after - before) <= 4 * MIB);
	app_result("free", cuMemFree_v2(ptr));
	check_reuse_after("the same again");
}

/* A capture that spreads to two more streams and joins them again, with a free at each step. */
static void joined(void)
{
	CUdeviceptr target[3], old[6];
	CUstream streams[3];
	CUevent events[5];
	CUgraphExec exec;
	CUgraph graph;
	unsigned n = 0;

	app_start();
	exchange(RELAXED);
	for (unsigned i = 0; i < LENGTH(events); i++)
		APP_MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < LENGTH(old); i++)
		old[i] = app_alloc(bytes);
	for (unsigned i = 0; i < 3; i++) {
		target[i] = app_alloc(bytes);
		streams[i] = app_stream();
	}
	APP_MUST(cuStreamBeginCapture_v2(streams[0], LOCAL));
	for (unsigned i = 0; i < 3; i++) {
		app_fill(streams[i], target[i], touched, 42 + i);
		APP_MUST(cuMemFree_v2(old[n++]));
		APP_MUST(cuEventRecord(events[i], streams[i]));
		if (i < 2)
			APP_MUST(cuStreamWaitEvent(streams[i + 1], events[i], 0));
	}
	for (unsigned i = 1; i < 3; i++) {
		APP_MUST(cuMemFree_v2(old[n++]));
		APP_MUST(cuEventRecord(events[2 + i], streams[i]));
		APP_MUST(cuStreamWaitEvent(streams[0], events[2 + i], 0));
	}
	APP_MUST(cuMemFree_v2(old[n++]));
	app_result("end", cuStreamEndCapture(streams[0], &graph));
	exec = instantiate(graph);
	APP_MUST(cuGraphLaunch(exec, streams[0]));
	for (unsigned i = 0; i < 3; i++) {
		app_result("wrong words", (int)app_count_wrong(streams[0], target[i], touched, 42 + i));
		APP_MUST(cuMemFree_v2(target[i]));
	}
	APP_MUST(cuGraphExecDestroy(exec));
	check_reuse_after("a capture of three streams");
}

const struct app_scenario app_scenarios[] = {
	{"reuse", reuse},
	{"after-capture", after_capture},
	{"freed-before", freed_before},
	{"freed-inside", freed_inside},
	{"replays", replays},
	{"freed-under-a-replay", freed_under_a_replay},
	{"to-graph", to_graph},
	{"memory-nodes", memory_nodes},
	{"the-same-again", the_same_again},
	{"joined", joined},
	{0},
};
