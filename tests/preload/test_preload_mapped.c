/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The kind vmm moves memory without any effect on the program, releases it with its context, and falls back with a
 * message if the driver cannot map memory.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/counter_page.h"
#include "play.h"

#define MAPPED "GPUPOOL_POOL=vmm"

static uint64_t moves, total_bytes, n_pools, n_errors;

static void read_status(const char *name)
{
	const char *status = play_ask("status");

	moves = play_number(status, "moves");
	n_errors = play_number(status, "release_errors");
	total_bytes = play_number(status, "peak_total_bytes");
	n_pools = strstr(status, "\"pool\":\"vmm\"") != NULL;
}

static const char *const modes[] = {"GPUPOOL_REUSE=auto", "GPUPOOL_REUSE=ordered", "GPUPOOL_REUSE=completed"};

START_TEST(moving_memory_changes_no_contents_and_causes_no_race)
{
	const char *env[] = {MAPPED, modes[_i], NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"moves"}, .env = env, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(n_pools, 1);
	ck_assert_uint_gt(moves, 0);
	ck_assert_uint_le(total_bytes, 200 * MIB); /* the program holds up to 192 MiB */
}
END_TEST

/* The library makes the first call of each function itself, to find out if the driver supports it. */
static const char *const refusals[] = {
	"SIMGPU_FAULT=cuMemUnmap:2+=801",
	"SIMGPU_FAULT=cuMemUnmap:every/2=801",
	"SIMGPU_FAULT=cuMemSetAccess:2=2",
	"SIMGPU_FAULT=cuMemSetAccess:2=2,cuMemUnmap:2=801",
	"SIMGPU_FAULT=cuMemSetAccess:30=2,cuMemUnmap:2+=801",
};

START_TEST(a_failed_unmap_or_access_call_changes_no_contents_and_causes_no_race)
{
	const char *env[] = {MAPPED, refusals[_i], NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"moves"}, .env = env, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_eq(n_pools, 1);
	ck_assert_int_eq(n_errors == 0, !strstr(refusals[_i], "cuMemUnmap"));
}
END_TEST

/* The driver refuses sizes that are not multiples of its granularity. */
static const char *const granularities[] = {"SIMGPU_GRANULARITY=4M", "SIMGPU_GRANULARITY=32M"};

START_TEST(memory_is_mapped_in_multiples_of_the_granularity_of_the_driver)
{
	const char *env[] = {MAPPED, granularities[_i], "GPUPOOL_LOG=warn", NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"moves"}, .env = env, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_uint_gt(total_bytes, 0);
	ck_assert_uint_eq(total_bytes % ((uint64_t)(_i ? 32 : 4) * MIB), 0);
}
END_TEST

START_TEST(mapped_memory_is_released_when_its_context_ends)
{
	static const char *const env[] = {MAPPED, NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"ends"}, .env = env});
	ck_assert_str_eq(play_out, "all is back: 1\n");
}
END_TEST

/* Each of these keeps the library from mapping memory. */
static const char *const lacks[] = {
	"SIMGPU_HIDE=cuMemMap",
	"SIMGPU_HIDE=cuMemAddressReserve",
	"SIMGPU_FAULT=cuMemCreate:1+=801",
	"SIMGPU_FAULT=cuMemAddressReserve:1+=801",
	"SIMGPU_FAULT=cuMemSetAccess:1+=801",
	"SIMGPU_DRIVER_VERSION=10010",
};

START_TEST(vmm_falls_back_to_split_with_one_message_if_the_driver_cannot_map)
{
	const char *env[] = {MAPPED, lacks[_i], NULL};

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_err, "using split instead"));
	ck_assert_ptr_null(strstr(strstr(play_err, "using split instead") + 1, "using split instead"));
}
END_TEST

START_TEST(vmm_is_used_even_if_the_device_is_full_at_the_start)
{
	static const char *const env[] = {MAPPED, "SIMGPU_FAULT=cuMemCreate:1=2", NULL};

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_err, "");
}
END_TEST

START_TEST(legacy_ipc_of_mapped_memory_without_a_socket_is_refused_and_the_message_names_the_fix)
{
	static const char *const env[] = {MAPPED, "GPUPOOL_SOCKET=off", NULL};

	play_run(&(struct play){.program = "app_query", .words = {"export"}, .env = env, .preload = play_library});
	ck_assert_uint_eq(play_fact("ipc-1000"), 1);
	ck_assert_uint_eq(play_fact("ipc-67108864"), 1);
	ck_assert_ptr_nonnull(strstr(play_err, "GPUPOOL_SOCKET is off; use GPUPOOL_POOL=binned"));
	ck_assert_ptr_null(strstr(strstr(play_err, "cuIpcGetMemHandle") + 1, "cuIpcGetMemHandle"));
}
END_TEST

static char status_text[16 * 1024];

static void keep_status(const char *name)
{
	play_keep(play_ask("status"));
	ck_assert_int_eq(play_run_stat("status", status_text, sizeof(status_text)), 0);
}

/* The pool type that GPUPOOL_POOL=auto is, the reason for split, and whether GPUPOOL_POOL=vmm is vmm in spite of it. */
static const struct {
	const char *variables[2], *pool, *reason;
	bool is_for_auto_only;
} choices[] = {
	{{"SIMGPU_DEVICES=1"}, "vmm", NULL},
	{{"SIMGPU_DEVICES=2"}, "vmm", NULL},
	{{"SIMGPU_LACKS=102"}, "split", "the driver cannot map memory on the device"},
	{{"SIMGPU_FAULT=cuMemMap:1+=801"}, "split", "the driver cannot map memory on the device"},
	{{"SIMGPU_LACKS=103"}, "split", "the driver cannot share mapped memory with other processes", true},
	{{"SIMGPU_DEVICES=2", "SIMGPU_FAULT=cuDeviceCanAccessPeer:1+=1"}, "split",
		"a device of the process cannot have access to the memory of this one", true},
	{{"GPUPOOL_BACKEND=managed"}, "split", "GPUPOOL_BACKEND is not device"},
};

/* Memory that can be exported is refused, as under WSL 2, where the driver claims that it can be. */
START_TEST(auto_is_split_if_the_driver_creates_no_memory_that_can_be_exported)
{
	static const char *const env[] = {
		"GPUPOOL_POOL=auto", "GPUPOOL_LOG=info", "SIMGPU_FAULT=cuMemCreate:1=1,cuMemCreate:2=1", NULL};

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = env,
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_answers[0],
		"\"pool\":\"split\",\"pool_reason\":\"the driver cannot share mapped memory with other processes\""));
}
END_TEST

/*
 * The driver calls of the first allocation of a process, apart from two that take some nanoseconds. An allocation of 64
 * MiB consists of four chunks. The mapping calls are those of the chunks and of two arenas, and no others: each takes a
 * driver 5 to 90 us.
 */
#define CALLS_OF_EVERY_KIND(counts, attributes)                                                \
	"cuDeviceGetCount " counts "\ncuDeviceTotalMem_v2 1\ncuDeviceGetAttribute " attributes \
	"\ncuDeviceGetUuid_v2 1\ncuCtxGetDevice 1\ncuCtxGetId 1\ncuStreamGetGreenCtx 1\n"
#define CALLS_OF_CUT CALLS_OF_EVERY_KIND("1", "1") "cuMemAlloc_v2 1\ncuMemGetInfo_v2 1\ntotal 9\n"
#define CALLS_OF_MAPPED(counts, chunks, looks, total)                                                           \
	CALLS_OF_EVERY_KIND(counts, "4")                                                                        \
	"cuMemGetInfo_v2 " looks "\ncuMemCreate " chunks                                                        \
	"\ncuMemGetAllocationGranularity 1\ncuMemAddressReserve 2\ncuMemMap " chunks "\ncuMemSetAccess " chunks \
	"\ntotal " total "\n"

static const struct {
	const char *kind, *scenario, *calls;
} firsts[] = {
	{"GPUPOOL_POOL=none", "first", CALLS_OF_CUT},
	{"GPUPOOL_POOL=simple", "first", CALLS_OF_CUT},
	{"GPUPOOL_POOL=binned", "first", CALLS_OF_CUT},
	{"GPUPOOL_POOL=split", "first", CALLS_OF_CUT},
	{"GPUPOOL_POOL=split", "first_large", CALLS_OF_CUT},
	{"GPUPOOL_POOL=vmm", "first", CALLS_OF_MAPPED("1", "1", "2", "18")},
	{"GPUPOOL_POOL=vmm", "first_large", CALLS_OF_MAPPED("1", "4", "5", "30")},
	{"GPUPOOL_POOL=auto", "first", CALLS_OF_MAPPED("2", "1", "2", "19")},
	{"GPUPOOL_POOL=auto", "first_large", CALLS_OF_MAPPED("2", "4", "5", "31")},
};

START_TEST(the_first_allocation_makes_no_driver_call_but_these)
{
	const char *env[] = {firsts[_i].kind, NULL};

	play_run(&(struct play){
		.program = "app_mapped", .words = {firsts[_i].scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, firsts[_i].calls);
}
END_TEST

/*
 * The chunk that is mapped to find out whether the driver can map memory is the first chunk of the allocation. It goes
 * back if the allocation fails or needs another one, and is not lost. Pinned memory needs none.
 */
static const struct {
	const char *scenario, *variable, *out;
} ahead[] = {
	{"ahead_small", "GPUPOOL_LOG=off", "result 0, creates 1, maps 1, unmaps 0, releases 0, takes 2 MiB\n"},
	{"ahead_large", "GPUPOOL_LOG=off", "result 0, creates 4, maps 4, unmaps 0, releases 0, takes 64 MiB\n"},
	{"ahead_pinned", "GPUPOOL_LOG=off", "result 0, creates 1, maps 1, unmaps 1, releases 1, takes 0 MiB\n"},
	/* No memory may be taken. */
	{"ahead_small", "GPUPOOL_LIMIT=1MiB", "result 2, creates 1, maps 1, unmaps 1, releases 1, takes 0 MiB\n"},
	{"ahead_large", "GPUPOOL_LIMIT=1MiB", "result 2, creates 1, maps 1, unmaps 1, releases 1, takes 0 MiB\n"},
	/* The first of four chunks is taken, and goes back with the allocation. */
	{"ahead_large", "GPUPOOL_LIMIT=30MiB", "result 2, creates 1, maps 1, unmaps 1, releases 1, takes 0 MiB\n"},
	/* The device is full for a moment, or refuses memory that can be exported. */
	{"ahead_small", "SIMGPU_FAULT=cuMemCreate:1=2",
		"result 0, creates 2, maps 1, unmaps 0, releases 0, takes 2 MiB\n"},
	{"ahead_small", "SIMGPU_FAULT=cuMemCreate:1=801",
		"result 0, creates 2, maps 1, unmaps 0, releases 0, takes 2 MiB\n"},
	{"ahead_small", "SIMGPU_FAULT=cuMemSetAccess:1=801",
		"result 0, creates 2, maps 2, unmaps 1, releases 1, takes 2 MiB\n"},
	/* The context has a sticky error when the chunk is to be used. */
	{"ahead_small", "SIMGPU_FAULT=cuMemGetInfo_v2:1=719",
		"result 719, creates 1, maps 1, unmaps 1, releases 1, takes 0 MiB\n"},
};

START_TEST(the_first_allocation_uses_the_chunk_that_was_mapped_ahead_of_it_or_gives_it_back)
{
	const char *env[] = {MAPPED, "GPUPOOL_LOG=off", ahead[_i].variable, NULL};

	play_run(&(struct play){
		.program = "app_mapped", .words = {ahead[_i].scenario}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_out, ahead[_i].out);
}
END_TEST

/* Only one of the contexts that threads make at the same time stays. Any thread may take its first chunk. */
START_TEST(threads_that_allocate_first_at_the_same_time_all_get_memory)
{
	static const char *const env[] = {
		MAPPED, "GPUPOOL_LOG=warn", "SIMGPU_JITTER=cuMemMap=2,cuMemUnmap=1,cuMemCreate=3", NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"first_threads"}, .env = env});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_str_eq(play_err, "");
}
END_TEST

#define CANNOT_MAP "\"split\",\"pool_reason\":\"the driver cannot map memory on the device\""
#define MAPS       "\"vmm\",\"pool_reason\":null"

/* The first map on a device is tried with and without features that a container may forbid. */
static const struct {
	const char *fault, *kinds[2];
} mixed[] = {
	{"SIMGPU_FAULT=cuMemMap:1=801,cuMemMap:2=801,cuMemMap:3=801,cuMemMap:4=801", {CANNOT_MAP, MAPS}},
	{"SIMGPU_FAULT=cuMemMap:2=801,cuMemMap:3=801,cuMemMap:4=801,cuMemMap:5=801", {MAPS, CANNOT_MAP}},
};

START_TEST(auto_chooses_the_pool_type_of_each_device_by_itself)
{
	const char *env[] = {"GPUPOOL_POOL=auto", "SIMGPU_DEVICES=2", mixed[_i].fault, NULL}, *at;

	play_same(
		&(struct play){.program = "app_mapped", .words = {"two-devices"}, .env = env, .at_pause = keep_status});
	ck_assert_str_eq(play_out, "word: 0\nword: 1\nword: 2\nword: 3\n");
	at = play_answers[0];
	for (unsigned i = 0; i < 2; i++) {
		at = strstr(at, "\"uuid\":");
		ck_assert_ptr_nonnull(at);
		at = strstr(at, "\"pool\":") + strlen("\"pool\":");
		ck_assert_int_eq(strncmp(at, mixed[_i].kinds[i], strlen(mixed[_i].kinds[i])), 0);
	}
}
END_TEST

START_TEST(auto_is_split_without_a_socket_and_the_log_says_why)
{
	static const char *const env[] = {"GPUPOOL_POOL=auto", "GPUPOOL_SOCKET=off", "GPUPOOL_LOG=info", NULL};

	play_run(&(struct play){.program = "app_memory", .words = {"mixed"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(
		strstr(play_err, "GPUPOOL_POOL=auto: pool type split on device 0, since GPUPOOL_SOCKET is off, "
				 "and vmm shares memory with other processes by the control socket\n"));
}
END_TEST

/* Reads the pool type on the page of the process that has ended, which an exporter would read. */
static void read_page(const char *dir, char pool[static GP_PAGE_TEXT])
{
	DIR *entries = opendir(dir);
	const struct dirent *entry;
	struct gp_page_header header;

	ck_assert_ptr_nonnull(entries);
	*pool = '\0';
	while ((entry = readdir(entries))) {
		int fd;

		if (!strstr(entry->d_name, GP_PAGE_SUFFIX))
			continue;
		fd = openat(dirfd(entries), entry->d_name, O_RDONLY | O_CLOEXEC);
		ck_assert_int_eq(read(fd, &header, sizeof(header)), sizeof(header));
		close(fd);
		ck_assert_str_eq(pool, "");
		strcpy(pool, header.pool);
	}
	closedir(entries);
}

START_TEST(the_counter_page_of_a_process_that_has_ended_names_the_pool_type_that_was_used)
{
	bool is_auto = _i % 2;
	const char *const *variables = choices[_i / 2].variables;
	char dir[] = "/dev/shm/gpupool-test-XXXXXX", pool[GP_PAGE_TEXT], runtime_dir[64], command[64];
	const char *env[] = {is_auto ? "GPUPOOL_POOL=auto" : MAPPED, runtime_dir, "GPUPOOL_LOG=off", variables[0],
		variables[1], NULL};

	/* There are pages only where files are in memory. */
	if (!mkdtemp(dir))
		return;
	snprintf(runtime_dir, sizeof(runtime_dir), "GPUPOOL_RUNTIME_DIR=%s", dir);
	play_run(&(struct play){.program = "app_memory", .words = {"mixed"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	read_page(dir, pool);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
	ck_assert_str_eq(pool, !is_auto && choices[_i / 2].is_for_auto_only ? "vmm" : choices[_i / 2].pool);
}
END_TEST

START_TEST(auto_is_vmm_where_that_works_and_otherwise_split_with_the_reason_in_the_status)
{
	const char *env[] = {
		"GPUPOOL_POOL=auto", "GPUPOOL_LOG=info", choices[_i].variables[0], choices[_i].variables[1], NULL};
	char expected[256];

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = env,
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_gt(play_n_answers, 0);
	snprintf(expected, sizeof(expected), "\"pool\":\"%s\",\"pool_reason\":%s%s%s", choices[_i].pool,
		choices[_i].reason ? "\"" : "", choices[_i].reason ? choices[_i].reason : "null",
		choices[_i].reason ? "\"" : "");
	ck_assert_ptr_nonnull(strstr(play_answers[0], expected));
	snprintf(expected, sizeof(expected), "GPUPOOL_POOL=auto: pool type %s on device 0%s%s\n", choices[_i].pool,
		choices[_i].reason ? ", since " : "", choices[_i].reason ? choices[_i].reason : "");
	ck_assert_ptr_nonnull(strstr(play_err, expected));
	ck_assert_ptr_null(strstr(play_err, "warn"));
	snprintf(expected, sizeof(expected), "device 0: pool type %s, since %s\n", choices[_i].pool,
		choices[_i].reason ? choices[_i].reason : "");
	ck_assert_int_eq(strstr(status_text, expected) != NULL, choices[_i].reason != NULL);
	snprintf(expected, sizeof(expected), ", pool %s, ", choices[_i].pool);
	ck_assert_int_eq(strstr(status_text, expected) != NULL || strstr(choices[_i].variables[0], "BACKEND"), 1);
}
END_TEST

START_TEST(memory_is_of_use_although_another_device_is_refused_access)
{
	static const char *const env[] = {"SIMGPU_DEVICES=2", MAPPED, NULL};

	play_run(&(struct play){
		.program = "app_mapped", .words = {"peer_refused"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "more: 0\n"));
	ck_assert_uint_gt(play_fact("accesses"), 1);
	ck_assert_ptr_nonnull(
		strstr(play_err, "device 1 has no access to pooled memory of device 0: driver error 101"));
}
END_TEST

/* Copies of memory of one device on a stream of another. */
static const struct {
	const char *kind, *fault, *scenario, *first, *copy;
	bool is_open;     /* the other device gets access to memory that is allocated after the first copy */
	uint64_t n_wrong; /* calls of the driver for a copy that is wrong in itself */
} copies[] = {
	{"GPUPOOL_POOL=split", "SIMGPU_LATENCY=0", "copies", "0", "0", false, 1},
	{MAPPED, "SIMGPU_LATENCY=0", "copies", "0", "0", true, 2},
	{MAPPED, "SIMGPU_LATENCY=0", "copies_refused_once", "1", "0", false, 2},
	{MAPPED, "SIMGPU_FAULT=cuDeviceCanAccessPeer:1+=1", "copies", "1", "1", false, 1},
};

START_TEST(a_copy_on_a_stream_of_another_device_works_if_it_can_have_access_and_otherwise_changes_nothing)
{
	const char *env[] = {copies[_i].kind, copies[_i].fault, "SIMGPU_DEVICES=2", NULL};
	char expected[128];

	play_run(&(struct play){
		.program = "app_mapped", .words = {copies[_i].scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	snprintf(expected, sizeof(expected), "first copy: %s\nmore: 0\ncopy: %s\nword: %s\nwrong copy: 1\n",
		copies[_i].first, copies[_i].copy, *copies[_i].copy == '0' ? "5" : "0");
	ck_assert_ptr_nonnull(strstr(play_out, expected));
	ck_assert_int_eq(play_fact("more accesses than before") != 0, copies[_i].is_open);
	ck_assert_uint_eq(play_fact("calls for the wrong copy"), copies[_i].n_wrong);
	ck_assert_int_eq(
		strstr(play_err, "copies between them need GPUPOOL_POOL=split") != NULL, *copies[_i].copy == '1');
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, memory_is_of_use_although_another_device_is_refused_access);
	tcase_add_loop_test(tc,
		a_copy_on_a_stream_of_another_device_works_if_it_can_have_access_and_otherwise_changes_nothing, 0,
		(int)LENGTH(copies));
	tcase_add_loop_test(tc, moving_memory_changes_no_contents_and_causes_no_race, 0, (int)LENGTH(modes));
	tcase_add_loop_test(
		tc, a_failed_unmap_or_access_call_changes_no_contents_and_causes_no_race, 0, (int)LENGTH(refusals));
	tcase_add_loop_test(
		tc, memory_is_mapped_in_multiples_of_the_granularity_of_the_driver, 0, (int)LENGTH(granularities));
	tcase_add_test(tc, mapped_memory_is_released_when_its_context_ends);
	tcase_add_loop_test(
		tc, vmm_falls_back_to_split_with_one_message_if_the_driver_cannot_map, 0, (int)LENGTH(lacks));
	tcase_add_test(tc, vmm_is_used_even_if_the_device_is_full_at_the_start);
	tcase_add_test(tc, legacy_ipc_of_mapped_memory_without_a_socket_is_refused_and_the_message_names_the_fix);
	tcase_add_test(tc, auto_is_split_if_the_driver_creates_no_memory_that_can_be_exported);
	tcase_add_loop_test(tc, the_first_allocation_makes_no_driver_call_but_these, 0, (int)LENGTH(firsts));
	tcase_add_loop_test(tc, the_first_allocation_uses_the_chunk_that_was_mapped_ahead_of_it_or_gives_it_back, 0,
		(int)LENGTH(ahead));
	tcase_add_loop_test(tc, threads_that_allocate_first_at_the_same_time_all_get_memory, 0, 12);
	tcase_add_loop_test(tc, auto_is_vmm_where_that_works_and_otherwise_split_with_the_reason_in_the_status, 0,
		(int)LENGTH(choices));
	tcase_add_loop_test(tc, auto_chooses_the_pool_type_of_each_device_by_itself, 0, (int)LENGTH(mixed));
	tcase_add_test(tc, auto_is_split_without_a_socket_and_the_log_says_why);
	tcase_add_loop_test(tc, the_counter_page_of_a_process_that_has_ended_names_the_pool_type_that_was_used, 0,
		(int)(2 * LENGTH(choices)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"mapped", add}, 1);
}
