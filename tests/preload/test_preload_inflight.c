/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that is freed while another thread is still inside the call that submits work on it. */

#include "play.h"

static const char *const pools[][3] = {
	{"GPUPOOL_POOL=none", NULL},
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL},
	{"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", NULL},
};

static void expect_no_early_reuse(const char *scenario, const char *const *env)
{
	play_same(&(struct play){.program = "app_inflight", .words = {scenario}, .env = env});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}

static const char *const returning[] = {"large-returning", "small-returning", "pinned-returning"};
static const char *const entering[] = {"large-entering", "small-entering", "pinned-entering"};

START_TEST(a_block_freed_before_its_launch_returns_is_not_reused_while_the_gpu_uses_it)
{
	expect_no_early_reuse(returning[(size_t)_i % LENGTH(returning)], pools[(size_t)_i / LENGTH(returning)]);
}
END_TEST

START_TEST(a_fence_recorded_between_a_launch_and_its_submission_does_not_cover_it)
{
	expect_no_early_reuse(entering[(size_t)_i % LENGTH(entering)], pools[(size_t)_i / LENGTH(entering)]);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_block_freed_before_its_launch_returns_is_not_reused_while_the_gpu_uses_it, 0,
		(int)(LENGTH(pools) * LENGTH(returning)));
	tcase_add_loop_test(tc, a_fence_recorded_between_a_launch_and_its_submission_does_not_cover_it, 0,
		(int)(LENGTH(pools) * LENGTH(entering)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"inflight", add}, 1);
}
