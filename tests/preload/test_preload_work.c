/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A free records a fence if a call has submitted work or a wait since the last fence, and only then. */

#include "play.h"

#include <limits.h>
#include <stdio.h>

#define N_ROUNDS "32" /* ROUNDS in the program */

static const char *const pools[][2] = {{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL}, {"GPUPOOL_POOL=vmm", NULL}};

static void play(const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = "app_work", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s%s", play_status, play_out, play_err);
}

START_TEST(a_call_that_submits_or_waits_makes_the_next_free_record_a_fence)
{
	unsigned n = 0;

	play("each", pools[_i]);
	for (char *line = strtok(play_out, "\n"); line; line = strtok(NULL, "\n")) {
		const char *counts = strrchr(line, ':');

		if (strstr(line, "an empty launch: "))
			continue;
		ck_assert_msg(counts && !strcmp(counts, ": 0, 1"), "expected the counts 0, 1 in: %s", line);
		n++;
	}
	ck_assert_uint_eq(n, 33);
}
END_TEST

START_TEST(a_call_that_submits_or_waits_makes_frees_record_fences_until_it_returns)
{
	unsigned n = 0;

	play("each-inside", pools[_i]);
	for (char *line = strtok(play_out, "\n"); line; line = strtok(NULL, "\n")) {
		const char *counts = strrchr(line, ':');

		ck_assert_msg(counts && !strcmp(counts, ": 1, 1"), "expected the counts 1, 1 in: %s", line);
		n++;
	}
	ck_assert_uint_eq(n, 31);
}
END_TEST

START_TEST(a_free_after_calls_that_submit_nothing_records_no_fence)
{
	play("idle", pools[_i]);
	ck_assert_str_eq(play_out, "fences: 0\n");
}
END_TEST

START_TEST(a_free_into_the_thread_cache_records_no_fence)
{
	play("small", pools[_i]);
	ck_assert_str_eq(play_out, "fences: 0\n");
}
END_TEST

/* Settings under which the driver checks each free, and drivers that are newer or inconsistent. */
static const char *const settings[][3] = {
	{"GPUPOOL_POOL=none", NULL},
	{"GPUPOOL_DEBUG=guard", NULL},
	{"SIMGPU_DRIVER_VERSION=13030", NULL},
	{"SIMGPU_DISAGREE=cuMemsetD8Async", NULL},
};

START_TEST(each_free_records_a_fence_if_work_may_be_submitted_unseen)
{
	play("forced", settings[_i]);
	ck_assert_str_eq(play_out, "fences: " N_ROUNDS "\n");
}
END_TEST

START_TEST(each_free_records_a_fence_after_a_driver_lookup_with_RTLD_NEXT)
{
	play("blind", pools[_i]);
	ck_assert_str_eq(play_out, "fences: " N_ROUNDS "\n");
}
END_TEST

/* The library cannot know which functions the other library finds with its own dlsym. */
START_TEST(each_free_records_a_fence_if_another_library_interposes_dlsym_first)
{
	char other[PATH_MAX], both[2 * PATH_MAX];

	snprintf(other, sizeof(other), "%s/libother.so", play_app_dir);
	snprintf(both, sizeof(both), "%s %s", _i ? play_library : other, _i ? other : play_library);
	play_run(&(struct play){.program = "app_work", .words = {"forced"}, .preload = both});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, _i ? "fences: 0\n" : "fences: " N_ROUNDS "\n");
}
END_TEST

/* Settings and drivers for which each free records a fence, and the reason that the debug log gives. */
static const struct {
	const char *scenario, *env[3], *why;
} reasons[] = {
	{"forced", {"GPUPOOL_LOG=debug", "SIMGPU_DRIVER_VERSION=13030"}, "the driver is newer than CUDA 13.2"},
	{"blind", {"GPUPOOL_LOG=debug"}, "intercepts functions that submit work"},
	{"private", {"GPUPOOL_LOG=debug"}, "the program uses a driver interface that no header declares"},
};

START_TEST(the_debug_log_says_why_each_free_records_a_fence)
{
	const char *line;

	play(reasons[_i].scenario, reasons[_i].env);
	line = strstr(play_err, "so each free records a fence: ");
	ck_assert_ptr_nonnull(line);
	ck_assert_msg(strstr(line, reasons[_i].why) != NULL, "expected '%s' in: %s", reasons[_i].why, line);
}
END_TEST

START_TEST(each_free_records_a_fence_at_the_end_of_the_process)
{
	play("ending", pools[_i]);
	ck_assert_str_eq(play_out, "before the end: 0\nat the end: 1\n");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_call_that_submits_or_waits_makes_the_next_free_record_a_fence, 0, (int)LENGTH(pools));
	tcase_add_loop_test(
		tc, a_call_that_submits_or_waits_makes_frees_record_fences_until_it_returns, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_free_after_calls_that_submit_nothing_records_no_fence, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_free_into_the_thread_cache_records_no_fence, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, each_free_records_a_fence_if_work_may_be_submitted_unseen, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, each_free_records_a_fence_after_a_driver_lookup_with_RTLD_NEXT, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, each_free_records_a_fence_if_another_library_interposes_dlsym_first, 0, 2);
	tcase_add_loop_test(tc, the_debug_log_says_why_each_free_records_a_fence, 0, (int)LENGTH(reasons));
	tcase_add_loop_test(tc, each_free_records_a_fence_at_the_end_of_the_process, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"work", add}, 1);
}
