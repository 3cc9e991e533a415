/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Graphs keep the memory that was allocated or freed during their capture, and give it back at their end. */

#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const pools[][4] = {
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=simple", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_SYNC_FREE=1", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=none", "GPUPOOL_PENDING_COUNT=0", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_BACKEND=managed", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_BACKEND=async", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DRIVER_VERSION=12040", "GPUPOOL_LOG=off", NULL},
};

enum { N_POOLS = LENGTH(pools), BLOCK = 4 << 20 };

/* Reserved memory and its peak, as status showed them at the pauses. */
static struct {
	char name[16];
	uint64_t retained, peak;
} looks[4];
static unsigned n_looks;

static void look(const char *name)
{
	const char *status = play_ask("status");

	ck_assert_uint_lt(n_looks, LENGTH(looks));
	snprintf(looks[n_looks].name, sizeof(looks[n_looks].name), "%s", name);
	looks[n_looks].retained = play_number(status, "retained_bytes");
	looks[n_looks++].peak = play_number(status, "peak_retained_bytes");
}

static uint64_t retained_at(const char *name)
{
	for (unsigned i = 0; i < n_looks; i++)
		if (!strcmp(looks[i].name, name))
			return looks[i].retained;
	ck_abort_msg("the program did not pause at %s", name);
	return 0;
}

/* Runs a scenario. Every line of its answers that ends in a number must end in 0. */
static void run(const char *scenario, const char *const *env)
{
	n_looks = 0;
	play_run(&(struct play){
		.program = "app_graph", .words = {scenario}, .env = env, .preload = play_library, .at_pause = look});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	for (const char *line = play_out, *next; *line; line = next) {
		next = strchr(line, '\n') + 1;
		ck_assert_msg(next - line > 3 && !strncmp(next - 4, ": 0", 3), "%.*s", (int)(next - line), line);
	}
}

static const char *const replayed[] = {"replayed-global", "replayed-local", "replayed-relaxed", "cloned",
	"second-thread", "into-a-graph", "freed-by-another-thread", "thread-joins", "added-node",
	"freed-in-another-capture"};

START_TEST(a_graph_computes_with_memory_that_was_freed_in_its_capture_until_it_is_destroyed)
{
	run(replayed[_i % (int)LENGTH(replayed)], pools[_i / (int)LENGTH(replayed)]);
	ck_assert_uint_ge(retained_at("graph"), BLOCK);
	ck_assert_uint_eq(retained_at("end"), 0);
	ck_assert_uint_ge(looks[n_looks - 1].peak, BLOCK);
}
END_TEST

START_TEST(after_a_hundred_captures_and_ends_of_graphs_no_memory_is_lost)
{
	run("many", pools[_i]);
	ck_assert_uint_eq(retained_at("end"), 0);
	/* Where a record makes the host wait, no fence is recorded for what the graphs release. */
	if (!strstr(pools[_i][0], "=none") && !strstr(pools[_i][1], "=12040"))
		ck_assert_uint_eq(play_fact("later allocations"), 0);
}
END_TEST

START_TEST(graphs_that_overlap_in_time_release_their_memory_one_by_one)
{
	run("overlapping", pools[_i]);
	ck_assert_uint_le(retained_at("graph"), 6 * BLOCK);
	ck_assert_uint_eq(retained_at("end"), 0);
}
END_TEST

static const struct {
	const char *scenario;
	bool is_reused;
} chains[] = {
	{"chain", true},
	{"chain-with-event", false},
	{"chain-with-fork", false},
	{"chain-with-other-work", false},
};

START_TEST(memory_is_used_again_in_a_capture_only_while_its_work_has_one_order)
{
	const char *const *env = pools[_i / (int)LENGTH(chains)];
	bool is_reused = chains[_i % (int)LENGTH(chains)].is_reused && !strstr(env[0], "=none");

	run(chains[_i % (int)LENGTH(chains)].scenario, env);
	if (is_reused)
		ck_assert_uint_eq(play_fact("addresses"), 1);
	else
		ck_assert_uint_gt(play_fact("addresses"), 1);
}
END_TEST

START_TEST(memory_of_a_thread_that_takes_no_part_in_a_capture_is_not_reserved)
{
	run("thread-beside", pools[_i]);
	ck_assert_uint_eq(retained_at("capture"), 0);
	ck_assert_uint_eq(retained_at("end"), 0);
}
END_TEST

START_TEST(memory_of_every_thread_is_reserved_once_work_may_be_submitted_unseen)
{
	run("thread-beside-unseen", pools[_i]);
	ck_assert_uint_ge(retained_at("capture"), BLOCK);
	ck_assert_uint_eq(retained_at("end"), 0);
}
END_TEST

START_TEST(threads_that_capture_at_the_same_time_lose_no_memory)
{
	run("threads", pools[_i]);
	ck_assert_uint_eq(retained_at("end"), 0);
}
END_TEST

START_TEST(a_capture_that_ends_without_a_graph_releases_its_memory)
{
	n_looks = 0;
	play_run(&(struct play){.program = "app_graph",
		.words = {"destroyed"},
		.env = pools[_i],
		.preload = play_library,
		.at_pause = look});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_ge(retained_at("capture"), BLOCK);
	ck_assert_uint_eq(retained_at("invalidated"), 0);
	ck_assert_uint_eq(retained_at("destroyed"), 0);
}
END_TEST

START_TEST(pinned_memory_that_is_freed_in_a_capture_stays_the_graphs)
{
	run("pinned", pools[_i]);
}
END_TEST

START_TEST(the_first_pitched_allocation_of_a_context_succeeds_in_a_capture)
{
	run("pitch", pools[_i]);
}
END_TEST

START_TEST(the_end_of_a_context_before_its_graph_leaves_nothing_reserved)
{
	run("context-first", pools[_i]);
	ck_assert_uint_eq(retained_at("end"), 0);
}
END_TEST

static const char *const faults[][4] = {
	{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuMemAlloc_v2:2+=2", NULL},
	{"GPUPOOL_POOL=none", "SIMGPU_FAULT=cuMemAlloc_v2:2+=2", NULL},
	{"GPUPOOL_POOL=vmm", "SIMGPU_FAULT=cuMemCreate:4+=2", NULL},
	{"GPUPOOL_BACKEND=async", "SIMGPU_FAULT=cuMemAllocFromPoolAsync:2+=2", NULL},
};

START_TEST(an_allocation_that_the_driver_refuses_in_a_capture_leaves_the_capture_valid)
{
	n_looks = 0;
	play_run(&(struct play){.program = "app_graph",
		.words = {"refused"},
		.env = faults[_i],
		.preload = play_library,
		.at_pause = look});
	ck_assert_ptr_nonnull(strstr(play_out, "allocation: 2\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "end: 0\n"));
}
END_TEST

/* Then gpupool cannot know when the graph ends. */
static const char *const unseen[][4] = {
	{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuUserObjectCreate:every/1=801", NULL},
	{"GPUPOOL_POOL=vmm", "SIMGPU_FAULT=cuGraphRetainUserObject:every/1=2", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_HIDE=cuUserObjectCreate", NULL},
};

START_TEST(memory_stays_reserved_if_the_end_of_a_graph_cannot_be_seen)
{
	n_looks = 0;
	play_run(&(struct play){.program = "app_graph",
		.words = {"replayed-global"},
		.env = unseen[_i],
		.preload = play_library,
		.at_pause = look});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_ge(retained_at("end"), BLOCK);
	ck_assert_ptr_nonnull(strstr(play_err, "the end of a captured graph cannot be seen"));
}
END_TEST

/* Nothing is used or reserved at the end of a random program, and all memory goes back to the driver on request. */
static void reclaim_at_end(const char *name)
{
	const char *status;

	look(name);
	ck_assert_ptr_nonnull(strstr(play_ask("reclaim"), "gpupool.reclaim"));
	status = play_ask("status");
	ck_assert_uint_eq(play_number(status, "used_bytes"), 0);
	ck_assert_uint_eq(play_number(status, "pending_bytes"), 0);
	ck_assert_uint_eq(play_number(status, "total_bytes"), 0);
	ck_assert_uint_eq(play_number(play_ask("limit"), "counted_bytes"), 0);
}

enum { N_SEEDS = 3 };

START_TEST(a_random_program_that_captures_computes_right_and_loses_no_memory)
{
	const char *const *pool = pools[_i / N_SEEDS];
	bool is_record_slow = strstr(pool[1], "=12040"); /* then no fence is recorded for what the graphs release */
	char seed[32];
	const char *env[] = {pool[0], pool[1], pool[2] ? pool[2] : seed, seed, NULL};

	snprintf(seed, sizeof(seed), "APP_SEED=%d", _i + 1);
	n_looks = 0;
	play_run(&(struct play){.program = "app_graph_random",
		.words = {"run"},
		.env = env,
		.preload = play_library,
		.at_pause = is_record_slow ? look : reclaim_at_end});
	ck_assert_str_eq(play_err, "");
	ck_assert_str_eq(play_out, "wrong words: 0\nrefused calls: 0\n");
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_gt(play_fact("captures"), 3);
	ck_assert_uint_eq(retained_at("end"), 0);
	if (!is_record_slow)
		ck_assert_uint_eq(play_fact("bytes that stay"), 0);
}
END_TEST

static const char *const failing[][2] = {
	{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuMemAlloc_v2:every/3=2"},
	{"GPUPOOL_POOL=vmm", "SIMGPU_FAULT=cuMemCreate:every/3=2"},
	{"GPUPOOL_POOL=vmm", "SIMGPU_FAULT=cuMemSetAccess:every/4=2"},
	{"GPUPOOL_POOL=split", "SIMGPU_FAULT=cuCtxRecordEvent:every/5=999"},
};

START_TEST(a_random_program_that_captures_loses_no_memory_when_calls_fail)
{
	const char *env[] = {failing[_i][0], failing[_i][1], "GPUPOOL_LOG=off", NULL};

	n_looks = 0;
	play_run(&(struct play){.program = "app_graph_random",
		.words = {"run"},
		.env = env,
		.preload = play_library,
		.at_pause = reclaim_at_end});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(play_fact("bytes that stay"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_graph_computes_with_memory_that_was_freed_in_its_capture_until_it_is_destroyed, 0,
		N_POOLS * (int)LENGTH(replayed));
	tcase_add_loop_test(
		tc, a_random_program_that_captures_computes_right_and_loses_no_memory, 0, N_POOLS * N_SEEDS);
	tcase_add_loop_test(
		tc, a_random_program_that_captures_loses_no_memory_when_calls_fail, 0, (int)LENGTH(failing));
	tcase_add_loop_test(tc, after_a_hundred_captures_and_ends_of_graphs_no_memory_is_lost, 0, N_POOLS);
	tcase_add_loop_test(tc, graphs_that_overlap_in_time_release_their_memory_one_by_one, 0, N_POOLS);
	tcase_add_loop_test(tc, memory_is_used_again_in_a_capture_only_while_its_work_has_one_order, 0,
		N_POOLS * (int)LENGTH(chains));
	tcase_add_loop_test(tc, memory_of_a_thread_that_takes_no_part_in_a_capture_is_not_reserved, 0, N_POOLS);
	tcase_add_loop_test(tc, memory_of_every_thread_is_reserved_once_work_may_be_submitted_unseen, 0, N_POOLS);
	tcase_add_loop_test(tc, threads_that_capture_at_the_same_time_lose_no_memory, 0, N_POOLS);
	tcase_add_loop_test(tc, a_capture_that_ends_without_a_graph_releases_its_memory, 0, N_POOLS);
	tcase_add_loop_test(tc, pinned_memory_that_is_freed_in_a_capture_stays_the_graphs, 0, N_POOLS);
	tcase_add_loop_test(tc, the_first_pitched_allocation_of_a_context_succeeds_in_a_capture, 0, N_POOLS);
	tcase_add_loop_test(tc, the_end_of_a_context_before_its_graph_leaves_nothing_reserved, 0, N_POOLS);
	tcase_add_loop_test(tc, an_allocation_that_the_driver_refuses_in_a_capture_leaves_the_capture_valid, 0,
		(int)LENGTH(faults));
	tcase_add_loop_test(tc, memory_stays_reserved_if_the_end_of_a_graph_cannot_be_seen, 0, (int)LENGTH(unseen));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"graphs", add}, 1);
}
