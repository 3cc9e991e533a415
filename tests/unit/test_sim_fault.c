/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Waits that cannot end, injected faults, the cost of calls, and the start and end of the driver. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test_sim.h"

/*
 * Milliseconds of real time until a hang is reported: for tests with a hang, and for tests in which a slow
 * machine must not look like a hang.
 */
#define QUICKLY "50"
#define NEVER   "20000"

static CUdeviceptr flag, block;
static void *pinned;
static CUevent event;
static CUstream spinning, releasing, private_stream;

static CUresult free_block(void)
{
	return cuMemFree_v2(block);
}

static CUresult free_pinned(void)
{
	return cuMemFreeHost(pinned);
}

static CUresult synchronize(void)
{
	return cuCtxSynchronize();
}

static CUresult record_and_wait(void)
{
	ok(cuCtxRecordEvent(test_ctx, event));
	return cuCtxWaitEvent(test_ctx, event);
}

static CUresult record_only(void)
{
	return cuCtxRecordEvent(test_ctx, event);
}

static CUresult alloc(void)
{
	CUdeviceptr ptr;

	return cuMemAlloc_v2(&ptr, 64 * MIB);
}

static CUresult free_async(void)
{
	return cuMemFreeAsync(block, private_stream);
}

/* Calls of thread A after a kernel that spins until thread B's kernel releases it. */
static const struct {
	CUresult (*call)(void);
	bool deadlocks;
} following_calls[] = {
	{free_block, true},
	{free_pinned, true},
	{synchronize, false},
	{record_and_wait, true}, /* on the GPU: the releasing kernel waits for the spinning one */
	{record_only, false},
	{alloc, false},
	{free_async, false},
};

static void prepare(const char *deadlock_ms)
{
	test_start_with("SIMGPU_DEADLOCK_MS", deadlock_ms);
	flag = test_alloc(4);
	block = test_alloc(4 * MIB);
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	event = test_event();
	spinning = test_stream(CU_STREAM_NON_BLOCKING);
	releasing = test_stream(CU_STREAM_NON_BLOCKING);
	private_stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(test_wait_flag(spinning, flag, 1));
}

static void *thread_a(void *arg)
{
	ok(cuCtxSetCurrent(test_ctx));
	return (void *)(intptr_t)following_calls[(intptr_t)arg].call();
}

/* Waits until thread A has entered its call, as far as this is visible from outside. */
static void wait_for_calls(const char *name, uint64_t n)
{
	while (simgpu_calls(name) < n)
		sched_yield();
}

START_TEST(a_spinning_kernel_can_be_released_unless_a_free_or_gpu_wait_follows_it)
{
	static const char *const names[] = {"cuMemFree_v2", "cuMemFreeHost", "cuCtxSynchronize", "cuCtxWaitEvent",
		"cuCtxRecordEvent", "cuMemAlloc_v2", "cuMemFreeAsync"};
	bool deadlocks = following_calls[_i].deadlocks;
	uint64_t calls;
	pthread_t thread;
	CUresult release;
	void *result;

	prepare(deadlocks ? QUICKLY : NEVER);
	calls = simgpu_calls(names[_i]);
	pthread_create(&thread, NULL, thread_a, (void *)(intptr_t)_i);
	wait_for_calls(names[_i], calls + 1);
	release = test_set_flag(releasing, flag, 1);
	pthread_join(thread, &result);
	fails(cuCtxSynchronize(), deadlocks ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS);
	ck_assert_uint_eq(simgpu_deadlocks(), deadlocks);
	if (following_calls[_i].call == free_block || following_calls[_i].call == free_pinned) {
		fails((CUresult)(intptr_t)result, CUDA_ERROR_LAUNCH_TIMEOUT);
		fails(release, CUDA_ERROR_LAUNCH_TIMEOUT);
	} else {
		ok((CUresult)(intptr_t)result);
		ok(release);
	}
}
END_TEST

START_TEST(during_a_waiting_free_no_memory_can_be_allocated_in_that_context)
{
	CUdeviceptr ptr;
	pthread_t thread;
	CUresult result;
	void *unused;

	prepare(QUICKLY);
	pthread_create(&thread, NULL, thread_a, (void *)0);
	wait_for_calls("cuMemFree_v2", 1);
	result = cuMemAlloc_v2(&ptr, MIB);
	pthread_join(thread, &unused);
	fails(result, CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_uint_eq(simgpu_deadlocks(), 1);
}
END_TEST

START_TEST(during_a_waiting_free_kernels_can_be_launched_on_another_device)
{
	CUcontext other;
	CUdeviceptr host_flag;
	pthread_t thread;
	void *result;

	setenv("SIMGPU_DEVICES", "2", 1);
	test_start_with("SIMGPU_DEADLOCK_MS", NEVER);
	ok(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
	host_flag = (CUdeviceptr)(uintptr_t)pinned;
	block = test_alloc(MIB);
	ok(test_wait_flag(test_stream(CU_STREAM_NON_BLOCKING), host_flag, 1));
	pthread_create(&thread, NULL, thread_a, (void *)0);
	wait_for_calls("cuMemFree_v2", 1);
	ok(cuDevicePrimaryCtxRetain(&other, 1));
	ok(cuCtxSetCurrent(other));
	test_load_kernels(&test_kernels);
	ok(test_set_flag(NULL, host_flag, 1));
	ok(cuCtxSynchronize());
	pthread_join(thread, &result);
	ok((CUresult)(intptr_t)result);
}
END_TEST

START_TEST(a_kernel_sees_a_flag_that_the_host_sets)
{
	uint32_t *word;

	test_start();
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	word = pinned;
	ok(test_wait_flag(NULL, (CUdeviceptr)(uintptr_t)pinned, 1));
	fails(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ok(cuCtxSynchronize());
}
END_TEST

START_TEST(a_wait_that_cannot_end_is_reported_and_kills_the_context)
{
	test_start_with("SIMGPU_DEADLOCK_MS", QUICKLY);
	flag = test_alloc(4);
	ok(test_wait_flag(NULL, flag, 1));
	if (_i) {
		CUresult result;

		while ((result = cuStreamQuery(NULL)) == CUDA_ERROR_NOT_READY)
			;
		fails(result, CUDA_ERROR_LAUNCH_TIMEOUT);
	} else {
		fails(cuStreamSynchronize(NULL), CUDA_ERROR_LAUNCH_TIMEOUT);
	}
	ck_assert_uint_eq(simgpu_deadlocks(), 1);
	fails(cuMemFree_v2(flag), CUDA_ERROR_LAUNCH_TIMEOUT);
	ok(cuDevicePrimaryCtxReset_v2(0));
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuCtxSynchronize());
}
END_TEST

static uint32_t gate;

static void set_gate(void *user_data)
{
	CUdeviceptr ptr;

	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_NOT_PERMITTED);
	__atomic_store_n((uint32_t *)user_data, 1, __ATOMIC_RELEASE);
}

static void wait_for_gate(void *user_data)
{
	while (!__atomic_load_n((uint32_t *)user_data, __ATOMIC_ACQUIRE))
		sched_yield();
}

START_TEST(a_host_function_runs_in_the_order_of_its_stream)
{
	test_start();
	event = test_event();
	ok(test_spin(NULL, MS));
	ok(cuLaunchHostFunc(NULL, set_gate, &gate));
	ok(cuCtxRecordEvent(test_ctx, event));
	ck_assert_uint_eq(__atomic_load_n(&gate, __ATOMIC_ACQUIRE), 0);
	ok(cuEventSynchronize(event));
	ck_assert_uint_eq(__atomic_load_n(&gate, __ATOMIC_ACQUIRE), 1);
	__atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
	ok(cuLaunchHostFunc(NULL, wait_for_gate, &gate));
	ok(cuCtxRecordEvent(test_ctx, event));
	simgpu_advance(MS);
	fails(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	ok(cuCtxSynchronize());
	ok(cuEventQuery(event));
}
END_TEST

/* The allocations of ten that fail. */
static const struct {
	const char *spec, *outcome;
} specs[] = {
	{"cuMemAlloc_v2:3=2", "..x......."},
	{"cuMemAlloc_v2:8+=2", ".......xxx"},
	{"cuMemAlloc_v2:every/4=2", "...x...x.."},
	{"cuMemAlloc_v2:1=2,cuMemAlloc_v2:10=2", "x........x"},
	{"cuMemFree_v2:1=2", ".........."},
};

START_TEST(injected_faults_occur_at_the_specified_calls)
{
	char outcome[11] = {0};
	uint64_t wanted = 0;
	CUdeviceptr ptr;

	test_start_with("SIMGPU_FAULT", specs[_i].spec);
	for (int i = 0; i < 10; i++) {
		outcome[i] = cuMemAlloc_v2(&ptr, 4096) == CUDA_ERROR_OUT_OF_MEMORY ? 'x' : '.';
		wanted += outcome[i] == 'x';
	}
	ck_assert_str_eq(outcome, specs[_i].outcome);
	ck_assert_uint_eq(simgpu_faults_seen(), wanted);
	ck_assert_uint_eq(simgpu_calls("cuMemAlloc_v2"), 10);
	ck_assert(simgpu_fault("cuMemAlloc_v2:11=1"));
	fails(cuMemAlloc_v2(&ptr, 4096), CUDA_ERROR_INVALID_VALUE);
	ck_assert(simgpu_fault(NULL));
	ok(cuMemAlloc_v2(&ptr, 4096));
	ck_assert(!simgpu_fault("cuMemAlloc_v2:0=1"));
	ck_assert(!simgpu_fault("cuNoSuch:1=1"));
}
END_TEST

static _Atomic bool has_returned;

static void *allocate(void *ptr)
{
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuMemAlloc_v2(ptr, 64 * MIB));
	has_returned = true;
	return NULL;
}

/* A call that is stopped at its start has no effect yet. At its end only its return is left. */
START_TEST(a_stopped_driver_call_does_not_go_on_until_it_is_released)
{
	bool at_end = _i;
	size_t before;
	pthread_t thread;
	CUdeviceptr ptr;

	test_start_with("SIMGPU_DEADLOCK_MS", NEVER);
	before = simgpu_allocated_bytes(0);
	ck_assert(!simgpu_stop("cuNoSuch", at_end));
	ck_assert(simgpu_stop("cuMemAlloc_v2", at_end));
	ck_assert_int_eq(pthread_create(&thread, NULL, allocate, &ptr), 0);
	while (!simgpu_stopped())
		sched_yield();
	ck_assert_uint_eq(simgpu_allocated_bytes(0) - before, at_end ? 64 * MIB : 0);
	ck_assert(!has_returned);
	simgpu_go();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(simgpu_stopped(), 0);
	/* Later calls are not stopped. */
	ok(cuMemAlloc_v2(&ptr, 64 * MIB));
}
END_TEST

START_TEST(driver_calls_before_the_nth_one_are_not_stopped)
{
	CUdeviceptr first, second;
	pthread_t thread;

	test_start_with("SIMGPU_DEADLOCK_MS", NEVER);
	ck_assert(!simgpu_stop_nth("cuMemAlloc_v2", false, 0));
	ck_assert(simgpu_stop_nth("cuMemAlloc_v2", false, 2));
	ok(cuMemAlloc_v2(&first, MIB));
	ck_assert_int_eq(pthread_create(&thread, NULL, allocate, &second), 0);
	while (!simgpu_stopped())
		sched_yield();
	simgpu_go();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(a_stopped_driver_call_that_is_never_released_goes_on_after_a_timeout)
{
	CUdeviceptr ptr;

	test_start_with("SIMGPU_DEADLOCK_MS", QUICKLY);
	ck_assert(simgpu_stop("cuMemAlloc_v2", false));
	ok(cuMemAlloc_v2(&ptr, 64 * MIB));
}
END_TEST

START_TEST(driver_calls_with_jitter_give_the_same_results)
{
	test_start_with("SIMGPU_JITTER", "cuMemAlloc_v2=1,cuMemFree_v2=2");
	for (unsigned i = 0; i < 20; i++)
		ok(cuMemFree_v2(test_alloc(4096)));
	ck_assert_uint_eq(simgpu_calls("cuMemFree_v2"), 20);
}
END_TEST

START_TEST(a_sticky_fault_kills_the_context)
{
	CUdeviceptr ptr;

	test_start();
	event = test_event();
	ptr = test_alloc(4096);
	ck_assert(simgpu_fault("cuCtxRecordEvent:1=719"));
	fails(cuCtxRecordEvent(test_ctx, event), CUDA_ERROR_LAUNCH_FAILED);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_LAUNCH_FAILED);
	fails(cuEventQuery(event), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

START_TEST(a_kernel_that_traps_kills_its_context_at_that_time)
{
	uint64_t ns = MS;
	CUfunction trap;
	CUdeviceptr ptr;

	test_start();
	ptr = test_alloc(4096);
	ok(cuModuleGetFunction(&trap, test_kernels.module, "trap"));
	ok(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
	ok(test_fill(NULL, ptr, 1, 7));
	fails(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_LAUNCH_FAILED);
	fails(cuStreamQuery(NULL), CUDA_ERROR_LAUNCH_FAILED);
	ok(cuDevicePrimaryCtxReset_v2(0));
	ck_assert_uint_eq(simgpu_invalid_uses(), 0);
}
END_TEST

START_TEST(the_cost_of_a_call_passes_on_the_virtual_clock)
{
	uint64_t before;
	CUdeviceptr ptr;

	test_start_with("SIMGPU_LATENCY", "cuMemAlloc_v2=45000,cuCtxGetCurrent=0");
	before = simgpu_now_ns();
	ok(cuMemAlloc_v2(&ptr, 1024 * MIB));
	ck_assert_uint_eq(simgpu_now_ns() - before, 45000);
	ok(cuCtxGetCurrent(&test_ctx));
	ck_assert_uint_eq(simgpu_now_ns() - before, 45000);
	ok(cuMemFree_v2(ptr));
	ck_assert_uint_gt(simgpu_now_ns() - before, 145000); /* grows with the size */
}
END_TEST

static uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

START_TEST(the_cost_of_a_call_passes_in_real_time_too_if_requested)
{
	uint64_t before;

	test_start_with("SIMGPU_REALTIME", "1");
	before = real_ns();
	ok(test_spin(NULL, 3 * MS));
	ok(cuCtxSynchronize());
	ck_assert_uint_ge(real_ns() - before, 3 * MS);
}
END_TEST

START_TEST(driver_calls_fail_in_a_forked_child)
{
	CUdeviceptr ptr;
	int status;
	pid_t pid;

	test_start();
	pid = fork();
	if (!pid)
		_exit(cuMemAlloc_v2(&ptr, 64) == CUDA_ERROR_NOT_INITIALIZED &&
			cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuMemFree_v2(1) == CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 1);
	ok(cuMemAlloc_v2(&ptr, 64));
}
END_TEST

START_TEST(driver_calls_fail_before_cuInit)
{
	CUdeviceptr ptr;
	int version;

	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_NOT_INITIALIZED);
	ok(cuDriverGetVersion(&version));
	ck_assert_int_eq(version, 13000);
	fails(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	test_start();
}
END_TEST

static void expect_deinitialized(void)
{
	CUdeviceptr ptr;

	_exit(cuMemAlloc_v2(&ptr, 64) == CUDA_ERROR_DEINITIALIZED ? 42 : 43);
}

START_TEST(driver_calls_fail_once_the_exit_has_begun)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		atexit(expect_deinitialized); /* runs after the handler that cuInit registers */
		test_start_with("SIMGPU_DEINIT_AT_EXIT", "1");
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 42);
}
END_TEST

/* 0: no race; 1: a race; 2: a race that was expected. */
START_TEST(strict_mode_turns_a_race_into_an_exit_status)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		test_start_with("SIMGPU_STRICT", "1");
		block = test_alloc(4096);
		ok(test_fill(test_stream(CU_STREAM_NON_BLOCKING), block, 1, 1));
		if (_i)
			ok(test_fill(test_stream(CU_STREAM_NON_BLOCKING), block, 1, 2));
		if (_i == 2)
			simgpu_expect_races(1);
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), _i == 1 ? 99 : 0);
}
END_TEST

static TCase *hang_cases(void)
{
	TCase *tc = tcase_create("hangs");

	tcase_add_loop_test(tc, a_spinning_kernel_can_be_released_unless_a_free_or_gpu_wait_follows_it, 0,
		sizeof(following_calls) / sizeof(*following_calls));
	tcase_add_test(tc, during_a_waiting_free_no_memory_can_be_allocated_in_that_context);
	tcase_add_test(tc, during_a_waiting_free_kernels_can_be_launched_on_another_device);
	tcase_add_test(tc, a_kernel_sees_a_flag_that_the_host_sets);
	tcase_add_loop_test(tc, a_wait_that_cannot_end_is_reported_and_kills_the_context, 0, 2);
	tcase_add_test(tc, a_host_function_runs_in_the_order_of_its_stream);
	return tc;
}

static TCase *fault_cases(void)
{
	TCase *tc = tcase_create("faults");

	tcase_add_loop_test(tc, injected_faults_occur_at_the_specified_calls, 0, sizeof(specs) / sizeof(*specs));
	tcase_add_loop_test(tc, a_stopped_driver_call_does_not_go_on_until_it_is_released, 0, 2);
	tcase_add_test(tc, driver_calls_before_the_nth_one_are_not_stopped);
	tcase_add_test(tc, a_stopped_driver_call_that_is_never_released_goes_on_after_a_timeout);
	tcase_add_test(tc, driver_calls_with_jitter_give_the_same_results);
	tcase_add_test(tc, a_sticky_fault_kills_the_context);
	tcase_add_test(tc, a_kernel_that_traps_kills_its_context_at_that_time);
	tcase_add_test(tc, the_cost_of_a_call_passes_on_the_virtual_clock);
	tcase_add_test(tc, the_cost_of_a_call_passes_in_real_time_too_if_requested);
	return tc;
}

static TCase *life_cases(void)
{
	TCase *tc = tcase_create("life");

	tcase_add_test(tc, driver_calls_fail_before_cuInit);
	tcase_add_test(tc, driver_calls_fail_in_a_forked_child);
	tcase_add_test(tc, driver_calls_fail_once_the_exit_has_begun);
	tcase_add_loop_test(tc, strict_mode_turns_a_race_into_an_exit_status, 0, 3);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {hang_cases, fault_cases, life_cases};

	return test_run("simulated GPU: faults", cases, sizeof(cases) / sizeof(*cases));
}
