/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Functions that run in a forked child. */

#include <check.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/fork.h"
#include "tests/suite.h"

static char order[8]; /* the functions that ran, each as a digit */
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
	static struct gp_fork_child first = {.fn = run_1}, second = {.fn = run_2};

	gp_fork_on_child(&first);
	gp_fork_on_child(&second);
	gp_fork_on_child(&first);
	ck_assert(is_order_in_child("21"));
	ck_assert_uint_eq(n_run, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tc = tcase_create("fork");

	tcase_add_test(tc, functions_run_in_a_child_alone_once_each_and_in_the_reverse_order_of_their_addition);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
