/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library that reuses memory too early must be reported by the same program that finds no race with the real one. */

#include "tests/preload/play.h"

static const char *const pools[][2] = {
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=split", NULL},
};

START_TEST(a_library_that_reuses_memory_too_early_is_reported_as_a_race)
{
	play_run(&(struct play){
		.program = "app_reuse", .words = {"streams"}, .env = pools[_i], .preload = play_library});
	/* The simulator ends a process with this status after a race. */
	ck_assert_int_eq(play_status, 99);
	ck_assert_uint_gt(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_library_that_reuses_memory_too_early_is_reported_as_a_race, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"broken", add}, 1);
}
