/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Checkpoints: a process is held by the driver. Here it asks for that itself. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "test_sim.h"

enum { RUNNING, LOCKED, CHECKPOINTED };

static _Atomic bool has_returned;
static char shared[] = "/tmp/gpupool-checkpoint.XXXXXX";

static void start(void)
{
	int fd = mkstemp(shared);

	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	test_start_with("SIMGPU_SHARED", shared);
	(void)unlink(shared);
}

static void check_state(int wanted)
{
	int state = -1;

	ok(cuCheckpointProcessGetState(getpid(), &state));
	ck_assert_int_eq(state, wanted);
}

static void *ask(void *ctx)
{
	size_t free_bytes, total_bytes;

	ok(cuCtxSetCurrent(ctx));
	ok(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	atomic_store(&has_returned, true);
	return NULL;
}

START_TEST(calls_of_a_process_that_the_driver_holds_wait_until_it_is_unlocked)
{
	pthread_t thread;
	int pid = getpid();

	start();
	check_state(RUNNING);
	fails(cuCheckpointProcessCheckpoint(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	fails(cuCheckpointProcessUnlock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cuCheckpointProcessLock(pid, NULL));
	fails(cuCheckpointProcessLock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cuCheckpointProcessCheckpoint(pid, NULL));
	check_state(CHECKPOINTED);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask, test_ctx), 0);
	ok(cuCheckpointProcessRestore(pid, NULL));
	check_state(LOCKED);
	usleep(10000);
	ck_assert(!atomic_load(&has_returned));
	ok(cuCheckpointProcessUnlock(pid, NULL));
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	check_state(RUNNING);
}
END_TEST

static void *wait_for_context(void *ctx)
{
	ok(cuCtxSetCurrent(ctx));
	ok(cuCtxSynchronize());
	return NULL;
}

START_TEST(a_lock_times_out_while_a_call_has_not_returned)
{
	const struct sim_lock_args args = {.timeout_ms = 5};
	pthread_t thread;

	start();
	ck_assert(simgpu_stop("cuCtxSynchronize", false));
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_context, test_ctx), 0);
	while (!simgpu_stopped())
		usleep(1000);
	fails(cuCheckpointProcessLock(getpid(), &args), CUDA_ERROR_NOT_READY);
	check_state(RUNNING);
	simgpu_go();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ok(cuCheckpointProcessLock(getpid(), &args));
}
END_TEST

START_TEST(a_synchronisation_ends_a_process_that_is_checkpointed)
{
	start();
	ok(cuCheckpointProcessLock(getpid(), NULL));
	ok(cuCheckpointProcessCheckpoint(getpid(), NULL));
	(void)cuCtxSynchronize();
}
END_TEST

START_TEST(a_process_without_cuda_and_one_that_has_ended_have_other_errors)
{
	int state;

	start();
	fails(cuCheckpointProcessGetState(getppid(), &state), CUDA_ERROR_NOT_INITIALIZED);
	fails(cuCheckpointProcessGetState(0x7ffffff, &state), CUDA_ERROR_OPERATING_SYSTEM);
}
END_TEST

static TCase *checkpoint_cases(void)
{
	TCase *tc = tcase_create("checkpoints");

	tcase_add_test(tc, calls_of_a_process_that_the_driver_holds_wait_until_it_is_unlocked);
	tcase_add_test(tc, a_lock_times_out_while_a_call_has_not_returned);
	tcase_add_test_raise_signal(tc, a_synchronisation_ends_a_process_that_is_checkpointed, SIGABRT);
	tcase_add_test(tc, a_process_without_cuda_and_one_that_has_ended_have_other_errors);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {checkpoint_cases};

	return test_run("simulated GPU: checkpoints", cases, 1);
}
