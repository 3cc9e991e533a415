/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* No byte reaches a new owner while old work can still touch it: what the race detector says. */

#include "play.h"

#define POOLS(reuse)                                                                               \
	{"GPUPOOL_POOL=none", reuse, NULL}, {"GPUPOOL_POOL=simple", reuse, NULL},                  \
		{"GPUPOOL_POOL=binned", reuse, NULL}, {"GPUPOOL_POOL=split", reuse, NULL},            \
		{"GPUPOOL_POOL=vmm", reuse, NULL}

static const char *const settings[][3] = {
	POOLS("GPUPOOL_REUSE=auto"),
	POOLS("GPUPOOL_REUSE=ordered"),
	POOLS("GPUPOOL_REUSE=completed"),
	POOLS("GPUPOOL_SYNC_FREE=1"),
	POOLS("SIMGPU_DRIVER_VERSION=12040"),
};

static uint64_t orders, hits;

static void look(const char *name)
{
	const char *status = play_ask("status");

	orders = play_number(status, "fence_orders");
	hits = play_number(status, "hits");
}

START_TEST(two_streams_never_race_for_memory_that_is_used_again)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"streams"}, .env = settings[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(the_host_never_races_for_pinned_memory_that_is_used_again)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"pinned"}, .env = settings[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(pinned_memory_waits_for_the_work_of_every_context)
{
	static const char *const kinds[][2] = {{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=split", NULL}};

	play_run(&(struct play){.program = "app_reuse",
		.words = {"pinned-elsewhere"},
		.env = kinds[_i],
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("handed out early"), 0);
	ck_assert_uint_gt(play_fact("used again"), 0);
}
END_TEST

START_TEST(memory_goes_from_stream_to_stream_by_an_order_on_the_gpu)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"streams"}, .at_pause = look});
	ck_assert_uint_gt(orders, 0);
	ck_assert_uint_gt(hits, 24);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), 48);
}
END_TEST

START_TEST(a_loop_on_one_stream_asks_the_driver_once_and_never_waits)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop"}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(play_fact("cuMemFree_v2") + play_fact("cuMemFreeAsync"), 0);
	ck_assert_uint_eq(play_fact("cuCtxSynchronize"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent") + play_fact("cuEventQuery"), 0);
}
END_TEST

static const char *const still_in_order[] = {"loop_shared", "loop_known"};

START_TEST(a_stream_that_nobody_uses_and_a_thread_without_one_of_its_own_change_nothing)
{
	play_same(&(struct play){.program = "app_reuse", .words = {still_in_order[_i]}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 0);
	/* To see how far a slow GPU is behind, one in so many frees. */
	ck_assert_uint_le(play_fact("cuEventQuery"), 4);
}
END_TEST

/* A driver that may have functions which we do not know, or answers with others than it exports. */
static const char *const unseen[][2] = {
	{"SIMGPU_DRIVER_VERSION=13030", NULL}, {"SIMGPU_DISAGREE=cuMemsetD8Async", NULL}};

START_TEST(where_work_may_be_unseen_a_stream_is_enough)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop_shared"}, .env = unseen[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 24);
	ck_assert_uint_gt(play_fact("cuEventQuery"), 16);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(an_interface_that_no_header_tells_of_ends_the_order)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop_unknown"}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_gt(play_fact("cuCtxWaitEvent"), 0);
}
END_TEST

START_TEST(a_loop_behind_a_slow_gpu_takes_no_more_memory_the_longer_it_lasts)
{
	static const char *const simple[] = {"GPUPOOL_POOL=simple", NULL};

	play_same(&(struct play){.program = "app_reuse", .words = {"loop_small"}, .env = simple});
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 64);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const ends_of_order[] = {"then_stream", "then_early", "then_thread", "then_capture", "then_used",
	"then_memset", "then_copy", "then_own"};

START_TEST(what_was_used_again_in_order_is_waited_for_by_what_is_not)
{
	play_same(&(struct play){.program = "app_reuse", .words = {ends_of_order[_i]}});
	ck_assert_str_eq(play_out, "used again: yes\nwrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 1);
}
END_TEST

START_TEST(a_second_thread_need_not_wait_for_what_a_free_of_the_first_would_have)
{
	play_run(&(struct play){.program = "app_reuse", .words = {"second_releases"}, .preload = play_library});
	/* Else that of a deadlock. */
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(a_second_thread_is_held_back_while_the_first_waits_for_completion)
{
	play_run(&(struct play){.program = "app_reuse", .words = {"second_writes"}, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("used again"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, two_streams_never_race_for_memory_that_is_used_again, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, the_host_never_races_for_pinned_memory_that_is_used_again, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, pinned_memory_waits_for_the_work_of_every_context, 0, 2);
	tcase_add_test(tc, memory_goes_from_stream_to_stream_by_an_order_on_the_gpu);
	tcase_add_loop_test(
		tc, what_was_used_again_in_order_is_waited_for_by_what_is_not, 0, (int)LENGTH(ends_of_order));
	tcase_add_loop_test(tc, a_stream_that_nobody_uses_and_a_thread_without_one_of_its_own_change_nothing, 0,
		(int)LENGTH(still_in_order));
	tcase_add_loop_test(tc, where_work_may_be_unseen_a_stream_is_enough, 0, (int)LENGTH(unseen));
	tcase_add_test(tc, an_interface_that_no_header_tells_of_ends_the_order);
	tcase_add_test(tc, a_second_thread_need_not_wait_for_what_a_free_of_the_first_would_have);
	tcase_add_test(tc, a_second_thread_is_held_back_while_the_first_waits_for_completion);
	tcase_add_test(tc, a_loop_on_one_stream_asks_the_driver_once_and_never_waits);
	tcase_add_test(tc, a_loop_behind_a_slow_gpu_takes_no_more_memory_the_longer_it_lasts);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"reuse", add}, 1);
}
