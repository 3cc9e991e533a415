/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A free has the driver record a fence where something was submitted, or waits, since the last one, and only there. */

#include "play.h"

#include <limits.h>
#include <stdio.h>

#define N_ROUNDS "32" /* of the program's */

static const char *const pools[][2] = {
	{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=binned", NULL}, {"GPUPOOL_POOL=split", NULL},
	{"GPUPOOL_POOL=vmm", NULL}};

static void play(const char *scenario, const char *const *env)
{
	play_run(&(struct play){
		.program = "app_work", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_msg(play_status == 0, "%s%s", play_out, play_err);
}

START_TEST(each_function_that_submits_or_waits_makes_the_next_free_record)
{
	unsigned n = 0;

	play("each", pools[_i]);
	for (char *line = strtok(play_out, "\n"); line; line = strtok(NULL, "\n")) {
		const char *counts = strrchr(line, ':');

		if (strstr(line, "a launch of nothing: "))
			continue;
		ck_assert_msg(counts && !strcmp(counts, ": 0, 1"), "%s", line);
		n++;
	}
	ck_assert_uint_eq(n, 33);
}
END_TEST

START_TEST(each_function_that_submits_or_waits_makes_every_free_record_until_it_returns)
{
	unsigned n = 0;

	play("each-inside", pools[_i]);
	for (char *line = strtok(play_out, "\n"); line; line = strtok(NULL, "\n")) {
		const char *counts = strrchr(line, ':');

		ck_assert_msg(counts && !strcmp(counts, ": 1, 1"), "%s", line);
		n++;
	}
	ck_assert_uint_eq(n, 31);
}
END_TEST

START_TEST(what_submits_nothing_costs_the_next_free_nothing)
{
	play("idle", pools[_i]);
	ck_assert_str_eq(play_out, "fences: 0\n");
}
END_TEST

START_TEST(what_a_thread_keeps_needs_no_fence_either)
{
	play("small", pools[_i]);
	ck_assert_str_eq(play_out, "fences: 0\n");
}
END_TEST

/* By settings with which each free is to be the driver's to judge, or because the driver is newer, or answers oddly. */
static const char *const asked[][3] = {
	{"GPUPOOL_POOL=none", NULL},
	{"GPUPOOL_DEBUG=guard", NULL},
	{"SIMGPU_DRIVER_VERSION=13030", NULL},
	{"SIMGPU_DISAGREE=cuMemsetD8Async", NULL},
};

START_TEST(where_work_may_be_unseen_each_free_records)
{
	play("asked", asked[_i]);
	ck_assert_str_eq(play_out, "fences: " N_ROUNDS "\n");
}
END_TEST

START_TEST(whoever_looks_past_us_makes_each_free_record)
{
	play("blind", pools[_i]);
	ck_assert_str_eq(play_out, "fences: " N_ROUNDS "\n");
}
END_TEST

/* Nobody can know what he finds with a dlsym of his own. */
START_TEST(whoever_is_met_first_makes_each_free_record)
{
	char other[PATH_MAX], both[2 * PATH_MAX];

	snprintf(other, sizeof(other), "%s/libother.so", play_app_dir);
	snprintf(both, sizeof(both), "%s %s", _i ? play_library : other, _i ? other : play_library);
	play_run(&(struct play){.program = "app_work", .words = {"asked"}, .preload = both});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, _i ? "fences: 0\n" : "fences: " N_ROUNDS "\n");
}
END_TEST

/* Whoever wonders why is told. */
static const struct {
	const char *scenario, *env[3], *why;
} told[] = {
	{"asked", {"GPUPOOL_LOG=debug", "SIMGPU_DRIVER_VERSION=13030"}, "the driver is newer than CUDA 13.2"},
	{"blind", {"GPUPOOL_LOG=debug"}, "in the way of what is submitted"},
	{"private", {"GPUPOOL_LOG=debug"}, "an interface of the driver's that is in no header"},
};

START_TEST(why_each_free_records_is_in_the_log)
{
	const char *line;

	play(told[_i].scenario, told[_i].env);
	line = strstr(play_err, "so each free asks the driver: ");
	ck_assert_ptr_nonnull(line);
	ck_assert_msg(strstr(line, told[_i].why) != NULL, "%s", line);
}
END_TEST

START_TEST(at_the_end_of_the_process_each_free_records)
{
	play("ending", pools[_i]);
	ck_assert_str_eq(play_out, "before it: 0\nat the end: 1\n");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, each_function_that_submits_or_waits_makes_the_next_free_record, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, each_function_that_submits_or_waits_makes_every_free_record_until_it_returns, 0,
		(int)LENGTH(pools));
	tcase_add_loop_test(tc, what_submits_nothing_costs_the_next_free_nothing, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, what_a_thread_keeps_needs_no_fence_either, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, where_work_may_be_unseen_each_free_records, 0, (int)LENGTH(asked));
	tcase_add_loop_test(tc, whoever_looks_past_us_makes_each_free_record, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, whoever_is_met_first_makes_each_free_record, 0, 2);
	tcase_add_loop_test(tc, why_each_free_records_is_in_the_log, 0, (int)LENGTH(told));
	tcase_add_loop_test(tc, at_the_end_of_the_process_each_free_records, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"work", add}, 1);
}
