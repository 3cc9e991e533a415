/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs that need more memory than the device has: what goes to the host, what comes back, and what stays away. */

#include <stdio.h>
#include <string.h>

#include "play.h"

/* The simulated clock jumps to the end of work only at the hundredth query, unless queries take time. */
#define GPU   "SIMGPU_LATENCY=cuEventQuery=100000", "SIMGPU_MEMORY=128M", "GPUPOOL_RESERVE=0", "SIMGPU_STRICT=1"
#define VMM   "GPUPOOL_POOL=vmm"
#define SPILL "GPUPOOL_SPILL=64MiB"

static const char *const spilling[] = {VMM, SPILL, GPU, NULL};

static void play_spill(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){.program = "app_spill",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_msg(play_status == 0, "status %d: %s%s", play_status, play_out, play_err);
}

static void is_right(void)
{
	for (const char *at = play_out; (at = strstr(at, "wrong words")); at++)
		ck_assert_msg(strncmp(strchr(at, ':'), ": 0\n", 4) == 0, "%s", play_out);
}

static char stat_text[64 * 1024];

static bool stat_says(const char *words, const char *text)
{
	ck_assert_int_eq(play_run_stat(words, stat_text, sizeof(stat_text)), 0);
	return strstr(stat_text, text) != NULL;
}

/* A process that had no memory in the host has no line, column or series of it. */
static const struct {
	const char *words, *text;
	bool is_now; /* there while memory is in the host; otherwise also when it is back */
} views[] = {
	{"status", "of the total (GPUPOOL_SPILL)", true},
	{"status", "16.0 MiB have been in host memory (GPUPOOL_SPILL): work that uses all of it once takes at least ",
		true},
	{"status", "moved to host memory 16.0 MiB", false},
	{"list", "IN HOST", true},
	{"list", "16.0 MiB ", true},
	{"report", "16.0 MiB have been in host memory", true},
	{"metrics", "gpupool_spilled_bytes{", true},
	{"metrics", "gpupool_spill_out_bytes_total{", false},
	{"metrics --collect=all", "gpupool_spill_held_seconds_total{", false},
};

static void check_views(const char *name, unsigned pid, bool is_now)
{
	bool is_before = strcmp(name, "before") == 0;

	for (size_t i = 0; i < LENGTH(views); i++) {
		char words[64];

		snprintf(words, sizeof(words), "%s", views[i].words);
		if (strcmp(words, "report") == 0)
			snprintf(words, sizeof(words), "report %u", pid);
		ck_assert_msg(stat_says(words, views[i].text) == (views[i].is_now ? is_now : !is_before),
			"%s, %s: '%s' in: %s", name, words, views[i].text, stat_text);
	}
}

static void look(const char *name)
{
	const char *answer = play_ask("status");
	uint64_t spilled = play_number(answer, "spilled_bytes");

	if (strcmp(name, "spilled") == 0)
		ck_assert_uint_ge(spilled, (uint64_t)12 * MIB);
	else
		ck_assert_uint_eq(spilled, 0);
	if (strcmp(name, "back") == 0)
		ck_assert_uint_eq(play_number(answer, "spills"), play_number(answer, "spill_returns"));
	if (play_stat)
		check_views(name, (unsigned)play_number(answer, "pid"), spilled != 0);
}

START_TEST(a_program_that_needs_more_than_the_device_has_goes_on_with_its_content_and_gets_its_memory_back)
{
	play_spill("content", spilling, look);
	ck_assert_ptr_nonnull(strstr(play_out, "more: 0\n"));
	is_right();
	ck_assert_uint_ge(play_fact("host bytes"), (uint64_t)12 * MIB);
	ck_assert_uint_le(play_fact("host bytes"), (uint64_t)20 * MIB);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_ptr_nonnull(strstr(play_err, "of device memory: moved"));
	ck_assert_ptr_nonnull(strstr(play_err, "no memory is in host memory any more"));
}
END_TEST

START_TEST(memory_comes_back_by_itself_once_there_is_room)
{
	play_spill("watched", spilling, NULL);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	is_right();
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_comes_back_once_an_array_is_unmapped_that_the_program_mapped)
{
	play_spill("watched-mapped", spilling, NULL);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	is_right();
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* A limit is exceeded no more than without spilling: what is in host memory does not count against it. */
START_TEST(memory_goes_to_the_host_for_a_limit_as_for_a_full_device)
{
	const char *env[] = {"SIMGPU_MEMORY=1G", "GPUPOOL_LIMIT=124MiB", VMM, SPILL, GPU, NULL};

	play_spill("content", env, NULL);
	ck_assert_ptr_nonnull(strstr(play_out, "more: 0\n"));
	is_right();
	ck_assert_uint_ge(play_fact("host bytes"), (uint64_t)12 * MIB);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
}
END_TEST

static const struct {
	const char *variable;
	const char *why;
} refusals[] = {
	{"GPUPOOL_SPILL=0", NULL},
	{"GPUPOOL_SPILL=much", "GPUPOOL_SPILL"},
	{"GPUPOOL_SPILL=8MiB", "GPUPOOL_SPILL does not allow more"},
	{"GPUPOOL_POOL=split", "GPUPOOL_SPILL has no effect: only memory of the pool type vmm"},
	{"GPUPOOL_DEBUG=poison", "GPUPOOL_SPILL has no effect: GPUPOOL_DEBUG"},
	{"GPUPOOL_RECORD=rec.%p", "GPUPOOL_SPILL has no effect: GPUPOOL_RECORD"},
	{"SIMGPU_FAULT=cuMemcpyDtoDAsync_v2:1+=999", "no memory was moved to the host: the driver refused"},
};

static const char *no_effect; /* as the status names it; or NULL */

static void look_for_reason(const char *name)
{
	if (no_effect)
		ck_assert_ptr_nonnull(strstr(play_ask("status"), strchr(no_effect, ':') + 2));
	if (no_effect && play_stat)
		ck_assert(stat_says("status", no_effect));
}

START_TEST(a_program_whose_memory_may_not_move_runs_out_and_says_why)
{
	const char *env[] = {refusals[_i].variable, VMM, SPILL, GPU, NULL};

	no_effect = refusals[_i].why && strstr(refusals[_i].why, "has no effect") ? refusals[_i].why : NULL;
	play_spill("content", env, look_for_reason);
	ck_assert_msg(strstr(play_out, "more: 2\n") != NULL, "%s", play_out);
	is_right();
	ck_assert_uint_eq(play_fact("host bytes"), 0);
	if (refusals[_i].why)
		ck_assert_msg(strstr(play_err, refusals[_i].why), "expected '%s' in: %s", refusals[_i].why, play_err);
	else
		ck_assert_ptr_null(strstr(play_err, "SPILL"));
}
END_TEST

START_TEST(pointer_queries_go_on_naming_the_device)
{
	play_spill("queries", spilling, NULL);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_msg(
		strstr(play_out, "total: 128 MiB\ntype: 2\nordinal: 0\nmanaged: 0\nhost pointer: 1\ntype: 2, host 0\n"),
		"%s", play_out);
	/* The new block takes what was free, and what went to the host. */
	ck_assert_uint_lt(play_fact("free"), play_fact("free before"));
}
END_TEST

START_TEST(a_graph_is_right_while_its_memory_is_in_the_host_and_after_it_came_back)
{
	play_spill("graph", spilling, NULL);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	is_right();
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(no_memory_moves_while_a_kernel_runs_or_a_stream_captures)
{
	play_spill("busy", spilling, NULL);
	ck_assert_msg(strstr(play_out, "more: 2\nmore: 2\nmore: 0\n"), "%s", play_out);
	ck_assert_uint_eq(play_fact("host bytes"), 0);
	is_right();
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/*
 * Calls that the driver refuses. gone: the memory is in the host after the first attempt. back: it is on the device
 * after the first return.
 */
static const struct {
	const char *out, *back;
	bool is_gone, is_back;
} faults[] = {
	/* The driver has refused the allocation twice before memory goes to the host. */
	{"APP_FAULT_OUT=cuMemCreate 3 2", "A=", false, true},
	{"APP_FAULT_OUT=cuMemcpyDtoDAsync_v2 1 999", "A=", false, true},
	{"APP_FAULT_OUT=cuMemAddressReserve 1 2", "A=", false, true},
	{"APP_FAULT_OUT=cuMemMap 2 999", "A=", false, true},
	{"APP_FAULT_OUT=cuMemSetAccess 2 999", "A=", false, true},
	{"APP_FAULT_OUT=cuMemUnmap 2 999", "A=", false, true},
	{"A=", "APP_FAULT_BACK=cuMemCreate 1 2", true, false},
	{"A=", "APP_FAULT_BACK=cuMemcpyDtoDAsync_v2 1 999", true, false},
	{"A=", "APP_FAULT_BACK=cuMemMap 2 999", true, false},
	{"A=", "APP_FAULT_BACK=cuStreamSynchronize 1 999", true, false},
};

START_TEST(a_call_that_the_driver_refuses_leaves_memory_on_the_device_or_in_the_host_and_never_wrong)
{
	const char *env[] = {faults[_i].out, faults[_i].back, VMM, SPILL, GPU, NULL};

	play_spill("faulty", env, NULL);
	is_right();
	if (!faults[_i].is_gone)
		ck_assert_msg(strstr(play_out, "more: 2\n") != NULL, "%s", play_out);
	ck_assert_msg((play_fact("host bytes") != 0) == faults[_i].is_gone, "%s", play_out);
	ck_assert_msg((play_fact("host bytes after the return") == 0) == faults[_i].is_back, "%s", play_out);
	ck_assert_uint_eq(play_fact("host bytes at last"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_that_the_program_names_as_cold_goes_first)
{
	play_spill("cold", spilling, NULL);
	is_right();
	ck_assert_msg(strstr(play_out, "cold: 1\nnone of gpupool's: 1\npast the end: 1\nmore: 0\n"), "%s", play_out);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes"), play_fact("host bytes of the cold block"));
}
END_TEST

START_TEST(the_memory_of_a_region_that_a_rule_names_as_cold_goes_first)
{
	const char *env[] = {"GPUPOOL_REGIONS=cold=mom*", VMM, SPILL, GPU, NULL};

	play_spill("region", env, NULL);
	is_right();
	ck_assert_ptr_nonnull(strstr(play_out, "entered: 1\nleft: 1\nmore: 0\n"));
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes"), play_fact("host bytes of the cold block"));
}
END_TEST

START_TEST(memory_in_the_host_stays_there_while_the_process_is_asleep)
{
	play_spill("sleeps", spilling, NULL);
	is_right();
	ck_assert_uint_eq(play_fact("slept"), play_fact("awake") - play_fact("asleep"));
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes asleep"), play_fact("host bytes"));
	ck_assert_uint_eq(play_fact("host bytes woken"), play_fact("host bytes"));
	ck_assert_uint_eq(play_fact("woken"), play_fact("awake"));
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void go_deep(const char *name)
{
	const char *answer = play_ask(strcmp(name, "asleep") == 0 ? "deep begin" : "deep end");

	ck_assert_msg(strstr(answer, "\"was_so\":false"), "%s: %s", name, answer);
}

START_TEST(nothing_looks_for_room_in_the_driver_while_the_process_is_deep_asleep)
{
	play_spill("deep", spilling, go_deep);
	is_right();
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	/* A look may have been under way. */
	ck_assert_uint_le(play_fact("looks deep asleep"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(threads_that_are_short_at_once_take_no_more_host_memory_than_the_setting_allows)
{
	const char *env[] = {VMM, "GPUPOOL_SPILL=16MiB", GPU, NULL};

	play_spill("at-once", env, NULL);
	is_right();
	ck_assert_uint_ge(play_fact("served"), 1);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_le(play_fact("host bytes"), (uint64_t)16 * MIB);
}
END_TEST

START_TEST(a_child_fails_as_without_the_library_and_the_parent_gets_its_memory_back)
{
	play_spill("forks", spilling, NULL);
	is_right();
	ck_assert_ptr_nonnull(strstr(play_out, "the child fails: 1\n"));
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
}
END_TEST

START_TEST(a_block_in_the_host_comes_back_before_it_is_exported_or_the_export_fails)
{
	play_spill("exports", spilling, NULL);
	is_right();
	ck_assert_msg(strstr(play_out, "export without room: 2\n") && strstr(play_out, "export: 0\n") &&
			      strstr(play_out, "far too much: 2\n"),
		"%s", play_out);
	ck_assert_ptr_nonnull(strstr(play_err, "cannot be exported, and did not come back: short of device memory"));
	ck_assert_ptr_nonnull(strstr(play_err, "the program exported memory to other processes"));
	ck_assert_uint_eq(play_fact("host bytes of the exported block"), 0);
}
END_TEST

START_TEST(all_blocks_in_the_host_can_be_exported_once_there_is_room)
{
	play_spill("exports-all", spilling, NULL);
	is_right();
	ck_assert_uint_ge(play_fact("host bytes"), 24 * MIB);
	ck_assert_uint_eq(play_fact("host bytes after the exports"), 0);
	ck_assert_ptr_null(strstr(play_out, "export: 2\n"));
	ck_assert_ptr_null(strstr(play_err, "cannot be exported"));
}
END_TEST

START_TEST(memory_goes_to_the_host_for_an_allocation_that_is_not_pooled)
{
	play_spill("unpooled", spilling, NULL);
	is_right();
	ck_assert_ptr_nonnull(strstr(play_out, "create: 0\n"));
	ck_assert_uint_ge(play_fact("host bytes"), (uint64_t)12 * MIB);
}
END_TEST

static uint64_t n_spills, n_returns, n_host_bytes;

static void count_moves(const char *name)
{
	const char *answer = play_ask("status");

	n_spills = play_number(answer, "spills");
	n_returns = play_number(answer, "spill_returns");
	n_host_bytes = play_number(strstr(answer, "\"spill\":"), "host_bytes");
}

START_TEST(a_need_that_goes_up_and_down_moves_memory_seldom_and_it_comes_back_at_the_end)
{
	play_spill("swings", spilling, count_moves);
	is_right();
	/* Before each return there has been room for a second. A move is one of at most two chunks. */
	ck_assert_uint_le(n_returns, 2 * play_fact("seconds"));
	ck_assert_uint_le(n_spills, 2 * (play_fact("seconds") + 1));
	ck_assert_uint_ge(n_spills, 1);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_of_all_contexts_of_a_device_goes_to_the_host_and_that_of_other_devices_stays)
{
	const char *env[] = {VMM, SPILL, GPU, "SIMGPU_DEVICES=2", "SIMGPU_MEMORY=140M", NULL};

	play_spill("contexts", env, NULL);
	is_right();
	ck_assert_msg(strstr(play_out, "more: 2\nmore: 0\n"), "%s%s", play_out, play_err);
	ck_assert_uint_gt(play_fact("bytes at first"), 0);
	ck_assert_uint_gt(play_fact("bytes at last"), 0);
	ck_assert_uint_eq(play_fact("there in the host"), 0);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_of_each_device_goes_to_the_host_and_comes_back_to_it)
{
	const char *env[] = {VMM, SPILL, GPU, "SIMGPU_DEVICES=2", NULL};

	play_spill("devices", env, count_moves);
	is_right();
	ck_assert_uint_eq(n_host_bytes, play_fact("host bytes") + play_fact("there in the host"));
	ck_assert_uint_gt(play_fact("there in the host"), 0);
	ck_assert_uint_eq(play_fact("here in the host"), 0);
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("bytes there after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void look_at_refusal(const char *name)
{
	ck_assert_ptr_nonnull(strstr(play_ask("status"), "other devices may use the memory (peer access)"));
	if (play_stat)
		ck_assert(stat_says("status", "other devices may use the memory (peer access)"));
}

START_TEST(memory_that_other_devices_may_use_comes_back_but_does_not_go_and_the_status_says_why)
{
	const char *env[] = {VMM, SPILL, GPU, "SIMGPU_DEVICES=2", NULL};

	play_spill("peers", env, look_at_refusal);
	is_right();
	ck_assert_uint_gt(play_fact("host bytes"), 0);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("with peers in the host"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void look_after_reset(const char *name)
{
	ck_assert_uint_eq(play_number(play_ask("status"), "spilled_bytes"), 0);
}

START_TEST(a_reset_gives_memory_in_the_host_back_and_the_next_context_may_use_as_much)
{
	play_spill("ends", spilling, look_after_reset);
	is_right();
	ck_assert_uint_eq(play_fact("after the reset"), 0);
}
END_TEST

static const char *const thread_settings[] = {"A=", "APP_CONTEXTS=1"};

START_TEST(threads_at_work_in_one_or_several_contexts_find_their_content_while_memory_goes_and_comes)
{
	const char *env[] = {
		thread_settings[_i], VMM, "GPUPOOL_SPILL=512MiB", GPU, "SIMGPU_DEVICES=2", "APP_STEPS=60", NULL};

	play_spill("threads", env, NULL);
	ck_assert_msg(strstr(play_out, "wrong blocks: 0\n") != NULL, "%s", play_out);
	ck_assert_ptr_nonnull(strstr(play_err, "of device memory: moved"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(
		tc, a_program_that_needs_more_than_the_device_has_goes_on_with_its_content_and_gets_its_memory_back);
	tcase_add_test(tc, memory_comes_back_by_itself_once_there_is_room);
	tcase_add_test(tc, memory_comes_back_once_an_array_is_unmapped_that_the_program_mapped);
	tcase_add_test(tc, memory_goes_to_the_host_for_a_limit_as_for_a_full_device);
	tcase_add_loop_test(tc, a_program_whose_memory_may_not_move_runs_out_and_says_why, 0, LENGTH(refusals));
	tcase_add_test(tc, pointer_queries_go_on_naming_the_device);
	tcase_add_test(tc, a_graph_is_right_while_its_memory_is_in_the_host_and_after_it_came_back);
	tcase_add_test(tc, no_memory_moves_while_a_kernel_runs_or_a_stream_captures);
	tcase_add_loop_test(tc,
		a_call_that_the_driver_refuses_leaves_memory_on_the_device_or_in_the_host_and_never_wrong, 0,
		LENGTH(faults));
	tcase_add_test(tc, memory_that_the_program_names_as_cold_goes_first);
	tcase_add_test(tc, the_memory_of_a_region_that_a_rule_names_as_cold_goes_first);
	tcase_add_test(tc, memory_in_the_host_stays_there_while_the_process_is_asleep);
	tcase_add_test(tc, nothing_looks_for_room_in_the_driver_while_the_process_is_deep_asleep);
	tcase_add_test(tc, threads_that_are_short_at_once_take_no_more_host_memory_than_the_setting_allows);
	tcase_add_test(tc, a_child_fails_as_without_the_library_and_the_parent_gets_its_memory_back);
	tcase_add_test(tc, a_block_in_the_host_comes_back_before_it_is_exported_or_the_export_fails);
	tcase_add_test(tc, all_blocks_in_the_host_can_be_exported_once_there_is_room);
	tcase_add_test(tc, memory_goes_to_the_host_for_an_allocation_that_is_not_pooled);
	tcase_add_test(tc, a_need_that_goes_up_and_down_moves_memory_seldom_and_it_comes_back_at_the_end);
	tcase_add_test(tc, memory_of_all_contexts_of_a_device_goes_to_the_host_and_that_of_other_devices_stays);
	tcase_add_test(tc, memory_of_each_device_goes_to_the_host_and_comes_back_to_it);
	tcase_add_test(tc, memory_that_other_devices_may_use_comes_back_but_does_not_go_and_the_status_says_why);
	tcase_add_test(tc, a_reset_gives_memory_in_the_host_back_and_the_next_context_may_use_as_much);
	tcase_add_loop_test(tc,
		threads_at_work_in_one_or_several_contexts_find_their_content_while_memory_goes_and_comes, 0,
		LENGTH(thread_settings));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"spill", add}, 1);
}
