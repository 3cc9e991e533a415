/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library that does not find the driver's context-wide fences, as on an old driver, must still be correct. */

#include "tests/preload/play.h"

static const char *const pools[][2] = {
	{"GPUPOOL_POOL=none", NULL},
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL},
};

static const char *const scenarios[] = {"streams", "pinned", "loop"};

START_TEST(without_context_fences_memory_is_reused_after_a_host_wait)
{
	play_same(&(struct play){.program = "app_reuse",
		.words = {scenarios[_i % (int)LENGTH(scenarios)]},
		.env = pools[_i / (int)LENGTH(scenarios)]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("cuCtxRecordEvent") + play_fact("cuCtxWaitEvent"), 0);
	ck_assert_uint_gt(play_fact("cuCtxSynchronize"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, without_context_fences_memory_is_reused_after_a_host_wait, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"fenceless", add}, 1);
}
