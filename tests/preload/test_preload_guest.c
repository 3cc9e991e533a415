/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A guest's manners: dlsym is the loader's, and others may stand in its way too. Whole programs: tests/guests. */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const programs[] = {"app_lookup_at_0", "app_lookup_at_2"};
static const char *const lookups[] = {"errors", "without-cuda", "next", "reopened"};

START_TEST(dlsym_is_the_loaders)
{
	static const char *const off[] = {"GPUPOOL=0", NULL};
	struct play play = {
		.program = programs[_i / (int)LENGTH(lookups)], .words = {lookups[_i % (int)LENGTH(lookups)]}};

	play_same(&play);
	play.env = off;
	play_same(&play);
}
END_TEST

START_TEST(the_next_one_is_the_one_after_the_caller)
{
	play_run(&(struct play){.program = programs[_i], .words = {"next"}, .preload = play_library});
	ck_assert_str_eq(play_out, "libraries: 123\nwho: 321\n");
}
END_TEST

static const char *const pools[][3] = {
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=simple", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL},
};

START_TEST(memory_of_a_plugin_that_sees_nothing_of_us_is_the_drivers)
{
	play_same(&(struct play){.program = "app_deep", .words = {"from-plugin"}, .env = pools[_i]});
	ck_assert_uint_ge(play_fact("plug-in calls"), 32);
}
END_TEST

START_TEST(memory_that_is_freed_past_us_is_never_handed_out_twice)
{
	play_run(&(struct play){
		.program = "app_deep", .words = {"from-program"}, .env = pools[_i], .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

static const char *const sets[] = {"set", "set-alone"};

START_TEST(what_a_plugin_that_sees_nothing_of_us_submits_is_waited_for)
{
	play_same(&(struct play){
		.program = "app_deep", .words = {sets[_i % 2]}, .env = pools[_i / 2]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Before us the other one finds the C library's dlsym alone, and there is no pool; after us we find his. */
START_TEST(another_library_in_the_way_of_dlsym_is_no_obstacle)
{
	char other[PATH_MAX], both[2 * PATH_MAX];
	bool is_first = _i == 0;

	snprintf(other, sizeof(other), "%s/libother.so", play_app_dir);
	snprintf(both, sizeof(both), "%s %s", is_first ? other : play_library, is_first ? play_library : other);
	play_same(&(struct play){.program = "app_lookup_at_0", .words = {"errors"}, .preload = both});
	play_same(&(struct play){.program = "app_ways", .words = {"dlsym"}, .preload = both});
	play_same(&(struct play){.program = "app_ways", .words = {"lookup5"}, .preload = both});
	if (!is_first)
		ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
}
END_TEST

/* Only who allocates is told, and once. */
START_TEST(a_misspelt_setting_is_reported_where_memory_is_allocated)
{
	static const char *const env[] = {"GPUPOOL_LIMT=1GiB", NULL};

	play_run(&(struct play){.program = "app_ways", .words = {"answers"}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_err, "");
	play_run(&(struct play){.program = "app_ways", .words = {"dlsym"}, .env = env, .preload = play_library});
	ck_assert_ptr_nonnull(strstr(play_err, "GPUPOOL_LIMT"));
	ck_assert_ptr_nonnull(strstr(play_err, "GPUPOOL_LIMIT"));
	ck_assert_uint_eq(strcspn(play_err, "\n") + 1, strlen(play_err));
	ck_assert_str_eq(play_out, "wrong words: 0\n");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, dlsym_is_the_loaders, 0, (int)(LENGTH(programs) * LENGTH(lookups)));
	tcase_add_loop_test(tc, the_next_one_is_the_one_after_the_caller, 0, (int)LENGTH(programs));
	tcase_add_loop_test(
		tc, memory_of_a_plugin_that_sees_nothing_of_us_is_the_drivers, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, memory_that_is_freed_past_us_is_never_handed_out_twice, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, what_a_plugin_that_sees_nothing_of_us_submits_is_waited_for, 0,
		2 * (int)LENGTH(pools));
	tcase_add_loop_test(tc, another_library_in_the_way_of_dlsym_is_no_obstacle, 0, 2);
	tcase_add_test(tc, a_misspelt_setting_is_reported_where_memory_is_allocated);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"guest", add}, 1);
}
