/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory in stream order outlives its context: a primary one, or one that the program has created. */

#include <stdio.h>
#include <string.h>

#include "play.h"

#define ON "GPUPOOL_ASYNC=on"

static void run(const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = "app_async", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

static const char *const mapped[][2] = {
	{"GPUPOOL_POOL=split", "APP_PRIMARY=1"},
	{"GPUPOOL_POOL=vmm", "APP_PRIMARY=1"},
	{"GPUPOOL_POOL=split", "APP_CREATED=1"},
	{"GPUPOOL_POOL=vmm", "APP_CREATED=1"},
};

static void run_outlive(const char *name, const char *const how[static 2], const char *limit)
{
	const char *env[] = {ON, how[0], how[1], limit, NULL};

	run(name, env);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("bytes left"), 0);
}

static void check_nothing_left(void)
{
	ck_assert_uint_eq(play_fact("chunks left"), 0);
	ck_assert_uint_eq(play_fact("mappings left"), 0);
}

START_TEST(memory_that_outlives_its_context_counts_and_goes_back_when_it_is_freed)
{
	run_outlive("outlive-at-limit", mapped[_i], "GPUPOOL_LIMIT=128MiB");
	ck_assert_str_eq(play_out, "all counted: 1\nbeyond the limit: 2\nfree: 0\nwrong words of the other: 0\n"
				   "up to the limit: 0\nits free: 0\nfree of the other: 0\nfree again: 1\n");
	check_nothing_left();
}
END_TEST

START_TEST(memory_that_outlives_its_context_stays_until_the_stream_of_its_free_has_done_its_work)
{
	run_outlive("outlive-behind-work", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free: 0\nstill there: 1\n");
}
END_TEST

START_TEST(memory_that_outlives_its_context_is_freed_in_any_context_and_in_none)
{
	run_outlive("outlive-elsewhere", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "wrong words: 0\nwrong words: 0\nwrong words: 0\nfree: 0\n"
				   "free in a created context: 0\nfree without a context: 0\n");
	check_nothing_left();
}
END_TEST

START_TEST(threads_may_free_memory_that_outlives_its_context)
{
	run_outlive("outlive-by-threads", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "frees: 0\nfrees: 0\nfrees: 0\nfrees: 0\n");
	check_nothing_left();
}
END_TEST

START_TEST(a_free_of_memory_that_outlives_its_context_disturbs_no_capture)
{
	run_outlive("outlive-in-capture", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free on the captured stream: 1\nfree on another stream: 0\nplain free: 0\n"
				   "the capture ends: 0\n");
	check_nothing_left();
}
END_TEST

START_TEST(a_plain_free_of_memory_that_outlives_its_context_does_not_wait_and_the_memory_does)
{
	run_outlive("outlive-under-work", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free: 0\nstill there: 1\n");
	check_nothing_left();
}
END_TEST

START_TEST(memory_that_is_being_freed_on_a_stream_of_another_context_outlives_its_own)
{
	run_outlive("outlive-away", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free: 0\nstill there: 1\nthe work: 0\n");
	check_nothing_left();
}
END_TEST

START_TEST(an_allocation_at_the_limit_waits_for_memory_that_has_outlived_its_context_and_was_freed)
{
	run_outlive("outlive-until-wanted", mapped[_i], "GPUPOOL_LIMIT=128MiB");
	ck_assert_str_eq(play_out, "allocation in stream order: 0\nits free: 0\nallocation: 0\nfree: 0\n");
}
END_TEST

START_TEST(access_to_the_default_pool_covers_memory_that_has_outlived_its_context)
{
	const char *env[] = {ON, mapped[_i][0], mapped[_i][1], "SIMGPU_DEVICES=2", NULL};

	run("outlive-opened", env);
	ck_assert_str_eq(play_out, "copy on the other device: 0\nfree: 0\ncopy on the other device: 0\nfree: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Work of another context uses the memory when it is freed, and gpupool may not know all contexts. */
static const struct {
	const char *scenario, *then;
} users[] = {
	{"outlive-in-destroyed", "destroy: 0\n"},
	{"outlive-unknown", "the work: 0\n"},
	{"outlive-unknown-user", "the work: 0\n"},
};

START_TEST(memory_that_outlives_its_context_stays_until_no_context_uses_it)
{
	char out[64];

	run_outlive(users[_i % LENGTH(users)].scenario, mapped[_i / LENGTH(users)], NULL);
	snprintf(out, sizeof(out), "free: 0\nstill there: 1\n%s", users[_i % LENGTH(users)].then);
	ck_assert_str_eq(play_out, out);
	check_nothing_left();
}
END_TEST

START_TEST(unused_and_destroyed_contexts_do_not_keep_memory_that_outlives_its_context)
{
	run_outlive("outlive-among-others", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "destroyed context: 0\nfree: 0\n");
}
END_TEST

START_TEST(contexts_that_have_ended_keep_no_memory_that_outlives_its_context_however_many_there_were)
{
	run_outlive("outlive-after-many", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free: 0\n");
}
END_TEST

START_TEST(an_allocation_at_the_limit_waits_until_enough_small_blocks_have_come_back)
{
	const char *env[] = {ON, mapped[_i][0], mapped[_i][1], "GPUPOOL_LIMIT=128MiB", NULL};

	run("outlive-one-by-one", env);
	ck_assert_str_eq(play_out, "allocation: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_function_that_a_stream_calls_gives_back_no_memory_that_is_in_use)
{
	run_outlive("outlive-in-host-function", mapped[_i], NULL);
	ck_assert_str_eq(play_out, "free: 0\nthe work: 0\nasked in the function: 800\n");
	check_nothing_left();
}
END_TEST

START_TEST(memory_outlives_its_context_with_a_driver_without_fences_of_contexts)
{
	char path[512];
	const char *env[] = {ON, mapped[_i][0], mapped[_i][1], "SIMGPU_DRIVER_VERSION=12040", path, NULL};

	snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/driver-12040", play_app_dir);
	run("outlive-elsewhere", env);
	ck_assert_ptr_nonnull(strstr(play_out, "free without a context: 0\n"));
	ck_assert_uint_eq(play_fact("bytes left"), 0);
	check_nothing_left();
}
END_TEST

START_TEST(memory_that_outlives_its_context_has_the_attributes_of_the_driver)
{
	const char *env[] = {ON, mapped[_i][0], mapped[_i][1], NULL};

	run("outlive-attributes", env);
	ck_assert_str_eq(play_out, "synchronous memory operations: 0\nset: 0\nis set: 1\nwhat cannot be set: 1\n");
}
END_TEST

START_TEST(the_high_water_mark_of_a_pool_does_not_fall_at_the_end_of_a_context)
{
	const char *env[] = {ON, mapped[_i][0], mapped[_i][1], NULL};

	run("outlive-marks", env);
	ck_assert_str_eq(play_out, "20 freed: used 10, high 30\nsecond end: used 10, high 30\n"
				   "10 freed: used 25, high 35\nset: used 25, high 25\n25 freed: used 0, high 25\n"
				   "set again: used 0, high 0\n");
}
END_TEST

START_TEST(memory_in_the_host_outlives_its_context_as_memory_of_the_device)
{
	static const char *const env[] = {ON, "GPUPOOL_POOL=vmm", "GPUPOOL_LIMIT=128MiB", "GPUPOOL_SPILL=1GiB", NULL};

	run("outlive-in-host", env);
	ck_assert_str_eq(play_out, "of the device: 8, wrong words 0\nused is reserved: 1\ncounted: 1\n");
	ck_assert_uint_eq(play_fact("bytes left"), 0);
	check_nothing_left();
}
END_TEST

START_TEST(memory_of_the_driver_that_outlives_its_context_counts_until_it_is_freed)
{
	static const char *const env[] = {"GPUPOOL_ASYNC=off", NULL};

	run("outlive-in-driver", env);
	ck_assert_str_eq(play_out, "wrong words: 0\nfree: 0\n");
	ck_assert_uint_eq(play_fact("bytes counted"), 8 * MIB);
	ck_assert_uint_eq(play_fact("bytes left"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, memory_of_the_driver_that_outlives_its_context_counts_until_it_is_freed);
	tcase_add_test(tc, memory_in_the_host_outlives_its_context_as_memory_of_the_device);
	tcase_add_loop_test(
		tc, memory_that_outlives_its_context_counts_and_goes_back_when_it_is_freed, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, memory_that_outlives_its_context_stays_until_the_stream_of_its_free_has_done_its_work,
		0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, memory_that_outlives_its_context_is_freed_in_any_context_and_in_none, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, threads_may_free_memory_that_outlives_its_context, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, a_free_of_memory_that_outlives_its_context_disturbs_no_capture, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, a_plain_free_of_memory_that_outlives_its_context_does_not_wait_and_the_memory_does, 0,
		(int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, memory_that_is_being_freed_on_a_stream_of_another_context_outlives_its_own, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, an_allocation_at_the_limit_waits_for_memory_that_has_outlived_its_context_and_was_freed,
		0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, access_to_the_default_pool_covers_memory_that_has_outlived_its_context, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc, memory_that_outlives_its_context_stays_until_no_context_uses_it, 0,
		(int)(LENGTH(users) * LENGTH(mapped)));
	tcase_add_loop_test(
		tc, unused_and_destroyed_contexts_do_not_keep_memory_that_outlives_its_context, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(tc,
		contexts_that_have_ended_keep_no_memory_that_outlives_its_context_however_many_there_were, 0,
		(int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, an_allocation_at_the_limit_waits_until_enough_small_blocks_have_come_back, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, a_function_that_a_stream_calls_gives_back_no_memory_that_is_in_use, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, memory_outlives_its_context_with_a_driver_without_fences_of_contexts, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, memory_that_outlives_its_context_has_the_attributes_of_the_driver, 0, (int)LENGTH(mapped));
	tcase_add_loop_test(
		tc, the_high_water_mark_of_a_pool_does_not_fall_at_the_end_of_a_context, 0, (int)LENGTH(mapped));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"outlive", add}, 1);
}
