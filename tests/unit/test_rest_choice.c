/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The choice of the idle processes that are asked to sleep for another one. */

#include <check.h>

#include "shim/reclaim/rest_choice.h"
#include "tests/suite.h"

enum { MAX = 4 };

static const struct {
	struct {
		pid_t pid;
		uint64_t bytes;
		unsigned idle_ds;
	} processes[MAX];
	uint64_t bytes;
	pid_t chosen[MAX];
} choices[] = {
	/* The longest idle one, although another one has more. */
	{{{1, 40, 50}, {2, 10, 900}}, 10, {2}},
	/* The largest of those that have been idle for as long. */
	{{{1, 10, 50}, {2, 40, 59}, {3, 20, 54}}, 10, {2}},
	/* Several, in the order of their idle times. */
	{{{1, 10, 10}, {2, 10, 30}, {3, 10, 20}}, 15, {2, 3}},
	/* The first two are not needed beside the third one. */
	{{{1, 5, 90}, {2, 5, 80}, {3, 40, 70}}, 40, {3}},
	/* The first one is needed beside the third one, the second one is not. */
	{{{1, 8, 90}, {2, 2, 80}, {3, 40, 70}}, 48, {1, 3}},
	/* All together are too few, so none sleeps. */
	{{{1, 10, 10}, {2, 10, 30}}, 21, {0}},
	{{{0}}, 1, {0}},
};

START_TEST(idle_processes_sleep_in_the_order_of_their_idle_times_and_no_more_than_needed)
{
	struct gp_process processes[MAX] = {0};
	unsigned n = 0, n_chosen = 0;

	for (; n < MAX && choices[_i].processes[n].pid; n++)
		processes[n] = (struct gp_process){.pid = choices[_i].processes[n].pid,
			.held_bytes = choices[_i].processes[n].bytes,
			.idle_ds = choices[_i].processes[n].idle_ds};
	while (n_chosen < MAX && choices[_i].chosen[n_chosen])
		n_chosen++;
	ck_assert_uint_eq(gp_rest_choose(processes, n, choices[_i].bytes), n_chosen);
	for (unsigned i = 0; i < n_chosen; i++)
		ck_assert_int_eq(processes[i].pid, choices[_i].chosen[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rest_choice");
	TCase *tc = tcase_create("choice");

	tcase_add_loop_test(tc, idle_processes_sleep_in_the_order_of_their_idle_times_and_no_more_than_needed, 0,
		(int)(sizeof(choices) / sizeof(choices[0])));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
