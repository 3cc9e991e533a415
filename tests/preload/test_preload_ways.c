/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * For every way to find the driver and for every driver, either the pool serves the program or the library leaves all
 * calls to the driver.
 */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const ways[] = {"dlsym", "dlsym-per-thread", "default", "lookup4", "lookup4-per-thread", "lookup5",
	"lookup5-per-thread", "lookup5-by-4"};

START_TEST(every_way_to_find_the_driver_leads_to_the_pool)
{
	play_same(&(struct play){.program = "app_ways", .words = {ways[_i]}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), 2);
}
END_TEST

START_TEST(lookups_give_the_same_answers_as_the_driver)
{
	play_same(&(struct play){.program = "app_ways", .words = {"answers"}});
}
END_TEST

static const char *const runtimes[] = {"app_runtime_shared", "app_runtime_static"};
static const char *const runtime_words[] = {"loop", "errors", "mixed", "reset"};

START_TEST(runtime_programs_behave_as_without_the_library)
{
	static const char *const quiet[] = {"GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = runtimes[_i / (int)LENGTH(runtime_words)],
		.words = {runtime_words[_i % (int)LENGTH(runtime_words)]},
		.env = quiet});
}
END_TEST

START_TEST(memory_of_runtime_programs_comes_from_the_pool)
{
	play_same(&(struct play){.program = runtimes[_i], .words = {"loop"}});
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 4);
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), 2);
	ck_assert_uint_eq(play_fact("cuMemFree_v2"), 0);
}
END_TEST

#define BEFORE_12050 "no cuCtxRecordEvent\nno cuCtxCreate_v4\n"
#define BEFORE_12000 BEFORE_12050 "no cuCtxGetId\nno cuGetProcAddress_v2\n"
#define BEFORE_11030 BEFORE_12000 "no cuGetProcAddress\n"

enum { N_OLD = 3 };

/* Drivers that lack functions, the old ones first, and drivers of another version that still export them. */
static const struct {
	const char *env[3];
	bool is_pooled;
	const char *missing;
} drivers[] = {
	{{"LD_LIBRARY_PATH=driver-12040", "SIMGPU_DRIVER_VERSION=12040"}, true, BEFORE_12050},
	{{"LD_LIBRARY_PATH=driver-11040", "SIMGPU_DRIVER_VERSION=11040"}, true, BEFORE_12000},
	{{"LD_LIBRARY_PATH=driver-11020", "SIMGPU_DRIVER_VERSION=11020"}, true, BEFORE_11030},
	{{"SIMGPU_DRIVER_VERSION=12040"}, true},
	{{"SIMGPU_HIDE=cuCtxRecordEvent,cuCtxWaitEvent"}, true},
	{{"SIMGPU_DISAGREE=cuMemFreeAsync", "GPUPOOL_LOG=off"}, false},
	{{"SIMGPU_DISAGREE=cuStreamBeginCapture_v2", "GPUPOOL_LOG=off"}, false},
	{{"GPUPOOL=0"}, false},
	{{"GPUPOOL=off"}, false},
};

/* An old driver is in a separate directory beside the programs. */
static void run_on(int driver, const char *scenario)
{
	char path[PATH_MAX];
	const char *env[3] = {drivers[driver].env[0], drivers[driver].env[1]};
	const char *directory = strchr(env[0], '=') + 1;

	if (strncmp(env[0], "LD_LIBRARY_PATH=", strlen("LD_LIBRARY_PATH=")) == 0) {
		snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/%s", play_app_dir, directory);
		env[0] = path;
	}
	play_same(&(struct play){.program = "app_ways", .words = {scenario}, .env = env});
}

START_TEST(old_drivers_are_pooled_and_inconsistent_drivers_are_left_alone)
{
	run_on(_i, "dlsym");
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	if (drivers[_i].is_pooled)
		ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	else
		ck_assert_uint_ge(play_fact("cuMemAlloc_v2"), 200);
}
END_TEST

START_TEST(functions_that_an_old_driver_lacks_stay_missing)
{
	run_on(_i, "missing");
	ck_assert_str_eq(play_out, drivers[_i].missing);
}
END_TEST

START_TEST(an_inconsistent_driver_gets_no_pool_and_one_message_says_so)
{
	static const char *const env[] = {"SIMGPU_DISAGREE=cuMemFreeAsync", NULL};

	play_run(&(struct play){.program = "app_ways", .words = {"lookup5"}, .env = env, .preload = play_library});
	ck_assert_ptr_nonnull(strstr(play_err, "disagree"));
	ck_assert_uint_eq(strcspn(play_err, "\n") + 1, strlen(play_err));
	ck_assert(!play_is_listening());
}
END_TEST

START_TEST(a_first_call_beside_a_constructor_that_uses_CUDA_does_not_deadlock)
{
	char library[PATH_MAX];
	const char *const env[] = {library, NULL};

	snprintf(library, sizeof(library), "APP_LIBRARY=%s/liblocked.so", play_app_dir);
	play_same(&(struct play){.program = "app_loader", .words = {"first"}, .env = env});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("cuMemAlloc_v2"), 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, a_first_call_beside_a_constructor_that_uses_CUDA_does_not_deadlock);
	tcase_add_loop_test(tc, every_way_to_find_the_driver_leads_to_the_pool, 0, (int)LENGTH(ways));
	tcase_add_test(tc, lookups_give_the_same_answers_as_the_driver);
	tcase_add_loop_test(
		tc, runtime_programs_behave_as_without_the_library, 0, (int)(LENGTH(runtimes) * LENGTH(runtime_words)));
	tcase_add_loop_test(tc, memory_of_runtime_programs_comes_from_the_pool, 0, (int)LENGTH(runtimes));
	tcase_add_loop_test(
		tc, old_drivers_are_pooled_and_inconsistent_drivers_are_left_alone, 0, (int)LENGTH(drivers));
	tcase_add_loop_test(tc, functions_that_an_old_driver_lacks_stay_missing, 0, N_OLD);
	tcase_add_test(tc, an_inconsistent_driver_gets_no_pool_and_one_message_says_so);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"ways", add}, 1);
}
