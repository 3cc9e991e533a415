/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Limits of the time for which the threads of a process wait for other processes. */

#include <check.h>

#include "shim/reclaim/wait_budget.h"
#include "tests/suite.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

static struct gp_wait_budget budget;
static uint64_t now_ns;

static void setup(void)
{
	budget = (struct gp_wait_budget){0};
	now_ns = 1000 * S;
}

/* Waits for as long as it is granted. Returns that time. */
static uint64_t wait_for_all(bool is_served)
{
	uint64_t ns = gp_wait_budget_grant(&budget, now_ns);

	now_ns += ns;
	if (ns)
		gp_wait_budget_end(&budget, now_ns, ns, ns, is_served);
	return ns;
}

START_TEST(a_request_may_wait_for_two_seconds_and_all_of_them_for_ten_seconds_a_minute)
{
	uint64_t first_ns = now_ns, sum = 0;

	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(wait_for_all(true), 2 * S);
	ck_assert_uint_eq(wait_for_all(true), 0);
	now_ns = first_ns + 60 * S;
	ck_assert_uint_eq(wait_for_all(true), 0);
	now_ns = first_ns + 75 * S;
	for (int i = 0; i < 10; i++)
		sum += wait_for_all(true);
	ck_assert_uint_eq(sum, 10 * S);
}
END_TEST

START_TEST(in_no_minute_do_waits_of_any_length_take_more_than_ten_seconds)
{
	enum { N = 2000 };
	static uint64_t begin[N], end[N];
	unsigned seed = 1;
	int n = 0;

	while (n < N) {
		uint64_t granted = gp_wait_budget_grant(&budget, now_ns);

		seed = seed * 1103515245 + 12345;
		begin[n] = now_ns;
		now_ns += granted ? (seed >> 16) % granted : 0;
		end[n] = now_ns;
		if (granted)
			gp_wait_budget_end(&budget, now_ns, granted, now_ns - begin[n], seed >> 20 & 1);
		n += granted != 0;
		now_ns += (seed >> 8) % (3000 * MS);
	}
	for (int last = 0, first = 0; last < N; last++) {
		uint64_t sum = 0;

		while (end[first] + 60 * S < end[last])
			first++;
		for (int i = first + 1; i <= last; i++)
			sum += end[i] - begin[i];
		ck_assert_uint_le(sum, 10 * S);
	}
}
END_TEST

START_TEST(threads_that_wait_at_the_same_time_share_the_ten_seconds)
{
	uint64_t ns[6];

	for (int i = 0; i < 6; i++)
		ns[i] = gp_wait_budget_grant(&budget, now_ns);
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(ns[i], 2 * S);
	ck_assert_uint_eq(ns[5], 0);
	gp_wait_budget_end(&budget, now_ns + 100 * MS, ns[0], 100 * MS, true);
	ck_assert_uint_eq(gp_wait_budget_grant(&budget, now_ns + 100 * MS), 1900 * MS);
}
END_TEST

START_TEST(each_failed_wait_halves_the_next_until_one_serves_a_request_or_a_minute_has_passed)
{
	ck_assert_uint_eq(wait_for_all(false), 2000 * MS);
	ck_assert_uint_eq(wait_for_all(false), 1000 * MS);
	ck_assert_uint_eq(wait_for_all(true), 500 * MS);
	ck_assert_uint_eq(wait_for_all(false), 2000 * MS);
	ck_assert_uint_eq(wait_for_all(false), 1000 * MS);
	now_ns += 62 * S;
	ck_assert_uint_eq(wait_for_all(false), 2000 * MS);
}
END_TEST

START_TEST(a_search_for_the_largest_allocation_waits_for_less_than_four_seconds)
{
	uint64_t sum = 0;

	for (int i = 0; i < 40; i++) {
		sum += wait_for_all(false);
		now_ns += MS;
	}
	ck_assert_uint_le(sum, 4 * S);
}
END_TEST

START_TEST(a_wait_that_is_given_up_before_it_begins_costs_nothing)
{
	for (int i = 0; i < 100; i++) {
		uint64_t ns = gp_wait_budget_grant(&budget, now_ns);

		ck_assert_uint_eq(ns, 2 * S);
		gp_wait_budget_end(&budget, now_ns, ns, 0, false);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wait_budget");
	TCase *tc = tcase_create("wait_budget");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_request_may_wait_for_two_seconds_and_all_of_them_for_ten_seconds_a_minute);
	tcase_add_test(tc, in_no_minute_do_waits_of_any_length_take_more_than_ten_seconds);
	tcase_add_test(tc, threads_that_wait_at_the_same_time_share_the_ten_seconds);
	tcase_add_test(tc, each_failed_wait_halves_the_next_until_one_serves_a_request_or_a_minute_has_passed);
	tcase_add_test(tc, a_search_for_the_largest_allocation_waits_for_less_than_four_seconds);
	tcase_add_test(tc, a_wait_that_is_given_up_before_it_begins_costs_nothing);
	return suite_run(suite);
}
