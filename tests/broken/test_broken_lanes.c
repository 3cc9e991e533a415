/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A library whose fences ignore submitting threads must be reported by the same program that finds no race with the
 * real one.
 */

#include "tests/preload/play.h"

static const char *const pools[][2] = {
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=split", NULL},
};
static const char *const scenarios[] = {"large-entering", "small-entering", "pinned-entering"};

START_TEST(a_library_that_ignores_submitting_threads_is_reported_as_a_race)
{
	play_run(&(struct play){.program = "app_inflight",
		.words = {scenarios[(size_t)_i % LENGTH(scenarios)]},
		.env = pools[(size_t)_i / LENGTH(scenarios)],
		.preload = play_library});
	/* The simulator ends a process with this status after a race. */
	ck_assert_int_eq(play_status, 99);
	ck_assert_uint_gt(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_library_that_ignores_submitting_threads_is_reported_as_a_race, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"broken", add}, 1);
}
