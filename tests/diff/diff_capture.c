/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory is allocated and freed while a stream is capturing: in every mode of the capture and of the thread, by the
 * thread that captures and by another (T5.1, T5.2, T5.5). The answers are the result of each call, the thread's mode
 * after it (T5.7), the end of the capture, and the effect of its graph.
 *
 * The driver refuses an unsafe call, and destroys the capture, except in three cases: the thread's mode is relaxed; the
 * thread captures itself, in relaxed mode; another thread captures, and one of the two modes is not global. A pool
 * serves even a call that the driver would refuse, also if it has to grow. These calls are in the scenario "refused",
 * whose answers differ as documented. All other calls are in "allowed".
 */

#include <pthread.h>

#include "captures.h"

enum { WARM = 8, MANY = 2000 };

static const size_t bytes = 256 * KIB, small = 512;
static size_t huge = 128 * MIB;
static CUstream stream, other;
static CUdeviceptr target, block, async_block;
static void *pinned, *pinned_block;

/* Memory that an action has allocated. It is freed once the capture is over. */
static CUdeviceptr got, got_async;
static CUarray got_array;
static CUmemGenericAllocationHandle got_handle;

static CUresult do_nothing(void)
{
	return CUDA_SUCCESS;
}

static CUresult do_alloc(void)
{
	return cuMemAlloc_v2(&got, bytes);
}

static CUresult do_free(void)
{
	CUresult r = cuMemFree_v2(block);

	block = r ? block : 0;
	return r;
}

static CUresult do_free_async(void)
{
	CUresult r = cuMemFreeAsync(block, other);

	block = r ? block : 0;
	return r;
}

static CUresult do_pitch(void)
{
	size_t pitch;

	return cuMemAllocPitch_v2(&got, &pitch, 1024, 256, 4);
}

static CUresult do_alloc_pinned(void)
{
	return cuMemHostAlloc(&pinned, bytes, 0);
}

static CUresult do_free_pinned(void)
{
	CUresult r = cuMemFreeHost(pinned_block);

	pinned_block = r ? pinned_block : NULL;
	return r;
}

/* Allocates a block larger than all before it, so that no cache has such a block. */
static CUresult do_miss(void)
{
	huge += huge / 7;
	return cuMemAlloc_v2(&got, huge);
}

static CUresult do_alloc_async(void)
{
	return cuMemAllocAsync(&got_async, bytes, other);
}

static CUresult do_free_driver_async(void)
{
	CUresult r = cuMemFreeAsync(async_block, other);

	async_block = r ? async_block : 0;
	return r;
}

static CUresult do_managed(void)
{
	return cuMemAllocManaged(&got, bytes, 1);
}

static CUresult do_array(void)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = 0x20, .NumChannels = 1};

	return cuArrayCreate_v2(&got_array, &shape);
}

static CUresult do_physical(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	return cuMemCreate(&got_handle, 2 * MIB, &properties, 0);
}

static CUresult do_info(void)
{
	size_t free_bytes, total_bytes;

	return cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

static CUresult do_range(void)
{
	CUdeviceptr base;
	size_t size;

	return cuMemGetAddressRange_v2(&base, &size, target + 1);
}

/*
 * Allocates and frees, in pairs that a cache can serve (T5.1, T5.2). A block that was freed in a capture cannot be
 * reused in it, so there is a cached block for each pair. Returns the first code that is not 0.
 */
static CUresult do_many(void)
{
	CUresult r = CUDA_SUCCESS;

	for (unsigned i = 0; i < MANY && !r; i++) {
		CUdeviceptr ptr = 0;

		r = cuMemAlloc_v2(&ptr, small);
		if (!r)
			r = cuMemFree_v2(ptr);
	}
	return r;
}

static const struct action {
	const char *name;
	CUresult (*run)(void);
} served[] =
	{
		/* Calls that a pool may serve by itself. */
		{"malloc", do_alloc},
		{"free", do_free},
		{"freeasync", do_free_async},
		{"pitch", do_pitch},
		{"hostalloc", do_alloc_pinned},
		{"freehost", do_free_pinned},
		{"miss", do_miss},
},
  passed[] =
	  {
		  /* Calls that always go to the driver. */
		  {"nothing", do_nothing},
		  {"mallocasync", do_alloc_async},
		  {"freeasync-own", do_free_driver_async},
		  {"managed", do_managed},
		  {"array", do_array},
		  {"physical", do_physical},
		  {"info", do_info},
		  {"range", do_range},
},
  many[] = {{"many", do_many}};

static void warm_up_small(void)
{
	static CUdeviceptr ptr[MANY + 1];

	for (unsigned i = 0; i < LENGTH(ptr); i++)
		ptr[i] = app_alloc(small);
	for (unsigned i = 0; i < LENGTH(ptr); i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
}

/* Caches blocks for the actions to use, and allocates one of each kind to be freed. The GPU has finished with them. */
static void warm_up(void)
{
	CUdeviceptr ptr[WARM];
	void *host[WARM];
	size_t pitch;

	for (unsigned i = 0; i < WARM; i++) {
		ptr[i] = app_alloc(bytes);
		APP_MUST(cuMemHostAlloc(&host[i], bytes, 0));
	}
	for (unsigned i = 0; i < WARM; i++) {
		APP_MUST(cuMemFree_v2(ptr[i]));
		APP_MUST(cuMemFreeHost(host[i]));
	}
	APP_MUST(cuMemAllocPitch_v2(&ptr[0], &pitch, 1024, 256, 4));
	APP_MUST(cuMemFree_v2(ptr[0]));
	APP_MUST(cuCtxSynchronize());
	/* The next request makes a pool poll its fences. */
	if (!block)
		block = app_alloc(bytes);
	if (!pinned_block)
		APP_MUST(cuMemHostAlloc(&pinned_block, bytes, 0));
	if (!async_block)
		APP_MUST(cuMemAllocAsync(&async_block, bytes, other));
	APP_MUST(cuStreamSynchronize(other));
}

static void cool_down(void)
{
	if (got)
		APP_MUST(cuMemFree_v2(got));
	if (got_async)
		APP_MUST(cuMemFreeAsync(got_async, other));
	if (pinned)
		APP_MUST(cuMemFreeHost(pinned));
	if (got_array)
		APP_MUST(cuArrayDestroy(got_array));
	if (got_handle)
		APP_MUST(cuMemRelease(got_handle));
	got = got_async = 0;
	pinned = NULL;
	got_array = NULL;
	got_handle = 0;
}

struct attempt {
	const struct action *action;
	int thread_mode, mode_after;
	CUresult result;
};

static void *attempt(void *arg)
{
	struct attempt *attempt = arg;
	int before;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	before = exchange(attempt->thread_mode);
	attempt->result = attempt->action->run();
	attempt->mode_after = exchange(before);
	return NULL;
}

static void attempt_in_another_thread(struct attempt *a)
{
	pthread_t thread;

	pthread_create(&thread, NULL, attempt, a);
	pthread_join(thread, NULL);
}

static int replay(CUgraph graph)
{
	CUgraphExec exec;

	APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_MUST(cuMemsetD32Async(target, 0, bytes / 4, stream));
	APP_MUST(cuGraphLaunch(exec, stream));
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(graph));
	return (int)app_count_wrong(stream, target, bytes, 42);
}

static void capture(int mode, bool is_own, struct attempt *a)
{
	CUgraph graph = NULL;
	CUresult end;
	int wrong = -1;

	if (a->action->run == do_many)
		warm_up_small();
	warm_up();
	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
	app_fill(stream, target, bytes / 2, 42);
	if (is_own)
		attempt(a);
	else
		attempt_in_another_thread(a);
	/* Fails if the capture was destroyed. */
	(void)cuMemsetD32Async(target + bytes / 2, 42, bytes / 8, stream);
	end = cuStreamEndCapture(stream, &graph);
	if (!end)
		wrong = replay(graph);
	cool_down();
	printf("%s by %s thread, %s, %s: %d, mode %s, end %d, wrong words %d\n", mode_names[mode],
		is_own ? "its own" : "another", mode_names[a->thread_mode], a->action->name, a->result,
		a->mode_after == a->thread_mode ? "kept" : "CHANGED", end, wrong);
}

static bool is_refused(int mode, bool is_own, int thread_mode)
{
	if (thread_mode == RELAXED)
		return false;
	return is_own ? mode != RELAXED : mode == GLOBAL && thread_mode == GLOBAL;
}

static void each_mode(const struct action *actions, size_t n, bool wants_refused, bool wants_allowed)
{
	app_start();
	stream = app_stream();
	other = app_stream();
	target = app_alloc(bytes);
	/* The first launch of a kernel may load it, which no capture allows. */
	app_fill(stream, target, bytes, 0);
	for (unsigned i = 0; i < 18 * n; i++) {
		int mode = (int)(i / 3 % 3), thread_mode = (int)(i % 3);
		bool is_own = i / 9 % 2 == 0, refused = is_refused(mode, is_own, thread_mode);
		struct attempt a = {.action = &actions[i / 18], .thread_mode = thread_mode};

		if (refused ? wants_refused : wants_allowed)
			capture(mode, is_own, &a);
	}
	/* Calls still work, and none returns an error left from a capture. */
	app_result("free", cuMemFree_v2(block));
	app_result("pinned free", cuMemFreeHost(pinned_block));
	app_result("end", cuCtxSynchronize());
}

static void allowed(void)
{
	each_mode(served, LENGTH(served), false, true);
}

static void refused(void)
{
	each_mode(served, LENGTH(served), true, false);
}

static void passed_on(void)
{
	each_mode(passed, LENGTH(passed), true, true);
}

static void many_allowed(void)
{
	each_mode(many, LENGTH(many), false, true);
}

static void many_refused(void)
{
	each_mode(many, LENGTH(many), true, false);
}

const struct app_scenario app_scenarios[] = {
	{"allowed", allowed},
	{"refused", refused},
	{"passed-on", passed_on},
	{"many-allowed", many_allowed},
	{"many-refused", many_refused},
	{0},
};
