/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* After a dlopen, allocations leave the fast path until the library that it loads is sure to be mapped. */

#include <check.h>
#include <pthread.h>

#include "shim/libraries.h"
#include "tests/suite.h"

enum { LOOKS_MAX = 1 << 17 }; /* more than allocations ever make in vain */

static pthread_barrier_t step;

static bool is_bit_set(void)
{
	return gp_is_unusual(GP_UNUSUAL_LIBRARIES);
}

/* How many looks it takes until the bit is cleared. */
static unsigned look_until_cleared(void)
{
	unsigned n = 0;

	for (; is_bit_set() && n < LOOKS_MAX; n++)
		gp_libraries_look();
	return n;
}

START_TEST(one_look_of_the_thread_that_opened_a_library_is_enough)
{
	ck_assert(!is_bit_set());
	for (unsigned i = 0; i < 3; i++) {
		gp_libraries_opening();
		gp_libraries_opening();
		ck_assert(is_bit_set());
		ck_assert_uint_eq(look_until_cleared(), 1);
	}
}
END_TEST

/* Between the steps of the test it is inside dlopen, and then it is back. */
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

START_TEST(allocations_keep_looking_while_another_thread_is_inside_dlopen)
{
	pthread_t thread = start_opening();

	for (unsigned i = 0; i < 1000; i++) {
		gp_libraries_look();
		ck_assert(is_bit_set());
	}
	end_opening(thread);
	ck_assert(is_bit_set());
	ck_assert_uint_eq(look_until_cleared(), 1);
}
END_TEST

START_TEST(a_thread_that_stays_inside_dlopen_slows_the_others_down_for_a_while_only)
{
	pthread_t thread = start_opening();

	ck_assert_uint_lt(look_until_cleared(), LOOKS_MAX);
	end_opening(thread);
	ck_assert(is_bit_set());
	ck_assert_uint_eq(look_until_cleared(), 1);
}
END_TEST

START_TEST(a_forked_child_does_not_wait_for_the_dlopen_of_another_thread)
{
	pthread_t thread = start_opening();

	gp_libraries_after_fork_child();
	ck_assert_uint_eq(look_until_cleared(), 1);
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("libraries");
	TCase *tc = tcase_create("libraries");

	tcase_add_test(tc, one_look_of_the_thread_that_opened_a_library_is_enough);
	tcase_add_test(tc, allocations_keep_looking_while_another_thread_is_inside_dlopen);
	tcase_add_test(
		tc, a_thread_that_stays_inside_dlopen_slows_the_others_down_for_a_while_only);
	tcase_add_test(tc, a_forked_child_does_not_wait_for_the_dlopen_of_another_thread);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
