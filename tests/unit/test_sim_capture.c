/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Calls that disturb a stream capture, in every mode of the capture and of the calling thread. */

#include <pthread.h>

#include "test_sim.h"

#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED
#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

static CUevent event;
static CUdeviceptr block;
static CUstream other;
static void *pinned;

static CUresult record(void)
{
	return cuCtxRecordEvent(test_ctx, event);
}

static CUresult wait_event(void)
{
	return cuCtxWaitEvent(test_ctx, event);
}

static CUresult synchronize(void)
{
	return cuCtxSynchronize();
}

static CUresult query_event(void)
{
	return cuEventQuery(event);
}

static CUresult query_stream(void)
{
	return cuStreamQuery(other);
}

static CUresult alloc(void)
{
	CUdeviceptr ptr;

	return cuMemAlloc_v2(&ptr, MIB);
}

static CUresult free_block(void)
{
	return cuMemFree_v2(block);
}

static CUresult free_async(void)
{
	return cuMemFreeAsync(block, other);
}

static CUresult alloc_pinned(void)
{
	void *ptr;

	return cuMemHostAlloc(&ptr, 4096, 0);
}

static CUresult free_pinned(void)
{
	return cuMemFreeHost(pinned);
}

static CUresult copy(void)
{
	uint32_t word = 0;

	return cuMemcpyHtoD_v2(block, &word, sizeof(word));
}

static CUresult load_module(void)
{
	CUmodule module;

	return cuModuleLoadData(&module, kernels_ptx);
}

static CUresult trim_pool(void)
{
	CUmemoryPool pool;

	ok(cuDeviceGetDefaultMemPool(&pool, 0));
	return cuMemPoolTrimTo(pool, 0);
}

static CUresult record_elsewhere(void)
{
	return cuEventRecord(event, other);
}

static CUresult launch_elsewhere(void)
{
	return test_spin(other, MS);
}

static CUresult is_capturing(void)
{
	int status;

	return cuStreamIsCapturing(other, &status);
}

/* The effect of a call on captures. */
enum capture_effect { HARMLESS, UNSAFE, CONFLICTS };

static const struct {
	CUresult (*call)(void);
	const char *name;
	enum capture_effect capture_effect;
} calls[] = {
	{record, "cuCtxRecordEvent", CONFLICTS},
	{wait_event, "cuCtxWaitEvent", CONFLICTS},
	{synchronize, "cuCtxSynchronize", CONFLICTS},
	{query_event, "cuEventQuery", UNSAFE},
	{query_stream, "cuStreamQuery", UNSAFE},
	{alloc, "cuMemAlloc", UNSAFE},
	{free_block, "cuMemFree", UNSAFE},
	{free_async, "cuMemFreeAsync", UNSAFE},
	{alloc_pinned, "cuMemHostAlloc", UNSAFE},
	{free_pinned, "cuMemFreeHost", UNSAFE},
	{copy, "cuMemcpyHtoD", HARMLESS},
	{load_module, "cuModuleLoadData", HARMLESS},
	{trim_pool, "cuMemPoolTrimTo", UNSAFE},
	{record_elsewhere, "cuEventRecord", HARMLESS},
	{launch_elsewhere, "cuLaunchKernel", HARMLESS},
	{is_capturing, "cuStreamIsCapturing", HARMLESS},
};
#define N_CALLS (int)(sizeof(calls) / sizeof(*calls))

struct attempt {
	int call, thread_mode;
	CUresult result;
};

static void *make_call(void *arg)
{
	struct attempt *attempt = arg;
	int mode = attempt->thread_mode;

	ok(cuCtxSetCurrent(test_ctx));
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	attempt->result = calls[attempt->call].call();
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	return NULL;
}

static bool is_refused(enum capture_effect capture_effect, int capture_mode, int thread_mode, bool own_thread)
{
	if (capture_effect != UNSAFE)
		return capture_effect == CONFLICTS;
	if (thread_mode == RELAXED)
		return false;
	return own_thread ? capture_mode != RELAXED : capture_mode == GLOBAL && thread_mode == GLOBAL;
}

START_TEST(each_call_is_refused_and_invalidates_the_capture_as_the_modes_say)
{
	int capture_mode = _i / 3 % 3;
	bool own_thread = _i / 9 % 2, refused;
	struct attempt attempt = {.call = _i / 18, .thread_mode = _i % 3};
	CUgraph graph;
	CUstream stream;
	pthread_t thread;

	test_start();
	event = test_event();
	block = test_alloc(4 * MIB);
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	other = test_stream(CU_STREAM_NON_BLOCKING);
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, capture_mode));
	if (own_thread) {
		make_call(&attempt);
	} else {
		pthread_create(&thread, NULL, make_call, &attempt);
		pthread_join(thread, NULL);
	}
	refused = is_refused(calls[attempt.call].capture_effect, capture_mode, attempt.thread_mode, own_thread);
	ck_assert_msg(attempt.result == (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS),
		"%s: got result %d", calls[attempt.call].name, attempt.result);
	fails(cuStreamEndCapture(stream, &graph), refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
	ck_assert_int_eq(graph == NULL, refused);
	ok(test_spin(stream, 1)); /* the capture has ended in any case */
	ok(cuCtxSynchronize());
}
END_TEST

START_TEST(a_query_or_wait_on_a_capturing_stream_invalidates_its_capture)
{
	CUstream stream;
	CUgraph graph;
	int relaxed = RELAXED, status;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuThreadExchangeStreamCaptureMode(&relaxed));
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	ok(cuStreamIsCapturing(stream, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	fails(_i ? cuStreamQuery(stream) : cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cuStreamIsCapturing(stream, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_launch_on_the_legacy_stream_invalidates_a_blocking_streams_capture)
{
	CUstream stream;
	CUgraph graph;
	int status;

	test_start();
	stream = test_stream(0);
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	fails(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	fails(test_spin(NULL, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_captured_graph_has_no_effect_before_its_launch)
{
	CUdeviceptr data;
	CUstream stream;
	CUgraphExec exec;
	CUgraph graph;

	test_start();
	data = test_alloc(4096);
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, GLOBAL));
	ok(test_fill(stream, data, 1, 1));
	ok(cuMemsetD32Async(data + 4, 2, 1, stream));
	ok(cuStreamEndCapture(stream, &graph));
	ck_assert_uint_eq(test_word(data), 0);
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	ok(cuGraphLaunch(exec, stream));
	ck_assert_uint_eq(test_word(data), 1);
	ck_assert_uint_eq(test_word(data + 4), 2);
	ok(cuGraphExecDestroy(exec));
	fails(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_stream_that_joined_a_capture_by_an_event_must_rejoin_its_origin)
{
	CUstream origin, joined;
	bool comes_back = _i;
	CUgraph graph;
	CUevent back;

	test_start();
	event = test_event();
	back = test_event();
	origin = test_stream(CU_STREAM_NON_BLOCKING);
	joined = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(origin, GLOBAL));
	ok(cuEventRecord(event, origin));
	ok(cuStreamWaitEvent(joined, event, 0));
	ok(test_spin(joined, 1));
	ok(cuEventRecord(back, joined));
	if (comes_back)
		ok(cuStreamWaitEvent(origin, back, 0));
	fails(cuStreamEndCapture(origin, &graph), comes_back ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ok(cuStreamQuery(joined));
}
END_TEST

START_TEST(a_query_of_a_captured_event_invalidates_the_capture)
{
	CUstream stream;
	CUgraph graph;

	test_start();
	event = test_event();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, GLOBAL));
	ok(cuEventRecord(event, stream));
	fails(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
	fails(cuStreamWaitEvent(test_stream(0), event, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_capture_cannot_wait_for_an_event_outside_it)
{
	CUstream stream;
	CUgraph graph;

	test_start();
	event = test_event();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuEventRecord(event, NULL));
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	fails(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	fails(test_spin(stream, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(each_capture_of_a_stream_has_its_own_id)
{
	uint64_t first = 0, second = 0, untouched = 77;
	CUgraph graph = NULL, ended;
	const CUgraphNode *nodes;
	const void *edges;
	CUstream stream;
	size_t n;
	int status = -1;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamGetCaptureInfo_v3(stream, &status, &untouched, NULL, NULL, NULL, &n));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	ok(cuStreamGetCaptureInfo_v3(stream, &status, &first, &graph, NULL, NULL, NULL));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	fails(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, NULL, NULL, &n), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &nodes, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, NULL, &edges, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cuStreamEndCapture(stream, &ended));
	ck_assert_ptr_eq(ended, graph);
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	ok(cuStreamGetCaptureInfo_v3(stream, &status, &second, NULL, NULL, NULL, NULL));
	ck_assert_uint_ne(first, second);
	fails(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cuStreamGetCaptureInfo_v3(stream, &status, &untouched, NULL, NULL, NULL, NULL));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ck_assert_uint_eq(untouched, 77);
}
END_TEST

START_TEST(a_capture_ends_when_its_first_stream_is_destroyed)
{
	CUdeviceptr ptr;
	CUstream stream;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, GLOBAL));
	ok(cuStreamDestroy_v2(stream));
	ok(cuMemAlloc_v2(&ptr, MIB));
	ok(cuMemFree_v2(ptr));
	ok(cuCtxSynchronize());
}
END_TEST

static void *end_capture(void *stream)
{
	CUgraph graph;

	ok(cuCtxSetCurrent(test_ctx));
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	return NULL;
}

START_TEST(the_begin_and_the_end_of_a_capture_must_match)
{
	CUstream stream;
	pthread_t thread;
	CUgraph graph;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	fails(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	fails(cuStreamBeginCapture_v2(NULL, RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cuStreamBeginCapture_v2(stream, LOCAL));
	fails(cuStreamBeginCapture_v2(stream, LOCAL), CUDA_ERROR_ILLEGAL_STATE);
	pthread_create(&thread, NULL, end_capture, stream);
	pthread_join(thread, NULL);
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuGraphDestroy(graph));
	ok(cuGraphCreate(&graph, 0));
	ok(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, GLOBAL));
	ok(test_spin(stream, 1));
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuGraphDestroy(graph));
}
END_TEST

START_TEST(memory_of_a_graph_lives_as_long_as_the_graph)
{
	CUdeviceptr inside, outside;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;
	CUmemoryPool pool;
	uint64_t used;

	test_start();
	outside = test_alloc(4096);
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, GLOBAL));
	fails(cuMemFreeAsync(outside, stream), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAllocAsync(&inside, 4096, stream));
	ok(test_fill(stream, inside, 1, 1));
	ok(cuMemFreeAsync(inside, stream));
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphLaunch(exec, stream));
	if (_i)
		ok(cuGraphDestroy(graph));
	ok(cuGraphLaunch(exec, stream));
	ok(cuStreamSynchronize(stream));
	ok(cuGraphExecDestroy(exec));
	if (!_i)
		ok(cuGraphDestroy(graph));
	ok(cuDeviceGetDefaultMemPool(&pool, 0));
	ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 0);
}
END_TEST

static unsigned n_destroyed;
static CUresult inside_destructor;

static void count_destroyed(void *arg)
{
	CUdeviceptr ptr;

	n_destroyed++;
	inside_destructor = cuMemAlloc_v2(&ptr, 4096);
}

START_TEST(a_user_object_lives_as_long_as_its_graph_and_all_clones_and_executables)
{
	CUgraph graph, clone;
	CUgraphExec exec[2];
	CUuserObject object;
	CUstream stream;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, RELAXED));
	ok(test_spin(stream, 1));
	ok(cuStreamEndCapture(stream, &graph));
	fails(cuUserObjectCreate(&object, NULL, count_destroyed, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuUserObjectCreate(&object, NULL, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	fails(cuGraphRetainUserObject(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE), CUDA_ERROR_INVALID_VALUE);
	ok(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	ok(cuGraphClone(&clone, graph));
	ok(cuGraphInstantiateWithFlags(&exec[0], graph, 0));
	ok(cuGraphInstantiateWithFlags(&exec[1], clone, 0));
	ok(cuGraphDestroy(graph));
	ok(cuGraphExecDestroy(exec[1]));
	ok(cuGraphDestroy(clone));
	ck_assert_uint_eq(n_destroyed, 0);
	ok(cuGraphExecDestroy(exec[0]));
	ck_assert_uint_eq(n_destroyed, 1);
	ck_assert_int_eq(inside_destructor, CUDA_ERROR_NOT_PERMITTED);
	fails(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_graph_can_give_up_a_user_object)
{
	CUuserObject object;
	CUgraph graph;

	test_start();
	ok(cuGraphCreate(&graph, 0));
	ok(cuUserObjectCreate(&object, NULL, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ok(cuUserObjectRetain(object, 1));
	ok(cuGraphRetainUserObject(graph, object, 1, 0));
	ok(cuUserObjectRelease(object, 2));
	ck_assert_uint_eq(n_destroyed, 0);
	ok(cuGraphReleaseUserObject(graph, object, 1));
	ck_assert_uint_eq(n_destroyed, 1);
	ok(cuGraphDestroy(graph));
	ck_assert_uint_eq(n_destroyed, 1);
}
END_TEST

static TCase *capture_cases(void)
{
	TCase *tc = tcase_create("captures");

	tcase_add_loop_test(tc, each_call_is_refused_and_invalidates_the_capture_as_the_modes_say, 0, N_CALLS * 18);
	tcase_add_loop_test(tc, a_query_or_wait_on_a_capturing_stream_invalidates_its_capture, 0, 2);
	tcase_add_test(tc, a_launch_on_the_legacy_stream_invalidates_a_blocking_streams_capture);
	tcase_add_test(tc, a_captured_graph_has_no_effect_before_its_launch);
	tcase_add_loop_test(tc, a_stream_that_joined_a_capture_by_an_event_must_rejoin_its_origin, 0, 2);
	tcase_add_test(tc, a_query_of_a_captured_event_invalidates_the_capture);
	tcase_add_test(tc, a_capture_cannot_wait_for_an_event_outside_it);
	tcase_add_test(tc, each_capture_of_a_stream_has_its_own_id);
	tcase_add_test(tc, a_capture_ends_when_its_first_stream_is_destroyed);
	tcase_add_test(tc, the_begin_and_the_end_of_a_capture_must_match);
	tcase_add_test(tc, a_user_object_lives_as_long_as_its_graph_and_all_clones_and_executables);
	tcase_add_test(tc, a_graph_can_give_up_a_user_object);
	tcase_add_loop_test(tc, memory_of_a_graph_lives_as_long_as_the_graph, 0, 2);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {capture_cases};

	return test_run("simulated GPU: captures", cases, sizeof(cases) / sizeof(*cases));
}
