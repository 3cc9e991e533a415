/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Driver errors that end pooling for a context, and what happens to memory after other errors. */

#include "play.h"

#include <stdio.h>

#define MEMORY "SIMGPU_MEMORY=1G", "GPUPOOL_RESERVE=0"

static char status[64 * 1024];

static void read_status(const char *name)
{
	snprintf(status, sizeof(status), "%s", play_ask("status"));
}

static const struct {
	const char *env[5];
	uint64_t taken_max; /* allocations by the driver in a loop of 50 */
} settings[] = {
	{{MEMORY, "GPUPOOL_POOL=none"}, UINT64_MAX},
	{{MEMORY, "GPUPOOL_POOL=none", "GPUPOOL_PENDING_COUNT=0"}, UINT64_MAX},
	{{MEMORY, "GPUPOOL_POOL=simple"}, 12},
	{{MEMORY, "GPUPOOL_POOL=binned"}, 12},
	{{MEMORY, "GPUPOOL_POOL=split"}, 12},
	{{MEMORY, "GPUPOOL_POOL=vmm"}, 48},
	{{MEMORY, "GPUPOOL_REUSE=completed"}, 48},
	{{MEMORY, "GPUPOOL_THREAD_CACHE=0"}, 12},
	{{MEMORY, "GPUPOOL_SYNC_FREE=1"}, 12},
	{{MEMORY, "GPUPOOL_STACKS=8"}, 12},
	{{MEMORY, "GPUPOOL_RECORD=recording"}, 12},
	{{MEMORY, "GPUPOOL_DEBUG=poison"}, 48},
	{{MEMORY, "GPUPOOL_DEBUG=guard"}, 48},
};

START_TEST(a_free_in_a_host_function_fails_and_the_program_keeps_the_block)
{
	play_same(&(struct play){
		.program = "app_errors", .words = {"callback"}, .env = settings[_i].env, .at_pause = read_status});
	ck_assert_ptr_nonnull(strstr(play_out, "free in the host function: 800\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "free again: 0\n"));
	ck_assert_uint_le(play_fact("driver allocations in the loop"), settings[_i].taken_max);
	ck_assert_uint_eq(play_number(status, "double_frees"), 0);
	ck_assert_uint_eq(play_number(status, "broken_contexts"), 0);
}
END_TEST

static uint64_t unpooled_bytes[3]; /* allocated, refused, freed */
static unsigned n_pauses;

static void read_unpooled(const char *name)
{
	ck_assert_uint_lt(n_pauses, LENGTH(unpooled_bytes));
	unpooled_bytes[n_pauses++] = play_number(play_ask("status"), "unpooled_bytes");
}

START_TEST(unpooled_memory_stays_charged_if_the_driver_refuses_its_free)
{
	static const char *const env[][2] = {{"GPUPOOL_STACKS=off"}, {"GPUPOOL_STACKS=8"}};

	play_same(&(struct play){
		.program = "app_errors", .words = {"refused"}, .env = env[_i], .at_pause = read_unpooled});
	ck_assert_uint_eq(n_pauses, 3);
	ck_assert_ptr_nonnull(strstr(play_out, "in the host function: 800 800 800 800\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "in the program: 0 0 0 0\n"));
	/* 32 MiB managed, 64 MiB of a handle, an array of 16 MiB and one of 20 MiB with its second level */
	ck_assert_uint_ge(unpooled_bytes[0], 132 * MIB);
	ck_assert_uint_eq(unpooled_bytes[1], unpooled_bytes[0]);
	ck_assert_uint_eq(unpooled_bytes[2], 0);
}
END_TEST

static const char *const faults[] = {
	"SIMGPU_FAULT=cuCtxRecordEvent:2=304",
	"SIMGPU_FAULT=cuCtxRecordEvent:every/3=304",
	"SIMGPU_FAULT=cuEventQuery:2=304",
	"SIMGPU_FAULT=cuEventQuery:every/2=999",
	"SIMGPU_FAULT=cuEventCreate:2=304",
	"SIMGPU_FAULT=cuCtxWaitEvent:1=1",
	"SIMGPU_FAULT=cuStreamCreate:2=304",
};

static const char *const pools[] = {"GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split",
	"GPUPOOL_POOL=vmm", "GPUPOOL_REUSE=completed", "GPUPOOL_THREAD_CACHE=0"};

/* The first fault causes a warning, which is hidden here since a program without the library does not print it. */
START_TEST(errors_of_internal_driver_calls_neither_reach_the_program_nor_leak_memory)
{
	const char *env[] = {
		MEMORY, pools[_i / (int)LENGTH(faults)], faults[_i % (int)LENGTH(faults)], "GPUPOOL_LOG=error", NULL};

	play_same(&(struct play){.program = "app_errors", .words = {"fault"}, .env = env, .at_pause = read_status});
	ck_assert_uint_le(play_fact("driver allocations in the loop"), 25);
	ck_assert_uint_eq(play_number(status, "broken_contexts"), 0);
}
END_TEST

START_TEST(a_repeated_error_of_an_internal_driver_call_is_logged_once)
{
	static const char *const env[] = {MEMORY, "SIMGPU_FAULT=cuCtxRecordEvent:every/2=304", NULL};
	const char *line;

	play_run(&(struct play){.program = "app_errors", .words = {"fault"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	line = strstr(play_err, "error 304");
	ck_assert_msg(line, "%s", play_err);
	ck_assert_ptr_null(strstr(line + 1, "error 304"));
}
END_TEST

static char screens[3][8192];
static unsigned n_screens;

static void read_screen(const char *name)
{
	read_status(name);
	play_keep(status);
	if (play_stat)
		ck_assert_int_eq(play_run_stat("status", screens[n_screens++], sizeof(screens[0])), 0);
}

START_TEST(status_names_the_error_that_ended_pooling_until_the_context_is_reset)
{
	static const char *const message = "pooling has ended for 1 of 1 contexts after driver error 719";

	play_same(&(struct play){.program = "app_errors", .words = {"sticky"}, .at_pause = read_screen});
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(play_number(play_answers[i], "broken_contexts"), i == 1);
		ck_assert(!strstr(play_answers[i], i == 1 ? "\"broken_by\":719" : "\"broken_by\":null") == 0);
		ck_assert_msg(!play_stat || !strstr(screens[i], message) == (i != 1), "%s", screens[i]);
	}
}
END_TEST

START_TEST(an_error_of_one_device_ends_pooling_there_but_not_for_pinned_memory_of_another)
{
	static const char *const env[] = {"SIMGPU_DEVICES=2", NULL};
	const char *second;

	play_same(&(struct play){
		.program = "app_errors", .words = {"other-device"}, .env = env, .at_pause = read_status});
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), 6);
	ck_assert_uint_eq(play_number(status, "broken_contexts"), 0);
	second = strstr(status, "\"index\":1");
	ck_assert_ptr_nonnull(second);
	ck_assert_uint_eq(play_number(second, "broken_contexts"), 1);
}
END_TEST

START_TEST(cuMemFreeAsync_refuses_the_streams_that_the_driver_refuses_and_frees_nothing)
{
	play_same(&(struct play){
		.program = "app_errors", .words = {"streams"}, .env = settings[_i].env, .at_pause = read_status});
	ck_assert_uint_eq(play_number(status, "double_frees"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, cuMemFreeAsync_refuses_the_streams_that_the_driver_refuses_and_frees_nothing, 0,
		(int)LENGTH(settings));
	tcase_add_loop_test(
		tc, a_free_in_a_host_function_fails_and_the_program_keeps_the_block, 0, (int)LENGTH(settings));
	tcase_add_loop_test(tc, errors_of_internal_driver_calls_neither_reach_the_program_nor_leak_memory, 0,
		(int)(LENGTH(faults) * LENGTH(pools)));
	tcase_add_loop_test(tc, unpooled_memory_stays_charged_if_the_driver_refuses_its_free, 0, 2);
	tcase_add_test(tc, a_repeated_error_of_an_internal_driver_call_is_logged_once);
	tcase_add_test(tc, an_error_of_one_device_ends_pooling_there_but_not_for_pinned_memory_of_another);
	tcase_add_test(tc, status_names_the_error_that_ended_pooling_until_the_context_is_reset);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"errors", add}, 1);
}
