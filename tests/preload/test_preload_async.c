/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* GPUPOOL_ASYNC: allocations in stream order from the pool, and the cases that stay with the driver. */

#include <stdio.h>
#include <string.h>

#include "play.h"

#define ON "GPUPOOL_ASYNC=on"

static const char *const pools[] = {
	"GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split", "GPUPOOL_POOL=vmm"};
static const char *const loops[] = {"created", "blocking", "legacy", "per-thread"};

static void run(const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = "app_async", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

START_TEST(a_stream_reuses_at_once_the_blocks_that_were_freed_on_it)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], NULL};

	run(loops[_i / LENGTH(pools)], env);
	ck_assert_uint_eq(play_fact("other addresses"), 0);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("cuCtxRecordEvent"), 0);
	ck_assert_uint_eq(play_fact("cuCtxWaitEvent"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("cuEventRecord"), 0);
}
END_TEST

static const char *const steady[] = {"pairs-created", "pairs-blocking", "pairs-legacy", "pairs-per-thread",
	"pairs-later", "pairs-retained-late", "pairs-retained-unseen"};

START_TEST(pairs_on_one_stream_make_no_driver_call)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], NULL};

	run(steady[_i / LENGTH(pools)], env);
	ck_assert_uint_eq(play_fact("calls"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(with_two_contexts_pairs_on_one_stream_record_no_event)
{
	const char *env[] = {ON, pools[_i], "SIMGPU_DEVICES=2", NULL};

	run("pairs-with-two-contexts", env);
	ck_assert_uint_eq(play_fact("cuCtxRecordEvent"), 0);
	ck_assert_uint_le(play_fact("calls"), 6 * 1000);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(threads_use_their_own_and_each_others_streams_while_streams_end)
{
	const char *env[] = {ON, pools[_i], NULL};

	run("threads", env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const crossed[] = {"cross-to-blocking", "cross-to-legacy", "cross-from-per-thread", "cross-by-wait",
	"cross-by-wait-of-legacy", "cross-by-free", "cross-before-the-first"};

/* The order of blocking streams with each other is that of the driver's operations, and a free of the pool is none. */
START_TEST(a_block_freed_on_a_blocking_stream_waits_for_work_that_only_an_operation_would_wait_for)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], NULL};

	run(crossed[_i / LENGTH(pools)], env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const operations[] = {
	"crossed-beside-capture", "crossed-uncached", "crossed-by-driver", "crossed-by-foreign", "crossed-by-event"};

START_TEST(a_free_on_a_blocking_stream_is_behind_each_operation_on_the_legacy_stream)
{
	const char *scenario = operations[_i / LENGTH(pools)];
	bool is_by_event = strcmp(scenario, "crossed-by-event") == 0; /* on an H100 an event is an operation */
	const char *env[] = {
		ON, pools[_i % LENGTH(pools)], is_by_event ? "SIMGPU_RECORDS_ARE_OPERATIONS=1" : NULL, NULL};

	run(scenario, env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(launches_of_a_program_without_allocations_in_stream_order_ask_the_driver_for_no_stream)
{
	static const char *const env[] = {ON, NULL};

	run("launches", env);
	ck_assert_uint_eq(play_fact("cuStreamGetId"), 0);
	ck_assert_uint_eq(play_fact("cuDeviceGetDefaultMemPool"), 0);
	ck_assert_uint_eq(play_fact("cuDeviceGetMemPool"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_loop_whose_work_ends_each_time_reuses_one_block)
{
	const char *env[] = {ON, pools[_i], NULL};

	run("created-idle", env);
	ck_assert_uint_eq(play_fact("other addresses"), 0);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
}
END_TEST

static uint64_t pending_bytes;

static void read_pending(const char *name)
{
	pending_bytes = play_number(play_ask("status"), "pending_bytes");
}

START_TEST(another_stream_gets_a_freed_block_only_after_its_work)
{
	const char *env[] = {ON, pools[_i], NULL};

	play_run(&(struct play){.program = "app_async",
		.words = {"streams"},
		.env = env,
		.preload = play_library,
		.at_pause = read_pending});
	ck_assert_int_eq(play_status, 0);
	/* Blocks freed on destroyed streams do not stay pending. The thread's cache keeps the last one, of 9 MiB. */
	ck_assert_uint_le(pending_bytes, 10 * MIB);
	ck_assert_uint_eq(play_fact("same block while the stream works"), 0);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const early[] = {"early-first", "early-later"};

START_TEST(a_kernel_that_may_begin_early_does_not_touch_memory_in_use)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], NULL};

	run(early[_i / LENGTH(pools)], env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const recycled[] = {"recycled", "recycled-looked-up", "recycled-looked-up-old", "recycled-asked-for",
	"recycled-asked-for-v2", "recycled-elsewhere", "recycled-unseen", "recycled-behind"};

START_TEST(a_new_stream_with_the_handle_of_a_destroyed_one_does_not_get_its_blocks)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], NULL};

	run(recycled[_i / LENGTH(pools)], env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("same handle"), 1);
	ck_assert_uint_eq(play_fact("same block"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_stream_of_the_next_context_with_the_handle_of_an_ended_one_is_another_stream)
{
	const char *env[] = {ON, pools[_i], NULL};

	run("reset", env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("same handle"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static uint64_t n_served, n_left, n_left_for;
static const char *left_for; /* the name of a reason; NULL: none */

static void read_left(const char *name)
{
	const char *status = play_ask("status"), *left = strstr(status, "\"left\":[");
	const char *devices = strstr(status, "\"devices\":[{");

	n_served = 0;
	while ((devices = devices ? strstr(devices, "\"stream_allocs\":") : NULL)) {
		n_served += play_number(devices, "stream_allocs");
		devices++;
	}
	n_left = n_left_for = 0;
	ck_assert_ptr_nonnull(left);
	for (const char *end = strchr(left, ']'); (left = strstr(left, "{\"name\":\"")) && left < end; left++) {
		uint64_t count = play_number(left, "count");

		n_left += count;
		if (left_for && !strncmp(left + strlen("{\"name\":\""), left_for, strlen(left_for)) &&
			left[strlen("{\"name\":\"") + strlen(left_for)] == '"')
			n_left_for += count;
	}
}

/* Runs a program that pauses after its last allocation in stream order. */
static void run_left(const char *program, const char *scenario, const char *const *env, const char *reason)
{
	left_for = reason;
	n_served = n_left = n_left_for = UINT64_MAX;
	play_run(&(struct play){
		.program = program, .words = {scenario}, .env = env, .preload = play_library, .at_pause = read_left});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "free: 0\n");
	ck_assert_uint_eq(n_served + n_left, play_fact("asked"));
	ck_assert_uint_eq(n_left_for, n_left);
}

static const struct {
	const char *scenario, *env[4], *reason;
} rows[] = {
	{"usual", {ON}, NULL},
	{"usual", {"GPUPOOL_ASYNC=off"}, "off"},
	{"usual", {NULL}, NULL},
	{"usual", {ON, "GPUPOOL_POOL=none"}, "pool-type"},
	{"usual", {ON, "GPUPOOL_BACKEND=managed"}, "backend"},
	{"usual", {ON, "GPUPOOL_DEBUG=guard"}, "debug"},
	{"usual", {ON, "SIMGPU_HIDE=cuStreamGetId"}, "unknown-stream"},
	{"usual", {ON, "SIMGPU_DRIVER_VERSION=11040", "LD_LIBRARY_PATH=driver-11040"}, "old-driver"},
	{"usual", {ON, "SIMGPU_HIDE=cuDeviceGetMemPool"}, "no-default-pool"},
	{"usual", {ON, "SIMGPU_LACKS=102"}, "no-mapping"},
	{"usual", {ON, "GPUPOOL_POOL=binned"}, NULL},
	{"usual", {ON, "GPUPOOL_RECORD=/dev/null"}, NULL},
	{"usual-legacy", {ON}, NULL},
	{"other-context", {ON}, NULL},
	{"created-current", {ON}, NULL},
	{"green", {ON}, "green-context"},
	{"no-context", {ON}, "no-context"},
	{"chosen-pool", {ON}, NULL},
	{"chosen-by-location", {ON}, NULL},
	{"chosen-pool-of-max", {ON}, "current-pool"},
	{"chosen-beside-opened", {ON, "SIMGPU_DEVICES=2"}, NULL},
	{"chosen-opened-pool", {ON, "SIMGPU_DEVICES=2"}, "current-pool"},
	{"chosen-and-destroyed", {ON}, NULL},
	{"named-pool", {ON}, NULL},
	{"named-pool-of-max", {ON}, "other-pool"},
	{"named-shareable-pool", {ON}, "other-pool"},
	{"named-pool-to-decompress", {ON}, NULL},
	{"named-pool-to-decompress", {ON, "SIMGPU_FAULT=cuDeviceGetAttribute:1+=1"}, "other-pool"},
	{"named-pool-of-other-use", {ON}, "other-pool"},
	{"named-pool-without-account", {ON}, "other-pool"},
	{"named-opened-pool", {ON, "SIMGPU_DEVICES=2"}, "pool-access"},
	{"named-closed-pool", {ON, "SIMGPU_DEVICES=2"}, NULL},
	{"named-default-pool", {ON}, NULL},
	{"opened-pool", {ON, "SIMGPU_DEVICES=2"}, "pool-access"},
	{"stream-of-other-device", {ON, "SIMGPU_DEVICES=2"}, NULL},
	{"stream-of-green-context", {ON}, "stream-context"},
	{"ended-stream", {ON}, "unknown-stream"},
	{"no-bytes", {ON}, "invalid"},
	{"no-cache-scope", {ON}, "no-caches"},
};

START_TEST(allocations_that_the_pool_cannot_serve_as_the_manual_says_are_left_to_the_driver_and_counted)
{
	char path[512];
	const char *env[LENGTH(rows[0].env)];

	memcpy(env, rows[_i].env, sizeof(env));
	for (size_t i = 0; i < LENGTH(env) && env[i]; i++)
		if (!strncmp(env[i], "LD_LIBRARY_PATH=", strlen("LD_LIBRARY_PATH="))) {
			snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/%s", play_app_dir,
				env[i] + strlen("LD_LIBRARY_PATH="));
			env[i] = path;
		}
	run_left("app_async", rows[_i].scenario, env, rows[_i].reason);
	ck_assert_uint_eq(play_fact("by the driver"), rows[_i].reason != NULL);
}
END_TEST

START_TEST(an_allocation_that_fails_on_a_stream_of_another_device_is_reported_for_that_device)
{
	static const char *const env[] = {ON, "SIMGPU_DEVICES=2", "GPUPOOL_LIMIT=64MiB", NULL};

	run("full-stream-of-other-device", env);
	ck_assert_str_eq(play_out, "allocation: 2\n");
	ck_assert_ptr_nonnull(strstr(play_err, "memory on device 1"));
	ck_assert_ptr_null(strstr(play_err, "memory on device 0"));
}
END_TEST

static const char *const without_service[] = {"GPUPOOL_POOL=none", "GPUPOOL_DEBUG=guard", "GPUPOOL_BACKEND=managed"};

START_TEST(a_pool_that_the_driver_serves_reports_no_memory_of_gpupool_as_reserved)
{
	const char *env[] = {ON, without_service[_i], NULL};

	run("books-of-named-pool", env);
	ck_assert_uint_eq(play_fact("used"), 1 << 20);
	ck_assert_uint_eq(play_fact("reserved"), 1 << 20);
}
END_TEST

START_TEST(pairs_from_a_pool_that_the_program_has_made_call_the_driver_only_if_that_serves_the_pool)
{
	static const char *const off[] = {"GPUPOOL_ASYNC=off", NULL}, *const on[] = {ON, NULL};
	uint64_t n_off;

	run("pairs-from-pool-of-max", off);
	n_off = play_fact("calls");
	ck_assert_uint_gt(n_off, 0);
	run("pairs-from-pool-of-max", on);
	ck_assert_uint_eq(play_fact("calls"), n_off);
	run("pairs-from-made-pool", on);
	ck_assert_uint_eq(play_fact("calls"), 0);
}
END_TEST

static const char *const runtimes[] = {"app_async_runtime_shared", "app_async_runtime_static"};
static const char *const retains[] = {
	"SIMGPU_RUNTIME_RETAINS=first", "SIMGPU_RUNTIME_RETAINS=late", "SIMGPU_RUNTIME_RETAINS=unseen"};
static const char *const by_runtime[] = {"pairs", "pairs-after-set-device", "pairs-per-thread",
	"pairs-from-default-pool", "pairs-on-two-devices", "pairs-after-reset"};
enum { N_BY_RUNTIME = LENGTH(runtimes) * LENGTH(retains) * LENGTH(by_runtime) };

/* The runtime knows the primary context before it retains it, so it may make the context current first. */
START_TEST(allocations_through_the_runtime_are_served_however_it_retains_primary_contexts)
{
	const char *env[] = {
		ON, "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", retains[(unsigned)_i / LENGTH(runtimes) % 3], NULL};

	run_left(runtimes[(unsigned)_i % LENGTH(runtimes)], by_runtime[(unsigned)_i / LENGTH(runtimes) / 3], env, NULL);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const opened[] = {
	"opened-with-memory", "opened-to-idle", "made-opened-with-memory", "made-opened-to-idle"};

START_TEST(access_to_the_default_pool_covers_memory_that_the_pool_has_served_before)
{
	const char *env[] = {
		ON, pools[_i % LENGTH(pools)], "SIMGPU_DEVICES=2", "SIMGPU_STRICT=1", "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = "app_async",
		.words = {opened[_i / LENGTH(pools)]},
		.env = env,
		.preload = play_library,
		.inside = "app_async_inside"});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

START_TEST(a_thread_that_gives_access_waits_until_another_one_has_given_it)
{
	static const char *const env[] = {ON, "SIMGPU_DEVICES=2", NULL};

	run("opened-twice", env);
	ck_assert_str_eq(play_out, "fill: 0\ndone: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const captures[] = {"capture", "capture-elsewhere", "capture-joined"};

START_TEST(while_a_stream_captures_the_driver_serves_all_streams)
{
	static const char *const env[] = {ON, NULL};

	run_left("app_async", captures[_i], env, "capture");
	ck_assert_uint_eq(n_left, 1);
	ck_assert_uint_eq(play_fact("during the capture"), 1);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
}
END_TEST

START_TEST(a_limit_holds_and_memory_of_one_stream_serves_another_before_a_failure)
{
	const char *env[] = {ON, pools[_i], "GPUPOOL_LIMIT=128MiB", "GPUPOOL_LOG=off", NULL};

	run("until-full", env);
	ck_assert_str_eq(play_out, "refused with: 2\npointer: 0\non the other stream: 0\nwrong words: 0\n");
	ck_assert_uint_ge(play_fact("blocks"), 12);
	ck_assert_uint_le(play_fact("blocks"), 16);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static uint64_t stream_bytes, used_bytes;

static void read_status(const char *name)
{
	const char *status = play_ask("status");

	stream_bytes = play_number(status, "stream_bytes");
	used_bytes = play_number(status, "used_bytes");
}

START_TEST(the_status_counts_memory_in_stream_order)
{
	static const char *const env[] = {ON, NULL};

	play_run(&(struct play){.program = "app_async",
		.words = {"held"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(stream_bytes, 3 * MIB);
	ck_assert_uint_eq(used_bytes, 3 * MIB);
}
END_TEST

START_TEST(the_report_at_exit_has_memory_in_stream_order)
{
	static const char *const env[] = {ON, "GPUPOOL_REPORT=exit", NULL};

	run("held", env);
	ck_assert_ptr_nonnull(strstr(play_err, "3.00 MiB"));
	ck_assert_ptr_nonnull(strstr(play_err, "  2 allocations in stream order from the pool\n"));
	ck_assert_ptr_null(strstr(play_err, "left to the driver"));
}
END_TEST

START_TEST(the_report_at_exit_tells_why_an_allocation_in_stream_order_was_left_to_the_driver)
{
	static const char *const env[] = {ON, "GPUPOOL_REPORT=exit", NULL};

	run("chosen-pool-of-max", env);
	ck_assert_ptr_nonnull(strstr(play_err, "  1 allocation in stream order left to the driver: the device's "
					       "current pool is one that gpupool cannot serve\n"));
}
END_TEST

static const struct {
	const char *scenario;
	unsigned by_driver;
} away[] = {
	{"elsewhere", 0},
	{"elsewhere-legacy", 20}, /* an operation of the driver for each free */
	{"elsewhere-blocking", 20},
};

START_TEST(a_block_freed_on_a_stream_of_another_device_waits_for_all_work_that_precedes_the_free)
{
	const char *env[] = {ON, pools[_i % LENGTH(pools)], "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL};

	run(away[_i / LENGTH(pools)].scenario, env);
	ck_assert_uint_eq(play_fact("by the driver"), away[_i / LENGTH(pools)].by_driver);
	ck_assert_uint_eq(play_fact("races"), 0);
	/* The blocks come back, so the loop of 20 does not take new memory each time. */
	ck_assert_uint_le(play_fact("memory from the driver"), 6);
	ck_assert_ptr_nonnull(strstr(play_out, "free again: 1\nwrong words: 0\n"));
}
END_TEST

/* Calls of the poll that fail, though the work goes on. */
static const char *const poll_faults[] = {
	"cuEventQuery 1 2", "cuEventQuery 1 999", "cuEventQuery 1 900", "cuCtxPushCurrent_v2 1 2", "cuCtxGetId 1 2"};

START_TEST(a_block_goes_on_waiting_for_its_stream_of_another_context_after_a_query_that_failed)
{
	char fault[64];
	const char *env[] = {ON, fault, NULL};

	snprintf(fault, sizeof(fault), "APP_FAULT=%s", poll_faults[_i]);
	run("elsewhere-with-fault", env);
	ck_assert_str_eq(play_out, "end: 0\n");
	ck_assert_uint_eq(play_fact("handed out early"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_free_on_a_stream_of_another_context_leaves_no_memory_of_a_call_that_failed)
{
	static const char *const env[] = {ON, NULL};

	run("elsewhere-with-refusal", env);
	ck_assert_str_eq(play_out, "free: 0\n");
	ck_assert_uint_eq(play_fact("bytes in use"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_in_stream_order_cannot_be_unmapped_by_the_program)
{
	const char *env[] = {ON, pools[_i], NULL};

	run("misused", env);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

START_TEST(a_pool_that_the_driver_does_not_destroy_keeps_its_counts)
{
	static const char *const env[] = {ON, NULL};

	run("not-destroyed", env);
	ck_assert_str_eq(play_out, "destroy: 800\nused: 8 MiB\ndestroy: 0\n");
	ck_assert_uint_eq(play_fact("by the driver"), 0);
}
END_TEST

START_TEST(a_free_on_a_stream_of_another_context_needs_no_id_of_that_context)
{
	static const char *const env[] = {ON, "SIMGPU_DEVICES=2", "SIMGPU_HIDE=cuCtxGetId", "GPUPOOL_LOG=off", NULL};

	run("elsewhere", env);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_le(play_fact("memory from the driver"), 6);
	ck_assert_ptr_nonnull(strstr(play_out, "free again: 1\nwrong words: 0\n"));
}
END_TEST

START_TEST(a_context_may_end_while_a_block_waits_for_its_stream)
{
	static const char *const env[] = {ON, "SIMGPU_DEVICES=2", NULL};

	run("elsewhere-ended", env);
	ck_assert_str_eq(play_out, "free: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* The driver has no memory on that device for the operation that comes before the free. */
START_TEST(memory_freed_on_a_stream_of_a_full_device_is_counted_as_free_and_goes_back)
{
	const char *env[] = {ON, pools[_i], "SIMGPU_DEVICES=2", "SIMGPU_MEMORY=1G", "GPUPOOL_LOG=off", NULL};

	run("elsewhere-full", env);
	ck_assert_str_eq(play_out, "free: 0\nKiB used: 0\nKiB reserved: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* gpupool maps memory in stream order, or leaves the allocation to the driver. */
static const struct {
	const char *env[2];
	bool is_mapped;
} sorts[] = {
	{{"GPUPOOL_POOL=simple"}, true},
	{{"GPUPOOL_POOL=binned"}, true},
	{{"GPUPOOL_POOL=split"}, true},
	{{"GPUPOOL_POOL=split", "SIMGPU_LACKS=102"}, false},
	{{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuMemAddressReserve:1+=1"}, false},
	{{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuMemMap:1+=801"}, false},
	{{"GPUPOOL_POOL=vmm"}, true},
};

START_TEST(a_new_context_has_access_to_memory_in_stream_order)
{
	const char *env[] = {ON, sorts[_i].env[0], sorts[_i].env[1], NULL};

	run("apart-in-created", env);
	ck_assert_str_eq(play_out, "set: 0\nwait: 0\nwrong words: 0\nfree: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(each_free_on_a_busy_stream_of_another_context_asks_about_one_free)
{
	static const char *const env[] = {ON, NULL};

	run("elsewhere-many", env);
	ck_assert_str_eq(play_out, "the work: 0\n");
	ck_assert_uint_le(play_fact("queries"), 40);
	ck_assert_uint_eq(play_fact("bytes in use"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_free_that_is_done_is_not_held_back_by_a_later_one_on_its_stream)
{
	static const char *const env[] = {ON, NULL};
	const char *line = play_out;
	unsigned n = 0;

	run("elsewhere-in-turn", env);
	while (!strncmp(line, "used once the first is done: 1024\nused in the end: 0\n", 53)) {
		line += 53;
		n++;
	}
	ck_assert_msg(n == 8 && !*line, "after %u rounds: %s", n, line);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_free_in_a_no_cache_scope_waits_for_its_stream_of_another_context)
{
	static const char *const env[] = {ON, NULL};

	run("elsewhere-uncached", env);
	ck_assert_str_eq(play_out, "free: 0\nthe work: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Where the driver cannot map memory, it serves allocations in stream order. */
START_TEST(memory_in_stream_order_is_mapped_and_other_memory_is_as_the_pool_type_says)
{
	const char *env[] = {ON, sorts[_i].env[0], sorts[_i].env[1], NULL};
	bool is_all_mapped = strstr(sorts[_i].env[0], "vmm");

	run("apart", env);
	ck_assert_str_eq(play_out, "wrong words of plain memory: 0\nwrong words in stream order: 0\n"
				   "free plain memory in stream order: 0\nfree memory of a stream: 0\n"
				   "free plain memory again: 1\nfree memory of a stream again: 1\n");
	if (!is_all_mapped && sorts[_i].is_mapped)
		ck_assert_uint_eq(play_fact("chunks in stream order"), 1); /* also the one that was mapped to try it */
	ck_assert_int_eq(play_fact("memory of cuMemAlloc") == 0, is_all_mapped);
	ck_assert_int_eq(play_fact("by the driver") == 0, sorts[_i].is_mapped);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static unsigned n_streamed_pools; /* on the map */

static void look_at_map(const char *unused)
{
	static const char member[] = "\"in_stream_order\":true";

	for (const char *at = play_ask("map"); (at = strstr(at, member)); at += strlen(member))
		n_streamed_pools++;
}

START_TEST(the_map_tells_which_pool_serves_stream_order)
{
	const char *env[] = {ON, sorts[_i].env[0], sorts[_i].env[1], NULL};
	bool is_all_mapped = strstr(sorts[_i].env[0], "vmm");

	n_streamed_pools = 0;
	play_run(&(struct play){.program = "app_async",
		.words = {"apart-on-the-map"},
		.env = env,
		.preload = play_library,
		.at_pause = look_at_map});
	ck_assert_uint_eq(n_streamed_pools, sorts[_i].is_mapped && !is_all_mapped);
}
END_TEST

START_TEST(mapped_memory_has_synchronous_operations_by_a_flag_of_its_context)
{
	const char *env[] = {ON, sorts[_i].env[0], sorts[_i].env[1], NULL};

	run("apart-and-synchronous", env);
	ck_assert_ptr_nonnull(strstr(play_out, "set: 0\nis set: 1, of other memory 0\n"));
	if (sorts[_i].is_mapped)
		ck_assert_ptr_nonnull(strstr(play_out, "reused: 0\n"));
	ck_assert_uint_eq(play_fact("flags were set"), sorts[_i].is_mapped);
	ck_assert_str_eq(play_err, "");
}
END_TEST

START_TEST(a_message_says_that_an_old_driver_has_no_synchronous_operations_for_mapped_memory)
{
	static const char *const env[] = {ON, "GPUPOOL_POOL=split", "SIMGPU_HIDE=cuCtxSetFlags", NULL};

	run("apart-and-synchronous", env);
	ck_assert_ptr_nonnull(strstr(play_out, "set: 801\n"));
	ck_assert_ptr_nonnull(
		strstr(play_err, "SYNC_MEMOPS fails with error 801, since mapped memory needs a driver of "
				 "CUDA 12.1 for it; use GPUPOOL_ASYNC=off"));
}
END_TEST

START_TEST(a_limit_holds_for_both_pools_and_each_gives_way_to_the_other)
{
	const char *env[] = {ON, "GPUPOOL_LIMIT=64MiB", sorts[_i].env[0], sorts[_i].env[1], NULL};

	run("apart-at-limit", env);
	ck_assert_str_eq(play_out, "beyond the limit: 2\n");
	ck_assert_int_eq(play_fact("by the driver") == 0, sorts[_i].is_mapped);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Nothing serves from the thread's cache while call sites are taken. */
START_TEST(a_context_may_end_while_a_pool_of_stream_order_grows)
{
	static const char *const env[] = {
		ON, "GPUPOOL_POOL=split", "GPUPOOL_STACKS=8", "GPUPOOL_REPORT=/dev/null", "MALLOC_PERTURB_=85", NULL};

	run("apart-and-ended", env);
	ck_assert_str_eq(play_out, "reset: 0\nallocation: 1\n");
}
END_TEST

START_TEST(a_context_may_end_while_a_pool_of_stream_order_is_made)
{
	static const char *const env[] = {ON, "GPUPOOL_POOL=split", "MALLOC_PERTURB_=85", NULL};

	run("apart-and-ended-early", env);
	ck_assert_str_eq(play_out, "reset: 0\nallocation: 1\nfree of the next context's: 0\n");
	ck_assert_uint_eq(play_fact("chunks of the device"), 1);
}
END_TEST

START_TEST(threads_that_allocate_first_in_stream_order_share_one_pool)
{
	static const char *const env[] = {ON, "GPUPOOL_POOL=split", NULL};

	run("apart-by-threads", env);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	/* One or more for the blocks. Threads that made pools of their own would map one each. */
	ck_assert_uint_lt(play_fact("chunks"), 8);
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add_order(TCase *tc)
{
	tcase_add_loop_test(tc, a_free_on_a_blocking_stream_is_behind_each_operation_on_the_legacy_stream, 0,
		(int)(LENGTH(pools) * LENGTH(operations)));
	tcase_add_loop_test(tc, a_block_goes_on_waiting_for_its_stream_of_another_context_after_a_query_that_failed, 0,
		LENGTH(poll_faults));
	tcase_add_test(tc, a_free_on_a_stream_of_another_context_needs_no_id_of_that_context);
	tcase_add_test(tc, a_free_on_a_stream_of_another_context_leaves_no_memory_of_a_call_that_failed);
	tcase_add_loop_test(tc, memory_in_stream_order_cannot_be_unmapped_by_the_program, 0, (int)LENGTH(pools));
	tcase_add_test(tc, a_pool_that_the_driver_does_not_destroy_keeps_its_counts);
}

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, a_stream_reuses_at_once_the_blocks_that_were_freed_on_it, 0, (int)(LENGTH(pools) * LENGTH(loops)));
	tcase_add_loop_test(tc, pairs_on_one_stream_make_no_driver_call, 0, (int)(LENGTH(pools) * LENGTH(steady)));
	tcase_add_loop_test(tc, with_two_contexts_pairs_on_one_stream_record_no_event, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, threads_use_their_own_and_each_others_streams_while_streams_end, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_block_freed_on_a_blocking_stream_waits_for_work_that_only_an_operation_would_wait_for,
		0, (int)(LENGTH(pools) * LENGTH(crossed)));
	tcase_add_test(tc, launches_of_a_program_without_allocations_in_stream_order_ask_the_driver_for_no_stream);
	tcase_add_loop_test(tc, a_loop_whose_work_ends_each_time_reuses_one_block, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, another_stream_gets_a_freed_block_only_after_its_work, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_kernel_that_may_begin_early_does_not_touch_memory_in_use, 0,
		(int)(LENGTH(pools) * LENGTH(early)));
	tcase_add_loop_test(tc, a_new_stream_with_the_handle_of_a_destroyed_one_does_not_get_its_blocks, 0,
		(int)(LENGTH(pools) * LENGTH(recycled)));
	tcase_add_loop_test(tc, a_stream_of_the_next_context_with_the_handle_of_an_ended_one_is_another_stream, 0,
		(int)LENGTH(pools));
	tcase_add_loop_test(tc,
		allocations_that_the_pool_cannot_serve_as_the_manual_says_are_left_to_the_driver_and_counted, 0,
		(int)LENGTH(rows));
	tcase_add_loop_test(tc, a_pool_that_the_driver_serves_reports_no_memory_of_gpupool_as_reserved, 0,
		(int)LENGTH(without_service));
	tcase_add_test(tc, pairs_from_a_pool_that_the_program_has_made_call_the_driver_only_if_that_serves_the_pool);
	tcase_add_loop_test(tc, allocations_through_the_runtime_are_served_however_it_retains_primary_contexts, 0,
		(int)N_BY_RUNTIME);
	tcase_add_loop_test(tc, access_to_the_default_pool_covers_memory_that_the_pool_has_served_before, 0,
		(int)(LENGTH(pools) * LENGTH(opened)));
	tcase_add_loop_test(tc, while_a_stream_captures_the_driver_serves_all_streams, 0, (int)LENGTH(captures));
	tcase_add_loop_test(
		tc, a_limit_holds_and_memory_of_one_stream_serves_another_before_a_failure, 0, (int)LENGTH(pools));
	tcase_add_test(tc, the_status_counts_memory_in_stream_order);
	tcase_add_test(tc, the_report_at_exit_has_memory_in_stream_order);
	tcase_add_test(tc, the_report_at_exit_tells_why_an_allocation_in_stream_order_was_left_to_the_driver);
	tcase_add_loop_test(tc, a_block_freed_on_a_stream_of_another_device_waits_for_all_work_that_precedes_the_free,
		0, (int)(LENGTH(pools) * LENGTH(away)));
	tcase_add_test(tc, a_context_may_end_while_a_block_waits_for_its_stream);
	tcase_add_test(tc, an_allocation_that_fails_on_a_stream_of_another_device_is_reported_for_that_device);
	tcase_add_test(tc, a_thread_that_gives_access_waits_until_another_one_has_given_it);
	tcase_add_test(tc, each_free_on_a_busy_stream_of_another_context_asks_about_one_free);
	tcase_add_test(tc, a_free_that_is_done_is_not_held_back_by_a_later_one_on_its_stream);
	tcase_add_test(tc, a_free_in_a_no_cache_scope_waits_for_its_stream_of_another_context);
	tcase_add_loop_test(tc, a_new_context_has_access_to_memory_in_stream_order, 0, (int)LENGTH(sorts));
	tcase_add_loop_test(
		tc, memory_in_stream_order_is_mapped_and_other_memory_is_as_the_pool_type_says, 0, (int)LENGTH(sorts));
	tcase_add_loop_test(
		tc, mapped_memory_has_synchronous_operations_by_a_flag_of_its_context, 0, (int)LENGTH(sorts));
	tcase_add_test(tc, a_message_says_that_an_old_driver_has_no_synchronous_operations_for_mapped_memory);
	tcase_add_loop_test(tc, the_map_tells_which_pool_serves_stream_order, 0, (int)LENGTH(sorts));
	tcase_add_loop_test(tc, a_limit_holds_for_both_pools_and_each_gives_way_to_the_other, 0, (int)LENGTH(sorts));
	tcase_add_test(tc, a_context_may_end_while_a_pool_of_stream_order_grows);
	tcase_add_test(tc, a_context_may_end_while_a_pool_of_stream_order_is_made);
	tcase_add_test(tc, threads_that_allocate_first_in_stream_order_share_one_pool);
	tcase_add_loop_test(
		tc, memory_freed_on_a_stream_of_a_full_device_is_counted_as_free_and_goes_back, 0, (int)LENGTH(pools));
	add_order(tc);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"async", add}, 1);
}
