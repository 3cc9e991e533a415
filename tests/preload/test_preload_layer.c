/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs with shared runtimes get cached memory without a call of the runtime. They behave as without the library,
 * and so do programs without a runtime.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

static const char *const settings[][5] = {
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL_POOL=binned", "GPUPOOL_REUSE=completed", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL_RUNTIME_LAYER=0", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL_SYNC_FREE=1", "GPUPOOL_ASYNC=on", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL_ASYNC=on", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL_THREAD_CACHE=0", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "GPUPOOL=0", NULL},
	{"SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", "SIMGPU_DEINIT_AT_EXIT=1", NULL},
};

static const char *const scenarios[][2] = {
	{"app_layer", "loop"},
	{"app_layer", "odd-requests"},
	{"app_layer", "pinned"},
	{"app_layer", "missing"},
	{"app_layer", "first"},
	{"app_layer", "contexts"},
	{"app_layer", "made-by-cuda-2"},
	{"app_layer", "made-for-gl"},
	{"app_layer", "made-for-gl-v2"},
	{"app_layer", "made-for-vdpau"},
	{"app_layer", "made-for-vdpau-v2"},
	{"app_layer", "pushed-by-cuda-2"},
	{"app_layer", "popped"},
	{"app_layer", "popped-by-cuda-2"},
	{"app_layer", "made-unseen"},
	{"app_layer", "popped-unseen"},
	{"app_layer", "devices"},
	{"app_layer", "reset"},
	{"app_layer", "threads"},
	{"app_layer", "fork"},
	{"app_layer", "end-before"},
	{"app_layer", "end-after"},
	{"app_layer", "lookup"},
	{"app_layer", "stream-pairs"},
	{"app_plugins", "two"},
	{"app_plugins", "old-and-new"},
	{"app_plugins", "global"},
	{"app_plugins", "by-jumps"},
	{"app_plugins", "choose-11"},
	{"app_plugins", "choose-12"},
	{"app_plugins", "reopened"},
	{"app_plugins", "replaced"},
	{"app_plugins", "closed"},
	{"app_plugins", "absent"},
	{"app_plugins", "handles"},
};

START_TEST(a_program_behaves_the_same_whether_or_not_its_runtime_is_called)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];

	play_same(&(struct play){
		.program = scenario[0], .words = {scenario[1]}, .env = settings[_i / (int)LENGTH(scenarios)]});
}
END_TEST

static const char *const layer_off[] = {"SIMGPU_DEVICES=2", "GPUPOOL_ASYNC=on", "GPUPOOL_RUNTIME_LAYER=off", NULL};
static const char *const layer_on[] = {"SIMGPU_DEVICES=2", "GPUPOOL_ASYNC=on", NULL};

static uint64_t calls(const char *program, const char *scenario, const char *fact, const char *const *env)
{
	play_run(&(struct play){.program = program, .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	return play_fact(fact);
}

/* Programs, their runtimes, and whether the runtime's version is served. */
static const struct {
	const char *program, *scenario, *fact;
	bool is_served;
} runtimes[] = {
	{"app_layer", "loop", "runtime", true},
	{"app_layer", "pinned", "runtime", true},
	{"app_layer", "stream-pairs", "runtime", true},
	{"app_plugins", "two", "runtime-12", true},
	{"app_plugins", "two", "runtime-13", true},
	{"app_plugins", "old-and-new", "runtime-11", false},
	{"app_plugins", "old-and-new", "runtime-13", true},
	{"app_plugins", "choose-11", "runtime-11", false},
	{"app_plugins", "choose-12", "runtime-12", true},
	{"app_plugins", "by-jumps", "runtime-12", true},
};

START_TEST(most_memory_calls_bypass_a_shared_runtime_of_version_12_or_later)
{
	uint64_t all = calls(runtimes[_i].program, runtimes[_i].scenario, runtimes[_i].fact, layer_off);
	uint64_t some = calls(runtimes[_i].program, runtimes[_i].scenario, runtimes[_i].fact, layer_on);

	ck_assert_uint_gt(all, 100);
	if (runtimes[_i].is_served)
		ck_assert_uint_lt(some, all / 3);
	else
		ck_assert_uint_eq(some, all);
}
END_TEST

static const char *const searches[] = {"queries for pinned memory", "queries for device memory"};

START_TEST(a_request_that_misses_through_the_runtime_is_searched_once)
{
	uint64_t without = calls("app_layer", "missing", searches[_i], layer_off);
	uint64_t n_runtime = play_fact("runtime");

	ck_assert_uint_gt(without, 0);
	ck_assert_uint_eq(calls("app_layer", "missing", searches[_i], layer_on), without);
	ck_assert_uint_lt(play_fact("runtime"), n_runtime);
}
END_TEST

/* Pairs of malloc and free in that loop, half of them by the driver's functions. */
#define N_PAIRS 600

START_TEST(the_current_context_is_queried_only_if_it_may_have_changed)
{
	static const char *const two[] = {"SIMGPU_DEVICES=2", NULL};
	static const char *const unknown[] = {"SIMGPU_DEVICES=2", "SIMGPU_DRIVER_VERSION=13030", NULL};
	static const char *const behind[] = {
		"context-queries-behind", "context-queries-next", "made-unseen", "popped-unseen"};

	ck_assert_uint_lt(calls("app_layer", "context-queries", "context queries", two), N_PAIRS / 10);
	ck_assert_uint_ge(play_fact("context queries with two devices"), N_PAIRS);
	ck_assert_uint_ge(calls("app_layer", "context-queries", "context queries", unknown), N_PAIRS);
	for (size_t i = 0; i < LENGTH(behind); i++)
		ck_assert_uint_ge(calls("app_layer", behind[i], "context queries", two), N_PAIRS);
}
END_TEST

START_TEST(cudaFree_waits_for_the_GPU_only_with_GPUPOOL_SYNC_FREE)
{
	static const char *const waits[] = {"GPUPOOL_SYNC_FREE=1", NULL};

	ck_assert_uint_eq(calls("app_layer", "waiting", "work runs after the free", NULL), 1);
	ck_assert_uint_eq(play_fact("work runs after the driver's free"), 1);
	ck_assert_uint_eq(calls("app_layer", "waiting", "work runs after the free", waits), 0);
	ck_assert_uint_eq(play_fact("work runs after the driver's free"), 0);
}
END_TEST

START_TEST(after_dlopen_of_mpi_cudaMalloc_reuses_no_block_that_the_gpu_still_writes)
{
	char library[PATH_MAX];
	const char *const env[] = {library, NULL};

	snprintf(library, sizeof(library), "APP_LIBRARY=%s/libmpi.so.40", play_app_dir);
	play_same(&(struct play){.program = "app_layer", .words = {"library"}, .env = env});
	ck_assert_uint_ge(play_fact("reused before dlopen"), 10);
	ck_assert_uint_eq(play_fact("reused after dlopen"), 0);
}
END_TEST

static const char *const counters[] = {"hits", "misses", "used_bytes", "requested_bytes", "total_bytes",
	"peak_total_bytes", "n_used_blocks", "driver_allocs", "driver_frees", "ooms", "double_frees", "invalid_frees"};
static uint64_t seen[LENGTH(counters)];

static void read_counters(const char *name)
{
	const char *status = play_ask("status");

	for (size_t i = 0; i < LENGTH(counters); i++)
		seen[i] = play_number(status, counters[i]);
}

static const char *const counted[][3] = {
	{"loop", "", NULL},
	{"failing", "", NULL},
	{"failing", "SIMGPU_FAULT=cuCtxRecordEvent:every/3=719", NULL},
	{"failing", "SIMGPU_FAULT=cuCtxRecordEvent:every/5=999", NULL},
	{"failing", "SIMGPU_FAULT=cuMemAlloc_v2:every/2=2", NULL},
	{"failing", "SIMGPU_FAULT=cuEventQuery:7+=719", NULL},
};

/* Compares a run with the runtime layer to one without it. */
START_TEST(counters_and_errors_are_the_same_with_and_without_the_runtime_layer)
{
	static char out[PLAY_OUTPUT_MAX];
	const char *env[] = {counted[_i][1], "GPUPOOL_RUNTIME_LAYER=0", "GPUPOOL_LOG=off", NULL};
	struct play play = {.program = "app_layer",
		.words = {counted[_i][0]},
		.env = env,
		.preload = play_library,
		.at_pause = read_counters};
	uint64_t without[LENGTH(counters)];

	play_run(&play);
	memcpy(without, seen, sizeof(without));
	strcpy(out, play_out);
	env[1] = "GPUPOOL_RUNTIME_LAYER=1";
	play_run(&play);
	ck_assert_str_eq(play_out, out);
	for (size_t i = 0; i < LENGTH(counters); i++)
		ck_assert_msg(seen[i] == without[i], "%s: %llu with the layer, %llu without", counters[i],
			(unsigned long long)seen[i], (unsigned long long)without[i]);
}
END_TEST

static const char *const steps[] = {
#define STEP(name, is_timed, help) #name,
#include "pool/ladder.def"
};
static uint64_t n_served[LENGTH(steps)], grow_ns;

/* Reads the steps of the device, which come before those of pinned memory. */
static void read_steps(const char *name)
{
	const char *status = play_ask("status"), *list = strstr(status, "\"steps\":["), *step;
	char key[64];

	ck_assert_msg(list, "no steps in %s", status);
	for (size_t i = 0; i < LENGTH(steps); i++) {
		snprintf(key, sizeof(key), "{\"name\":\"%s\",", steps[i]);
		step = strstr(list, key);
		ck_assert_msg(step, "no %s in %s", key, list);
		n_served[i] = play_number(step, "count");
		if (!strcmp(steps[i], "grow"))
			grow_ns = play_number(step, "ns");
	}
	for (size_t i = 0; i < LENGTH(counters); i++)
		seen[i] = play_number(status, counters[i]);
}

START_TEST(the_status_of_a_process_tells_which_step_served_each_allocation)
{
	uint64_t n_hits = 0, n_misses = 0;
	bool is_miss = false;

	play_run(&(struct play){
		.program = "app_layer", .words = {"loop"}, .preload = play_library, .at_pause = read_steps});
	for (size_t i = 0; i < LENGTH(steps); i++) {
		is_miss = is_miss || !strcmp(steps[i], "grow");
		*(is_miss ? &n_misses : &n_hits) += n_served[i];
	}
	ck_assert_uint_gt(n_served[0], 0);
	ck_assert_uint_eq(n_hits, seen[0]);
	ck_assert_uint_gt(n_misses, 0);
	ck_assert_uint_eq(n_misses, seen[1]);
	ck_assert_uint_gt(grow_ns, 0);
}
END_TEST

START_TEST(each_runtime_that_is_bypassed_is_logged_once_with_its_version)
{
	static const char *const env[] = {"GPUPOOL_LOG=info", "SIMGPU_DEVICES=2", NULL};
	const char *line;

	play_run(&(struct play){.program = "app_plugins", .words = {"two"}, .env = env, .preload = play_library});
	line = strstr(play_err, "for the shared CUDA runtime (version 12.8)");
	ck_assert_ptr_nonnull(line);
	ck_assert_ptr_null(strstr(line + 1, "for the shared CUDA runtime (version 12.8)"));
	ck_assert_ptr_nonnull(strstr(play_err, "for the shared CUDA runtime (version 13.0)"));
	play_run(&(struct play){.program = "app_plugins", .words = {"choose-11"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_null(strstr(play_err, "for the shared CUDA runtime"));
}
END_TEST

START_TEST(cudaMalloc_without_a_runtime_returns_an_error)
{
	play_run(&(struct play){.program = "app_plugins", .words = {"weak"}, .preload = play_library});
	ck_assert_str_eq(play_out, "no runtime: 3\nuntouched: 1\n");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_behaves_the_same_whether_or_not_its_runtime_is_called, 0,
		(int)(LENGTH(settings) * LENGTH(scenarios)));
	tcase_add_loop_test(
		tc, most_memory_calls_bypass_a_shared_runtime_of_version_12_or_later, 0, (int)LENGTH(runtimes));
	tcase_add_loop_test(tc, a_request_that_misses_through_the_runtime_is_searched_once, 0, (int)LENGTH(searches));
	tcase_add_test(tc, the_current_context_is_queried_only_if_it_may_have_changed);
	tcase_add_test(tc, cudaFree_waits_for_the_GPU_only_with_GPUPOOL_SYNC_FREE);
	tcase_add_test(tc, after_dlopen_of_mpi_cudaMalloc_reuses_no_block_that_the_gpu_still_writes);
	tcase_add_loop_test(
		tc, counters_and_errors_are_the_same_with_and_without_the_runtime_layer, 0, (int)LENGTH(counted));
	tcase_add_test(tc, the_status_of_a_process_tells_which_step_served_each_allocation);
	tcase_add_test(tc, each_runtime_that_is_bypassed_is_logged_once_with_its_version);
	tcase_add_test(tc, cudaMalloc_without_a_runtime_returns_an_error);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"layer", add}, 1);
}
