/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Contexts, what ends with them, and how programs look up the driver's functions. */

#include <dlfcn.h>
#include <pthread.h>

#include "test_sim.h"

START_TEST(a_context_reset_keeps_the_handle_and_changes_the_id)
{
	unsigned long long before, after;
	CUcontext again;

	test_start();
	ok(cuCtxGetId(test_ctx, &before));
	ok(cuDevicePrimaryCtxReset_v2(0));
	fails(cuCtxGetId(test_ctx, &after), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, test_ctx);
	ok(cuCtxGetId(again, &after));
	ck_assert_uint_ne(before, after);
}
END_TEST

static void reset(void)
{
	ok(cuDevicePrimaryCtxReset_v2(0));
}

static void release(void)
{
	ok(cuDevicePrimaryCtxRelease_v2(0));
}

static void (*const ends[])(void) = {reset, release};

START_TEST(memory_streams_events_and_arrays_end_with_their_context)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .Format = 0x20, .NumChannels = 1};
	CUstream stream;
	CUevent event;
	CUdeviceptr ptr;
	CUarray array;
	void *pinned;

	test_start();
	stream = test_stream(0);
	event = test_event();
	ptr = test_alloc(4 * MIB);
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	ok(cuArrayCreate_v2(&array, &shape));
	ok(test_spin(stream, MS));
	ends[_i]();
	ck_assert_uint_eq(simgpu_allocated_bytes(0), 0);
	ck_assert(simgpu_idle(0));
	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuCtxSynchronize());
	fails(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
	fails(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	fails(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
	fails(test_spin(NULL, 1), CUDA_ERROR_INVALID_HANDLE); /* the module is gone */
	fails(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(the_primary_context_lives_until_its_last_release)
{
	unsigned flags;
	int active;

	test_start();
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuDevicePrimaryCtxRelease_v2(0));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ok(cuDevicePrimaryCtxRelease(0));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	fails(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuDevicePrimaryCtxReset(0));
	ok(cuDevicePrimaryCtxRelease_v2(0)); /* still balances the retain */
	fails(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(contexts_that_a_program_creates_are_stacked)
{
	CUcontext ctx, current;
	CUdevice device;
	CUdeviceptr ptr;

	test_start();
	for (int i = 0; i < 1000; i++) {
		ok(cuCtxCreate_v2(&ctx, 0, 0));
		test_alloc(4 * MIB);
		ok(cuCtxGetCurrent(&current));
		ck_assert_ptr_eq(current, ctx);
		ok(cuCtxDestroy_v2(ctx));
		ok(cuCtxGetCurrent(&current));
		ck_assert_ptr_eq(current, test_ctx);
	}
	fails(cuCtxDestroy_v2(ctx), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuCtxPushCurrent_v2(ctx));
	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuCtxGetDevice(&device));
	ok(cuCtxPopCurrent_v2(&current));
	fails(cuCtxDestroy_v2(test_ctx), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxPushCurrent_v2(test_ctx));
	ok(cuCtxPopCurrent_v2(&current));
	ok(cuCtxPopCurrent_v2(&current));
	fails(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(a_context_ends_with_the_last_detach)
{
	CUcontext ctx, same;
	CUdeviceptr ptr;

	test_start();
	ok(cuCtxCreate_v2(&ctx, 0, 0));
	ptr = test_alloc(4 * MIB);
	ok(cuCtxAttach(&same, 0));
	ck_assert_ptr_eq(same, ctx);
	fails(cuCtxAttach(&same, 1), CUDA_ERROR_INVALID_VALUE);
	ok(cuCtxSetCurrent(test_ctx));
	fails(cuCtxDetach(ctx), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxSetCurrent(ctx));
	ok(cuCtxDetach(ctx));
	ok(cuMemFree_v2(ptr));
	ok(cuCtxDetach(ctx));
	ok(cuCtxGetCurrent(&same));
	ck_assert_ptr_ne(same, ctx);
	fails(cuCtxDetach(ctx), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(an_event_can_be_recorded_only_in_its_context)
{
	CUcontext ctx;
	CUevent event;

	test_start();
	event = test_event();
	ok(cuCtxCreate_v2(&ctx, 0, 0));
	fails(cuCtxRecordEvent(ctx, event), CUDA_ERROR_INVALID_HANDLE);
	fails(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(cuCtxWaitEvent(ctx, event));
	ok(cuEventDestroy_v2(event));
	fails(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(the_highest_stream_priority_is_the_smallest_number)
{
	int least = 1, greatest = 1;

	fails(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_ERROR_NOT_INITIALIZED);
	test_start();
	ok(cuCtxGetStreamPriorityRange(&least, NULL));
	ok(cuCtxGetStreamPriorityRange(NULL, &greatest));
	ck_assert_int_eq(least, 0);
	ck_assert_int_eq(greatest, -5);
	ok(cuCtxSetCurrent(NULL));
	fails(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(a_context_wait_covers_every_record_that_was_made_before_it)
{
	CUevent first, second;
	CUstream spinning, other;

	test_start();
	first = test_event();
	second = test_event();
	spinning = test_stream(CU_STREAM_NON_BLOCKING);
	other = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuCtxRecordEvent(test_ctx, first));
	ok(test_spin(spinning, 100 * MS));
	ok(cuCtxRecordEvent(test_ctx, second));
	ok(cuEventQuery(first));
	ok(cuStreamWaitEvent(other, first, 0));
	ok(test_spin(other, MS));
	simgpu_advance(2 * MS);
	ok(cuStreamQuery(other));
	ok(cuCtxWaitEvent(test_ctx, first));
	ok(test_spin(other, MS));
	simgpu_advance(2 * MS);
	fails(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	simgpu_advance(100 * MS);
	ok(cuStreamQuery(other));
}
END_TEST

START_TEST(a_context_wait_does_not_affect_another_context)
{
	CUcontext ctx;
	CUstream stream;
	CUevent event;

	test_start();
	event = test_event();
	ok(cuCtxCreate_v2(&ctx, 0, 0));
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuCtxSetCurrent(test_ctx));
	ok(test_spin(NULL, 100 * MS));
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(cuCtxWaitEvent(test_ctx, event));
	test_ctx = ctx;
	ok(cuCtxSetCurrent(ctx));
	test_load_kernels(&test_kernels);
	ok(test_spin(stream, MS));
	simgpu_advance(2 * MS);
	ok(cuStreamQuery(stream));
}
END_TEST

START_TEST(work_of_a_destroyed_stream_still_belongs_to_its_context)
{
	uint64_t before;
	CUstream stream;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	before = simgpu_now_ns();
	ok(test_spin(stream, 100 * MS));
	ok(cuStreamDestroy_v2(stream));
	fails(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_lt(simgpu_now_ns() - before, MS);
	ok(cuCtxSynchronize());
	ck_assert_uint_gt(simgpu_now_ns() - before, 100 * MS);
}
END_TEST

/* The exported function that each name, version and flag gives. */
static const struct {
	const char *symbol;
	int version;
	unsigned flags;
	const char *exported;
} lookups[] = {
	{"cuMemAlloc", 2000, 0, "cuMemAlloc"},
	{"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
	{"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
	{"cuMemFree", 3020, 0, "cuMemFree_v2"},
	{"cuMemHostAlloc", 2020, 0, "cuMemHostAlloc"},
	{"cuMemFreeHost", 2000, 0, "cuMemFreeHost"},
	{"cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"},
	{"cuMemFreeAsync", 11020, 2, "cuMemFreeAsync_ptsz"},
	{"cuMemcpy", 4000, 0, "cuMemcpy"},
	{"cuMemcpy", 7000, 2, "cuMemcpy_ptds"},
	{"cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset"},
	{"cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2"},
	{"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
	{"cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"},
	{"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
	{"cuCtxRecordEvent", 12050, 0, "cuCtxRecordEvent"},
	{"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
	{"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
};

START_TEST(a_function_lookup_returns_the_address_of_the_exported_symbol)
{
	void *found = NULL, *exported = dlsym(RTLD_DEFAULT, lookups[_i].exported);
	int status = -1;

	ok(cuGetProcAddress_v2(lookups[_i].symbol, &found, lookups[_i].version, lookups[_i].flags, &status));
	ck_assert_ptr_nonnull(exported);
	ck_assert_ptr_eq(found, exported);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
	found = NULL;
	ok(cuGetProcAddress(lookups[_i].symbol, &found, lookups[_i].version, lookups[_i].flags));
	ck_assert_ptr_eq(found, exported);
}
END_TEST

START_TEST(a_lookup_of_an_unknown_function_finds_nothing)
{
	void *sentinel = &sentinel, *found = sentinel;
	int status = -1;

	fails(cuGetProcAddress("cuNoSuch", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
	ck_assert_ptr_eq(found, sentinel);
	ok(cuGetProcAddress_v2("cuNoSuch", &found, 12000, 0, &status));
	ck_assert_ptr_null(found);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ok(cuGetProcAddress_v2("cuCtxRecordEvent", &found, 12000, 0, &status));
	ck_assert_ptr_null(found);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	found = sentinel;
	ok(cuGetProcAddress_v2("", &found, 0, 0, NULL));
	ck_assert_ptr_null(found);
	fails(cuGetProcAddress_v2("cuInit", &found, 99000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static const struct {
	const char *option, *value, *symbol;
} hidden[] = {
	{"SIMGPU_DRIVER_VERSION", "12040", "cuCtxRecordEvent"},
	{"SIMGPU_DRIVER_VERSION", "12040", "cuCtxWaitEvent"},
	{"SIMGPU_HIDE", "cuMemFreeAsync,cuCtxRecordEvent", "cuCtxRecordEvent"},
};

START_TEST(an_older_driver_lacks_newer_functions)
{
	void *found = &found;
	CUevent event;
	int status;

	test_start_with(hidden[_i].option, hidden[_i].value);
	ok(cuGetProcAddress_v2(hidden[_i].symbol, &found, 12040, 0, &status));
	ck_assert_ptr_null(found);
	event = test_event();
	fails(!strcmp(hidden[_i].symbol, "cuCtxRecordEvent") ? cuCtxRecordEvent(test_ctx, event)
							     : cuCtxWaitEvent(test_ctx, event),
		CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(every_driver_call_is_counted_under_its_exported_name)
{
	test_start();
	ck_assert_uint_eq(simgpu_calls("cuNoSuch"), 0);
	ck_assert_uint_eq(simgpu_calls("cuMemAlloc_v2"), 0);
	test_alloc(64);
	ck_assert_uint_eq(simgpu_calls("cuMemAlloc_v2"), 1);
	ck_assert_uint_eq(simgpu_calls("cuMemAlloc"), 0);
}
END_TEST

static void *churn(void *arg)
{
	CUdeviceptr ptr, wrong;
	CUstream stream;
	CUevent event;

	ok(cuCtxSetCurrent(test_ctx));
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	event = test_event();
	wrong = test_alloc(8);
	for (uint32_t i = 0; i < 300; i++) {
		ptr = test_alloc(4096 << (i % 12));
		ok(test_fill(stream, ptr, 1024, i));
		ok(test_count_wrong(stream, ptr, 1024, i, wrong));
		ok(cuCtxRecordEvent(test_ctx, event));
		while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
			;
		if (i % 2)
			ok(cuMemFree_v2(ptr));
		else
			ok(cuMemFreeAsync(ptr, stream));
	}
	ok(cuMemcpyDtoH_v2(arg, wrong, 8));
	return NULL;
}

START_TEST(threads_that_allocate_and_launch_do_not_disturb_each_other)
{
	uint64_t wrong[8];
	pthread_t threads[8];

	test_start();
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, churn, &wrong[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(wrong[i], 0);
	}
	ck_assert_uint_eq(simgpu_races(), 0);
	ck_assert_uint_eq(simgpu_invalid_uses(), 0);
}
END_TEST

static TCase *context_cases(void)
{
	TCase *tc = tcase_create("contexts");

	tcase_add_test(tc, a_context_reset_keeps_the_handle_and_changes_the_id);
	tcase_add_loop_test(tc, memory_streams_events_and_arrays_end_with_their_context, 0, 2);
	tcase_add_test(tc, the_primary_context_lives_until_its_last_release);
	tcase_add_test(tc, contexts_that_a_program_creates_are_stacked);
	tcase_add_test(tc, a_context_ends_with_the_last_detach);
	tcase_add_test(tc, an_event_can_be_recorded_only_in_its_context);
	tcase_add_test(tc, the_highest_stream_priority_is_the_smallest_number);
	tcase_add_test(tc, a_context_wait_covers_every_record_that_was_made_before_it);
	tcase_add_test(tc, a_context_wait_does_not_affect_another_context);
	tcase_add_test(tc, work_of_a_destroyed_stream_still_belongs_to_its_context);
	tcase_add_test(tc, threads_that_allocate_and_launch_do_not_disturb_each_other);
	return tc;
}

static TCase *lookup_cases(void)
{
	TCase *tc = tcase_create("lookups");

	tcase_add_loop_test(tc, a_function_lookup_returns_the_address_of_the_exported_symbol, 0,
		sizeof(lookups) / sizeof(*lookups));
	tcase_add_test(tc, a_lookup_of_an_unknown_function_finds_nothing);
	tcase_add_loop_test(tc, an_older_driver_lacks_newer_functions, 0, sizeof(hidden) / sizeof(*hidden));
	tcase_add_test(tc, every_driver_call_is_counted_under_its_exported_name);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {context_cases, lookup_cases};

	return test_run("simulated GPU: contexts", cases, sizeof(cases) / sizeof(*cases));
}
