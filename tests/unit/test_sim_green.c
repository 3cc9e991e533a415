/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Green contexts, as an H200 showed them to be (tests/gpu/green_probe.c). */

#include "test_sim.h"

enum { PRIMARY, GREEN_A, GREEN_B, N_PLACES };

static struct place {
	CUgreenCtx green;
	CUcontext ctx;
	CUstream stream;
} places[N_PLACES];

static CUgreenCtx make_green(unsigned sms)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	unsigned n = 1;

	ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	ok(cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, sms));
	ok(cuDevResourceGenerateDesc(&desc, &part, 1));
	ok(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static void start(void)
{
	test_start();
	places[PRIMARY] = (struct place){NULL, test_ctx, test_stream(CU_STREAM_NON_BLOCKING)};
	for (int i = GREEN_A; i <= GREEN_B; i++) {
		places[i].green = make_green(16);
		ok(cuCtxFromGreenCtx(&places[i].ctx, places[i].green));
		ok(cuGreenCtxStreamCreate(
			&places[i].stream, places[i].green, CU_STREAM_NON_BLOCKING, 0));
	}
}

START_TEST(a_share_of_the_processors_comes_in_units)
{
	CUdevResource all, groups[3], rest;
	unsigned n = 0;

	start();
	ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	ok(cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, 20));
	ck_assert_uint_eq(n, all.sm.smCount / 24);
	n = 3;
	ok(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 20));
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(groups[2].sm.smCount, 24);
	ck_assert_uint_eq(rest.sm.smCount, all.sm.smCount - 72);
	fails(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 1000),
		CUDA_ERROR_INVALID_VALUE);
	fails(cuDeviceGetDevResource(0, &all, 7), CUDA_ERROR_INVALID_RESOURCE_TYPE);
	ok(cuGreenCtxGetDevResource(places[GREEN_A].green, &all, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(all.sm.smCount, 16);
	ok(cuCtxGetDevResource(places[GREEN_B].ctx, &all, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(all.sm.smCount, 16);
}
END_TEST

START_TEST(a_green_context_has_a_name_of_its_own)
{
	unsigned long long ids[N_PLACES], id;
	CUgreenCtx green;
	CUcontext ctx;

	start();
	for (int i = 0; i < N_PLACES; i++) {
		ok(cuCtxSetCurrent(places[i].ctx));
		ok(cuCtxGetCurrent(&ctx));
		ck_assert_ptr_eq(ctx, places[i].ctx);
		ok(cuCtxGetId(ctx, &ids[i]));
		ok(cuCtxGetId(NULL, &id));
		ck_assert_uint_eq(id, ids[i]);
		ok(cuStreamGetCtx(places[i].stream, &ctx));
		ck_assert_ptr_eq(ctx, places[i].ctx);
		ok(cuStreamGetGreenCtx(NULL, &green));
		ck_assert_ptr_eq(green, places[i].green);
	}
	ck_assert(ids[PRIMARY] != ids[GREEN_A] && ids[GREEN_A] != ids[GREEN_B]);
	ok(cuGreenCtxGetId(places[GREEN_A].green, &id));
	ck_assert_uint_eq(id, ids[GREEN_A]);
	fails(cuCtxSetCurrent((CUcontext)places[GREEN_A].green), CUDA_ERROR_INVALID_CONTEXT);
	fails(cuCtxDestroy_v2(places[GREEN_A].ctx), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(all_memory_is_the_primary_contexts)
{
	CUdeviceptr ptr;
	CUcontext owner;

	start();
	ok(cuCtxSetCurrent(places[_i].ctx));
	ptr = test_alloc(4 * MIB);
	ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_eq(owner, test_ctx);
	ok(cuCtxSetCurrent(places[(_i + 1) % N_PLACES].ctx));
	ok(cuMemFree_v2(ptr));
}
END_TEST

static CUresult record(int place, CUevent event)
{
	if (place == PRIMARY)
		return cuCtxRecordEvent(test_ctx, event);
	return cuGreenCtxRecordEvent(places[place].green, event);
}

/* What is asked of the primary context is asked of all. */
static bool is_meant(int place, int other)
{
	return place == PRIMARY || place == other;
}

START_TEST(a_record_covers_its_own_work_and_the_primarys_covers_all)
{
	int place = _i / N_PLACES, busy = _i % N_PLACES;
	CUevent event;

	start();
	event = test_event();
	ok(test_spin(places[busy].stream, MS));
	ok(record(place, event));
	fails(cuEventQuery(event), is_meant(place, busy) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
END_TEST

START_TEST(a_wait_orders_its_own_work_and_the_primarys_orders_all)
{
	int place = _i / N_PLACES, later = _i % N_PLACES;
	CUevent event, end;

	start();
	event = test_event();
	end = test_event();
	ok(test_spin(places[GREEN_B].stream, MS));
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(cuCtxWaitEvent(places[place].ctx, event));
	ok(cuCtxSetCurrent(places[later].ctx));
	ok(test_spin(NULL, 1));
	ok(cuEventRecord(end, NULL));
	ok(cuMemAllocHost_v2(&(void *){NULL}, 64)); /* lets the time of that kernel pass */
	fails(cuEventQuery(end), is_meant(place, later) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
END_TEST

START_TEST(a_free_waits_for_all_and_a_synchronisation_for_its_own)
{
	CUdeviceptr ptr;

	start();
	ptr = test_alloc(4 * MIB);
	ok(test_spin(places[GREEN_A].stream, MS));
	ok(cuCtxSetCurrent(places[GREEN_B].ctx));
	ok(cuCtxSynchronize());
	fails(cuStreamQuery(places[GREEN_A].stream), CUDA_ERROR_NOT_READY);
	ok(cuMemFree_v2(ptr));
	ok(cuStreamQuery(places[GREEN_A].stream));
	ok(test_spin(places[GREEN_A].stream, MS));
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuCtxSynchronize());
	ok(cuStreamQuery(places[GREEN_A].stream));
}
END_TEST

START_TEST(captures_disturb_their_own_green_context_only)
{
	int place = _i / N_PLACES, capturing = _i % N_PLACES;
	bool conflicts = place == capturing;
	CUgraph graph;

	start();
	ok(cuStreamBeginCapture_v2(places[capturing].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	fails(record(place, test_event()),
		conflicts ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
	fails(cuStreamEndCapture(places[capturing].stream, &graph),
		conflicts ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}
END_TEST

START_TEST(a_green_context_ends_without_waiting_and_leaves_its_memory)
{
	CUdeviceptr ptr;
	CUevent event;

	start();
	event = test_event();
	ok(cuCtxSetCurrent(places[GREEN_A].ctx));
	ptr = test_alloc(4 * MIB);
	ok(test_spin(places[GREEN_A].stream, MS));
	ok(cuGreenCtxDestroy(places[GREEN_A].green));
	ok(cuCtxRecordEvent(test_ctx, event));
	fails(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	fails(cuMemAlloc_v2(&(CUdeviceptr){0}, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuStreamQuery(places[GREEN_A].stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuGreenCtxDestroy(places[GREEN_A].green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuMemFree_v2(ptr));
	ok(cuEventQuery(event));
}
END_TEST

START_TEST(green_contexts_keep_the_primary_one)
{
	unsigned flags;
	int active;

	start();
	fails(cuDevicePrimaryCtxReset_v2(0), CUDA_ERROR_NOT_PERMITTED);
	ok(cuDevicePrimaryCtxRelease_v2(0));
	ok(cuGreenCtxDestroy(places[GREEN_B].green));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ok(cuGreenCtxDestroy(places[GREEN_A].green));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	ck_assert_uint_eq(simgpu_allocated_bytes(0), 0);
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuDevicePrimaryCtxReset_v2(0));
}
END_TEST

static TCase *cases(void)
{
	TCase *tc = tcase_create("green contexts");

	tcase_add_test(tc, a_share_of_the_processors_comes_in_units);
	tcase_add_test(tc, a_green_context_has_a_name_of_its_own);
	tcase_add_loop_test(tc, all_memory_is_the_primary_contexts, 0, N_PLACES);
	tcase_add_loop_test(tc, a_record_covers_its_own_work_and_the_primarys_covers_all, 0,
		N_PLACES * N_PLACES);
	tcase_add_loop_test(
		tc, a_wait_orders_its_own_work_and_the_primarys_orders_all, 0, 2 * N_PLACES);
	tcase_add_test(tc, a_free_waits_for_all_and_a_synchronisation_for_its_own);
	tcase_add_loop_test(
		tc, captures_disturb_their_own_green_context_only, 0, N_PLACES * N_PLACES);
	tcase_add_test(tc, a_green_context_ends_without_waiting_and_leaves_its_memory);
	tcase_add_test(tc, green_contexts_keep_the_primary_one);
	return tc;
}

int main(void)
{
	static TCase *(*const all[])(void) = {cases};

	return test_run("simulated GPU: green contexts", all, sizeof(all) / sizeof(*all));
}
