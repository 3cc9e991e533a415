/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The library that breaks the rule of reuse must be found out by the very program that clears the other. */

#include "tests/preload/play.h"

static const char *const pools[][2] = {
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=split", NULL},
};

START_TEST(memory_that_is_used_again_too_early_is_reported_as_a_race)
{
	play_run(&(struct play){
		.program = "app_reuse", .words = {"streams"}, .env = pools[_i], .preload = play_library});
	/* The simulator ends a process so in which it saw a race. */
	ck_assert_int_eq(play_status, 99);
	ck_assert_uint_gt(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, memory_that_is_used_again_too_early_is_reported_as_a_race, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"broken", add}, 1);
}
