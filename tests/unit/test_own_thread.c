/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The library's own threads that help the calling thread. */

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/own_thread.h"
#include "tests/suite.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static pid_t ids[8];
static _Atomic unsigned n_run, n_open; /* open: runs in which a signal was not blocked */

static void *count(void *arg)
{
	unsigned nth = atomic_fetch_add(&n_run, 1);
	sigset_t set;

	if (nth < LENGTH(ids))
		ids[nth] = (pid_t)syscall(SYS_gettid);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	for (int signal = 1; signal < 32; signal++) /* glibc uses the next two itself */
		if (signal != SIGKILL && signal != SIGSTOP && !sigismember(&set, signal))
			atomic_fetch_add(&n_open, 1);
	return arg;
}

/* The kernel knows a thread for a moment after it was joined. */
static bool has_ended(pid_t id)
{
	unsigned attempts = 0;

	while (!syscall(SYS_tgkill, getpid(), id, 0) && attempts++ < 5000)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return attempts <= 5000;
}

START_TEST(the_body_runs_in_as_many_threads_as_were_asked_for_with_all_signals_blocked)
{
	sigset_t before, after;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	ck_assert_uint_eq(gp_own_threads_run(count, NULL, 5), 5);
	ck_assert_uint_eq(n_run, 5);
	ck_assert_uint_eq(n_open, 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int number = 1; number < SIGRTMAX; number++)
		ck_assert_int_eq(sigismember(&before, number), sigismember(&after, number));
	for (unsigned i = 0; i < 5; i++)
		ck_assert(ids[i] == getpid() || has_ended(ids[i]));
}
END_TEST

START_TEST(one_thread_is_the_calling_thread)
{
	ck_assert_uint_eq(gp_own_threads_run(count, NULL, 1), 1);
	ck_assert_uint_eq(n_run, 1);
	ck_assert_uint_eq(gp_own_threads_run(count, NULL, 0), 1);
	ck_assert_uint_eq(n_run, 2);
}
END_TEST

static void on_signal(int signal)
{
	atomic_fetch_add(&n_run, 100);
}

static void *raise_in(void *arg)
{
	raise(SIGUSR1);
	ck_assert_uint_lt(n_run, 100);
	return arg;
}

START_TEST(a_signal_of_the_calling_thread_is_handled_when_all_threads_have_ended)
{
	signal(SIGUSR1, on_signal);
	ck_assert_uint_eq(gp_own_threads_run(raise_in, NULL, 1), 1);
	ck_assert_uint_eq(n_run, 100);
}
END_TEST

/* Makes the kernel refuse new threads to this process, as a sandbox does. Without clone3, glibc calls clone. */
static void forbid_threads(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = LENGTH(filter), .filter = filter};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(a_process_that_may_make_no_threads_runs_the_body_alone)
{
	forbid_threads();
	ck_assert_uint_eq(gp_own_threads_run(count, NULL, 5), 1);
	ck_assert_uint_eq(n_run, 1);
	ck_assert_uint_eq(n_open, 0);
}
END_TEST

static void *cancel_and_run(void *ret_has_returned)
{
	pthread_cancel(pthread_self());
	gp_own_threads_run(count, NULL, 3);
	*(bool *)ret_has_returned = true;
	pthread_testcancel();
	return NULL;
}

START_TEST(a_cancelled_thread_ends_only_after_all_of_its_helpers)
{
	bool has_returned = false;
	pthread_t thread;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, cancel_and_run, &has_returned), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(has_returned);
	ck_assert_uint_eq(n_run, 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("own_thread");
	TCase *tc = tcase_create("own_thread");

	tcase_add_test(tc, the_body_runs_in_as_many_threads_as_were_asked_for_with_all_signals_blocked);
	tcase_add_test(tc, one_thread_is_the_calling_thread);
	tcase_add_test(tc, a_signal_of_the_calling_thread_is_handled_when_all_threads_have_ended);
	tcase_add_test(tc, a_process_that_may_make_no_threads_runs_the_body_alone);
	tcase_add_test(tc, a_cancelled_thread_ends_only_after_all_of_its_helpers);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
