/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The library notices every end of the serial order of work, or it does not rely on that order. */

#include "play.h"

#include <limits.h>
#include <stdio.h>

static char both[2 * PATH_MAX + 2]; /* the library and a tracer */

static const char *with_tracer(bool is_behind)
{
	char tracer[PATH_MAX];

	snprintf(tracer, sizeof(tracer), "%s/libbehind.so", play_app_dir);
	snprintf(both, sizeof(both), "%s:%s", is_behind ? play_library : tracer, is_behind ? tracer : play_library);
	return both;
}

static const char *const ways[] = {"direct", "looked_up"};

START_TEST(a_tracer_sees_submissions_and_no_block_is_reused_too_early)
{
	play_run(&(struct play){.program = "app_order", .words = {ways[_i % 2]}, .preload = with_tracer(_i / 2)});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "traced\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_tracer_behind_the_library_sees_submissions_with_GPUPOOL_off)
{
	static const char *const off[] = {"GPUPOOL=off", NULL};

	play_run(&(struct play){.program = "app_order", .words = {"direct"}, .env = off, .preload = with_tracer(true)});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "traced\n"));
}
END_TEST

static const char *const pools[][2] = {{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL}, {"GPUPOOL_POOL=vmm", NULL}};

START_TEST(threads_in_serial_mode_see_right_data_while_others_end_it)
{
	play_same(&(struct play){.program = "app_order", .words = {"beside_threads"}, .env = pools[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const seen[] = {"with_attributes", "past"};

/* The work is submitted by a launch with attributes, or by a function that was looked up past the library. */
START_TEST(work_on_a_stream_waits_for_reused_memory_whichever_call_submits_it)
{
	play_same(&(struct play){.program = "app_order", .words = {seen[_i]}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 1);
}
END_TEST

START_TEST(two_threads_on_the_shared_default_stream_stay_in_serial_mode)
{
	play_same(&(struct play){.program = "app_order", .words = {"two_threads"}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuEventQuery"), 4);
}
END_TEST

static const char *const unseen[][2] = {
	{"SIMGPU_DRIVER_VERSION=13030", NULL}, {"SIMGPU_DISAGREE=cuMemsetD8Async", NULL}};

static const char *const unseen_pools[][3] = {
	{"SIMGPU_DRIVER_VERSION=13030", "GPUPOOL_POOL=simple", NULL},
	{"SIMGPU_DRIVER_VERSION=13030", "GPUPOOL_POOL=binned", NULL},
	{"SIMGPU_DRIVER_VERSION=13030", "GPUPOOL_POOL=split", NULL},
	{"SIMGPU_DRIVER_VERSION=13030", "GPUPOOL_POOL=vmm", NULL},
	{"SIMGPU_DISAGREE=cuMemsetD8Async", "GPUPOOL_POOL=split", NULL},
};

START_TEST(serial_mode_never_begins_if_work_may_be_submitted_unseen)
{
	play_same(&(struct play){.program = "app_order", .words = {"early_unseen"}, .env = unseen_pools[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_loop_in_two_threads_polls_fences_if_work_may_be_submitted_unseen)
{
	play_same(&(struct play){.program = "app_order", .words = {"two_threads"}, .env = unseen[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_gt(play_fact("cuEventQuery"), 8);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_tracer_sees_submissions_and_no_block_is_reused_too_early, 0, 2 * (int)LENGTH(ways));
	tcase_add_test(tc, a_tracer_behind_the_library_sees_submissions_with_GPUPOOL_off);
	tcase_add_loop_test(tc, threads_in_serial_mode_see_right_data_while_others_end_it, 0, (int)LENGTH(pools));
	tcase_add_loop_test(
		tc, work_on_a_stream_waits_for_reused_memory_whichever_call_submits_it, 0, (int)LENGTH(seen));
	tcase_add_test(tc, two_threads_on_the_shared_default_stream_stay_in_serial_mode);
	tcase_add_loop_test(tc, serial_mode_never_begins_if_work_may_be_submitted_unseen, 0, (int)LENGTH(unseen_pools));
	tcase_add_loop_test(
		tc, a_loop_in_two_threads_polls_fences_if_work_may_be_submitted_unseen, 0, (int)LENGTH(unseen));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"order", add}, 1);
}
