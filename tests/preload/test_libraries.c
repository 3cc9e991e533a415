/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* After a dlopen, allocations stay on the slow path until the library that it loads is certain to be mapped. */

#include <check.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/context/libraries.h"
#include "tests/suite.h"

enum { CHECKS_MAX = 1 << 17 }; /* more than the checks that allocations make before they give up */

static pthread_barrier_t step;

static bool is_bit_set(void)
{
	return gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES);
}

/* Returns the number of checks until the slow-path reason is cleared. */
static unsigned check_until_cleared(void)
{
	unsigned n = 0;

	for (; is_bit_set() && n < CHECKS_MAX; n++)
		gp_libraries_look();
	return n;
}

START_TEST(one_check_by_the_thread_that_called_dlopen_ends_the_slow_path)
{
	ck_assert(!is_bit_set());
	for (unsigned i = 0; i < 3; i++) {
		gp_libraries_opening();
		gp_libraries_opening();
		ck_assert(is_bit_set());
		ck_assert_uint_eq(check_until_cleared(), 1);
	}
}
END_TEST

/* Is inside dlopen between the steps of the test, and then returns from it. */
static void *open_library(void *unused)
{
	gp_libraries_opening();
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	gp_libraries_opened();
	pthread_barrier_wait(&step);
	return NULL;
}

static pthread_t start_opening(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_barrier_init(&step, NULL, 2), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, open_library, NULL), 0);
	pthread_barrier_wait(&step);
	return thread;
}

static void end_opening(pthread_t thread)
{
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&step);
}

START_TEST(allocations_stay_on_the_slow_path_while_another_thread_is_inside_dlopen)
{
	pthread_t thread = start_opening();

	for (unsigned i = 0; i < 1000; i++) {
		gp_libraries_look();
		ck_assert(is_bit_set());
	}
	end_opening(thread);
	ck_assert(is_bit_set());
	ck_assert_uint_eq(check_until_cleared(), 1);
}
END_TEST

START_TEST(a_thread_that_stays_inside_dlopen_slows_other_threads_only_for_a_while)
{
	pthread_t thread = start_opening();

	ck_assert_uint_lt(check_until_cleared(), CHECKS_MAX);
	end_opening(thread);
	ck_assert(is_bit_set());
	ck_assert_uint_eq(check_until_cleared(), 1);
}
END_TEST

START_TEST(a_forked_child_does_not_wait_for_the_dlopen_of_another_thread)
{
	pthread_t thread = start_opening();
	pid_t child;
	int status;

	gp_libraries_look();
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(check_until_cleared() == 1 ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	end_opening(thread);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("libraries");
	TCase *tc = tcase_create("libraries");

	tcase_add_test(tc, one_check_by_the_thread_that_called_dlopen_ends_the_slow_path);
	tcase_add_test(tc, allocations_stay_on_the_slow_path_while_another_thread_is_inside_dlopen);
	tcase_add_test(tc, a_thread_that_stays_inside_dlopen_slows_other_threads_only_for_a_while);
	tcase_add_test(tc, a_forked_child_does_not_wait_for_the_dlopen_of_another_thread);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
