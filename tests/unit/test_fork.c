/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Functions that run in a forked child. */

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/fork.h"
#include "tests/suite.h"

static char order[32]; /* the functions that ran, each as a digit */
static unsigned n_run;

static void run_1(void)
{
	order[n_run++] = '1';
}

static void run_2(void)
{
	order[n_run++] = '2';
}

/* Forks. Returns true if the functions ran in the child in that order. */
static bool is_order_in_child(const char *expected)
{
	pid_t child = fork();
	int status = 0;

	if (!child)
		_exit(strcmp(order, expected) != 0);
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status == 0;
}

START_TEST(functions_run_in_a_child_alone_once_each_and_in_the_reverse_order_of_their_addition)
{
	static const struct gp_fork_child first = {.fn = run_1}, second = {.fn = run_2};

	gp_fork_on_child(&first);
	gp_fork_on_child(&second);
	gp_fork_on_child(&first);
	ck_assert(is_order_in_child("21"));
	ck_assert_uint_eq(n_run, 0);
}
END_TEST

enum { RACED = 16 };

static pthread_barrier_t start;
static const struct gp_fork_child raced[RACED] = {
	[0 ... RACED - 1] = {.fn = run_2},
};

/* Returns true as a pointer if each function was in place when its addition returned. */
static void *add_all(void *unused)
{
	bool is_in_place = true;

	for (unsigned i = 0; i < RACED; i++) {
		char expected[RACED + 2] = {0};
		pid_t child;
		int status;

		memset(expected, '2', i + 1);
		expected[i + 1] = '1';
		(void)pthread_barrier_wait(&start);
		gp_fork_on_child(&raced[i]);
		child = fork();
		if (!child)
			_exit(strcmp(order, expected) != 0);
		is_in_place &= child > 0 && waitpid(child, &status, 0) == child && status == 0;
		(void)pthread_barrier_wait(&start);
	}
	return is_in_place ? unused : NULL;
}

START_TEST(a_function_that_two_threads_add_is_in_place_once_when_either_returns)
{
	static const struct gp_fork_child first = {.fn = run_1};
	pthread_t threads[2];
	void *result;

	/* Two threads that add the first function of all may each cause it to run. */
	gp_fork_on_child(&first);
	ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add_all, &start), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &result), 0);
		ck_assert_ptr_nonnull(result);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tc = tcase_create("fork");

	tcase_add_test(tc, functions_run_in_a_child_alone_once_each_and_in_the_reverse_order_of_their_addition);
	tcase_add_test(tc, a_function_that_two_threads_add_is_in_place_once_when_either_returns);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
