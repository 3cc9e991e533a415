/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * GPUPOOL_VMM_SYNC=off omits waits that are only for an unmap. No memory is taken away from running work by that, and
 * waits that may be for more are made.
 */

#include "play.h"

/* Waits of 100 that the driver makes before an unmap: all, the first 8 of two places, or also one for each 40 MiB. */
static const struct {
	const char *env[3];
	uint64_t n;
} waits[] = {
	{{NULL}, 100},
	{{"GPUPOOL_VMM_SYNC=off"}, 16},
	{{"GPUPOOL_VMM_SYNC=off", "GPUPOOL_VMM_CACHE=off"}, 100},
	{{"GPUPOOL_VMM_SYNC=off", "GPUPOOL_LIMIT=320M", "GPUPOOL_PENDING_RATIO=0.125"}, 16 + 8},
};

START_TEST(waits_before_an_unmap_are_omitted_on_request)
{
	const char *env[] = {"GPUPOOL_LOG=off", waits[_i].env[0], waits[_i].env[1], waits[_i].env[2], NULL};

	play_run(&(struct play){.program = "app_virtual", .words = {"unwaited"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("waits"), waits[_i].n);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const unwaited[] = {"GPUPOOL_VMM_SYNC=off", "GPUPOOL_LOG=off", NULL};

START_TEST(waits_that_may_be_for_more_than_an_unmap_are_made)
{
	play_run(&(struct play){
		.program = "app_virtual", .words = {"waits-for-more"}, .env = unwaited, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("waits"), 20 + 40 + 8);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const same[] = {"unwaited-access", "unwaited-beside-work", "unwaited-by-driver",
	"unwaited-by-thread", "unwaited-later-work", "unwaited-mapped-again", "waits-in-captures", "waits-in-contexts",
	"waits-of-runtime", "waits-twice"};

START_TEST(programs_whose_waits_are_omitted_get_the_same_answers)
{
	play_same(&(struct play){.program = "app_virtual", .words = {same[_i]}, .env = unwaited});
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_is_not_taken_away_while_the_context_of_its_work_ends)
{
	play_same(&(struct play){.program = "app_virtual", .words = {"unwaited-ends"}, .env = unwaited});
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_that_no_wait_has_covered_goes_back_after_its_work)
{
	play_run(&(struct play){
		.program = "app_virtual", .words = {"unwaited-goes-back"}, .env = unwaited, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "the stream: 600\n"
				   "any bytes given back after a wait: 1\n"
				   "the stream: 0\n"
				   "at its address: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, waits_before_an_unmap_are_omitted_on_request, 0, LENGTH(waits));
	tcase_add_test(tc, waits_that_may_be_for_more_than_an_unmap_are_made);
	tcase_add_loop_test(tc, programs_whose_waits_are_omitted_get_the_same_answers, 0, LENGTH(same));
	tcase_add_test(tc, memory_is_not_taken_away_while_the_context_of_its_work_ends);
	tcase_add_test(tc, memory_that_no_wait_has_covered_goes_back_after_its_work);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"unwaited", add}, 1);
}
