/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* No byte reaches a new owner while old work can still touch it, according to the race detector. */

#include "play.h"

#define POOLS(reuse)                                                                       \
	{"GPUPOOL_POOL=none", reuse, NULL}, {"GPUPOOL_POOL=simple", reuse, NULL},          \
		{"GPUPOOL_POOL=binned", reuse, NULL}, {"GPUPOOL_POOL=split", reuse, NULL}, \
	{                                                                                  \
		"GPUPOOL_POOL=vmm", reuse, NULL                                            \
	}

static const char *const settings[][3] = {
	POOLS("GPUPOOL_REUSE=auto"),
	POOLS("GPUPOOL_REUSE=ordered"),
	POOLS("GPUPOOL_REUSE=completed"),
	POOLS("GPUPOOL_SYNC_FREE=1"),
	POOLS("SIMGPU_DRIVER_VERSION=12040"),
};

static uint64_t n_gpu_waits, hits;

static void read_status(const char *name)
{
	const char *status = play_ask("status");

	n_gpu_waits = play_number(status, "fence_orders");
	hits = play_number(status, "hits");
}

START_TEST(two_streams_never_race_for_reused_memory)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"streams"}, .env = settings[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(the_host_never_races_for_reused_pinned_memory)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"pinned"}, .env = settings[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(pinned_memory_is_reused_only_after_the_work_of_every_context)
{
	static const char *const kinds[][2] = {{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=split", NULL}};

	play_run(&(struct play){
		.program = "app_reuse", .words = {"pinned-elsewhere"}, .env = kinds[_i], .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("handed out early"), 0);
	ck_assert_uint_gt(play_fact("used again"), 0);
}
END_TEST

START_TEST(memory_passes_between_streams_by_a_gpu_wait)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"streams"}, .at_pause = read_status});
	ck_assert_uint_gt(n_gpu_waits, 0);
	ck_assert_uint_gt(hits, 24);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), 48);
}
END_TEST

START_TEST(a_loop_on_one_stream_allocates_from_the_driver_once_and_never_waits)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop"}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(play_fact("cuMemFree_v2") + play_fact("cuMemFreeAsync"), 0);
	ck_assert_uint_eq(play_fact("cuCtxSynchronize"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent") + play_fact("cuEventQuery"), 0);
}
END_TEST

static const char *const serial_loops[] = {"loop_shared", "loop_known"};

START_TEST(unused_streams_second_threads_and_known_interfaces_keep_serial_mode)
{
	play_same(&(struct play){.program = "app_reuse", .words = {serial_loops[_i]}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 0);
	/* One poll in many frees watches how far a slow GPU is behind. */
	ck_assert_uint_le(play_fact("cuEventQuery"), 4);
}
END_TEST

/* A driver with functions that gpupool may not know, and one whose lookup returns other functions than it exports. */
static const char *const unseen[][2] = {
	{"SIMGPU_DRIVER_VERSION=13030", NULL}, {"SIMGPU_DISAGREE=cuMemsetD8Async", NULL}};

START_TEST(an_unused_stream_starts_polling_if_work_may_be_submitted_unseen)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop_shared"}, .env = unseen[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 24);
	ck_assert_uint_gt(play_fact("cuEventQuery"), 16);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(an_undocumented_driver_interface_ends_serial_mode)
{
	play_same(&(struct play){.program = "app_reuse", .words = {"loop_unknown"}});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_gt(play_fact("cuCtxWaitEvent"), 0);
}
END_TEST

START_TEST(the_memory_of_a_loop_behind_a_slow_gpu_does_not_grow_with_its_length)
{
	static const char *const simple[] = {"GPUPOOL_POOL=simple", NULL};

	play_same(&(struct play){.program = "app_reuse", .words = {"loop_small"}, .env = simple});
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 64);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const ends_of_serial_mode[] = {"then_stream", "then_early", "then_thread", "then_capture",
	"then_used", "then_memset", "then_copy", "then_own"};

START_TEST(work_outside_serial_mode_waits_for_memory_that_was_reused_in_it)
{
	play_same(&(struct play){.program = "app_reuse", .words = {ends_of_serial_mode[_i]}});
	ck_assert_str_eq(play_out, "used again: yes\nwrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 1);
}
END_TEST

START_TEST(a_free_does_not_wait_for_work_that_a_second_thread_must_release)
{
	play_run(&(struct play){.program = "app_reuse", .words = {"second_releases"}, .preload = play_library});
	/* A deadlock would end the program with another status. */
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(work_of_a_second_thread_waits_for_memory_while_the_first_ends_serial_mode)
{
	play_run(&(struct play){.program = "app_reuse", .words = {"second_writes"}, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("used again"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, two_streams_never_race_for_reused_memory, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, the_host_never_races_for_reused_pinned_memory, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, pinned_memory_is_reused_only_after_the_work_of_every_context, 0, 2);
	tcase_add_test(tc, memory_passes_between_streams_by_a_gpu_wait);
	tcase_add_loop_test(tc, work_outside_serial_mode_waits_for_memory_that_was_reused_in_it, 0,
		(int)LENGTH(ends_of_serial_mode));
	tcase_add_loop_test(
		tc, unused_streams_second_threads_and_known_interfaces_keep_serial_mode, 0, (int)LENGTH(serial_loops));
	tcase_add_loop_test(
		tc, an_unused_stream_starts_polling_if_work_may_be_submitted_unseen, 0, (int)LENGTH(unseen));
	tcase_add_test(tc, an_undocumented_driver_interface_ends_serial_mode);
	tcase_add_test(tc, a_free_does_not_wait_for_work_that_a_second_thread_must_release);
	tcase_add_test(tc, work_of_a_second_thread_waits_for_memory_while_the_first_ends_serial_mode);
	tcase_add_test(tc, a_loop_on_one_stream_allocates_from_the_driver_once_and_never_waits);
	tcase_add_test(tc, the_memory_of_a_loop_behind_a_slow_gpu_does_not_grow_with_its_length);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"reuse", add}, 1);
}
