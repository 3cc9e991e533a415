/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Graphs that use memory which the program allocated or freed while it captured them. Without the library such a graph
 * would use memory that the driver has taken back.
 */

#include <pthread.h>
#include <string.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { LAUNCHES = 6, OTHERS = 24, ROUNDS = 100, STEPS = 40, BESIDE = 200, THREAD_ROUNDS = 30 };

static const size_t bytes = 4 * MIB, touched = 256 * KIB;
/* Each thread that captures by itself has its own. */
static _Thread_local CUdeviceptr out;
static _Thread_local CUstream stream;

static void start_thread(void)
{
	stream = app_stream();
	out = app_alloc(bytes);
	/* The first launch of a kernel may load it, which no capture allows. */
	app_fill(stream, out, touched, 0);
	APP_MUST(cuStreamSynchronize(stream));
}

static void start(void)
{
	app_start();
	start_thread();
}

static void begin(int mode)
{
	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
}

static CUgraph end(void)
{
	CUgraph graph = NULL;

	app_result("end", cuStreamEndCapture(stream, &graph));
	return graph;
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec = NULL;

	APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static CUdeviceptr alloc(void)
{
	CUdeviceptr ptr = 0;

	app_result("allocation", cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

/* Captures work that goes through memory which is freed at once. old: memory from before the capture, also freed. */
static void capture_through(CUdeviceptr old, uint32_t value)
{
	CUdeviceptr first = alloc(), second = alloc();

	app_fill(stream, first, touched, value);
	APP_MUST(cuMemcpyDtoDAsync_v2(second, first, touched, stream));
	APP_MUST(cuMemFree_v2(first));
	APP_MUST(cuMemcpyDtoDAsync_v2(old, second, touched, stream));
	APP_MUST(cuMemFree_v2(second));
	APP_MUST(cuMemcpyDtoDAsync_v2(out, old, touched, stream));
	APP_MUST(cuMemFree_v2(old));
}

/* Allocates and fills other memory. */
static void fill_others(CUdeviceptr *others)
{
	for (unsigned i = 0; i < OTHERS; i++) {
		others[i] = app_alloc(bytes);
		app_fill(NULL, others[i], touched, 1000 + i);
	}
	APP_MUST(cuStreamSynchronize(NULL));
}

static void check_others(const CUdeviceptr *others)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < OTHERS; i++)
		wrong += app_count_wrong(NULL, others[i], touched, 1000 + i);
	app_result("wrong words in other memory", (int)wrong);
}

static void free_others(const CUdeviceptr *others)
{
	for (unsigned i = 0; i < OTHERS; i++)
		APP_MUST(cuMemFree_v2(others[i]));
}

static void launch(CUgraphExec exec, uint32_t value)
{
	APP_MUST(cuMemsetD32Async(out, 0, touched / 4, stream));
	APP_MUST(cuGraphLaunch(exec, stream));
	app_result("wrong words", (int)app_count_wrong(stream, out, touched, value));
}

/* Launches a graph while other memory is allocated and freed around it. */
static void replay(CUgraphExec exec, uint32_t value)
{
	CUdeviceptr others[OTHERS];

	for (unsigned i = 0; i < LAUNCHES; i++) {
		fill_others(others);
		launch(exec, value);
		check_others(others);
		free_others(others);
	}
}

/* Replays the graph with the value 42, and ends the program. */
static void finish(CUgraph graph)
{
	CUgraphExec exec = instantiate(graph);

	APP_MUST(cuGraphDestroy(graph));
	app_pause("graph");
	replay(exec, 42);
	APP_MUST(cuGraphExecDestroy(exec));
	app_pause("end");
	app_report_driver();
}

static void finish_capture(void)
{
	finish(end());
}

/* A graph whose memory was freed: first in its capture, and what is left after it. */
static void replayed(int mode)
{
	CUdeviceptr old, kept;
	CUgraphExec exec;
	CUgraph graph;

	start();
	old = app_alloc(bytes);
	begin(mode);
	capture_through(old, 42);
	kept = alloc();
	app_fill(stream, kept, touched, 7);
	graph = end();
	exec = instantiate(graph);
	APP_MUST(cuMemFree_v2(kept));
	APP_MUST(cuGraphDestroy(graph));
	app_pause("graph");
	replay(exec, 42);
	APP_MUST(cuGraphExecDestroy(exec));
	app_pause("end");
	app_report_driver();
}

static void replayed_global(void)
{
	replayed(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void replayed_local(void)
{
	replayed(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void replayed_relaxed(void)
{
	replayed(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* Memory stays reserved for a clone, and for the last executable. */
static void cloned(void)
{
	CUgraphExec exec[2];
	CUgraph graph, clone = NULL;

	start();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	capture_through(app_alloc(bytes), 42);
	graph = end();
	APP_MUST(cuGraphClone(&clone, graph));
	APP_MUST(cuGraphDestroy(graph));
	exec[0] = instantiate(clone);
	exec[1] = instantiate(clone);
	replay(exec[0], 42);
	APP_MUST(cuGraphExecDestroy(exec[0]));
	APP_MUST(cuGraphDestroy(clone));
	replay(exec[1], 42);
	app_pause("graph");
	/* The last launch may still run. */
	APP_MUST(cuGraphLaunch(exec[1], stream));
	APP_MUST(cuGraphExecDestroy(exec[1]));
	for (unsigned i = 0; i < 2; i++) {
		CUdeviceptr others[OTHERS];

		fill_others(others);
		check_others(others);
		free_others(others);
	}
	app_pause("end");
	app_report_driver();
}

/* After many captures and ends of graphs nothing is lost. */
static void many(void)
{
	uint64_t n_allocs = 0;

	start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUgraphExec exec;
		CUgraph graph;

		begin((int)i % 3);
		capture_through(app_alloc(bytes), i);
		graph = end();
		exec = instantiate(graph);
		APP_MUST(cuGraphDestroy(graph));
		launch(exec, i);
		APP_MUST(cuGraphExecDestroy(exec));
		if (i == ROUNDS / 2)
			n_allocs = app_calls("cuMemAlloc_v2") + app_calls("cuMemCreate");
	}
	app_fact("later allocations", app_calls("cuMemAlloc_v2") + app_calls("cuMemCreate") - n_allocs);
	app_pause("end");
	app_report_driver();
}

/* Each graph is destroyed after the next capture, which frees what was allocated in the one before. */
static void overlapping(void)
{
	CUdeviceptr last = 0, next;
	CUgraph old = NULL;

	start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUgraphExec exec;
		CUgraph graph;

		begin((int)i % 3);
		capture_through(app_alloc(bytes), i);
		next = alloc();
		app_fill(stream, next, touched, i);
		if (last)
			APP_MUST(cuMemFree_v2(last));
		last = next;
		graph = end();
		exec = instantiate(graph);
		launch(exec, i);
		APP_MUST(cuGraphExecDestroy(exec));
		if (old)
			APP_MUST(cuGraphDestroy(old));
		old = graph;
	}
	/* A miss finds what the graphs have released. */
	APP_MUST(cuMemFree_v2(app_alloc(64 * MIB)));
	app_pause("graph");
	APP_MUST(cuGraphDestroy(old));
	APP_MUST(cuMemFree_v2(last));
	app_pause("end");
	app_report_driver();
}

static unsigned count_different(const CUdeviceptr *ptr, unsigned n)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++) {
		bool is_new = true;

		for (unsigned k = 0; k < i && is_new; k++)
			is_new = ptr[k] != ptr[i];
		count += is_new;
	}
	return count;
}

/* Captures a chain of steps that allocate and free. Returns the number of addresses that they got. */
static unsigned capture_chain(CUstream second, CUevent event)
{
	CUdeviceptr ptr[STEPS];

	for (unsigned i = 0; i < STEPS; i++) {
		ptr[i] = alloc();
		app_fill(stream, ptr[i], touched, i);
		APP_MUST(cuMemcpyDtoDAsync_v2(out, ptr[i], touched, stream));
		if (event && i == STEPS / 2)
			APP_MUST(cuEventRecord(event, stream));
		if (second && i == STEPS / 2) {
			APP_MUST(cuStreamWaitEvent(second, event, 0));
			app_spin(second, 1000);
			APP_MUST(cuEventRecord(event, second));
			APP_MUST(cuStreamWaitEvent(stream, event, 0));
		}
		APP_MUST(cuMemFree_v2(ptr[i]));
	}
	return count_different(ptr, STEPS);
}

/* Within a capture memory is used again while one stream that has not forked captures. */
static void reused_inside(bool wants_event, bool wants_second, bool wants_other_work)
{
	CUstream second = wants_second ? app_stream() : NULL;
	CUevent event = NULL;
	CUgraphExec exec;
	CUgraph graph;

	if (wants_event)
		APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (wants_other_work) {
		CUdeviceptr ptr = alloc(), again;

		app_fill(stream, out, touched, 1);
		app_spin_fill(app_stream(), ptr, touched, 2, 100000);
		APP_MUST(cuMemFree_v2(ptr));
		again = alloc();
		app_fact("addresses", again == ptr ? 1 : 2);
		app_fill(stream, again, touched, STEPS - 1);
		APP_MUST(cuMemcpyDtoDAsync_v2(out, again, touched, stream));
	} else {
		app_fact("addresses", capture_chain(second, event));
	}
	graph = end();
	exec = instantiate(graph);
	replay(exec, STEPS - 1);
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(graph));
	app_report_driver();
}

static void chain(void)
{
	start();
	reused_inside(false, false, false);
}

static void chain_with_event(void)
{
	start();
	reused_inside(true, false, false);
}

static void chain_with_fork(void)
{
	start();
	reused_inside(true, true, false);
}

static void chain_with_other_work(void)
{
	start();
	reused_inside(false, false, true);
}

struct shared {
	CUdeviceptr old, out;
	CUstream stream;
};

/* Another thread captures on the same stream, as the threads of an autograd engine do. */
static void *capture_in_thread(void *arg)
{
	const struct shared *shared = arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	out = shared->out;
	stream = shared->stream;
	capture_through(shared->old, 42);
	return NULL;
}

static void run_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, fn, arg);
	pthread_join(thread, NULL);
}

static void second_thread(void)
{
	struct shared shared;

	start();
	shared = (struct shared){app_alloc(bytes), out, stream};
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	run_thread(capture_in_thread, &shared);
	finish_capture();
}

/* Another thread works on memory and a stream of its own during the capture. */
static void *work_beside(void *unused)
{
	CUstream own;
	size_t wrong = 0;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	own = app_stream();
	for (unsigned i = 0; i < BESIDE; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_fill(own, ptr, touched, i);
		wrong += app_count_wrong(own, ptr, touched, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_result("wrong words beside", (int)wrong);
	return NULL;
}

static void capture_with_work_beside(void)
{
	CUdeviceptr old;
	CUgraphExec exec;
	CUgraph graph;

	start();
	old = app_alloc(bytes);
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	app_fill(stream, old, touched, 1);
	run_thread(work_beside, NULL);
	app_pause("capture");
	capture_through(old, 42);
	graph = end();
	exec = instantiate(graph);
	replay(exec, 42);
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(graph));
	app_pause("end");
	app_report_driver();
}

/* The interfaces of this call could submit work past the library, so any thread may take part in a capture. */
static void thread_beside_unseen(void)
{
	static const CUuuid id = {"no such table"};
	const void *table;

	APP_MUST(cuInit(0));
	(void)cuGetExportTable(&table, &id);
	capture_with_work_beside();
}

static void *free_in_thread(void *old)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(*(CUdeviceptr *)old));
	return NULL;
}

/* A thread that takes no part in the capture frees memory that was captured. */
static void freed_by_another_thread(void)
{
	CUdeviceptr old;

	start();
	old = app_alloc(bytes);
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	app_fill(stream, old, touched, 42);
	APP_MUST(cuMemcpyDtoDAsync_v2(out, old, touched, stream));
	run_thread(free_in_thread, &old);
	finish_capture();
}

/* Allocates before it takes part in the capture, and keeps the memory. */
static void *alloc_and_capture(void *arg)
{
	struct shared *shared = arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	shared->old = app_alloc(bytes);
	app_fill(shared->stream, shared->old, touched, 42);
	APP_MUST(cuMemcpyDtoDAsync_v2(shared->out, shared->old, touched, shared->stream));
	return NULL;
}

/* A thread joins the capture after an allocation whose memory is freed when the capture is over. */
static void thread_joins(void)
{
	struct shared shared;
	CUgraphExec exec;
	CUgraph graph;

	start();
	shared = (struct shared){0, out, stream};
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	run_thread(alloc_and_capture, &shared);
	graph = end();
	exec = instantiate(graph);
	APP_MUST(cuGraphDestroy(graph));
	APP_MUST(cuMemFree_v2(shared.old));
	app_pause("graph");
	replay(exec, 42);
	APP_MUST(cuGraphExecDestroy(exec));
	app_pause("end");
	app_report_driver();
}

/* Captures, launches and destroys graphs in a loop. */
static void *make_graphs(void *mode)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	start_thread();
	for (unsigned i = 0; i < THREAD_ROUNDS; i++) {
		CUgraphExec exec;
		CUgraph graph;

		begin(*(int *)mode);
		capture_through(app_alloc(bytes), i);
		graph = end();
		exec = instantiate(graph);
		APP_MUST(cuGraphDestroy(graph));
		launch(exec, i);
		APP_MUST(cuGraphExecDestroy(exec));
	}
	return NULL;
}

/* Threads that capture at the same time, and one that takes no part. */
static void threads(void)
{
	static int modes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
	pthread_t thread[3];

	start();
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, make_graphs, &modes[i]);
	pthread_create(&thread[2], NULL, work_beside, NULL);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	app_pause("end");
	app_report_driver();
}

/* A capture that is destroyed releases what it has reserved. So does one that ends with its stream. */
static void destroyed(void)
{
	CUgraph graph = NULL;

	start();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	capture_through(app_alloc(bytes), 42);
	app_pause("capture");
	app_result("a wait that no capture allows", cuCtxSynchronize());
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_pause("invalidated");
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	capture_through(app_alloc(bytes), 42);
	app_result("destroy", cuStreamDestroy_v2(stream));
	app_pause("destroyed");
	APP_MUST(cuCtxSynchronize());
	app_report_driver();
}

/* A graph of the program that gets the nodes of two captures. */
static void into_a_graph(void)
{
	CUgraphExec exec;
	CUgraph graph, ended = NULL;

	start();
	APP_MUST(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < 2; i++) {
		APP_MUST(
			cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		capture_through(app_alloc(bytes), 41 + i);
		app_result("end", cuStreamEndCapture(stream, &ended));
	}
	exec = instantiate(graph);
	APP_MUST(cuGraphDestroy(graph));
	app_pause("graph");
	replay(exec, 42);
	APP_MUST(cuGraphExecDestroy(exec));
	app_pause("end");
	app_report_driver();
}

/* Memory that the program uses in a node of its own, and frees in the capture to the same graph. */
static void added_node(void)
{
	CUdeviceptr ptr;
	CUDA_MEMSET_NODE_PARAMS fill = {.value = 42, .elementSize = 4, .width = touched / 4, .height = 1};
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.WidthInBytes = touched,
		.Height = 1,
		.Depth = 1,
	};
	CUgraph graph, ended = NULL;
	CUgraphNode filled, copied;

	start();
	APP_MUST(cuGraphCreate(&graph, 0));
	APP_MUST(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ptr = alloc();
	fill.dst = copy.srcDevice = ptr;
	copy.dstDevice = out;
	APP_MUST(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, app_ctx));
	APP_MUST(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, app_ctx));
	APP_MUST(cuMemFree_v2(ptr));
	app_result("end", cuStreamEndCapture(stream, &ended));
	finish(graph);
}

/* Memory that one of two captures uses, and that is freed in the other after the first has ended. */
static void freed_in_another_capture(void)
{
	CUgraph graph, none = NULL;
	CUstream other;
	CUdeviceptr ptr;

	start();
	other = app_stream();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	APP_MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
	ptr = alloc();
	app_fill(stream, ptr, touched, 42);
	APP_MUST(cuMemcpyDtoDAsync_v2(out, ptr, touched, stream));
	graph = end();
	APP_MUST(cuMemFree_v2(ptr));
	app_result("end", cuStreamEndCapture(other, &none));
	APP_MUST(cuGraphDestroy(none));
	finish(graph);
}

/* Pinned memory that a graph copies to, and that is freed in its capture. */
static void pinned(void)
{
	static const size_t words = 64 * KIB / 4;
	uint32_t *host = NULL, *others[OTHERS];
	CUgraphExec exec;
	size_t wrong = 0;
	CUgraph graph;

	start();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	app_result("allocation", cuMemHostAlloc((void **)&host, words * 4, 0));
	app_fill(stream, out, words * 4, 42);
	APP_MUST(cuMemcpyDtoHAsync_v2(host, out, words * 4, stream));
	app_result("free", cuMemFreeHost(host));
	graph = end();
	exec = instantiate(graph);
	APP_MUST(cuGraphDestroy(graph));
	for (unsigned i = 0; i < OTHERS; i++) {
		APP_MUST(cuMemHostAlloc((void **)&others[i], words * 4, 0));
		memset(others[i], 0, words * 4);
	}
	APP_MUST(cuGraphLaunch(exec, stream));
	APP_MUST(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < OTHERS; i++) {
		for (size_t k = 0; k < words; k++)
			wrong += others[i][k] != 0;
		APP_MUST(cuMemFreeHost(others[i]));
	}
	app_result("wrong words in other memory", (int)wrong);
	APP_MUST(cuGraphExecDestroy(exec));
	app_report_driver();
}

/* The first pitched allocation of a context asks the driver for the pitch. */
static void pitch(void)
{
	CUdeviceptr ptr = 0;
	size_t row;

	start();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	app_result("allocation", cuMemAllocPitch_v2(&ptr, &row, 1000, 10, 4));
	APP_MUST(cuGraphDestroy(end()));
	APP_MUST(cuMemFree_v2(ptr));
	app_report_driver();
}

/* The driver has no memory for an allocation in a capture, which goes on. */
static void refused(void)
{
	CUdeviceptr ptr = 0;
	CUgraphExec exec;
	CUgraph graph;

	start();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	app_result("allocation", cuMemAlloc_v2(&ptr, 600 * MIB));
	app_fill(stream, out, touched, 42);
	graph = end();
	exec = instantiate(graph);
	APP_MUST(cuGraphLaunch(exec, stream));
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(graph));
	app_pause("end");
	app_report_driver();
}

/* The context ends before the graph. */
static void context_first(void)
{
	CUcontext ctx;
	CUgraph graph;

	start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	stream = app_stream();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	for (unsigned i = 0; i < 4; i++) {
		CUdeviceptr ptr = alloc();

		APP_MUST(cuMemsetD32Async(ptr, 0, touched / 4, stream));
		if (i % 2)
			APP_MUST(cuMemFree_v2(ptr));
	}
	graph = end();
	app_result("context", cuCtxDestroy_v2(ctx));
	APP_MUST(cuGraphDestroy(graph));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(app_alloc(bytes)));
	app_pause("end");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"replayed-global", replayed_global},
	{"replayed-local", replayed_local},
	{"replayed-relaxed", replayed_relaxed},
	{"cloned", cloned},
	{"many", many},
	{"overlapping", overlapping},
	{"chain", chain},
	{"chain-with-event", chain_with_event},
	{"chain-with-fork", chain_with_fork},
	{"chain-with-other-work", chain_with_other_work},
	{"second-thread", second_thread},
	{"freed-by-another-thread", freed_by_another_thread},
	{"thread-joins", thread_joins},
	{"thread-beside", capture_with_work_beside},
	{"thread-beside-unseen", thread_beside_unseen},
	{"threads", threads},
	{"destroyed", destroyed},
	{"into-a-graph", into_a_graph},
	{"added-node", added_node},
	{"freed-in-another-capture", freed_in_another_capture},
	{"pinned", pinned},
	{"pitch", pitch},
	{"refused", refused},
	{"context-first", context_first},
	{0},
};
