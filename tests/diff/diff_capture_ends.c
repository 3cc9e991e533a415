/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Captures that end badly, or never (T5.4): the results of the calls, and a check that memory and fences work
 * afterwards. Modes are relaxed unless a scenario says otherwise, so that the driver alone would allocate and free too.
 */

#include <pthread.h>

#include "captures.h"

static CUgraph graph;

/* Begins a capture after some memory was freed. Returns a block to be freed during the capture. */
static CUdeviceptr begin(CUstream stream, int mode)
{
	CUdeviceptr ptr = app_alloc(MIB);

	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
	app_spin(stream, 1000);
	return ptr;
}

static void free_relaxed(CUdeviceptr ptr)
{
	int mode = exchange(RELAXED);

	app_result("free during the capture", cuMemFree_v2(ptr));
	exchange(mode);
}

static void no_begin(void)
{
	app_start();
	graph = NULL;
	app_result("end", cuStreamEndCapture(app_stream(), &graph));
	app_result("end of the legacy stream", cuStreamEndCapture(NULL, &graph));
	check_reuse_after("no begin");
}

static void begin_twice(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	free_relaxed(begin(stream, GLOBAL));
	app_result("begin again", cuStreamBeginCapture_v2(stream, GLOBAL));
	app_result("begin of the legacy stream", cuStreamBeginCapture_v2(NULL, GLOBAL));
	app_result("begin in no mode", cuStreamBeginCapture_v2(app_stream(), 7));
	app_result("end", cuStreamEndCapture(stream, &graph));
	APP_MUST(cuGraphDestroy(graph));
	check_reuse_after("two begins");
}

static CUstream join(CUstream stream)
{
	CUstream joined = app_stream();
	CUevent event;

	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuEventRecord(event, stream));
	APP_MUST(cuStreamWaitEvent(joined, event, 0));
	app_spin(joined, 1000);
	APP_MUST(cuEventDestroy_v2(event));
	return joined;
}

static void unjoined(void)
{
	CUstream stream, joined;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = begin(stream, RELAXED);
	joined = join(stream);
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_result("end again", cuStreamEndCapture(stream, &graph));
	app_result("the joined stream", cuStreamQuery(joined));
	check_reuse_after("unjoined");
}

static void unmatched(void)
{
	CUstream stream, joined;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = begin(stream, RELAXED);
	joined = join(stream);
	free_relaxed(ptr);
	app_result("end on the joined stream", cuStreamEndCapture(joined, &graph));
	app_result("end", cuStreamEndCapture(stream, &graph));
	check_reuse_after("unmatched");
}

/* Destroys the joined stream, and then the capturing stream. */
static void destroyed(void)
{
	CUstream stream, joined;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = begin(stream, RELAXED);
	joined = join(stream);
	app_result("destroy the joined stream", cuStreamDestroy_v2(joined));
	free_relaxed(ptr);
	app_result("destroy the first stream", cuStreamDestroy_v2(stream));
	check_reuse_after("destroy");
}

static void destroyed_global(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	free_relaxed(begin(stream, GLOBAL));
	app_result("destroy", cuStreamDestroy_v2(stream));
	check_reuse_after("destroy in global mode");
}

static void *end_elsewhere(void *stream)
{
	CUgraph none = NULL;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("end by another thread", cuStreamEndCapture(stream, &none));
	return NULL;
}

static void wrong_thread(void)
{
	app_start();
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		CUstream stream = app_stream();
		CUdeviceptr ptr = begin(stream, mode);
		pthread_t thread;

		printf("mode: %s\n", mode_names[mode]);
		pthread_create(&thread, NULL, end_elsewhere, stream);
		pthread_join(thread, NULL);
		free_relaxed(ptr);
		app_result("end", cuStreamEndCapture(stream, &graph));
		check_reuse_after("the wrong thread");
	}
}

static int begin_mode;

static void *begin_and_leave(void *stream)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuStreamBeginCapture_v2(stream, begin_mode));
	app_spin(stream, 1000);
	return NULL;
}

/* The thread that began the capture has ended: another thread can end the capture only in relaxed mode. */
static void thread_gone(void)
{
	app_start();
	for (begin_mode = GLOBAL; begin_mode <= RELAXED; begin_mode++) {
		CUdeviceptr ptr = app_alloc(MIB);
		CUstream stream = app_stream();
		pthread_t thread;

		printf("mode: %s\n", mode_names[begin_mode]);
		app_spin(stream, 1000);
		pthread_create(&thread, NULL, begin_and_leave, stream);
		pthread_join(thread, NULL);
		free_relaxed(ptr);
		app_result("end", cuStreamEndCapture(stream, &graph));
		app_result("destroy", cuStreamDestroy_v2(stream));
		check_reuse_after("a thread that ended");
	}
}

static void *begin_own_and_leave(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("begin", cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED));
	return NULL;
}

/* The thread that began the capture has ended, and no other thread can name its per-thread stream. */
static void thread_gone_with_its_stream(void)
{
	pthread_t thread;
	CUdeviceptr ptr;

	app_start();
	ptr = app_alloc(MIB);
	pthread_create(&thread, NULL, begin_own_and_leave, NULL);
	pthread_join(thread, NULL);
	free_relaxed(ptr);
	check_reuse_after("a thread that ended with its stream");
}

static void invalidated(void)
{
	CUdeviceptr ptr;
	CUstream stream;
	CUevent event;

	app_start();
	stream = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ptr = begin(stream, GLOBAL);
	app_result("synchronize", cuStreamSynchronize(stream));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	ptr = begin(stream, GLOBAL);
	APP_MUST(cuEventRecord(event, stream));
	app_result("query of a captured event", cuEventQuery(event));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	ptr = begin(stream, RELAXED);
	app_result("synchronize the context", cuCtxSynchronize());
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	check_reuse_after("invalidation");
}

static void isolated(void)
{
	CUstream stream, second;
	CUdeviceptr ptr;
	CUevent event;

	app_start();
	stream = app_stream();
	second = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuEventRecord(event, second));
	ptr = begin(stream, RELAXED);
	app_result("wait for an event outside", cuStreamWaitEvent(stream, event, 0));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	ptr = begin(stream, RELAXED);
	APP_MUST(cuStreamBeginCapture_v2(second, RELAXED));
	APP_MUST(cuEventRecord(event, second));
	app_result("wait for another capture", cuStreamWaitEvent(stream, event, 0));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_result("end of the other capture", cuStreamEndCapture(second, &graph));
	check_reuse_after("a merge");
}

/* The legacy stream, and a blocking stream that is capturing. */
static void implicit(void)
{
	CUdeviceptr ptr;
	CUstream stream;
	int status;

	app_start();
	APP_MUST(cuStreamCreate(&stream, 0));
	ptr = begin(stream, RELAXED);
	app_result("is the legacy stream capturing", cuStreamIsCapturing(NULL, &status));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	ptr = begin(stream, RELAXED);
	app_result("work on the legacy stream", cuMemsetD32Async(ptr, 1, 4, NULL));
	free_relaxed(ptr);
	app_result("end", cuStreamEndCapture(stream, &graph));
	check_reuse_after("the legacy stream");
}

static void no_output_for_the_graph(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	ptr = begin(stream, RELAXED);
	app_result("end without an output", cuStreamEndCapture(stream, NULL));
	app_result("end", cuStreamEndCapture(stream, &graph));
	free_relaxed(ptr);
	check_reuse_after("an end without an output");
}

/* Destroys a context while one of its streams is capturing. The previous context is current again. */
static void context_destroyed(void)
{
	CUcontext ctx;
	CUstream stream;

	app_start();
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		CUdeviceptr ptr;

		printf("mode: %s\n", mode_names[mode]);
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		stream = app_stream();
		ptr = app_alloc(MIB);
		APP_MUST(cuStreamBeginCapture_v2(stream, mode));
		free_relaxed(ptr);
		app_result("destroy", cuCtxDestroy_v2(ctx));
		check_reuse_after("a context that was destroyed");
	}
}

static void primary_reset(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	ptr = begin(stream, GLOBAL);
	free_relaxed(ptr);
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
	app_start();
	check_reuse_after("a reset");
}

static void primary_released(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	free_relaxed(begin(stream, GLOBAL));
	app_result("release", cuDevicePrimaryCtxRelease_v2(0));
	app_start();
	check_reuse_after("a release");
}

const struct app_scenario app_scenarios[] = {
	{"no-begin", no_begin, APP_TOGETHER},
	{"begin-twice", begin_twice, APP_TOGETHER},
	{"unjoined", unjoined, APP_TOGETHER},
	{"unmatched", unmatched},
	{"destroyed", destroyed},
	{"destroyed-global", destroyed_global},
	{"wrong-thread", wrong_thread},
	{"thread-gone", thread_gone},
	{"thread-gone-with-its-stream", thread_gone_with_its_stream},
	{"invalidated", invalidated},
	{"isolated", isolated},
	{"implicit", implicit},
	{"no-output", no_output_for_the_graph},
	{"context-destroyed", context_destroyed},
	{"primary-reset", primary_reset},
	{"primary-released", primary_released},
	{0},
};
