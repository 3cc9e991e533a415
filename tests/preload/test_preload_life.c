/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Captures, contexts, threads and processes, from their start to their end. */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const pools[][4] = {
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=simple", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_SYNC_FREE=1", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DRIVER_VERSION=12040", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DEINIT_AT_EXIT=1", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "SIMGPU_DEINIT_AT_EXIT=1", "GPUPOOL_LOG=off", NULL},
};

static const char *const alike[][2] = {
	{"app_capture", "global-quiet"},
	{"app_capture", "local-quiet"},
	{"app_capture", "local-other"},
	{"app_capture", "relaxed-quiet"},
	{"app_capture", "relaxed-own"},
	{"app_capture", "relaxed-other"},
	{"app_capture", "miss"},
	{"app_capture", "bad-ends"},
	{"app_capture", "freed-inside"},
	{"app_context", "reset"},
	{"app_context", "release"},
	{"app_context", "create"},
	{"app_context", "end-under-threads"},
	{"app_process", "fork-before"},
	{"app_process", "fork-after"},
	{"app_process", "exit"},
	{"app_process", "exit-late"},
	{"app_process", "exit-released"},
	{"app_threads", "many"},
	{"app_threads", "cut-short"},
	{"app_early", "early"},
	{"app_deep", "closed"},
};

START_TEST(captures_contexts_threads_and_forks_behave_as_without_the_library)
{
	const char *const *scenario = alike[_i % (int)LENGTH(alike)];

	play_same_or_served(
		&(struct play){.program = scenario[0], .words = {scenario[1]}, .env = pools[_i / (int)LENGTH(alike)]});
}
END_TEST

START_TEST(memory_that_is_still_held_at_exit_causes_no_message)
{
	const char *env[] = {pools[_i][0], "SIMGPU_DEINIT_AT_EXIT=1", NULL};

	play_same_or_served(&(struct play){.program = "app_process", .words = {"exit-released"}, .env = env});
	ck_assert_str_eq(play_err, "");
}
END_TEST

/* A documented difference: a cached block is served where the driver alone would refuse and invalidate the capture. */
static const char *const hits[] = {
	"global-own", "global-other", "local-own", "local-other", "relaxed-own", "relaxed-other"};
static const char *const caches[][2] = {{"GPUPOOL_POOL=simple", NULL}, {"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL}, {"GPUPOOL_POOL=vmm", NULL}};

START_TEST(a_capture_survives_allocations_that_the_cache_serves)
{
	play_run(&(struct play){.program = "app_capture",
		.words = {hits[_i % (int)LENGTH(hits)]},
		.env = caches[_i / (int)LENGTH(hits)],
		.preload = play_library});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_null(strstr(play_out, "mode: 1"));
	ck_assert_ptr_null(strstr(play_out, "mode: 2"));
	ck_assert_uint_eq(play_fact("failures"), 0);
	ck_assert_uint_eq(play_fact("fence calls"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	for (const char *at = play_out; (at = strstr(at, "end: ")); at++)
		ck_assert_int_eq(strncmp(at, "end: 0\n", 7), 0);
	for (const char *at = play_out; (at = strstr(at, "replay: ")); at++)
		ck_assert_int_eq(strncmp(at, "replay: 0\n", 10), 0);
	ck_assert_ptr_nonnull(strstr(play_out, "replay: 0\n"));
}
END_TEST

START_TEST(a_capture_that_ended_badly_does_not_stop_reuse)
{
	play_same(&(struct play){.program = "app_capture", .words = {"bad-ends"}});
	ck_assert_uint_gt(play_fact("cuCtxRecordEvent"), 0);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), 100);
}
END_TEST

static const char *const racers[][3] = {
	{"GPUPOOL_POOL=none", NULL},
	{"GPUPOOL_POOL=simple", NULL},
	{"GPUPOOL_POOL=binned", NULL},
	{"GPUPOOL_POOL=split", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_SYNC_FREE=1", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DRIVER_VERSION=12040", NULL},
	{"GPUPOOL_POOL=vmm", NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_REUSE=completed", NULL},
};

START_TEST(frees_of_another_thread_invalidate_no_capture)
{
	play_same(&(struct play){.program = "app_capture", .words = {"race"}, .env = racers[_i]});
	ck_assert_str_eq(play_out, "destroyed captures: 0\n");
}
END_TEST

static char reuse_at[2][16];
static unsigned n_looks;

static void read_reuse(const char *name)
{
	const char *found = strstr(play_ask("status"), "\"reuse\":\"");

	ck_assert_ptr_nonnull(found);
	ck_assert_uint_lt(n_looks, LENGTH(reuse_at));
	sscanf(found, "\"reuse\":\"%15[a-z]", reuse_at[n_looks++]);
}

static const struct {
	const char *setting, *first, *second;
} modes[] = {
	{"GPUPOOL_REUSE=auto", "ordered", "completed"},
	{"GPUPOOL_REUSE=ordered", "ordered", "ordered"},
	{"GPUPOOL_REUSE=completed", "completed", "completed"},
};

START_TEST(a_second_context_makes_reuse_wait_for_completion)
{
	const char *env[] = {modes[_i].setting, NULL};

	play_same(&(struct play){.program = "app_context", .words = {"two"}, .env = env, .at_pause = read_reuse});
	ck_assert_str_eq(reuse_at[0], modes[_i].first);
	ck_assert_str_eq(reuse_at[1], modes[_i].second);
}
END_TEST

/* Libraries that hand memory to network cards. The last rows are libraries of every program for several GPUs. */
static const struct {
	const char *name;
	bool is_found, is_whole;
} foreign[] = {
	{"libmpi.so.40", true, true},
	{"libmpi_cxx.so.40", true, true},
	{"libmpi_ibm.so.3", true, true},
	{"libmpich.so.12", true, true},
	{"libucp.so.0", true, true},
	{"libuct.so.0", true, true},
	{"libfabric.so.1", true, true},
	{"libibverbs.so.1", true, false},
	{"libnccl.so.2", false, false},
	{"libucs.so.0", false, false},
};

START_TEST(network_libraries_make_reuse_wait_and_all_but_verbs_make_blocks_whole)
{
	int row = _i % (int)LENGTH(foreign);
	bool is_late = _i >= (int)LENGTH(foreign);
	char library[PATH_MAX];
	const char *env[] = {library, NULL};

	snprintf(library, sizeof(library), "APP_LIBRARY=%s/%s", play_app_dir, foreign[row].name);
	play_same(&(struct play){
		.program = "app_libraries", .words = {is_late ? "late" : "early"}, .env = env, .at_pause = read_reuse});
	if (is_late) {
		ck_assert_uint_eq(play_fact("separate before dlopen"), 0);
		ck_assert_str_eq(reuse_at[0], "ordered");
	}
	ck_assert_uint_eq(n_looks, 1 + is_late);
	ck_assert_str_eq(reuse_at[is_late], foreign[row].is_found ? "completed" : "ordered");
	ck_assert_uint_eq(play_fact("separate after dlopen"), foreign[row].is_whole);
}
END_TEST

static void keep_status(const char *name)
{
	play_keep(play_ask("status"));
}

START_TEST(auto_is_split_in_a_process_that_registers_memory_with_network_cards)
{
	char library[PATH_MAX];
	const char *env[] = {library, "GPUPOOL_POOL=auto", NULL};

	snprintf(library, sizeof(library), "APP_LIBRARY=%s/%s", play_app_dir, _i ? "libibverbs.so.1" : "libmpi.so.40");
	play_same(&(struct play){.program = "app_libraries", .words = {"early"}, .env = env, .at_pause = keep_status});
	ck_assert_uint_gt(play_n_answers, 0);
	if (_i)
		ck_assert_ptr_nonnull(strstr(play_answers[0], "\"pool\":\"vmm\",\"pool_reason\":null"));
	else
		ck_assert_ptr_nonnull(strstr(play_answers[0],
			"\"pool\":\"split\",\"pool_reason\":\"a library in the process registers memory with devices"));
	ck_assert_uint_eq(play_fact("separate after dlopen"), !_i);
}
END_TEST

/* A warm pool serves blocks without a call of the driver, so it has to notice the library in another way. */
static const struct {
	const char *scenario, *name;
	bool is_found;
} late[] = {
	{"warm", "libmpi.so.40", true},
	{"warm", "libmpi_ibm.so.3", true},
	{"warm", "libibverbs.so.1", true},
	{"warm", "libuses_mpi.so", true},
	{"warm", "libnccl.so.2", false},
	{"warm-in-thread", "libmpi.so.40", true},
	{"warm-in-thread", "libnccl.so.2", false},
};

static const char *const late_pools[] = {
	"GPUPOOL_POOL=split", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=vmm", "GPUPOOL_THREAD_CACHE=0"};

START_TEST(after_dlopen_of_mpi_a_warm_pool_reuses_no_block_that_the_gpu_still_writes)
{
	int row = _i % (int)LENGTH(late);
	char library[PATH_MAX];
	const char *env[] = {library, late_pools[_i / (int)LENGTH(late)], NULL};

	snprintf(library, sizeof(library), "APP_LIBRARY=%s/%s", play_app_dir, late[row].name);
	play_same(&(struct play){.program = "app_libraries", .words = {late[row].scenario}, .env = env});
	ck_assert_uint_eq(play_fact("reused before dlopen"), 20);
	ck_assert_uint_eq(play_fact("reused after dlopen"), late[row].is_found ? 0 : 20);
}
END_TEST

START_TEST(freed_memory_returns_to_the_device_that_it_came_from)
{
	static const char *const env[] = {"SIMGPU_DEVICES=2", NULL};

	play_same(&(struct play){.program = "app_context", .words = {"two-devices"}, .env = env});
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), 16);
}
END_TEST

static const struct {
	const char *limit;
	unsigned blocks[3]; /* blocks of 16 MiB on each device of 512 MiB */
} limits[] = {
	{"GPUPOOL_LIMIT=64MiB", {4, 4, 4}},
	{"GPUPOOL_LIMIT=25%", {8, 8, 8}},
	{"GPUPOOL_LIMIT=1=64MiB", {31, 4, 31}},
	{"GPUPOOL_LIMIT=0=64MiB,2=50%", {4, 31, 16}},
	{"GPUPOOL_LIMIT=0=32MiB,1=none,*=96MiB", {2, 31, 6}},
	{"GPUPOOL_LIMIT=none", {31, 31, 31}},
};

START_TEST(GPUPOOL_LIMIT_sets_a_separate_limit_for_each_device)
{
	const char *env[] = {limits[_i].limit, "GPUPOOL_POOL=binned", "SIMGPU_DEVICES=3", "SIMGPU_MEMORY=512M", NULL};
	char name[32];

	play_run(&(struct play){
		.program = "app_context", .words = {"fill-devices"}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_out, "done\n");
	for (unsigned d = 0; d < 3; d++) {
		for (unsigned round = 0; round < 2; round++) {
			snprintf(name, sizeof(name), "device %u round %u", d, round);
			ck_assert_uint_eq(play_fact(name), limits[_i].blocks[d]);
		}
	}
}
END_TEST

static uint64_t n_contexts, held_bytes;

static void read_contexts(const char *name)
{
	const char *status = play_ask("status");

	n_contexts = play_number(status, "contexts");
	held_bytes = play_number(status, "total_bytes");
}

START_TEST(a_green_context_is_served_from_its_primary_contexts_pool)
{
	n_looks = 0;
	play_same(&(struct play){.program = "app_context", .words = {"green"}, .at_pause = read_contexts});
	ck_assert_uint_eq(n_contexts, 1);
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 4);
	play_same(&(struct play){.program = "app_context", .words = {"green"}, .at_pause = read_reuse});
	ck_assert_str_eq(reuse_at[0], "ordered");
}
END_TEST

/* The program itself frees some blocks that no longer exist, which the driver must refuse. */
static const struct {
	const char *scenario;
	uint64_t foreign_frees;
} ends[] = {{"reset", 0}, {"create", 5}};

START_TEST(memory_that_ended_with_its_context_is_no_longer_counted)
{
	play_same(&(struct play){.program = "app_context", .words = {ends[_i].scenario}, .at_pause = read_contexts});
	ck_assert_uint_eq(n_contexts, 1);
	ck_assert_uint_le(held_bytes, 64 * MIB);
	ck_assert_uint_eq(play_fact("cuMemFree_v2"), ends[_i].foreign_frees);
}
END_TEST

START_TEST(gpupool_calls_no_driver_function_at_the_exit_of_a_process)
{
	play_same(&(struct play){.program = "app_process", .words = {"exit"}});
	ck_assert_uint_eq(play_fact("calls at exit"), 0);
}
END_TEST

START_TEST(a_child_that_was_forked_before_CUDA_starts_has_a_separate_pool)
{
	play_same(&(struct play){.program = "app_process", .words = {"fork-before"}});
	ck_assert_uint_le(play_fact("child allocs"), 2);
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), 2);
}
END_TEST

static bool was_listening;

static void check_socket(const char *name)
{
	was_listening = play_is_listening() && strstr(play_ask("version"), "gpupool.version/1");
}

START_TEST(a_forked_child_leaves_the_parents_socket_alone)
{
	play_same(&(struct play){.program = "app_process", .words = {"fork-after"}, .at_pause = check_socket});
	ck_assert(was_listening);
	ck_assert(!play_is_listening());
}
END_TEST

static const char *const caching[] = {
	"GPUPOOL_POOL=simple",
	"GPUPOOL_POOL=binned",
	"GPUPOOL_POOL=split",
	"GPUPOOL_POOL=vmm",
	"GPUPOOL_REUSE=completed",
};

/* Otherwise each of the 4096 frees would record a fence. */
START_TEST(frees_by_another_thread_record_one_fence_for_many_blocks)
{
	const char *const env[] = {caching[_i], "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = "app_threads", .words = {"hand-over"}, .env = env});
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_le(play_fact("cuCtxRecordEvent"), 1024);
}
END_TEST

START_TEST(many_threads_share_memory_without_a_race)
{
	play_same(&(struct play){.program = "app_threads", .words = {"many"}, .env = pools[_i]});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	if (_i > 0)
		ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), play_fact("allocs") / 4);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, captures_contexts_threads_and_forks_behave_as_without_the_library, 0,
		(int)(LENGTH(pools) * LENGTH(alike)));
	tcase_add_loop_test(tc, memory_that_is_still_held_at_exit_causes_no_message, 0, (int)LENGTH(pools));
	tcase_add_loop_test(
		tc, a_capture_survives_allocations_that_the_cache_serves, 0, (int)(LENGTH(caches) * LENGTH(hits)));
	tcase_add_loop_test(tc, frees_of_another_thread_invalidate_no_capture, 0, (int)LENGTH(racers));
	tcase_add_test(tc, a_capture_that_ended_badly_does_not_stop_reuse);
	tcase_add_loop_test(tc, a_second_context_makes_reuse_wait_for_completion, 0, (int)LENGTH(modes));
	tcase_add_loop_test(
		tc, network_libraries_make_reuse_wait_and_all_but_verbs_make_blocks_whole, 0, 2 * (int)LENGTH(foreign));
	tcase_add_loop_test(tc, auto_is_split_in_a_process_that_registers_memory_with_network_cards, 0, 2);
	tcase_add_loop_test(tc, after_dlopen_of_mpi_a_warm_pool_reuses_no_block_that_the_gpu_still_writes, 0,
		(int)(LENGTH(late) * LENGTH(late_pools)));
	tcase_add_test(tc, freed_memory_returns_to_the_device_that_it_came_from);
	tcase_add_loop_test(tc, GPUPOOL_LIMIT_sets_a_separate_limit_for_each_device, 0, (int)LENGTH(limits));
	tcase_add_test(tc, a_green_context_is_served_from_its_primary_contexts_pool);
	tcase_add_loop_test(tc, memory_that_ended_with_its_context_is_no_longer_counted, 0, (int)LENGTH(ends));
	tcase_add_test(tc, gpupool_calls_no_driver_function_at_the_exit_of_a_process);
	tcase_add_test(tc, a_child_that_was_forked_before_CUDA_starts_has_a_separate_pool);
	tcase_add_test(tc, a_forked_child_leaves_the_parents_socket_alone);
	tcase_add_loop_test(tc, frees_by_another_thread_record_one_fence_for_many_blocks, 0, (int)LENGTH(caching));
	tcase_add_loop_test(tc, many_threads_share_memory_without_a_race, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"life", add}, 1);
}
