/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Some threads capture while others allocate and free, in modes in which the driver alone allows it. No capture is ever
 * destroyed, although the library records fences meanwhile (T5.3).
 */

#include <pthread.h>

#include "captures.h"

enum { CAPTURES = 300, PAIRS = 200, LIVE = 4 };

static const size_t bytes = 256 * KIB;
static CUstream work;

/* Each of two threads continues when the other has reached the same point. */
static pthread_barrier_t barrier;

static void meet(void)
{
	pthread_barrier_wait(&barrier);
}

static void start(CUcontext ctx)
{
	APP_MUST(cuCtxSetCurrent(ctx));
	exchange(RELAXED);
}

/* Allocates and frees memory that the GPU works on: every free records a fence, unless a capture forbids it. */
static void churn(unsigned pairs, CUstream stream)
{
	for (unsigned i = 0; i < pairs; i++) {
		CUdeviceptr ptr[LIVE];
		void *host;

		for (unsigned k = 0; k < LIVE; k++) {
			ptr[k] = app_alloc(bytes);
			APP_MUST(cuMemsetD32Async(ptr[k], i, 64, stream));
		}
		for (unsigned k = 0; k < LIVE; k++)
			APP_MUST(cuMemFree_v2(ptr[k]));
		if (i % 16 == 0) {
			APP_MUST(cuMemHostAlloc(&host, bytes, 0));
			APP_MUST(cuMemFreeHost(host));
		}
	}
}

/* One thread captures repeatedly while another allocates and frees, both as fast as they can. */
static _Atomic bool is_over;
static int churn_mode = RELAXED; /* the other thread's capture mode */

static void *churn_until_over(void *ctx)
{
	CUstream stream;

	start(ctx);
	exchange(churn_mode);
	stream = app_stream();
	do
		churn(1, stream);
	while (!is_over);
	return NULL;
}

/* Captures a small graph. Returns the result of ending the capture. */
static CUresult capture(CUstream stream, int mode, CUdeviceptr target)
{
	CUgraph graph;
	CUresult r;

	APP_MUST(cuStreamBeginCapture_v2(stream, mode));
	(void)cuMemsetD32Async(target, 42, 16, stream);
	r = cuStreamEndCapture(stream, &graph);
	if (!r)
		APP_MUST(cuGraphDestroy(graph));
	return r;
}

static void race_against(CUcontext other, int first_mode)
{
	CUdeviceptr target;
	CUstream stream;

	stream = app_stream();
	target = app_alloc(bytes);
	for (int mode = first_mode; mode <= RELAXED; mode++) {
		unsigned destroyed = 0;
		pthread_t thread;

		is_over = false;
		pthread_create(&thread, NULL, churn_until_over, other);
		for (unsigned i = 0; i < CAPTURES; i++)
			destroyed += capture(stream, mode, target) != CUDA_SUCCESS;
		is_over = true;
		pthread_join(thread, NULL);
		app_say(mode_names[mode], "%u destroyed captures", destroyed);
	}
	check_reuse_after("a race");
}

static void race(void)
{
	app_start();
	race_against(app_ctx, GLOBAL);
}

/* The other thread keeps the initial mode of threads: only a global capture would forbid its calls. */
static void race_of_modes(void)
{
	churn_mode = GLOBAL;
	app_start();
	race_against(app_ctx, LOCAL);
}

/* The other thread frees in a second context, which the captures do not touch. */
static void race_of_contexts(void)
{
	CUcontext second;

	app_start();
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	race_against(second, GLOBAL);
}

/*
 * Two threads capture on their per-thread streams, which have the same handle. When one thread has ended its capture,
 * the other's capture continues, and the library may not record a fence yet.
 */
static bool is_named;

static CUresult begin_own(void)
{
	return is_named ? cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED)
			: cuStreamBeginCapture_v2_ptsz(NULL, RELAXED);
}

static CUresult end_own(CUgraph *graph)
{
	return is_named ? cuStreamEndCapture(CU_STREAM_PER_THREAD, graph) : cuStreamEndCapture_ptsz(NULL, graph);
}

static void *capture_for_long(void *target)
{
	CUgraph graph = NULL;
	CUresult r;

	start(app_ctx);
	r = begin_own();
	meet(); /* this thread captures */
	meet(); /* the other thread has begun and ended its capture */
	meet(); /* the other thread has allocated and freed */
	(void)cuMemsetD32Async(*(CUdeviceptr *)target, 42, 16, CU_STREAM_PER_THREAD);
	app_say("the long capture", "begin %d, end %d", r, end_own(&graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	return NULL;
}

static void own_streams(void)
{
	CUdeviceptr target;
	CUstream stream;

	app_start();
	start(app_ctx);
	stream = app_stream();
	target = app_alloc(bytes);
	pthread_barrier_init(&barrier, NULL, 2);
	for (int i = 0; i < 2; i++) {
		CUgraph graph = NULL;
		pthread_t thread;
		CUresult r;

		is_named = i == 1;
		pthread_create(&thread, NULL, capture_for_long, &target);
		meet();
		r = begin_own();
		app_say("the short capture", "begin %d, end %d", r, end_own(&graph));
		if (graph)
			APP_MUST(cuGraphDestroy(graph));
		meet();
		/* Long enough for gpupool to query if the captures that forbid its fences still exist. */
		churn(PAIRS, stream);
		meet();
		pthread_join(thread, NULL);
		check_reuse_after("two threads' own streams");
	}
}

/* On a per-thread stream that captures, cuMemFreeAsync and cuMemAllocAsync go to the graph, not to the pool. */
static void own_stream_frees(void)
{
	CUdeviceptr ptr, node = 0;
	CUgraph graph = NULL;

	app_start();
	ptr = app_alloc(bytes);
	APP_MUST(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL));
	app_result("cuMemAllocAsync", cuMemAllocAsync_ptsz(&node, bytes, NULL));
	app_result("cuMemFreeAsync of it", cuMemFreeAsync_ptsz(node, NULL));
	app_result("end", cuStreamEndCapture_ptsz(NULL, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	graph = NULL;
	APP_MUST(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL));
	app_result("cuMemFreeAsync of other memory", cuMemFreeAsync_ptsz(ptr, NULL));
	app_result("end", cuStreamEndCapture_ptsz(NULL, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	app_result("cuMemFree of it", cuMemFree_v2(ptr));
	check_reuse_after("frees on the thread's own stream");
}

/* A stream of a second context joins a capture; then a thread frees in the second context during another capture. */
static CUcontext second;

static void *churn_in_second(void *unused)
{
	start(second);
	churn(PAIRS, work);
	return NULL;
}

static void two_contexts(void)
{
	CUstream stream, other;
	CUgraph graph = NULL;
	CUdeviceptr target;
	pthread_t thread;
	CUevent event;

	app_start();
	start(app_ctx);
	stream = app_stream();
	target = app_alloc(bytes);
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	other = app_stream();
	work = NULL;
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuStreamBeginCapture_v2(stream, RELAXED));
	(void)cuMemsetD32Async(target, 42, 16, stream);
	APP_MUST(cuEventRecord(event, stream));
	app_result("a stream of the second context joins", cuStreamWaitEvent(other, event, 0));
	app_result("end of that", cuStreamEndCapture(stream, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	graph = NULL;
	APP_MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
	(void)cuMemsetD32Async(target, 42, 16, stream);
	pthread_create(&thread, NULL, churn_in_second, NULL);
	pthread_join(thread, NULL);
	app_result("end", cuStreamEndCapture(stream, &graph));
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
	check_reuse_after("two contexts");
}

/* Frees a block of one context while another is current and a stream of each is capturing. */
static void across(void)
{
	CUstream streams[2];
	CUdeviceptr ptr[2];
	CUgraph graph;

	app_start();
	start(app_ctx);
	for (int i = 0; i < 2; i++) {
		ptr[i] = app_alloc(bytes);
		streams[i] = app_stream();
		if (i == 0)
			APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	}
	for (int i = 0; i < 2; i++)
		APP_MUST(cuStreamBeginCapture_v2(streams[i], RELAXED));
	for (int i = 0; i < 2; i++) {
		APP_MUST(cuCtxSetCurrent(i == 0 ? second : app_ctx));
		app_result("free", cuMemFree_v2(ptr[i]));
	}
	for (int i = 0; i < 2; i++) {
		app_result("end", cuStreamEndCapture(streams[i], &graph));
		APP_MUST(cuGraphDestroy(graph));
	}
	check_reuse_after("captures in two contexts");
}

const struct app_scenario app_scenarios[] = {
	{"race", race},
	{"race-of-modes", race_of_modes},
	{"race-of-contexts", race_of_contexts},
	{"own-streams", own_streams},
	{"own-stream-frees", own_stream_frees},
	{"two-contexts", two_contexts},
	{"across", across},
	{0},
};
