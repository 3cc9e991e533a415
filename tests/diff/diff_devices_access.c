/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Another device's memory without peer access: a kernel that touches it, which is an error in the program, and copies,
 * which are none.
 */

#include <pthread.h>

#include "api/gpupool.h"
#include "devices.h"

enum { SMS = 16 };

/* Without access the kernel fails, and its context with it. The other device's context still works. */
static void unreachable(bool was_enabled)
{
	CUdeviceptr ptr;
	CUcontext again;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	if (was_enabled) {
		devices_enable_access(1, 0);
		devices_fill_and_wait(1, ptr, 5);
		app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
		devices_enter(1);
		app_result("disable", cuCtxDisablePeerAccess(devices[0].ctx));
		app_result("disable again", cuCtxDisablePeerAccess(devices[0].ctx));
	}
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	devices_fill_and_wait(0, ptr, 7);
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 7));
	app_result("free", cuMemFree_v2(ptr));
	app_result("reset", cuDevicePrimaryCtxReset_v2(1));
	APP_MUST(cuDevicePrimaryCtxRetain(&again, 1));
	app_result("the same handle", again == devices[1].ctx);
	devices_start_one(1);
	ptr = app_alloc(16 * MIB);
	devices_fill_and_wait(1, ptr, 8);
	app_result("wrong words", (int)devices_count_wrong(1, ptr, 8));
	app_result("free", cuMemFree_v2(ptr));
}

static void never_enabled(void)
{
	unreachable(false);
}

static void disabled(void)
{
	unreachable(true);
}

/* Resets the peer's context and creates it again. Calls that need the earlier access return the driver's answers. */
static void reset(void)
{
	CUdeviceptr ptr;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	devices_enable_access(1, 0);
	devices_fill_and_wait(1, ptr, 5);
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	devices_start_one(0);
	devices_enable_access(1, 0);
	devices_enter(0);
	ptr = app_alloc(16 * MIB);
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 6));
}

/* Access to a green context reaches the peer's memory, because that memory belongs to its primary context. */
static void green(void)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUcontext ctx;
	CUdeviceptr ptr;
	unsigned n = 1;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	APP_MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	APP_MUST(cuDevSmResourceSplitByCount(&part, &n, &all, &rest, 0, SMS));
	APP_MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	APP_MUST(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_MUST(cuCtxFromGreenCtx(&ctx, green));
	devices_enter(1);
	app_result("enable", cuCtxEnablePeerAccess(ctx, 0));
	app_result("launch", devices_fill(1, ptr, 5));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
	app_result("wrong words", (int)devices_count_wrong(0, ptr, 5));
}

/* Copies on a stream of the other device between the memory, the host and memory of its own. */
static void copy_each_way(CUdeviceptr ptr, CUdeviceptr own, CUstream stream)
{
	static uint32_t words[WORDS];

	devices_fill_and_wait(0, ptr, 5);
	devices_enter(1);
	app_result("to the host", cuMemcpyDtoHAsync_v2(words, ptr, sizeof(words), stream));
	app_result("wait", cuStreamSynchronize(stream));
	app_result("word", (int)words[WORDS - 1]);
	words[0] = 6;
	app_result("from the host", cuMemcpyHtoDAsync_v2(ptr, words, sizeof(words), stream));
	app_result("to its own", cuMemcpyDtoDAsync_v2(own, ptr, sizeof(words), stream));
	app_result("from its own", cuMemcpyDtoDAsync_v2(ptr, own, sizeof(words), stream));
	app_result("to its own, any kind", cuMemcpyAsync(own, ptr, sizeof(words), stream));
	app_result("wait", cuStreamSynchronize(stream));
	app_result("words that differ here", (int)devices_count_wrong(0, ptr, 5));
	app_result("words that differ there", (int)devices_count_wrong(1, own, 5));
}

static void copies(void)
{
	CUdeviceptr ptrs[3], own;

	if (!devices_start_peers())
		return;
	devices_enter(1);
	own = app_alloc(MIB);
	devices_enter(0);
	ptrs[0] = app_alloc(64 * KIB);
	ptrs[1] = app_alloc(16 * MIB);
	copy_each_way(ptrs[0], own, devices[1].stream);
	copy_each_way(ptrs[1], own, NULL);
	/* The device's memory from after the first copy. */
	devices_enter(0);
	ptrs[2] = app_alloc(64 * MIB);
	copy_each_way(ptrs[2], own, devices[1].stream);
	/* A copy that is wrong in itself. */
	devices_enter(1);
	app_result("beyond", cuMemcpyDtoDAsync_v2(own, ptrs[2], (size_t)1 << 40, devices[1].stream));
	app_result("free", cuMemFree_v2(ptrs[1]));
	app_result("enable", cuCtxEnablePeerAccess(devices[0].ctx, 0));
	app_result("disable", cuCtxDisablePeerAccess(devices[0].ctx));
	app_result("disable again", cuCtxDisablePeerAccess(devices[0].ctx));
	copy_each_way(ptrs[0], own, devices[1].stream);
}

/* Copies that wait, and a stream of the other device while the memory's device is current. */
static void copies_now(void)
{
	static uint32_t words[WORDS];
	CUdeviceptr ptr, own;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(4 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	app_result("on the other's stream", cuMemcpyDtoHAsync_v2(words, ptr, sizeof(words), devices[1].stream));
	app_result("wait", cuStreamSynchronize(devices[1].stream));
	app_result("word", (int)words[WORDS - 1]);
	devices_enter(1);
	own = app_alloc(MIB);
	app_result("to the host", cuMemcpyDtoH_v2(words, ptr, sizeof(words)));
	app_result("from the host", cuMemcpyHtoD_v2(ptr, words, sizeof(words)));
	app_result("to its own", cuMemcpyDtoD_v2(own, ptr, sizeof(words)));
	app_result("any kind", cuMemcpy(ptr, own, sizeof(words)));
	app_result("wait", cuCtxSynchronize());
	app_result("words that differ here", (int)devices_count_wrong(0, ptr, 5));
}

enum { THREADS = 8, BLOCKS = 24 };

static CUdeviceptr copied_blocks[BLOCKS];
static pthread_barrier_t all_there;

/* Copies its blocks, and returns the number of copies that failed or had the wrong content. */
static void *copy_blocks(void *first)
{
	static _Thread_local uint32_t words[WORDS];
	size_t n_wrong = 0;

	devices_enter(1);
	pthread_barrier_wait(&all_there);
	for (size_t i = (size_t)first; i < BLOCKS; i += THREADS) {
		CUresult r = cuMemcpyDtoH_v2(words, copied_blocks[i], sizeof(words));

		n_wrong += r || words[WORDS - 1] != (uint32_t)i;
	}
	return (void *)n_wrong;
}

/* The first copies of a process, by several threads. */
static void copies_at_once(void)
{
	pthread_t threads[THREADS];
	size_t n_wrong = 0;
	void *result;

	if (!devices_start_peers())
		return;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		devices_enter(0);
		copied_blocks[i] = app_alloc(16 * MIB);
		devices_fill_and_wait(0, copied_blocks[i], i);
	}
	pthread_barrier_init(&all_there, NULL, THREADS);
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, copy_blocks, (void *)i))
			exit(71);
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		n_wrong += (size_t)result;
	}
	app_say("wrong copies", "%zu", n_wrong);
}

/* Copies before and after the contexts of both devices have ended. */
static void copies_after_resets(void)
{
	CUdeviceptr ptr, own;

	if (!devices_start_peers())
		return;
	for (int i = 0; i < 3; i++) {
		devices_enter(1);
		own = app_alloc(MIB);
		devices_enter(0);
		ptr = app_alloc(4 * MIB);
		copy_each_way(ptr, own, devices[1].stream);
		app_result("reset", cuDevicePrimaryCtxReset_v2(i % 2));
		devices_start_one(i % 2);
	}
}

/* The end of access does not stop copies that are under way, since they need none. */
static void disabled_behind_copies(void)
{
	enum { COPIES = 16 };
	const size_t bytes = 8 * MIB;
	CUdeviceptr ptr;
	void *words;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(bytes);
	APP_MUST(cuMemsetD32_v2(ptr, 5, bytes / 4));
	APP_MUST(cuCtxSynchronize());
	devices_enable_access(1, 0);
	APP_MUST(cuMemHostAlloc(&words, bytes, 0));
	for (int i = 0; i < COPIES; i++)
		APP_MUST(cuMemcpyDtoHAsync_v2(words, ptr, bytes, devices[1].stream));
	app_result("disable", cuCtxDisablePeerAccess(devices[0].ctx));
	app_result("wait", cuStreamSynchronize(devices[1].stream));
	app_say("last word", "%u", ((uint32_t *)words)[bytes / 4 - 1]);
}

static void run_graph(CUgraph graph, CUstream stream)
{
	CUgraphExec exec;
	CUresult r = cuGraphInstantiateWithFlags(&exec, graph, 0);

	app_result("instantiate", r);
	if (r)
		return;
	app_result("launch", cuGraphLaunch(exec, stream));
	app_result("wait", cuStreamSynchronize(stream));
	APP_MUST(cuGraphExecDestroy(exec));
}

static CUDA_MEMCPY3D one_row(CUdeviceptr to, CUdeviceptr from)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = from,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = to,
		.WidthInBytes = WORDS * sizeof(uint32_t),
		.Height = 1,
		.Depth = 1,
	};
}

enum node { CAPTURED, COPY_NODE, ANY_NODE, OLD_ANY_NODE, CHANGED_COPY, CHANGED_ANY, N_NODES };

static CUgraph capture_copy(CUdeviceptr to, CUdeviceptr from)
{
	CUgraph graph = NULL;

	devices_enter(1);
	APP_MUST(cuStreamBeginCapture_v2(devices[1].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	app_result("copy", cuMemcpyAsync(to, from, WORDS * sizeof(uint32_t), devices[1].stream));
	APP_MUST(cuStreamEndCapture(devices[1].stream, &graph));
	return graph;
}

/* Returns a graph of one copy by the other device, which need not be current. own: memory of that device. */
static CUgraph copy_graph(enum node node, CUdeviceptr to, CUdeviceptr from, CUdeviceptr own)
{
	CUDA_MEMCPY3D copy = one_row(to, from), within = one_row(own, own + 64 * KIB);
	CUgraphNodeParams params = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.memcpy = {.copyCtx = devices[1].ctx, .copyParams = copy},
	};
	CUgraphNode handle;
	CUgraph graph;

	if (node == CAPTURED)
		return capture_copy(to, from);
	devices_enter(0);
	APP_MUST(cuGraphCreate(&graph, 0));
	if (node == COPY_NODE)
		app_result("copy", cuGraphAddMemcpyNode(&handle, graph, NULL, 0, &copy, devices[1].ctx));
	else if (node == ANY_NODE)
		app_result("any node", cuGraphAddNode_v2(&handle, graph, NULL, NULL, 0, &params));
	else if (node == OLD_ANY_NODE)
		app_result("any node, old", cuGraphAddNode(&handle, graph, NULL, 0, &params));
	else
		APP_MUST(cuGraphAddMemcpyNode(&handle, graph, NULL, 0, &within, devices[1].ctx));
	if (node == CHANGED_COPY)
		app_result("change", cuGraphMemcpyNodeSetParams(handle, &copy));
	else if (node == CHANGED_ANY)
		app_result("change any", cuGraphNodeSetParams(handle, &params));
	return graph;
}

static void run_copy(enum node node, CUdeviceptr to, CUdeviceptr from, CUdeviceptr own)
{
	CUgraph graph = copy_graph(node, to, from, own);

	run_graph(graph, devices[1].stream);
	APP_MUST(cuGraphDestroy(graph));
}

/* Begins the memory's owner anew: its next memory is open to no other device yet. */
static void reset_owner(void)
{
	devices_enter(0);
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	devices_start_one(0);
}

static void copies_in_graphs(void)
{
	CUdeviceptr ptr, own;

	if (!devices_start_peers())
		return;
	for (enum node node = CAPTURED; node < N_NODES; node++) {
		devices_enter(1);
		own = app_alloc(MIB);
		devices_enter(0);
		ptr = app_alloc(16 * MIB);
		devices_fill_and_wait(0, ptr, 5);
		run_copy(node, own, ptr, own);
		app_result("words that differ there", (int)devices_count_wrong(1, own, 5));
		devices_fill_and_wait(1, own, 6);
		run_copy(node, ptr, own, own);
		app_result("words that differ here", (int)devices_count_wrong(0, ptr, 6));
		reset_owner();
	}
}

/* A graph copies memory to which access has ended, also after the memory was elsewhere. */
static void graph_without_access(bool is_reset)
{
	CUdeviceptr ptr, own;
	CUgraph graph;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	devices_enable_access(1, 0);
	devices_enter(1);
	if (is_reset) {
		app_result("reset", cuDevicePrimaryCtxReset_v2(1));
		devices_start_one(1);
	} else {
		app_result("disable", cuCtxDisablePeerAccess(devices[0].ctx));
	}
	own = app_alloc(MIB);
	graph = copy_graph(COPY_NODE, own, ptr, own);
	(void)gpupool_sleep(10000);
	run_graph(graph, devices[1].stream);
	app_result("words that differ", (int)devices_count_wrong(1, own, 5));
}

static void graph_after_disable(void)
{
	graph_without_access(false);
}

static void graph_after_reset(void)
{
	graph_without_access(true);
}

/* The memory's owner goes on after the device that had access has ended. */
static void ended_accessor(void)
{
	CUdeviceptr ptr, more;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(16 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	devices_enable_access(1, 0);
	app_result("reset", cuDevicePrimaryCtxReset_v2(1));
	devices_enter(0);
	(void)gpupool_sleep(10000);
	app_result("words that differ", (int)devices_count_wrong(0, ptr, 5));
	more = app_alloc(64 * MIB);
	devices_fill_and_wait(0, more, 6);
	app_result("words that differ", (int)devices_count_wrong(0, more, 6));
}

/* A node in a context that the program has created, while another one is current. */
static void node_in_created_context(void)
{
	CUdeviceptr ptr, own;
	CUDA_MEMCPY3D copy;
	CUgraphNode node;
	CUgraph graph;
	CUcontext ctx;
	CUstream stream;

	if (!devices_start_peers())
		return;
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 1));
	APP_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	own = app_alloc(MIB);
	devices_enter(0);
	ptr = app_alloc(16 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	copy = one_row(own, ptr);
	APP_MUST(cuGraphCreate(&graph, 0));
	app_result("node", cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, ctx));
	APP_MUST(cuCtxSetCurrent(ctx));
	run_graph(graph, stream);
}

/* A node that is refused, and copies nothing, does not give the program access. */
static void other_nodes(void)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	CUdeviceptr ptr;
	CUgraphNode node;
	CUgraph graph;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(4 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	devices_enter(1);
	APP_MUST(cuGraphCreate(&graph, 0));
	app_result("none", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, NULL));
	app_result("no kernel", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
	app_result("no copy", cuGraphAddMemcpyNode(&node, graph, NULL, 0, NULL, devices[1].ctx));
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
}

/* A copy needs no access, and does not give the program any. */
static void copied_then_touched(void)
{
	static uint32_t words[WORDS];
	CUdeviceptr ptr;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(4 * MIB);
	devices_fill_and_wait(0, ptr, 5);
	devices_enter(1);
	app_result("to the host", cuMemcpyDtoH_v2(words, ptr, sizeof(words)));
	app_result("launch", devices_fill(1, ptr, 6));
	app_result("synchronise", cuStreamSynchronize(devices[1].stream));
}

/* Sets the memory from the other device. */
static void sets(void)
{
	CUdeviceptr ptr;

	if (!devices_start_peers())
		return;
	ptr = app_alloc(4 * MIB);
	devices_enter(1);
	app_result("set", cuMemsetD32Async(ptr, 7, WORDS, devices[1].stream));
	app_result("wait", cuStreamSynchronize(devices[1].stream));
}

enum { SET_NODE, ANY_SET, CHANGED_SET, N_SETS };

/* Returns a graph by which the other device sets the memory. own: memory of that device. */
static CUgraph set_graph(int kind, CUdeviceptr ptr, CUdeviceptr own)
{
	CUDA_MEMSET_NODE_PARAMS fill = {.dst = ptr, .value = 7, .elementSize = 4, .width = WORDS, .height = 1};
	CUgraphNodeParams params = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset =
			{.dst = ptr, .value = 7, .elementSize = 4, .width = WORDS, .height = 1, .ctx = devices[1].ctx},
	};
	CUDA_MEMSET_NODE_PARAMS within = fill;
	CUgraphNode node;
	CUgraph graph;

	APP_MUST(cuGraphCreate(&graph, 0));
	if (kind == SET_NODE) {
		app_result("set", cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, devices[1].ctx));
	} else if (kind == ANY_SET) {
		app_result("any node", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
	} else {
		within.dst = own;
		APP_MUST(cuGraphAddMemsetNode(&node, graph, NULL, 0, &within, devices[1].ctx));
		app_result("change", cuGraphMemsetNodeSetParams(node, &fill));
	}
	return graph;
}

static void sets_in_graphs(void)
{
	CUdeviceptr ptr, own;
	CUgraph graph;

	if (!devices_start_peers())
		return;
	for (int kind = 0; kind < N_SETS; kind++) {
		devices_enter(1);
		own = app_alloc(MIB);
		devices_enter(0);
		ptr = app_alloc(16 * MIB);
		graph = set_graph(kind, ptr, own);
		run_graph(graph, devices[1].stream);
		APP_MUST(cuGraphDestroy(graph));
		app_result("words that differ", (int)devices_count_wrong(0, ptr, 7));
		reset_owner();
	}
}

enum { EXECUTABLE_COPY, EXECUTABLE_ANY_COPY, EXECUTABLE_SET, EXECUTABLE_ANY_SET, N_EXECUTABLES };

static bool is_set(int kind)
{
	return kind == EXECUTABLE_SET || kind == EXECUTABLE_ANY_SET;
}

/* Returns a graph of one node by the other device, which copies or sets its own memory. */
static CUgraph graph_to_change(int kind, CUgraphNode *ret_node, CUdeviceptr own)
{
	CUDA_MEMSET_NODE_PARAMS fill = {.dst = own, .value = 7, .elementSize = 4, .width = WORDS, .height = 1};
	CUDA_MEMCPY3D copy = one_row(own, own + 64 * KIB);
	CUgraph graph;

	APP_MUST(cuGraphCreate(&graph, 0));
	if (is_set(kind))
		APP_MUST(cuGraphAddMemsetNode(ret_node, graph, NULL, 0, &fill, devices[1].ctx));
	else
		APP_MUST(cuGraphAddMemcpyNode(ret_node, graph, NULL, 0, &copy, devices[1].ctx));
	return graph;
}

/* Lets the executable graph copy the memory to that of the other device, or set it. */
static CUresult change_executable(int kind, CUgraphExec exec, CUgraphNode node, CUdeviceptr ptr, CUdeviceptr own)
{
	CUDA_MEMSET_NODE_PARAMS fill = {.dst = ptr, .value = 7, .elementSize = 4, .width = WORDS, .height = 1};
	CUDA_MEMCPY3D copy = one_row(own, ptr);
	CUgraphNodeParams any_copy = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.memcpy = {.copyCtx = devices[1].ctx, .copyParams = copy},
	};
	CUgraphNodeParams any_set = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset =
			{.dst = ptr, .value = 7, .elementSize = 4, .width = WORDS, .height = 1, .ctx = devices[1].ctx},
	};

	switch (kind) {
	case EXECUTABLE_COPY:
		return cuGraphExecMemcpyNodeSetParams(exec, node, &copy, devices[1].ctx);
	case EXECUTABLE_SET:
		return cuGraphExecMemsetNodeSetParams(exec, node, &fill, devices[1].ctx);
	default:
		return cuGraphExecNodeSetParams(exec, node, is_set(kind) ? &any_set : &any_copy);
	}
}

static void changed_executables(void)
{
	CUdeviceptr ptr, own;
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	if (!devices_start_peers())
		return;
	for (int kind = 0; kind < N_EXECUTABLES; kind++) {
		devices_enter(1);
		own = app_alloc(MIB);
		devices_enter(0);
		ptr = app_alloc(16 * MIB);
		devices_fill_and_wait(0, ptr, 6);
		graph = graph_to_change(kind, &node, own);
		APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
		app_result("change", change_executable(kind, exec, node, ptr, own));
		app_result("launch", cuGraphLaunch(exec, devices[1].stream));
		app_result("wait", cuStreamSynchronize(devices[1].stream));
		if (is_set(kind))
			app_result("words that differ here", (int)devices_count_wrong(0, ptr, 7));
		else
			app_result("words that differ there", (int)devices_count_wrong(1, own, 6));
		APP_MUST(cuGraphExecDestroy(exec));
		APP_MUST(cuGraphDestroy(graph));
		reset_owner();
	}
}

const struct app_scenario app_scenarios[] = {
	{"copies", copies, 0},
	{"copies-now", copies_now, 0},
	{"copies-at-once", copies_at_once, 0},
	{"copies-after-resets", copies_after_resets, 0},
	{"disabled-behind-copies", disabled_behind_copies, 0},
	{"copies-in-graphs", copies_in_graphs, 0},
	{"graph-after-disable", graph_after_disable, 0},
	{"graph-after-reset", graph_after_reset, 0},
	{"ended-accessor", ended_accessor, 0},
	{"node-in-created-context", node_in_created_context, 0},
	{"other-nodes", other_nodes, 0},
	{"copied-then-touched", copied_then_touched, 0},
	{"sets", sets, 0},
	{"sets-in-graphs", sets_in_graphs, 0},
	{"changed-executables", changed_executables, 0},
	{"never-enabled", never_enabled, 0},
	{"disabled", disabled, 0},
	{"reset", reset, 0},
	{"green", green, 0},
	{0},
};
