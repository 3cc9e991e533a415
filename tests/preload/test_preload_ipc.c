/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Two processes that share memory, with the library in both, in one or in none. */

#include "play.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The virtual clock stands still while a program sleeps between polls, so let each poll take long. */
#define CLOCK  "SIMGPU_LATENCY=cuEventQuery=1000000,cuStreamQuery=1000000"
#define MEMORY "SIMGPU_MEMORY=256M"

/*
 * In the kind split a process without the library cannot open a part of a segment. An importer without
 * it runs only the first rows, which export whole allocations. An exporter without it does not run the
 * last rows, in which it imports.
 */
static const struct {
	const char *program, *scenario;
} rows[] = {
	{"app_ipc", "first"},
	{"app_ipc", "whole"},
	{"app_ipc", "about"},
	{"app_ipc", "churn"},
	{"app_ipc", "contexts"},
	{"app_ipc", "crowd"},
	{"app_ipc", "later"},
	{"app_ipc", "many"},
	{"app_ipc", "neighbours"},
	{"app_ipc", "own"},
	{"app_ipc", "same"},
	{"app_ipc", "threads"},
	{"app_ipc", "twice"},
	{"app_ipc_wrong", "again"},
	{"app_ipc_wrong", "calls"},
	{"app_ipc_wrong", "ended"},
	{"app_ipc_wrong", "forged"},
	{"app_ipc_wrong", "freed"},
	{"app_ipc_wrong", "stranger"},
	{"app_ipc_mapped", "interior"},
	{"app_ipc_mapped", "parts"},
	{"app_ipc_mapped", "barrier"},
	{"app_ipc_mapped", "descriptors"},
	{"app_ipc_mapped", "forks"},
	{"app_ipc_mapped", "attributes"},
	{"app_ipc_mapped", "alone"},
	{"app_ipc_mapped", "killed"},
	{"app_ipc", "exchanged"},
};

enum { N_ROWS = LENGTH(rows), N_OF_WHOLES = 2, N_ONE_WAY = N_ROWS - 2 };

static const char *const pools[] = {"none", "simple", "binned", "split", "vmm"};

enum { SPLIT = 3, VMM, N_POOLS };

static char pool_variable[32], peer_variable[PATH_MAX + 32];

/*
 * Returns the environment for a kind of pool and for the second process's preload. A NULL preload is that of the
 * first.
 */
static const char *const *environment(unsigned pool, const char *peer)
{
	static const char *env[6];

	snprintf(pool_variable, sizeof(pool_variable), "GPUPOOL_POOL=%s", pools[pool]);
	snprintf(peer_variable, sizeof(peer_variable), "APP_PEER_PRELOAD=%s", peer ? peer : "");
	env[0] = pool_variable;
	env[1] = "GPUPOOL_LOG=off";
	env[2] = CLOCK;
	env[3] = MEMORY;
	env[4] = peer ? peer_variable : NULL;
	return env;
}

/* A test loop goes through all rows for each kind of pool. */
static struct play play_of(int nth, const char *peer)
{
	return (struct play){.program = rows[nth % N_ROWS].program,
		.words = {rows[nth % N_ROWS].scenario},
		.env = environment((unsigned)nth / N_ROWS, peer)};
}

START_TEST(two_processes_with_the_library_share_memory_as_without_it)
{
	struct play play = play_of(_i, NULL);

	play_same(&play);
}
END_TEST

START_TEST(an_importer_with_the_library_opens_handles_of_an_exporter_without_it)
{
	struct play play = play_of(_i, "");

	play_same(&play);
}
END_TEST

START_TEST(an_importer_without_the_library_opens_handles_of_an_exporter_with_it)
{
	struct play play = play_of(_i, "");
	char out[PLAY_OUTPUT_MAX];

	play_run(&play);
	strcpy(out, play_out);
	play = play_of(_i, play_library);
	play_run(&play);
	ck_assert_str_eq(play_out, out);
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(an_importer_without_the_library_is_refused_only_blocks_from_before_the_export)
{
	struct play play = {.program = "app_ipc", .words = {"later"}, .env = environment(SPLIT, play_library)};
	unsigned n_right = 0;

	play_run(&play);
	for (const char *at = play_out; (at = strstr(at, "wrong words: 0\n")); at++)
		n_right++;
	ck_assert_uint_eq(n_right, 24);
	ck_assert_ptr_nonnull(strstr(play_out, "open of the first exported block: 0\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "open of a block from before the export: 1\n"));
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(forged_ipc_handles_are_refused_as_invalid_values)
{
	struct play play = {.program = "app_ipc_wrong",
		.words = {"forged"},
		.env = environment((unsigned)_i, NULL),
		.preload = play_library};

	play_run(&play);
	ck_assert_uint_gt(play_fact("tried"), 200);
	ck_assert_uint_eq(play_fact("opened"), 0);
	ck_assert_uint_eq(play_fact("other codes"), 0);
	ck_assert_int_eq(play_status, 0);
}
END_TEST

START_TEST(an_ipc_answer_with_an_offset_outside_its_segment_is_refused)
{
	play_run(&(struct play){.program = "app_ipc_wrong",
		.words = {"liar"},
		.env = environment(SPLIT, NULL),
		.preload = play_library});
	ck_assert_str_eq(play_out,
		"open: 1\nopen: 1\nopen: 1\nopen: 1\nopened without being closed: 0\nthe second process's end: 0\n");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static const char *const vmm[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=warn", CLOCK, MEMORY, NULL};

static void play_vmm(const char *scenario)
{
	play_run(&(struct play){.program = "app_ipc_mapped", .words = {scenario}, .env = vmm, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

/* The exporter cannot tell that both processes run under the library, so it must not warn. */
START_TEST(two_processes_with_the_library_share_memory_of_vmm_without_a_warning)
{
	play_vmm("interior");
	ck_assert_str_eq(play_err, "");
}
END_TEST

START_TEST(a_block_of_vmm_that_lies_in_several_chunks_is_opened_chunk_by_chunk)
{
	play_vmm("parts");
	ck_assert_uint_gt(play_fact("maps"), 1);
}
END_TEST

START_TEST(the_last_of_two_closes_at_the_same_time_waits_for_the_work)
{
	play_vmm("closes");
	ck_assert_ptr_nonnull(strstr(play_out, "close: 0\nclose: 0\nsynchronise: 0\n"));
}
END_TEST

START_TEST(the_last_close_waits_for_work_that_came_during_its_wait)
{
	play_vmm("reopened");
	ck_assert_ptr_nonnull(strstr(play_out, "same address: 1\nclose: 0\nclose: 0\nsynchronise: 0\n"));
}
END_TEST

START_TEST(another_device_reaches_an_opened_block_by_peer_access)
{
	snprintf(pool_variable, sizeof(pool_variable), "GPUPOOL_POOL=%s", pools[_i]);
	play_same(&(struct play){.program = "app_ipc_mapped",
		.words = {"peers"},
		.env = (const char *const[]){pool_variable, "GPUPOOL_LOG=off", "SIMGPU_DEVICES=2", CLOCK, NULL}});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words at the exporter's: 0\n"));
}
END_TEST

START_TEST(memory_of_another_device_is_opened_in_contexts_of_both_devices)
{
	snprintf(pool_variable, sizeof(pool_variable), "GPUPOOL_POOL=%s", pools[_i]);
	play_same(&(struct play){.program = "app_ipc_mapped",
		.words = {"devices"},
		.env = (const char *const[]){pool_variable, "GPUPOOL_LOG=off", "SIMGPU_DEVICES=2", CLOCK, NULL}});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

static const struct {
	const char *scenario;
	int status;
} ended[] = {{"killed_first", 137}, {"killed_later", 137}, {"exits", 0}};

START_TEST(an_exporter_that_ends_while_it_passes_a_chunk_leaves_nothing_open_in_the_importer)
{
	char expected[256];

	snprintf(expected, sizeof(expected),
		"close: 0\nopen: 1\nopen by the older function: 1\ndescriptors that stay: 0\n"
		"reservations that stay: 0\nthe second process's end: %d\n",
		ended[_i].status);
	play_vmm(ended[_i].scenario);
	ck_assert_str_eq(play_out, expected);
	/* The process may have ended before or after it read the request. */
	ck_assert_ptr_nonnull(strstr(play_err, "the process has ended, or has freed the block\n"));
	ck_assert_ptr_null(strstr(play_err, "damaged"));
}
END_TEST

/* The simulated driver needs addresses of a chunk for each block that is open, so this needs more memory. */
START_TEST(a_thousand_handles_are_opened_as_without_the_library)
{
	snprintf(pool_variable, sizeof(pool_variable), "GPUPOOL_POOL=%s", pools[_i]);
	play_same(&(struct play){.program = "app_ipc_mapped",
		.words = {"thousand"},
		.env = (const char *const[]){pool_variable, "GPUPOOL_LOG=off", CLOCK, NULL}});
}
END_TEST

/* GPUPOOL_DEBUG fills other freed blocks. */
static const char *const debug[] = {"GPUPOOL_DEBUG=off", "GPUPOOL_DEBUG=poison", "GPUPOOL_DEBUG=poison,guard"};

START_TEST(freed_blocks_of_vmm_keep_their_contents_while_another_process_has_them_open)
{
	const char *const env[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off", debug[_i], CLOCK, NULL};

	play_run(&(struct play){
		.program = "app_ipc_mapped", .words = {"thousand"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("words that changed after the free"), 0);
}
END_TEST

START_TEST(a_block_of_vmm_opens_while_a_thread_of_the_exporter_waits_in_a_free)
{
	static const char *const env[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_SYNC_FREE=on", CLOCK, MEMORY, NULL};

	play_same(&(struct play){.program = "app_ipc_mapped", .words = {"barrier"}, .env = env});
}
END_TEST

START_TEST(clients_that_end_before_they_have_a_chunk_leave_no_descriptor_in_the_exporter)
{
	play_vmm("hangup");
	ck_assert_str_eq(play_out, "open: 0\na wrong nonce is refused: 1\nno chunk is passed: 1\nopen: 0\n"
				   "descriptors that stay at the exporter's: 0\nthe second process's end: 0\n");
}
END_TEST

START_TEST(an_exporter_that_allocates_and_frees_answers_any_request_for_a_chunk)
{
	play_vmm("hostile");
	ck_assert_str_eq(play_out, "chunks were passed: 1\nrequests were refused: 1\n"
				   "answers with a wrong number of descriptors: 0\n"
				   "descriptors that stay at the exporter's: 0\nthe second process's end: 0\n");
}
END_TEST

START_TEST(an_open_that_fails_in_the_middle_leaves_nothing_mapped)
{
	play_vmm("faults");
	ck_assert_str_eq(play_out,
		"open: 0\n"
		"cuMemImportFromShareableHandle: 2\ndescriptors that stay: 0\n"
		"cuMemImportFromShareableHandle: 2\ndescriptors that stay: 0\n"
		"cuMemAddressReserve: 2\ndescriptors that stay: 0\n"
		"cuMemMap: 2\ndescriptors that stay: 0\n"
		"cuMemMap: 2\ndescriptors that stay: 0\n"
		"cuMemSetAccess: 101\ndescriptors that stay: 0\n"
		"reservations that stay: 0\n"
		"close that the driver refuses: 304\nwrong words: 0\nclose: 0\nthe second process's end: 0\n");
}
END_TEST

START_TEST(an_exporter_that_cannot_pass_a_chunk_loses_no_memory_and_the_importer_logs_why)
{
	play_vmm("refuses");
	ck_assert_str_eq(play_out, "open while the driver refuses: 1\nopen while the exporter has no descriptor: 1\n"
				   "open without a descriptor: 1\nopen: 0\nthe exporter's free: 0\n"
				   "the second process's end: 0\n");
	ck_assert_ptr_nonnull(strstr(play_err, "the driver of that process cannot export the memory\n"));
	ck_assert_ptr_nonnull(strstr(play_err, "this process has no file descriptor left\n"));
}
END_TEST

START_TEST(an_ipc_handle_of_another_version_is_refused_with_a_message)
{
	play_vmm("attributes");
	ck_assert_ptr_nonnull(strstr(play_out, "synchronous operations: 0\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "wrong version: 1\n"));
	ck_assert_ptr_nonnull(strstr(play_err, "it is of another version of gpupool than "));
}
END_TEST

START_TEST(an_importer_without_the_library_is_refused_blocks_of_vmm_and_the_exporter_logs_the_remedy)
{
	snprintf(peer_variable, sizeof(peer_variable), "APP_PEER_PRELOAD=%s", play_library);
	play_run(&(struct play){.program = "app_ipc_wrong",
		.words = {"stranger"},
		.env = (const char *const[]){"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=info", peer_variable, CLOCK, NULL}});
	ck_assert_ptr_nonnull(strstr(play_out, "as the same user: 1\n"));
	ck_assert_ptr_nonnull(strstr(play_err, "only processes under gpupool can open the handles"));
	ck_assert_int_eq(play_status, 0);
}
END_TEST

/* Memory of vmm that importers could not open has no handle, as before, and its attribute says so. */
static const struct {
	const char *pool, *variable, *error, *reason;
} unable[] = {
	{"vmm", "GPUPOOL_SOCKET=off", "1", "importers would ask the control socket, and GPUPOOL_SOCKET is off"},
	{"vmm", "SIMGPU_LACKS=103", "801",
		"with error 801: the driver refuses to export memory of the pool type vmm; use GPUPOOL_POOL=split "},
	{"vmm", "SIMGPU_HIDE=cuMemExportToShareableHandle", "500",
		"with error 500: the driver refuses to export memory of the pool type vmm; use GPUPOOL_POOL=split "},
	{"vmm", "SIMGPU_FAULT=cuMemExportToShareableHandle:1+=800", "800",
		"with error 800: the driver refuses to export memory of the pool type vmm; use GPUPOOL_POOL=split "},
	{"auto", "SIMGPU_FAULT=cuMemExportToShareableHandle:1+=801", "801",
		"with error 801: the driver refuses to export memory of the pool type vmm, which GPUPOOL_POOL=auto has "
		"chosen; use GPUPOOL_POOL=split "},
};

static char status_text[16 * 1024];

static void keep_status(const char *name)
{
	if (!play_is_listening())
		return;
	play_keep(play_ask("status"));
	ck_assert_int_eq(play_run_stat("status", status_text, sizeof(status_text)), 0);
}

/* The driver refuses an export that was tried. */
static void check_status(const char *error)
{
	char expected[128];

	snprintf(expected, sizeof(expected), "\"pool_reason\":null,\"export_error\":%s,", error);
	ck_assert_ptr_nonnull(strstr(play_answers[0], expected));
	snprintf(expected, sizeof(expected),
		"device 0: the driver refuses to share memory with other processes (error %s): use --pool=split\n",
		error);
	ck_assert_ptr_nonnull(strstr(status_text, expected));
}

START_TEST(blocks_of_vmm_that_no_process_could_open_have_no_ipc_handle_and_the_log_says_why)
{
	char pool[32], expected[128];
	const char *const env[] = {pool, "GPUPOOL_LOG=warn", unable[_i].variable, MEMORY, NULL};

	snprintf(pool, sizeof(pool), "GPUPOOL_POOL=%s", unable[_i].pool);
	snprintf(expected, sizeof(expected), "legacy: 0\nexport: %s\nexport of a freed block: 1\n", unable[_i].error);
	play_run(&(struct play){.program = "app_ipc_mapped",
		.words = {"alone"},
		.env = env,
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_str_eq(play_out, expected);
	if (strstr(unable[_i].variable, "SIMGPU_FAULT"))
		check_status(unable[_i].error);
	ck_assert_ptr_nonnull(strstr(play_err, unable[_i].reason));
	ck_assert_ptr_null(strstr(strstr(play_err, "cuIpcGetMemHandle") + 1, "cuIpcGetMemHandle"));
}
END_TEST

/* The program asks for the attribute first. An error that may pass is not remembered. */
static const struct {
	const char *variable, *out;
} passing[] = {
	{"SIMGPU_FAULT=cuMemExportToShareableHandle:1=2", "legacy: 1\nexport: 0\nexport of a freed block: 1\n"},
	{"SIMGPU_FAULT=cuMemExportToShareableHandle:1=304", "legacy: 0\nexport: 0\nexport of a freed block: 1\n"},
};

START_TEST(blocks_of_vmm_have_an_ipc_handle_again_once_the_driver_can_export)
{
	const char *const env[] = {"GPUPOOL_POOL=vmm", "GPUPOOL_LOG=warn", passing[_i].variable, MEMORY, NULL};

	play_run(&(struct play){.program = "app_ipc_mapped", .words = {"alone"}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_out, passing[_i].out);
	ck_assert_str_eq(play_err, "");
}
END_TEST

/* Proves that the scenario "first" can fail: this setting keeps the library from waiting for completion. */
START_TEST(with_ordered_reuse_forced_an_importers_first_write_is_lost)
{
	static const char *const env[] = {"GPUPOOL_REUSE=ordered", "GPUPOOL_LOG=off", CLOCK, MEMORY, NULL};

	play_run(&(struct play){.program = "app_ipc", .words = {"first"}, .env = env, .preload = play_library});
	ck_assert_ptr_null(strstr(play_out, "wrong words: 0\n"));
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: "));
}
END_TEST

static void add(TCase *tc)
{
	enum { BEFORE_SPLIT = SPLIT * N_ROWS };

	tcase_add_loop_test(tc, two_processes_with_the_library_share_memory_as_without_it, 0, N_POOLS * N_ROWS);
	tcase_add_loop_test(
		tc, an_importer_with_the_library_opens_handles_of_an_exporter_without_it, 0, BEFORE_SPLIT + N_ONE_WAY);
	tcase_add_loop_test(tc, an_importer_with_the_library_opens_handles_of_an_exporter_without_it, VMM * N_ROWS,
		VMM * N_ROWS + N_ONE_WAY);
	tcase_add_loop_test(tc, an_importer_without_the_library_opens_handles_of_an_exporter_with_it, 0,
		BEFORE_SPLIT + N_OF_WHOLES);
	tcase_add_test(tc, an_importer_without_the_library_is_refused_only_blocks_from_before_the_export);
	tcase_add_loop_test(tc, forged_ipc_handles_are_refused_as_invalid_values, 0, N_POOLS);
	tcase_add_test(tc, an_ipc_answer_with_an_offset_outside_its_segment_is_refused);
	tcase_add_loop_test(tc, another_device_reaches_an_opened_block_by_peer_access, 0, N_POOLS);
	tcase_add_loop_test(tc, memory_of_another_device_is_opened_in_contexts_of_both_devices, 0, N_POOLS);
	tcase_add_loop_test(tc, an_exporter_that_ends_while_it_passes_a_chunk_leaves_nothing_open_in_the_importer, 0,
		(int)LENGTH(ended));
	tcase_add_loop_test(tc, a_thousand_handles_are_opened_as_without_the_library, 0, N_POOLS);
	tcase_add_test(tc, two_processes_with_the_library_share_memory_of_vmm_without_a_warning);
	tcase_add_test(tc, a_block_of_vmm_that_lies_in_several_chunks_is_opened_chunk_by_chunk);
	tcase_add_test(tc, the_last_of_two_closes_at_the_same_time_waits_for_the_work);
	tcase_add_test(tc, the_last_close_waits_for_work_that_came_during_its_wait);
	tcase_add_loop_test(
		tc, freed_blocks_of_vmm_keep_their_contents_while_another_process_has_them_open, 0, (int)LENGTH(debug));
	tcase_add_test(tc, a_block_of_vmm_opens_while_a_thread_of_the_exporter_waits_in_a_free);
	tcase_add_test(tc, clients_that_end_before_they_have_a_chunk_leave_no_descriptor_in_the_exporter);
	tcase_add_test(tc, an_exporter_that_allocates_and_frees_answers_any_request_for_a_chunk);
	tcase_add_test(tc, an_open_that_fails_in_the_middle_leaves_nothing_mapped);
	tcase_add_test(tc, an_exporter_that_cannot_pass_a_chunk_loses_no_memory_and_the_importer_logs_why);
	tcase_add_test(tc, an_ipc_handle_of_another_version_is_refused_with_a_message);
	tcase_add_test(tc, an_importer_without_the_library_is_refused_blocks_of_vmm_and_the_exporter_logs_the_remedy);
	tcase_add_loop_test(tc, blocks_of_vmm_that_no_process_could_open_have_no_ipc_handle_and_the_log_says_why, 0,
		LENGTH(unable));
	tcase_add_loop_test(
		tc, blocks_of_vmm_have_an_ipc_handle_again_once_the_driver_can_export, 0, (int)LENGTH(passing));
	tcase_add_test(tc, with_ordered_reuse_forced_an_importers_first_write_is_lost);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"ipc", add}, 1);
}
