/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The first calls of a process: slow system calls are left to other threads, and a slow driver call is avoided. */

#include <stdio.h>

#include "play.h"

static const char *const kinds[][3] = {
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=simple", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL},
};

/* The library's descriptors start at 512. A larger table need not be enlarged. */
enum { SMALL_TABLE = 512 };

static void play(const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = "app_first", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}

START_TEST(the_first_calls_wait_for_no_thread_and_register_nothing_with_the_kernel)
{
	play("start-up", kinds[_i]);
	ck_assert_uint_eq(play_fact("registered at first"), 0);
	ck_assert_uint_eq(play_fact("registered by the main thread"), 0);
}
END_TEST

START_TEST(the_first_allocation_does_not_enlarge_the_table_of_descriptors)
{
	play("start-up", kinds[_i]);
	if (play_fact("table size") > SMALL_TABLE)
		printf("# skipped: the table of descriptors is large already\n");
	else
		ck_assert_uint_eq(play_fact("table enlarged by the main thread"), 0);
}
END_TEST

/* The kind vmm unmaps memory, and so needs neither call. */
static bool releases_segments(int kind)
{
	return strcmp(kinds[kind][0], "GPUPOOL_POOL=vmm") != 0;
}

START_TEST(the_first_releases_of_an_idle_process_use_no_slow_cuMemFreeAsync)
{
	play("release-idle", kinds[_i]);
	ck_assert_uint_eq(play_fact("stream-ordered frees"), 0);
	ck_assert_uint_eq(play_fact("own frees") > 0, releases_segments(_i));
}
END_TEST

START_TEST(the_first_releases_of_a_process_do_not_wait_for_the_kernel_of_another_thread)
{
	play("release-busy", kinds[_i]);
	ck_assert_uint_eq(play_fact("own frees"), 0);
	ck_assert_uint_eq(play_fact("stream-ordered frees") > 0, releases_segments(_i));
}
END_TEST

START_TEST(a_message_about_a_fence_that_no_process_reads_blocks_no_other_thread)
{
	static const char *const env[] = {"SIMGPU_FAULT=cuCtxRecordEvent:1=304", NULL};

	play_run(&(struct play){.program = "app_first", .words = {"log-blocks"}, .env = env, .preload = play_library});
	ck_assert_ptr_nonnull(strstr(play_err, "a fence call failed with driver error 304"));
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, the_first_calls_wait_for_no_thread_and_register_nothing_with_the_kernel, 0, (int)LENGTH(kinds));
	tcase_add_loop_test(tc, the_first_allocation_does_not_enlarge_the_table_of_descriptors, 0, (int)LENGTH(kinds));
	tcase_add_test(tc, a_message_about_a_fence_that_no_process_reads_blocks_no_other_thread);
	tcase_add_loop_test(
		tc, the_first_releases_of_an_idle_process_use_no_slow_cuMemFreeAsync, 0, (int)LENGTH(kinds));
	tcase_add_loop_test(tc, the_first_releases_of_a_process_do_not_wait_for_the_kernel_of_another_thread, 0,
		(int)LENGTH(kinds));
}

int main(int argc, char **argv)
{
	static const struct play_tests tests[] = {{"first", add}};

	return play_main(argc, argv, tests, LENGTH(tests));
}
