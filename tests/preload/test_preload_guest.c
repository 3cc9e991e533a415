/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * dlsym must answer as the loader's does, even beside other libraries that interpose it. Whole programs:
 * tests/guests.
 */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const programs[] = {"app_lookup_at_0", "app_lookup_at_2"};
static const char *const lookups[] = {"errors", "without-cuda", "next", "reopened"};

START_TEST(dlsym_answers_as_the_loader_does)
{
	static const char *const off[] = {"GPUPOOL=0", NULL};
	struct play play = {
		.program = programs[_i / (int)LENGTH(lookups)], .words = {lookups[_i % (int)LENGTH(lookups)]}};

	play_same(&play);
	play.env = off;
	play_same(&play);
}
END_TEST

START_TEST(RTLD_NEXT_starts_after_the_library_that_calls_dlsym)
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

START_TEST(a_plugin_opened_with_RTLD_DEEPBIND_gets_its_memory_from_the_driver)
{
	play_same(&(struct play){.program = "app_deep", .words = {"from-plugin"}, .env = pools[_i]});
	ck_assert_uint_ge(play_fact("plug-in calls"), 32);
}
END_TEST

START_TEST(a_block_that_was_freed_past_the_pool_never_gets_two_owners)
{
	play_run(&(struct play){
		.program = "app_deep", .words = {"from-program"}, .env = pools[_i], .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

static const char *const sets[] = {"set", "set-alone"};

START_TEST(work_of_an_RTLD_DEEPBIND_plugin_ends_before_its_memory_is_reused)
{
	play_same(&(struct play){.program = "app_deep", .words = {sets[_i % 2]}, .env = pools[_i / 2]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/*
 * If the other library comes first, it finds only the C library's dlsym, and there is no pool. If it comes
 * second, gpupool finds its dlsym.
 */
START_TEST(a_program_behaves_the_same_beside_another_library_that_interposes_dlsym)
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

/* Only a program that allocates gets the message, and only once. */
START_TEST(a_misspelt_setting_is_reported_once_and_only_to_programs_that_allocate)
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
	tcase_add_loop_test(tc, dlsym_answers_as_the_loader_does, 0, (int)(LENGTH(programs) * LENGTH(lookups)));
	tcase_add_loop_test(tc, RTLD_NEXT_starts_after_the_library_that_calls_dlsym, 0, (int)LENGTH(programs));
	tcase_add_loop_test(
		tc, a_plugin_opened_with_RTLD_DEEPBIND_gets_its_memory_from_the_driver, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_block_that_was_freed_past_the_pool_never_gets_two_owners, 0, (int)LENGTH(pools));
	tcase_add_loop_test(
		tc, work_of_an_RTLD_DEEPBIND_plugin_ends_before_its_memory_is_reused, 0, 2 * (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_program_behaves_the_same_beside_another_library_that_interposes_dlsym, 0, 2);
	tcase_add_test(tc, a_misspelt_setting_is_reported_once_and_only_to_programs_that_allocate);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"guest", add}, 1);
}
