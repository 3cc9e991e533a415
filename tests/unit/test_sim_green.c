/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Green contexts behave as on an H200 (tests/gpu/green_probe.c). */

#include "test_sim.h"

enum { PRIMARY, GREEN_A, GREEN_B, N_CONTEXTS };

static struct context {
	CUgreenCtx green;
	CUcontext ctx;
	CUstream stream;
} contexts[N_CONTEXTS];

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
	contexts[PRIMARY] = (struct context){NULL, test_ctx, test_stream(CU_STREAM_NON_BLOCKING)};
	for (int i = GREEN_A; i <= GREEN_B; i++) {
		contexts[i].green = make_green(16);
		ok(cuCtxFromGreenCtx(&contexts[i].ctx, contexts[i].green));
		ok(cuGreenCtxStreamCreate(&contexts[i].stream, contexts[i].green, CU_STREAM_NON_BLOCKING, 0));
	}
}

START_TEST(multiprocessors_of_a_green_context_come_in_multiples_of_a_unit)
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
	fails(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 1000), CUDA_ERROR_INVALID_VALUE);
	fails(cuDeviceGetDevResource(0, &all, 7), CUDA_ERROR_INVALID_RESOURCE_TYPE);
	ok(cuGreenCtxGetDevResource(contexts[GREEN_A].green, &all, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(all.sm.smCount, 16);
	ok(cuCtxGetDevResource(contexts[GREEN_B].ctx, &all, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(all.sm.smCount, 16);
}
END_TEST

START_TEST(a_green_context_has_its_own_handle_and_id)
{
	unsigned long long ids[N_CONTEXTS], id;
	CUgreenCtx green;
	CUcontext ctx;

	start();
	for (int i = 0; i < N_CONTEXTS; i++) {
		ok(cuCtxSetCurrent(contexts[i].ctx));
		ok(cuCtxGetCurrent(&ctx));
		ck_assert_ptr_eq(ctx, contexts[i].ctx);
		ok(cuCtxGetId(ctx, &ids[i]));
		ok(cuCtxGetId(NULL, &id));
		ck_assert_uint_eq(id, ids[i]);
		ok(cuStreamGetCtx(contexts[i].stream, &ctx));
		ck_assert_ptr_eq(ctx, contexts[i].ctx);
		ok(cuStreamGetGreenCtx(NULL, &green));
		ck_assert_ptr_eq(green, contexts[i].green);
	}
	ck_assert(ids[PRIMARY] != ids[GREEN_A] && ids[GREEN_A] != ids[GREEN_B]);
	ok(cuGreenCtxGetId(contexts[GREEN_A].green, &id));
	ck_assert_uint_eq(id, ids[GREEN_A]);
	fails(cuCtxSetCurrent((CUcontext)contexts[GREEN_A].green), CUDA_ERROR_INVALID_CONTEXT);
	fails(cuCtxDestroy_v2(contexts[GREEN_A].ctx), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(memory_allocated_in_a_green_context_belongs_to_the_primary_context)
{
	CUdeviceptr ptr;
	CUcontext owner;

	start();
	ok(cuCtxSetCurrent(contexts[_i].ctx));
	ptr = test_alloc(4 * MIB);
	ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_eq(owner, test_ctx);
	ok(cuCtxSetCurrent(contexts[(_i + 1) % N_CONTEXTS].ctx));
	ok(cuMemFree_v2(ptr));
}
END_TEST

static CUresult record(int nth, CUevent event)
{
	if (nth == PRIMARY)
		return cuCtxRecordEvent(test_ctx, event);
	return cuGreenCtxRecordEvent(contexts[nth].green, event);
}

/* A call for the primary context covers all contexts. */
static bool is_covered(int nth, int other)
{
	return nth == PRIMARY || nth == other;
}

START_TEST(a_green_record_covers_its_own_work_and_a_primary_record_covers_all)
{
	int nth = _i / N_CONTEXTS, busy = _i % N_CONTEXTS;
	CUevent event;

	start();
	event = test_event();
	ok(test_spin(contexts[busy].stream, MS));
	ok(record(nth, event));
	fails(cuEventQuery(event), is_covered(nth, busy) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
END_TEST

START_TEST(a_green_wait_orders_its_own_work_and_a_primary_wait_orders_all)
{
	int nth = _i / N_CONTEXTS, later = _i % N_CONTEXTS;
	CUevent event, end;

	start();
	event = test_event();
	end = test_event();
	ok(test_spin(contexts[GREEN_B].stream, MS));
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(cuCtxWaitEvent(contexts[nth].ctx, event));
	ok(cuCtxSetCurrent(contexts[later].ctx));
	ok(test_spin(NULL, 1));
	ok(cuEventRecord(end, NULL));
	ok(cuMemAllocHost_v2(&(void *){NULL}, 64)); /* takes longer than that kernel */
	fails(cuEventQuery(end), is_covered(nth, later) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
END_TEST

START_TEST(a_green_free_waits_for_all_work_and_a_synchronisation_for_its_own)
{
	CUdeviceptr ptr;

	start();
	ptr = test_alloc(4 * MIB);
	ok(test_spin(contexts[GREEN_A].stream, MS));
	ok(cuCtxSetCurrent(contexts[GREEN_B].ctx));
	ok(cuCtxSynchronize());
	fails(cuStreamQuery(contexts[GREEN_A].stream), CUDA_ERROR_NOT_READY);
	ok(cuMemFree_v2(ptr));
	ok(cuStreamQuery(contexts[GREEN_A].stream));
	ok(test_spin(contexts[GREEN_A].stream, MS));
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuCtxSynchronize());
	ok(cuStreamQuery(contexts[GREEN_A].stream));
}
END_TEST

START_TEST(a_capture_conflicts_only_with_records_in_its_own_green_context)
{
	int nth = _i / N_CONTEXTS, capturing = _i % N_CONTEXTS;
	bool conflicts = nth == capturing;
	CUgraph graph;

	start();
	ok(cuStreamBeginCapture_v2(contexts[capturing].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	fails(record(nth, test_event()), conflicts ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
	fails(cuStreamEndCapture(contexts[capturing].stream, &graph),
		conflicts ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}
END_TEST

START_TEST(the_end_of_a_green_context_does_not_wait_and_keeps_its_memory)
{
	CUdeviceptr ptr;
	CUevent event;

	start();
	event = test_event();
	ok(cuCtxSetCurrent(contexts[GREEN_A].ctx));
	ptr = test_alloc(4 * MIB);
	ok(test_spin(contexts[GREEN_A].stream, MS));
	ok(cuGreenCtxDestroy(contexts[GREEN_A].green));
	ok(cuCtxRecordEvent(test_ctx, event));
	fails(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	fails(cuMemAlloc_v2(&(CUdeviceptr){0}, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuStreamQuery(contexts[GREEN_A].stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuGreenCtxDestroy(contexts[GREEN_A].green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuMemFree_v2(ptr));
	ok(cuEventQuery(event));
}
END_TEST

START_TEST(green_contexts_keep_the_primary_context_alive)
{
	unsigned flags;
	int active;

	start();
	fails(cuDevicePrimaryCtxReset_v2(0), CUDA_ERROR_NOT_PERMITTED);
	ok(cuDevicePrimaryCtxRelease_v2(0));
	ok(cuGreenCtxDestroy(contexts[GREEN_B].green));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ok(cuGreenCtxDestroy(contexts[GREEN_A].green));
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

	tcase_add_test(tc, multiprocessors_of_a_green_context_come_in_multiples_of_a_unit);
	tcase_add_test(tc, a_green_context_has_its_own_handle_and_id);
	tcase_add_loop_test(tc, memory_allocated_in_a_green_context_belongs_to_the_primary_context, 0, N_CONTEXTS);
	tcase_add_loop_test(
		tc, a_green_record_covers_its_own_work_and_a_primary_record_covers_all, 0, N_CONTEXTS * N_CONTEXTS);
	tcase_add_loop_test(tc, a_green_wait_orders_its_own_work_and_a_primary_wait_orders_all, 0, 2 * N_CONTEXTS);
	tcase_add_test(tc, a_green_free_waits_for_all_work_and_a_synchronisation_for_its_own);
	tcase_add_loop_test(
		tc, a_capture_conflicts_only_with_records_in_its_own_green_context, 0, N_CONTEXTS * N_CONTEXTS);
	tcase_add_test(tc, the_end_of_a_green_context_does_not_wait_and_keeps_its_memory);
	tcase_add_test(tc, green_contexts_keep_the_primary_context_alive);
	return tc;
}

int main(void)
{
	static TCase *(*const all[])(void) = {cases};

	return test_run("simulated GPU: green contexts", all, sizeof(all) / sizeof(*all));
}
