/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Counts the fences that a free records after each kind of submission, by the simulated driver's counters. */

#include <dlfcn.h>
#include <pthread.h>

#include "app_driver.h"
#include "lib_next.h"

#define BLOCK (64 * MIB) /* more than a thread cache keeps */

enum { TOUCHED = 4096, ROUNDS = 32, N_SMALL = 64 };

CUresult cuGetExportTable(const void **table, const void *id);

static CUstream stream;
static CUdeviceptr source;
static uint32_t *pinned;
static CUgraphExec graph;
static CUevent event;

/* Frees a block and returns the number of fences that the free records. */
static uint64_t free_of(CUdeviceptr ptr)
{
	uint64_t before = app_calls("cuCtxRecordEvent");

	APP_MUST(cuMemFree_v2(ptr));
	return app_calls("cuCtxRecordEvent") - before;
}

/* Prints a line for a way to submit: the fences that a free records without it, and with it. */
static void print_fences(const char *name, void (*submit)(CUdeviceptr ptr))
{
	uint64_t without;
	CUdeviceptr ptr;

	APP_MUST(cuMemFree_v2(app_alloc(BLOCK)));
	without = free_of(app_alloc(BLOCK));
	ptr = app_alloc(BLOCK);
	submit(ptr);
	printf("%s: %u, %u\n", name, (unsigned)without, (unsigned)free_of(ptr));
}

static void prepare(void)
{
	app_start();
	stream = app_stream();
	source = app_alloc(TOUCHED);
	APP_MUST(cuMemHostAlloc((void **)&pinned, TOUCHED, 0));
	APP_MUST(cuEventCreate(&event, 0));
	APP_MUST(cuMemFree_v2(app_alloc(BLOCK)));
}

/*
 * Copies, fills and waits, by name. All take their arguments in the same places, with the stream last. A function
 * without a stream ignores that argument.
 */
typedef CUresult submit_fn(uint64_t first, uint64_t second, size_t n, CUstream stream);

static submit_fn *named;

static void fill(CUdeviceptr ptr)
{
	APP_MUST(named(ptr, 1, TOUCHED / 4, stream));
}

static void copy(CUdeviceptr ptr)
{
	APP_MUST(named(ptr, source, TOUCHED, stream));
}

static void copy_in(CUdeviceptr ptr)
{
	APP_MUST(named(ptr, (uintptr_t)pinned, TOUCHED, stream));
}

static void copy_out(CUdeviceptr ptr)
{
	APP_MUST(named((uintptr_t)pinned, ptr, TOUCHED, stream));
}

static void await(CUdeviceptr unused)
{
	APP_MUST(named((uintptr_t)stream, (uintptr_t)event, 0, NULL));
}

static void await_in_context(CUdeviceptr unused)
{
	APP_MUST(named((uintptr_t)app_ctx, (uintptr_t)event, 0, NULL));
}

static const struct {
	const char *name;
	void (*submit)(CUdeviceptr ptr);
} rows[] = {
#define BOTH(name, suffix, submit)    \
	{#name, submit},              \
	{                             \
#name #suffix, submit \
	}
	BOTH(cuMemcpy, _ptds, copy),
	BOTH(cuMemcpyHtoD_v2, _ptds, copy_in),
	BOTH(cuMemcpyDtoH_v2, _ptds, copy_out),
	BOTH(cuMemcpyDtoD_v2, _ptds, copy),
	BOTH(cuMemsetD8_v2, _ptds, fill),
	BOTH(cuMemsetD32_v2, _ptds, fill),
	BOTH(cuMemcpyAsync, _ptsz, copy),
	BOTH(cuMemcpyHtoDAsync_v2, _ptsz, copy_in),
	BOTH(cuMemcpyDtoHAsync_v2, _ptsz, copy_out),
	BOTH(cuMemcpyDtoDAsync_v2, _ptsz, copy),
	BOTH(cuMemsetD8Async, _ptsz, fill),
	BOTH(cuMemsetD32Async, _ptsz, fill),
	BOTH(cuStreamWaitEvent, _ptsz, await),
	{"cuCtxWaitEvent", await_in_context},
};

static void launch(CUdeviceptr ptr)
{
	app_fill(stream, ptr, TOUCHED, 1);
}

static void launch_in_order(CUdeviceptr ptr)
{
	app_fill(NULL, ptr, TOUCHED, 1);
}

static void launch_ex(CUdeviceptr ptr)
{
	app_fill_ex(stream, ptr, TOUCHED, 1);
}

static void launch_graph(CUdeviceptr unused)
{
	APP_MUST(cuGraphLaunch(graph, stream));
}

static void on_host(void *unused)
{
}

static void call_host(CUdeviceptr unused)
{
	APP_MUST(cuLaunchHostFunc(stream, on_host, NULL));
}

static void fail(CUdeviceptr unused)
{
	app_result("an empty launch", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void capture(void)
{
	CUgraph captured;

	APP_MUST(cuStreamBeginCapture_v2(stream, 0));
	app_fill(stream, source, TOUCHED, 1);
	APP_MUST(cuStreamEndCapture(stream, &captured));
	APP_MUST(cuGraphInstantiateWithFlags(&graph, captured, 0));
}

/* Counts the fences that two frees record while another thread is still inside the call. */
static void (*submit_inside)(CUdeviceptr ptr);

static void *submit_there(void *ptr)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	submit_inside(*(CUdeviceptr *)ptr);
	return NULL;
}

static void inside(const char *name, void (*submit)(CUdeviceptr ptr))
{
	CUdeviceptr ptr = app_alloc(BLOCK), second = app_alloc(BLOCK), third = app_alloc(BLOCK);
	uint64_t n_first, n_second;
	pthread_t thread;

	submit_inside = submit;
	app_stop_calls(name, true);
	APP_MUST(pthread_create(&thread, NULL, submit_there, &ptr));
	app_await_stopped_call();
	n_first = free_of(second);
	n_second = free_of(third);
	app_release_calls();
	APP_MUST(pthread_join(thread, NULL));
	printf("%s, not returned: %u, %u\n", name, (unsigned)n_first, (unsigned)n_second);
	APP_MUST(cuMemFree_v2(ptr));
}

static void each_inside(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	prepare();
	for (size_t i = 0; i < LENGTH(rows); i++) {
		*(void **)&named = dlsym(driver, rows[i].name);
		inside(rows[i].name, rows[i].submit);
	}
	inside("cuLaunchKernel", launch);
	inside("cuLaunchKernelEx", launch_ex);
	inside("cuLaunchHostFunc", call_host);
	capture();
	inside("cuGraphLaunch", launch_graph);
}

static void each(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	prepare();
	print_fences("nothing, in order", launch_in_order);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		*(void **)&named = dlsym(driver, rows[i].name);
		print_fences(rows[i].name, rows[i].submit);
	}
	print_fences("cuLaunchKernel", launch);
	print_fences("cuLaunchKernelEx", launch_ex);
	print_fences("cuLaunchHostFunc", call_host);
	capture();
	print_fences("cuGraphLaunch", launch_graph);
	print_fences("an error", fail);
}

/* Makes calls that submit nothing between two frees, so that the second free has nothing to wait for. */
static void idle(void)
{
	void *host;
	size_t wrong = 0;

	prepare();
	launch(source);
	APP_MUST(cuMemFree_v2(app_alloc(BLOCK)));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(BLOCK);

		APP_MUST(cuEventRecord(event, stream));
		APP_MUST(cuStreamSynchronize(stream));
		APP_MUST(cuMemHostAlloc(&host, TOUCHED, 0));
		APP_MUST(cuMemFreeHost(host));
		wrong += free_of(ptr);
	}
	printf("fences: %zu\n", wrong);
}

/* Allocates and frees blocks that a thread cache keeps. Counts the fences of the second half of the rounds. */
static void small(void)
{
	CUdeviceptr blocks[N_SMALL];
	uint64_t before = 0;

	prepare();
	launch(source);
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		if (i == 2 * ROUNDS)
			before = app_calls("cuCtxRecordEvent");
		for (unsigned k = 0; k < N_SMALL; k++)
			blocks[k] = app_alloc(k % 2 ? 512 : 128 * KIB);
		for (unsigned k = 0; k < N_SMALL; k++)
			APP_MUST(cuMemFree_v2(blocks[k]));
	}
	printf("fences: %u\n", (unsigned)(app_calls("cuCtxRecordEvent") - before));
}

/* Another library could submit work that gpupool does not see, so each free records a fence. */
static void blind(void)
{
	uint64_t n = 0;

	prepare();
	(void)next_set(source, 1, TOUCHED / 4, NULL);
	for (unsigned i = 0; i < ROUNDS; i++)
		n += free_of(app_alloc(BLOCK));
	printf("fences: %u\n", (unsigned)n);
}

/* Asks for a private interface before there is a log or a context. */
static void use_private_interface(void)
{
	static const unsigned char id[16] = "of no header....";
	const void *table;

	(void)cuGetExportTable(&table, id);
	blind();
}

/* Each free records a fence because of the settings or the driver. */
static void forced(void)
{
	uint64_t n = 0;

	prepare();
	for (unsigned i = 0; i < ROUNDS; i++)
		n += free_of(app_alloc(BLOCK));
	printf("fences: %u\n", (unsigned)n);
}

/* The driver itself may have ended already. Each of its calls has to report whether it still works. */
static void last_free(void)
{
	printf("at the end: %u\n", (unsigned)free_of(source));
}

static void ending(void)
{
	atexit(last_free); /* runs after all handlers that are registered later, the driver's among them */
	prepare();
	launch(source);
	APP_MUST(cuMemFree_v2(app_alloc(BLOCK)));
	printf("before the end: %u\n", (unsigned)free_of(app_alloc(BLOCK)));
	source = app_alloc(BLOCK);
}

const struct app_scenario app_scenarios[] = {
	{"each", each},
	{"each-inside", each_inside},
	{"idle", idle},
	{"small", small},
	{"blind", blind},
	{"private", use_private_interface},
	{"forced", forced},
	{"ending", ending},
	{0},
};
