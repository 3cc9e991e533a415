/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs with the library linked in and its checks switched on. In some builds a sanitiser watches all of it: real
 * threads, and every kind of end.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "play.h"

/* The program contains the library's driver functions, so the simulated runtime has to look there for them. */
#define RUNTIME "SIMGPU_RUNTIME_GLOBAL=1"

/* Sanitisers are slow. The pool types that are left out have no code of their own that these would check. */
static const char *const pools[][6] = {
	{RUNTIME, "GPUPOOL_PINNED_THREADS=2", "GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},
	{RUNTIME, "GPUPOOL_PINNED_THREADS=2", "GPUPOOL_POOL=split", "GPUPOOL_RECORD=rec.%p", "GPUPOOL_LOG=off", NULL},
	{RUNTIME, "GPUPOOL_PINNED_THREADS=2", "GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL},
};

static const char *const scenarios[][3] = {
	{"app_capture", "app_capture_inside", "bad-ends"},
	{"app_capture", "app_capture_inside", "freed-inside"},
	{"app_capture", "app_capture_inside", "race"},
	{"app_context", "app_context_inside", "create"},
	{"app_context", "app_context_inside", "end-under-threads"},
	{"app_context", "app_context_inside", "fault"},
	{"app_context", "app_context_inside", "release"},
	{"app_context", "app_context_inside", "reset"},
	{"app_context", "app_context_inside", "two"},
	{"app_errors", "app_errors_inside", "callback"},
	{"app_errors", "app_errors_inside", "sticky"},
	{"app_errors", "app_errors_inside", "streams"},
	{"app_layer", "app_layer_inside", "contexts"},
	{"app_layer", "app_layer_inside", "loop"},
	{"app_layer", "app_layer_inside", "reset"},
	{"app_layer", "app_layer_inside", "threads"},
	{"app_mapped", "app_mapped_inside", "ends"},
	{"app_mapped", "app_mapped_inside", "first_threads"},
	{"app_mapped", "app_mapped_inside", "moves"},
	{"app_memory", "app_memory_inside", "frees"},
	{"app_memory", "app_memory_inside", "loop"},
	{"app_memory", "app_memory_inside", "mixed"},
	{"app_memory", "app_memory_inside", "pinned"},
	{"app_memory", "app_memory_inside", "pinned-frees"},
	{"app_memory", "app_memory_inside", "zeros"},
	{"app_pinned", "app_pinned_inside", "ends"},
	{"app_pinned", "app_pinned_inside", "threads"},
	{"app_query", "app_query_inside", "ids"},
	{"app_query", "app_query_inside", "info"},
	{"app_query", "app_query_inside", "range"},
	{"app_query", "app_query_inside", "take-free"},
	{"app_reuse", "app_reuse_inside", "pinned"},
	{"app_reuse", "app_reuse_inside", "streams"},
	{"app_sleep", "app_sleep_inside", "threads"},
	{"app_threads", "app_threads_inside", "many"},
	{"app_virtual", "app_virtual_inside", "in-capture"},
	{"app_virtual", "app_virtual_inside", "released-early"},
	{"app_virtual", "app_virtual_inside", "segments"},
	{"app_virtual", "app_virtual_inside", "steady"},
	{"app_virtual", "app_virtual_inside", "threads"},
	{"app_virtual", "app_virtual_inside", "under-pressure"},
	{"app_virtual_random", "app_virtual_random_inside", "compared"},
	{"app_virtual_random", "app_virtual_random_inside", "threads"},
	{"app_ipc", "app_ipc_inside", "churn"},
	{"app_ipc", "app_ipc_inside", "contexts"},
	{"app_ipc", "app_ipc_inside", "exchanged"},
	{"app_ipc", "app_ipc_inside", "same"},
	{"app_ipc", "app_ipc_inside", "threads"},
	{"app_ipc_mapped", "app_ipc_mapped_inside", "barrier"},
	{"app_ipc_mapped", "app_ipc_mapped_inside", "parts"},
	{"app_ipc_wrong", "app_ipc_wrong_inside", "forged"},
};

enum { N_ROWS = LENGTH(pools) * LENGTH(scenarios) };

static const char *const traced[][3] = {
	{"app_context", "app_context_inside", "end-under-threads"},
	{"app_context", "app_context_inside", "reset"},
	{"app_memory", "app_memory_inside", "mixed"},
	{"app_oom", "app_oom_inside", "capacity"},
	{"app_sites", "app_sites_inside", "leaks"},
	{"app_sites", "app_sites_inside", "often"},
	{"app_sites", "app_sites_inside", "threads"},
	{"app_sites", "app_sites_inside", "wrong"},
	{"app_threads", "app_threads_inside", "many"},
};

static const char *const debugged[][3] = {
	{"app_capture", "app_capture_inside", "race"},
	{"app_context", "app_context_inside", "end-under-threads"},
	{"app_context", "app_context_inside", "reset"},
	{"app_context", "app_context_inside", "two"},
	{"app_debug", "app_debug_inside", "innocent"},
	{"app_layer", "app_layer_inside", "threads"},
	{"app_memory", "app_memory_inside", "mixed"},
	{"app_memory", "app_memory_inside", "pinned-frees"},
	{"app_query", "app_query_inside", "range"},
	{"app_reuse", "app_reuse_inside", "pinned"},
	{"app_reuse", "app_reuse_inside", "streams"},
	{"app_threads", "app_threads_inside", "many"},
	{"app_ipc", "app_ipc_inside", "churn"},
};

static const char *const debugged_pools[][5] = {
	{RUNTIME, "GPUPOOL_POOL=split", "GPUPOOL_DEBUG=poison,guard", "GPUPOOL_LOG=off", NULL},
	{RUNTIME, "GPUPOOL_POOL=vmm", "GPUPOOL_DEBUG=poison,guard", "GPUPOOL_LOG=off", NULL},
};

enum { N_DEBUGGED = (int)(LENGTH(debugged) * LENGTH(debugged_pools)) };

/* Allocations in stream order, by several threads and streams (tests/diff/diff_async.c). */
static const char *const in_order[][3] = {
	{"app_in_order", "app_in_order_inside", "exchange"},
	{"app_in_order", "app_in_order_inside", "threads"},
	{"app_in_order", "app_in_order_inside", "implicit"},
	{"app_in_order", "app_in_order_inside", "mixed-frees"},
	{"app_async", "app_async_inside", "threads"},
};

static const char *const in_order_pools[][6] = {
	{RUNTIME, "GPUPOOL_ASYNC=on", "GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{RUNTIME, "GPUPOOL_ASYNC=on", "GPUPOOL_POOL=split", "GPUPOOL_LIMIT=96MiB", "GPUPOOL_LOG=off", NULL},
	{RUNTIME, "GPUPOOL_ASYNC=on", "GPUPOOL_POOL=vmm", "GPUPOOL_RECORD=rec.%p", "GPUPOOL_LOG=off", NULL},
};

static unsigned n_answers;

/* Keeps the control server busy while the program runs. */
static void send_requests(const char *name)
{
	n_answers += play_number(play_ask("status"), "pid") > 0;
	n_answers += play_number(play_ask("blocks"), "pid") > 0;
	play_ask("reclaim");
	play_ask("reclaim pinned");
	play_ask("config");
	play_ask("limit");
	play_ask("leaks");
	play_ask("oom");
	play_ask("debug check");
}

START_TEST(a_program_with_the_library_linked_in_behaves_as_without_it)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];

	play_same(&(struct play){.program = scenario[0],
		.inside = scenario[1],
		.words = {scenario[2]},
		.env = pools[_i / (int)LENGTH(scenarios)],
		.at_pause = send_requests});
}
END_TEST

START_TEST(allocations_in_stream_order_behave_as_without_the_library)
{
	const char *const *scenario = in_order[_i % (int)LENGTH(in_order)];

	play_same(&(struct play){.program = scenario[0],
		.inside = scenario[1],
		.words = {scenario[2]},
		.env = in_order_pools[_i / (int)LENGTH(in_order)],
		.at_pause = send_requests});
}
END_TEST

static const struct {
	const char *program, *scenario, *out; /* out: what it prints, or NULL for anything */
} graphs[] = {
	{"app_graph_inside", "cloned", NULL},
	{"app_graph_inside", "destroyed", NULL},
	{"app_graph_inside", "second-thread", NULL},
	{"app_graph_inside", "thread-beside", NULL},
	{"app_graph_inside", "threads", NULL},
	{"app_graph_random_inside", "run", "wrong words: 0\nrefused calls: 0\n"},
};

/* Without the library these programs would use memory that the driver has taken back. */
START_TEST(graphs_keep_memory_that_was_freed_in_their_capture)
{
	const char *out = graphs[_i % (int)LENGTH(graphs)].out;

	play_run(&(struct play){.program = graphs[_i % (int)LENGTH(graphs)].program,
		.words = {graphs[_i % (int)LENGTH(graphs)].scenario},
		.env = pools[_i / (int)LENGTH(graphs)],
		.at_pause = send_requests});
	ck_assert_str_eq(play_err, "");
	ck_assert(!out || strcmp(play_out, out) == 0);
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_program_behaves_the_same_while_its_call_stacks_are_taken)
{
	static const char *const env[] = {
		"GPUPOOL_STACKS=8", "GPUPOOL_REPORT=exit:report", "GPUPOOL_LOG=off", "SIMGPU_MEMORY=1GiB", NULL};

	play_same(&(struct play){.program = traced[_i][0],
		.inside = traced[_i][1],
		.words = {traced[_i][2]},
		.env = env,
		.at_pause = send_requests});
	ck_assert_int_eq(access("report", R_OK), 0);
}
END_TEST

START_TEST(a_program_behaves_the_same_under_GPUPOOL_DEBUG)
{
	const char *const *scenario = debugged[_i % (int)LENGTH(debugged)];

	play_same(&(struct play){.program = scenario[0],
		.inside = scenario[1],
		.words = {scenario[2]},
		.env = debugged_pools[_i / (int)LENGTH(debugged)],
		.at_pause = send_requests});
}
END_TEST

START_TEST(an_exporter_answers_hostile_clients_while_it_allocates_and_frees)
{
	static const char *const env[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){.program = "app_ipc_mapped_inside", .words = {"hostile"}, .env = env});
	ck_assert_str_eq(play_out, "chunks were passed: 1\nrequests were refused: 1\n"
				   "answers with a wrong number of descriptors: 0\n"
				   "descriptors that stay at the exporter's: 0\nthe second process's end: 0\n");
}
END_TEST

static const char *const backed[][3] = {
	{"app_backend", "app_backend_inside", "words"},
	{"app_context", "app_context_inside", "end-under-threads"},
	{"app_context", "app_context_inside", "reset"},
	{"app_mapped", "app_mapped_inside", "ends"},
	{"app_query", "app_query_inside", "info"},
	{"app_threads", "app_threads_inside", "many"},
};

/*
 * The leak checker of a build with the address sanitizer also runs at the exit of a forked child, whose status then is
 * that of a leak. It may print that it cannot stop the simulator's thread, which only the parent has.
 */
START_TEST(a_forked_child_ends_with_its_own_exit_status_and_without_a_leak)
{
	play_run(&(struct play){.program = "app_process_inside", .words = {"fork-alone"}, .env = pools[_i]});
	ck_assert_str_eq(play_out, "child: 4\ncuMemFree in the parent: 0\n");
	ck_assert_ptr_null(strstr(play_err, "LeakSanitizer"));
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static const char *const backends[] = {"GPUPOOL_BACKEND=managed", "GPUPOOL_BACKEND=async"};

enum { N_BACKED = (int)(LENGTH(backed) * LENGTH(backends)) };

START_TEST(a_program_behaves_the_same_on_managed_and_async_backends)
{
	const char *const *scenario = backed[_i % (int)LENGTH(backed)];
	const char *env[] = {RUNTIME, backends[_i / (int)LENGTH(backed)], "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = scenario[0],
		.inside = scenario[1],
		.words = {scenario[2]},
		.env = env,
		.at_pause = send_requests});
}
END_TEST

static const char *const asking[][3] = {
	{"app_api_inside", "defer"},
	{"app_api_inside", "free-now"},
	{"app_api_inside", "hook"},
	{"app_api_inside", "limits"},
	{"app_api_inside", "memory"},
	{"app_api_inside", "no-cache"},
	{"app_api_inside", "threads"},
	{"app_region_inside", "apart"},
	{"app_region_inside", "crowd"},
	{"app_region_inside", "ends"},
	{"app_region_inside", "fence"},
	{"app_region_inside", "full"},
	{"app_region_inside", "invalidate"},
	{"app_region_inside", "nest"},
	{"app_region_inside", "reset"},
	{"app_region_inside", "threads"},
	{"app_others_inside", "contexts"},
	{"app_others_inside", "ask-each-other"}, /* these start other processes */
	{"app_others_inside", "releases"},
	{"app_others_inside", "waits", "GPUPOOL_OOM_WAIT=auto"},
	{"app_others_inside", "hangs-up"},
};

enum { N_STARTING = 4 };

START_TEST(programs_that_use_the_api_or_share_a_gpu_end_without_an_error)
{
	const char *oom_wait = asking[_i][2] ? asking[_i][2] : "GPUPOOL_OOM_WAIT=0";
	const char *env[] = {pools[_i % (int)LENGTH(pools)][1], "SIMGPU_MEMORY=1GiB", "SIMGPU_SHARED=gpu",
		"GPUPOOL_RESERVE=0", "GPUPOOL_LOG=off", oom_wait, NULL};

	play_run(&(struct play){
		.program = asking[_i][0], .words = {asking[_i][1]}, .env = env, .at_pause = send_requests});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static const char *const resting[][4] = {
	{"app_sleep_inside", "threads", "GPUPOOL_SLEEP=idle:2ms", "SIMGPU_MEMORY=1GiB"},
	{"app_others_inside", "rests", "GPUPOOL_SLEEP=on", "SIMGPU_MEMORY=64MiB"},
};

enum { N_RESTING_ALONE = 1 };

START_TEST(programs_that_sleep_by_themselves_or_for_others_end_without_an_error)
{
	const char *env[] = {resting[_i][2], "GPUPOOL_POOL=vmm", resting[_i][3], "SIMGPU_SHARED=gpu",
		"SIMGPU_LATENCY=cuEventQuery=100000", "GPUPOOL_RESERVE=0", "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){.program = resting[_i][0], .words = {resting[_i][1]}, .env = env});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(retry_rounds_serve_the_same_requests_with_the_library_linked_in)
{
	const char *env[] = {pools[_i][1], "SIMGPU_MEMORY=1GiB", "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = "app_oom",
		.inside = "app_oom_inside",
		.words = {"device"},
		.env = env,
		.at_pause = send_requests});
	ck_assert_uint_eq(n_answers, 2);
	play_same(&(struct play){.program = "app_oom", .inside = "app_oom_inside", .words = {"busy"}, .env = env});
	play_same(&(struct play){.program = "app_oom", .inside = "app_oom_inside", .words = {"async"}, .env = env});
	play_same(&(struct play){.program = "app_oom", .inside = "app_oom_inside", .words = {"array"}, .env = env});
}
END_TEST

static const char *const summed_up[][2] = {
	{"app_context_inside", "end-under-threads"},
	{"app_summary_inside", "figures"},
	{"app_summary_inside", "no-allocation"},
	{"app_summary_inside", "reset"},
	{"app_threads_inside", "many"},
};

START_TEST(a_program_ends_without_an_error_while_its_figures_are_kept_for_a_summary)
{
	char variable[PLAY_VARIABLE_MAX];
	const char *env[] = {variable, "GPUPOOL_REPORT=summary:report", NULL};

	play_make_page(variable);
	play_run(&(struct play){.program = summed_up[_i][0], .words = {summed_up[_i][1]}, .env = env});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static const char *const spilled[] = {"threads", "ends", "contexts"};

START_TEST(a_program_whose_memory_goes_to_the_host_ends_without_an_error)
{
	const char *env[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_SPILL=512MiB",
		_i == 2 ? "SIMGPU_MEMORY=140M" : "SIMGPU_MEMORY=128M", "SIMGPU_DEVICES=2", "GPUPOOL_RESERVE=0",
		"SIMGPU_LATENCY=cuEventQuery=100000", "GPUPOOL_LOG=off", "APP_STEPS=12", NULL};

	play_run(&(struct play){.program = "app_spill_inside", .words = {spilled[_i]}, .env = env});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static void add_usual(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_with_the_library_linked_in_behaves_as_without_it, 0, N_ROWS);
	tcase_add_loop_test(tc, allocations_in_stream_order_behave_as_without_the_library, 0,
		(int)(LENGTH(in_order) * LENGTH(in_order_pools)));
}

static void add_others(TCase *tc)
{
	int n_left_out = getenv(EMULATOR) ? N_STARTING : 0;

	tcase_add_loop_test(
		tc, graphs_keep_memory_that_was_freed_in_their_capture, 0, (int)(LENGTH(pools) * LENGTH(graphs)));
	tcase_add_loop_test(tc, a_program_behaves_the_same_while_its_call_stacks_are_taken, 0, (int)LENGTH(traced));
	tcase_add_loop_test(tc, a_forked_child_ends_with_its_own_exit_status_and_without_a_leak, 0, (int)LENGTH(pools));
	tcase_add_loop_test(tc, a_program_behaves_the_same_under_GPUPOOL_DEBUG, 0, N_DEBUGGED);
	tcase_add_test(tc, an_exporter_answers_hostile_clients_while_it_allocates_and_frees);
	tcase_add_loop_test(tc, a_program_behaves_the_same_on_managed_and_async_backends, 0, N_BACKED);
	tcase_add_loop_test(
		tc, programs_that_use_the_api_or_share_a_gpu_end_without_an_error, 0, (int)LENGTH(asking) - n_left_out);
	tcase_add_loop_test(tc, programs_that_sleep_by_themselves_or_for_others_end_without_an_error, 0,
		n_left_out ? N_RESTING_ALONE : (int)LENGTH(resting));
	tcase_add_loop_test(tc, a_program_ends_without_an_error_while_its_figures_are_kept_for_a_summary, 0,
		(int)LENGTH(summed_up));
	tcase_add_loop_test(tc, a_program_whose_memory_goes_to_the_host_ends_without_an_error, 0, (int)LENGTH(spilled));
	tcase_add_loop_test(tc, retry_rounds_serve_the_same_requests_with_the_library_linked_in, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	static const struct play_tests tests[] = {{"usual", add_usual}, {"others", add_others}};

	return play_main(argc, argv, tests, LENGTH(tests));
}
