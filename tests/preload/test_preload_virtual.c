/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory that the program maps itself stays mapped after its unmap, and is handed out again without a driver call.
 * Until then it counts as free.
 */

#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const pools[][2] = {{"GPUPOOL_POOL=split", NULL}, {"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=binned", NULL}};

static const char *const orders[] = {"steady", "released-early", "same-addresses", "properties", "reversed-properties"};

START_TEST(a_program_that_maps_each_array_makes_no_driver_call_in_the_steady_state)
{
	play_same(&(struct play){.program = "app_virtual",
		.words = {orders[_i % (int)LENGTH(orders)]},
		.env = pools[_i / (int)LENGTH(orders)]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("calls in the steady state"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* The GPU is never idle when an array is freed. */
START_TEST(arrays_of_a_busy_program_are_served_also_after_others_that_were_freed_in_reverse)
{
	play_run(&(struct play){.program = "app_virtual", .words = {"reversed-under-work"}, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_le(play_fact("calls in the steady state"), 20);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const on_devices[] = {"two-devices", "reversed-devices"};

START_TEST(arrays_on_two_devices_are_served_without_a_driver_call)
{
	static const char *const env[] = {"SIMGPU_DEVICES=2", NULL};

	play_same(&(struct play){.program = "app_virtual", .words = {on_devices[_i]}, .env = env});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("calls in the steady state"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Settings and memory with which the calls go to the driver: seven for each of 100 arrays, and two about handles. */
static const struct {
	const char *scenario;
	const char *env[2];
} plain[] = {
	{"steady", {"GPUPOOL_VMM_CACHE=off"}},
	{"steady", {"GPUPOOL_POOL=none"}},
	{"steady", {"GPUPOOL_DEBUG=poison"}},
	{"steady", {"SIMGPU_DRIVER_VERSION=12040"}}, /* a record of a fence would wait for the GPU */
	{"compressible", {NULL}},
	{"uncached", {NULL}},
};

START_TEST(every_call_reaches_the_driver_where_nothing_is_kept)
{
	play_same(&(struct play){.program = "app_virtual", .words = {plain[_i].scenario}, .env = plain[_i].env});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_ge(play_fact("calls in the steady state"), 700);
}
END_TEST

START_TEST(memory_unmapped_beside_running_work_is_handed_out_once_that_work_is_complete)
{
	play_run(&(struct play){.program = "app_virtual", .words = {"beside-work"}, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("handed out early"), 0);
	ck_assert_uint_eq(play_fact("handed out afterwards"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_that_work_still_uses_is_not_handed_out)
{
	play_run(&(struct play){.program = "app_virtual", .words = {"under-work"}, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("handed out early"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const others[] = {"in-capture", "threads", "forks", "mapped-twice"};

START_TEST(captures_threads_and_forks_get_the_same_answers)
{
	play_same(&(struct play){.program = "app_virtual", .words = {others[_i]}});
}
END_TEST

static const char *const ends[] = {"SIMGPU_DEINIT_AT_EXIT=0", "SIMGPU_DEINIT_AT_EXIT=1"};

START_TEST(calls_in_an_exit_handler_get_the_same_answers)
{
	const char *env[] = {ends[_i], NULL};

	play_same(&(struct play){.program = "app_virtual", .words = {"exits"}, .env = env});
}
END_TEST

START_TEST(memory_is_given_and_taken_by_two_threads_without_a_race)
{
	static const char *const env[] = {"SIMGPU_MEMORY=80M", "GPUPOOL_RESERVE=0", "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){
		.program = "app_virtual", .words = {"under-pressure"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const small[][3] = {
	{"SIMGPU_MEMORY=68M", "GPUPOOL_RESERVE=0"},
	{"GPUPOOL_LIMIT=64M"},
	{"GPUPOOL_LIMIT=64M", "GPUPOOL_POOL=vmm"},
	{"SIMGPU_MEMORY=2G"},
};

START_TEST(unused_memory_goes_back_before_an_allocation_fails)
{
	const char *env[] = {small[_i][0], small[_i][1] ? small[_i][1] : "GPUPOOL_LOG=off", "GPUPOOL_LOG=off", NULL};
	bool is_full = _i + 1 < (int)LENGTH(small);

	play_run(&(struct play){.program = "app_virtual", .words = {"shortage"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, is_full ? "array: 0\ncuMemAlloc: 0\narray: 0\ntoo much: 2\ntoo much: 2\n"
					   : "array: 0\ncuMemAlloc: 0\narray: 0\ntoo much: 0\ntoo much: 0\n");
}
END_TEST

START_TEST(bad_calls_get_the_errors_of_the_driver_under_any_limit)
{
	static const char *const env[] = {"GPUPOOL_LIMIT=1M", NULL};

	play_same(&(struct play){.program = "app_virtual", .words = {"bad-creates"}, .env = env});
	ck_assert_str_eq(play_err, "");
}
END_TEST

static uint64_t n_free_bytes;

static void read_free(const char *name)
{
	n_free_bytes = play_number(play_ask("status"), "device_free_bytes");
}

START_TEST(memory_kept_mapped_leaves_the_reserve_free_so_that_the_pool_can_cache)
{
	static const char *const env[] = {"SIMGPU_MEMORY=1G", "GPUPOOL_RESERVE=256M", NULL};

	play_same(&(struct play){.program = "app_virtual", .words = {"reserve"}, .env = env, .at_pause = read_free});
	ck_assert_uint_le(play_fact("driver allocations"), 2);
	ck_assert_uint_ge(n_free_bytes, 256 * MIB);
}
END_TEST

START_TEST(unused_memory_goes_back_for_the_reserve_when_memory_is_created_that_is_never_kept)
{
	static const char *const env[] = {"SIMGPU_MEMORY=1G", "GPUPOOL_RESERVE=256M", NULL};

	play_run(&(struct play){.program = "app_virtual",
		.words = {"beside-compressible"},
		.env = env,
		.preload = play_library,
		.at_pause = read_free});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_ge(n_free_bytes, 256 * MIB);
}
END_TEST

START_TEST(memory_goes_back_at_its_unmap_while_the_device_is_nearly_full)
{
	static const char *const env[] = {"SIMGPU_MEMORY=1G", "SIMGPU_CONTEXT_MEMORY=20M", NULL};

	play_same(&(struct play){.program = "app_virtual", .words = {"nearly-full"}, .env = env});
	ck_assert_str_eq(play_out, "context: 0\n");
}
END_TEST

START_TEST(memory_goes_back_at_its_unmap_while_a_lowered_limit_is_exceeded)
{
	static const char *const env[] = {"GPUPOOL_LOG=off", NULL};

	play_run(
		&(struct play){.program = "app_virtual", .words = {"over-limit"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "limit: 0\nas before: 2\nwhat the limit allows: 0\nand beside it: 0\n");
}
END_TEST

/* Memory for two threads, of which each finds only what the other has left unused. */
static const struct {
	const char *scenario;
	const char *env[2];
} shared[] = {
	{"given-by-other", {"SIMGPU_MEMORY=68M", "GPUPOOL_RESERVE=0"}},
	{"two-at-once", {"SIMGPU_MEMORY=68M", "GPUPOOL_RESERVE=0"}},
	{"two-at-once", {"GPUPOOL_LIMIT=64M", "GPUPOOL_RESERVE=0"}},
};

START_TEST(memory_that_another_thread_gives_back_is_waited_for)
{
	const char *env[] = {shared[_i].env[0], shared[_i].env[1], "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){
		.program = "app_virtual", .words = {shared[_i].scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, _i ? "out of memory: 0\nout of memory: 0\n" : "array: 0\narray: 0\n");
}
END_TEST

static uint64_t used[4], cached[4], counted[4], reuses[4], released;
static unsigned n_reads;
static const char *request; /* made while memory is unused */

static void read_status(const char *name)
{
	const char *status;
	char uuid[64], words[160];

	ck_assert_uint_lt(n_reads, LENGTH(used));
	status = play_ask("status");
	used[n_reads] = play_number(status, "unpooled_bytes");
	cached[n_reads] = play_number(status, "unpooled_cached_bytes");
	reuses[n_reads] = play_number(status, "unpooled_reuses");
	if (strcmp(name, "unused") == 0 && request) {
		const char *at = strstr(status, "\"uuid\":\"GPU-");

		ck_assert_ptr_nonnull(at);
		at += strlen("\"uuid\":\"GPU-");
		for (unsigned i = 0; *at != '"'; at++)
			if (*at != '-') {
				uuid[i++] = *at;
				uuid[i] = '\0';
			}
		snprintf(words, sizeof(words), "yield %s 1MiB", uuid);
		released = play_number(play_ask(strcmp(request, "yield") == 0 ? words : request), "released_bytes");
		cached[n_reads] = play_number(play_ask("status"), "unpooled_cached_bytes");
		(void)play_ask("limit set none");
	}
	counted[n_reads] = play_number(play_ask("limit"), "counted_bytes");
	n_reads++;
}

static void run_unused(const char *with, const char *const *env)
{
	request = with;
	n_reads = 0;
	play_same(&(struct play){.program = "app_virtual", .words = {"unused"}, .env = env, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(n_reads, 3);
	ck_assert_uint_eq(used[0], 8 * MIB);
	ck_assert_uint_eq(used[1], 0);
	ck_assert_uint_eq(counted[0], 8 * MIB);
}

START_TEST(status_shows_unused_memory_and_how_often_memory_was_used_again)
{
	run_unused(NULL, NULL);
	ck_assert_uint_eq(cached[0], 0);
	ck_assert_uint_eq(cached[1], 8 * MIB);
	ck_assert_uint_eq(counted[1], 8 * MIB);
	ck_assert_uint_eq(cached[2], 8 * MIB);
	ck_assert_uint_eq(reuses[2], 1);
}
END_TEST

START_TEST(memory_whose_addresses_the_program_keeps_goes_back_to_the_driver)
{
	n_reads = 0;
	request = NULL;
	play_same(&(struct play){.program = "app_virtual", .words = {"sleeps"}, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(n_reads, 2);
	/* The array that was unmapped last may still be about to be freed. */
	ck_assert_uint_eq(cached[0], 4 * MIB);
	ck_assert_uint_eq(counted[0], 4 * MIB);
	ck_assert_uint_eq(cached[1], 16 * MIB);
	ck_assert_uint_eq(used[1], 0);
}
END_TEST

static const char *const requests[] = {"reclaim", "reclaim 0", "limit set 1MiB", "yield"};

START_TEST(unused_memory_goes_back_on_request)
{
	run_unused(requests[_i], NULL);
	ck_assert_uint_eq(released, 8 * MIB);
	ck_assert_uint_eq(cached[1], 0);
	ck_assert_uint_eq(counted[1], 0);
}
END_TEST

static void sleep_while_unused(const char *name)
{
	if (strcmp(name, "unused") != 0)
		return;
	cached[0] = play_number(play_ask("status"), "unpooled_cached_bytes");
	ck_assert_ptr_nonnull(strstr(play_ask("sleep"), "\"was_so\":false"));
	cached[1] = play_number(play_ask("status"), "unpooled_cached_bytes");
	counted[0] = play_number(play_ask("limit"), "counted_bytes");
	ck_assert_ptr_nonnull(strstr(play_ask("wake"), "\"was_so\":false"));
}

START_TEST(unused_memory_goes_back_when_the_process_falls_asleep)
{
	static const char *const env[] = {"GPUPOOL_POOL=vmm", NULL};

	play_same(&(struct play){
		.program = "app_virtual", .words = {"unused"}, .env = env, .at_pause = sleep_while_unused});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(cached[0], 8 * MIB);
	ck_assert_uint_eq(cached[1], 0);
	ck_assert_uint_eq(counted[0], 0);
}
END_TEST

START_TEST(memory_goes_back_at_its_unmap_while_the_process_is_asleep)
{
	static const char *const env[] = {"GPUPOOL_POOL=vmm", NULL};

	n_reads = 0;
	request = NULL;
	play_run(&(struct play){.program = "app_virtual",
		.words = {"unmapped-asleep"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "slept: 1\nwoke: 1\nwrong words: 0\n");
	ck_assert_uint_eq(used[0], 0);
	ck_assert_uint_eq(cached[0], 0);
}
END_TEST

START_TEST(expandable_segments_are_counted_and_every_call_reaches_the_driver)
{
	n_reads = 0;
	request = NULL;
	play_same(&(struct play){.program = "app_virtual", .words = {"segments"}, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(n_reads, 2);
	ck_assert_uint_eq(used[0], 8 * 4 * MIB);
	ck_assert_uint_eq(cached[0], 0);
	ck_assert_uint_eq(used[1], 0);
	ck_assert_uint_eq(cached[1], 0);
	/* In each of three rounds: create, map, unmap and release of eight, and access once. */
	ck_assert_uint_eq(play_fact("calls"), 3 * (4 * 8 + 1));
}
END_TEST

static const char *const failures[] = {
	"SIMGPU_FAULT=cuMemCreate:3=2",
	"SIMGPU_FAULT=cuMemCreate:2=999",
	"SIMGPU_FAULT=cuMemAddressReserve:2=2",
	"SIMGPU_FAULT=cuMemAddressReserve:3=999",
	"SIMGPU_FAULT=cuMemMap:2=999",
	"SIMGPU_FAULT=cuMemMap:3=2",
	"SIMGPU_FAULT=cuMemSetAccess:2=2",
	"SIMGPU_FAULT=cuMemSetAccess:every/2=999",
	"SIMGPU_FAULT=cuMemUnmap:1=999",
	"SIMGPU_FAULT=cuMemRelease:1=999",
	"SIMGPU_FAULT=cuMemAddressFree:1=999",
	"SIMGPU_FAULT=cuCtxRecordEvent:2=999",
	"SIMGPU_FAULT=cuEventQuery:2=999",
};

static void read_end(const char *name)
{
	const char *status = play_ask("status");

	used[0] = play_number(status, "unpooled_bytes");
	cached[0] = play_number(status, "unpooled_cached_bytes");
	counted[0] = play_number(play_ask("limit"), "counted_bytes");
	/* An attempt fails if it meets the call that the driver refuses. */
	released = 0;
	for (unsigned i = 0; i < 6; i++)
		released += play_number(play_ask("reclaim"), "released_bytes");
	counted[1] = play_number(play_ask("limit"), "counted_bytes");
}

START_TEST(a_call_that_fails_loses_neither_memory_nor_counts)
{
	const char *env[] = {failures[_i % (int)LENGTH(failures)],
		_i < (int)LENGTH(failures) ? "GPUPOOL_VMM_CACHE=on" : "GPUPOOL_VMM_CACHE=off", "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){.program = "app_virtual",
		.words = {"faults"},
		.env = env,
		.preload = play_library,
		.at_pause = read_end});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(used[0], 0);
	ck_assert_uint_eq(counted[0], cached[0]);
	ck_assert_uint_eq(released, cached[0]);
	ck_assert_uint_eq(counted[1], 0);
}
END_TEST

/* Random programs that map memory, also in wrong ways. Each is compared with its run without the library. */
static const char *const seeds[] = {
	"APP_SEED=1", "APP_SEED=2", "APP_SEED=3", "APP_SEED=4", "APP_SEED=14", "APP_SEED=29"};

static const char *const ways[] = {"compared", "threads"};

START_TEST(a_random_program_gets_the_same_answers_and_loses_no_memory)
{
	const char *env[] = {seeds[_i % (int)LENGTH(seeds)], "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = "app_virtual_random",
		.words = {ways[_i / (int)LENGTH(seeds)]},
		.env = env,
		.at_pause = read_end});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(used[0], 0);
	ck_assert_uint_eq(counted[1], 0);
	ck_assert_uint_eq(play_fact("bytes that stay"), 0);
}
END_TEST

/* Each function that the library calls for the program fails now and then. */
static const char *const refused[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
	"cuMemRelease", "cuMemAddressFree", "cuMemRetainAllocationHandle", "cuMemExportToShareableHandle",
	"cuMemGetAllocationPropertiesFromHandle", "cuCtxRecordEvent", "cuEventQuery"};
static const char *const when[] = {":1=999", ":7=2", ":every/2=999", ":every/5=2"};

START_TEST(a_random_program_loses_neither_memory_nor_counts_when_calls_fail)
{
	char fault[96];
	const char *env[] = {fault, seeds[_i % (int)LENGTH(seeds)], "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL};

	snprintf(fault, sizeof(fault), "SIMGPU_FAULT=%s%s", refused[_i % (int)LENGTH(refused)],
		when[_i / (int)LENGTH(refused)]);
	play_run(&(struct play){.program = "app_virtual_random",
		.words = {"faults"},
		.env = env,
		.preload = play_library,
		.at_pause = read_end});
	ck_assert_msg(play_status == 0, "%s: %d, %s", fault, play_status, play_err);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(used[0], 0);
	ck_assert_msg(counted[1] == 0, "%s: %llu bytes stay charged", fault, (unsigned long long)counted[1]);
	ck_assert_msg(play_fact("bytes that stay") == 0, "%s: %llu bytes stay", fault,
		(unsigned long long)play_fact("bytes that stay"));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_that_maps_each_array_makes_no_driver_call_in_the_steady_state, 0,
		(int)(LENGTH(pools) * LENGTH(orders)));
	tcase_add_test(tc, arrays_of_a_busy_program_are_served_also_after_others_that_were_freed_in_reverse);
	tcase_add_loop_test(tc, arrays_on_two_devices_are_served_without_a_driver_call, 0, LENGTH(on_devices));
	tcase_add_loop_test(tc, every_call_reaches_the_driver_where_nothing_is_kept, 0, LENGTH(plain));
	tcase_add_test(tc, memory_unmapped_beside_running_work_is_handed_out_once_that_work_is_complete);
	tcase_add_test(tc, memory_that_work_still_uses_is_not_handed_out);
	tcase_add_loop_test(tc, captures_threads_and_forks_get_the_same_answers, 0, LENGTH(others));
	tcase_add_loop_test(tc, calls_in_an_exit_handler_get_the_same_answers, 0, LENGTH(ends));
	tcase_add_test(tc, memory_is_given_and_taken_by_two_threads_without_a_race);
	tcase_add_loop_test(tc, unused_memory_goes_back_before_an_allocation_fails, 0, LENGTH(small));
	tcase_add_test(tc, bad_calls_get_the_errors_of_the_driver_under_any_limit);
	tcase_add_test(tc, memory_kept_mapped_leaves_the_reserve_free_so_that_the_pool_can_cache);
	tcase_add_test(tc, unused_memory_goes_back_for_the_reserve_when_memory_is_created_that_is_never_kept);
	tcase_add_test(tc, memory_goes_back_at_its_unmap_while_the_device_is_nearly_full);
	tcase_add_test(tc, memory_goes_back_at_its_unmap_while_a_lowered_limit_is_exceeded);
	tcase_add_loop_test(tc, memory_that_another_thread_gives_back_is_waited_for, 0, LENGTH(shared));
	tcase_add_test(tc, status_shows_unused_memory_and_how_often_memory_was_used_again);
	tcase_add_test(tc, memory_whose_addresses_the_program_keeps_goes_back_to_the_driver);
	tcase_add_loop_test(tc, unused_memory_goes_back_on_request, 0, LENGTH(requests));
	tcase_add_test(tc, unused_memory_goes_back_when_the_process_falls_asleep);
	tcase_add_test(tc, memory_goes_back_at_its_unmap_while_the_process_is_asleep);
	tcase_add_test(tc, expandable_segments_are_counted_and_every_call_reaches_the_driver);
	tcase_add_loop_test(tc, a_call_that_fails_loses_neither_memory_nor_counts, 0, (int)(2 * LENGTH(failures)));
	tcase_add_loop_test(
		tc, a_random_program_gets_the_same_answers_and_loses_no_memory, 0, (int)(LENGTH(seeds) * LENGTH(ways)));
	tcase_add_loop_test(tc, a_random_program_loses_neither_memory_nor_counts_when_calls_fail, 0,
		(int)(LENGTH(refused) * LENGTH(when)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"virtual", add}, 1);
}
