/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* GPUPOOL_BACKEND: the same programs on managed and on stream-ordered memory, and on machines without such memory. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "play.h"

#define MANAGED "GPUPOOL_BACKEND=managed"
#define ASYNC   "GPUPOOL_BACKEND=async"

static char backend[64], pool[64], reuse[64];
static uint64_t total_bytes, limit_bytes, device_bytes;

static void read_word(const char *json, const char *name, char word[static 64])
{
	const char *at = strstr(json, name);

	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at + strlen(name), "%63[a-z]", word), 1);
}

static void read_status(const char *name)
{
	const char *status = play_ask("status");

	read_word(status, "\"pool\":\"", pool);
	read_word(status, "\"reuse\":\"", reuse);
	read_word(strstr(status, "\"devices\""), "\"backend\":\"", backend);
	total_bytes = play_number(status, "peak_total_bytes");
	limit_bytes = play_number(status, "limit_bytes");
	device_bytes = play_number(status, "device_total_bytes");
}

static bool is_logged_once(const char *text)
{
	const char *at = strstr(play_err, text);

	return at && !strstr(at + 1, text);
}

static const char *const pools[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split"};
static const struct {
	const char *env, *name, *reuse;
} backends[] = {{MANAGED, "managed", "completed"}, {ASYNC, "async", "ordered"}};

enum { N_PAIRS = LENGTH(pools) * LENGTH(backends) };

START_TEST(blocks_keep_their_contents_in_every_pool_type_on_every_backend)
{
	const char *env[] = {pools[_i % LENGTH(pools)], backends[_i / LENGTH(pools)].env, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"words"}, .env = env, .at_pause = read_status});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_str_eq(backend, backends[_i / LENGTH(pools)].name);
	ck_assert_str_eq(reuse, backends[_i / LENGTH(pools)].reuse);
}
END_TEST

/* A pool may wait a little for freed memory instead of growing, so device memory sets the expectation. */
START_TEST(calls_wait_for_the_gpu_on_other_backends_only_if_they_do_on_device)
{
	const char *env[] = {pools[_i % LENGTH(pools)], "GPUPOOL_BACKEND=device", NULL};
	struct play play = {.program = "app_backend", .words = {"spinning"}, .env = env, .preload = play_library};
	static char expected[sizeof(play_out)];

	play_run(&play);
	memcpy(expected, play_out, sizeof(expected));
	env[1] = backends[_i / LENGTH(pools)].env;
	play_run(&play);
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, expected);
}
END_TEST

/* Driver functions that a loop of 200 must call once and must not call. */
static const struct {
	const char *env, *asked, *not_asked;
} loops[] = {
	{"GPUPOOL_BACKEND=device", "cuMemAlloc_v2", "cuMemAllocManaged"},
	{MANAGED, "cuMemAllocManaged", "cuMemAllocFromPoolAsync"},
	{ASYNC, "cuMemAllocFromPoolAsync", "cuMemAllocManaged"},
};

START_TEST(a_loop_requests_memory_of_its_backend_from_the_driver_once)
{
	const char *env[] = {loops[_i].env, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"reuse"}, .env = env});
	ck_assert_uint_eq(play_fact(loops[_i].asked), 1);
	ck_assert_uint_eq(play_fact(loops[_i].not_asked), 0);
}
END_TEST

/* The question is how much the driver has left. Managed memory may exceed the device. */
START_TEST(a_miss_changes_the_capture_mode_once_for_its_allocation_and_its_question)
{
	const char *env[] = {loops[_i].env, NULL};

	play_run(&(struct play){.program = "app_backend", .words = {"miss"}, .env = env, .preload = play_library});
	ck_assert_uint_eq(play_fact("modes"), 2);
	ck_assert_uint_eq(play_fact("questions"), strcmp(loops[_i].env, MANAGED) != 0);
}
END_TEST

START_TEST(memory_of_every_backend_is_released_with_its_context)
{
	const char *env[] = {pools[_i % LENGTH(pools)], backends[_i / LENGTH(pools)].env, NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"ends"}, .env = env});
	ck_assert_str_eq(play_out, "all is back: 1\n");
}
END_TEST

START_TEST(legacy_ipc_of_other_backends_is_refused_and_the_message_names_the_fix)
{
	const char *env[] = {backends[_i].env, NULL};

	play_run(&(struct play){.program = "app_backend", .words = {"export"}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_out, "legacy handle: 1\nhandle once more: 1\nfree: 0\n");
	ck_assert(is_logged_once("use GPUPOOL_BACKEND=device to share memory"));
}
END_TEST

/* Each of these makes a backend unavailable. */
static const char *const lacks[][2] = {
	{MANAGED, "SIMGPU_LACKS=89"},
	{MANAGED, "SIMGPU_HIDE=cuMemAllocManaged"},
	{ASYNC, "SIMGPU_LACKS=115"},
	{ASYNC, "SIMGPU_HIDE=cuMemPoolCreate"},
	{ASYNC, "SIMGPU_FAULT=cuMemPoolCreate:1+=801"},
	{ASYNC, "SIMGPU_FAULT=cuMemAllocFromPoolAsync:1+=801"},
	{ASYNC, "SIMGPU_DRIVER_VERSION=11010"},
};

START_TEST(an_unavailable_backend_falls_back_to_device_memory_with_one_message)
{
	const char *env[] = {lacks[_i][0], lacks[_i][1], NULL};

	play_run(&(struct play){.program = "app_backend",
		.words = {"words"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert(is_logged_once("is not available on device 0"));
	ck_assert_str_eq(backend, "device");
}
END_TEST

START_TEST(vmm_falls_back_to_split_on_other_backends_with_one_message)
{
	const char *env[] = {"GPUPOOL_POOL=vmm", backends[_i].env, NULL};

	play_run(&(struct play){.program = "app_backend",
		.words = {"words"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert(is_logged_once("the pool type is split"));
	ck_assert_str_eq(pool, "split");
	ck_assert_str_eq(backend, backends[_i].name);
}
END_TEST

START_TEST(managed_memory_may_exceed_the_device_and_keeps_its_contents)
{
	const char *env[] = {MANAGED, pools[_i], "SIMGPU_MEMORY=128M", NULL};

	play_run(&(struct play){.program = "app_backend",
		.words = {"beyond"},
		.env = env,
		.preload = play_library,
		.at_pause = read_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "something is free: 0\nwrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_ge(total_bytes, 3 * 128 * MIB);
	ck_assert_uint_eq(device_bytes, 128 * MIB);
}
END_TEST

START_TEST(without_the_managed_backend_memory_ends_at_the_size_of_the_device)
{
	static const char *const env[] = {"SIMGPU_MEMORY=128M", NULL};

	play_run(&(struct play){.program = "app_backend", .words = {"beyond"}, .env = env, .preload = play_library});
	ck_assert_int_ne(play_status, 0);
}
END_TEST

START_TEST(managed_memory_is_limited_to_the_device_plus_half_the_host_by_default)
{
	static const char *const by_default[] = {MANAGED, "SIMGPU_MEMORY=128M", NULL};
	static const char *const with_limit[] = {
		MANAGED, "SIMGPU_MEMORY=128M", "GPUPOOL_POOL=none", "GPUPOOL_LIMIT=320MiB", NULL};
	struct play play = {
		.program = "app_backend", .words = {"words"}, .preload = play_library, .at_pause = read_status};
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	play.env = by_default;
	play_run(&play);
	ck_assert_uint_eq(limit_bytes, 128 * MIB + machine / 2);
	play.env = with_limit;
	play.words[0] = "until-full";
	play_run(&play);
	ck_assert_str_eq(play_out, "refused with: 2\n");
	ck_assert_uint_eq(limit_bytes, 320 * MIB);
	ck_assert_uint_eq(play_fact("blocks"), 320 / 16);
}
END_TEST

START_TEST(the_default_limit_does_not_apply_to_unpooled_managed_memory)
{
	static const struct {
		const char *const env[3], *out;
	} rows[] = {
		{{MANAGED}, "managed: 0\nfree: 0\n"},
		{{MANAGED, "GPUPOOL_LIMIT=1GiB"}, "managed: 2\n"},
		{{MANAGED, "GPUPOOL_LIMIT=none"}, "managed: 0\nfree: 0\n"},
	};

	play_run(&(struct play){
		.program = "app_backend", .words = {"own"}, .env = rows[_i].env, .preload = play_library});
	ck_assert_str_eq(play_out, rows[_i].out);
}
END_TEST

START_TEST(cuMemGetInfo_counts_managed_blocks_as_device_memory)
{
	static const char *const env[] = {MANAGED, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"info"}, .env = env});
	ck_assert_str_eq(play_out, "MiB less free: 64\nMiB less free after a write: 64\nall is back: 1\n");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, blocks_keep_their_contents_in_every_pool_type_on_every_backend, 0, N_PAIRS);
	tcase_add_loop_test(tc, calls_wait_for_the_gpu_on_other_backends_only_if_they_do_on_device, 0, N_PAIRS);
	tcase_add_loop_test(tc, a_loop_requests_memory_of_its_backend_from_the_driver_once, 0, (int)LENGTH(loops));
	tcase_add_loop_test(
		tc, a_miss_changes_the_capture_mode_once_for_its_allocation_and_its_question, 0, (int)LENGTH(loops));
	tcase_add_loop_test(tc, memory_of_every_backend_is_released_with_its_context, 0, N_PAIRS);
	tcase_add_loop_test(
		tc, legacy_ipc_of_other_backends_is_refused_and_the_message_names_the_fix, 0, (int)LENGTH(backends));
	tcase_add_loop_test(
		tc, an_unavailable_backend_falls_back_to_device_memory_with_one_message, 0, (int)LENGTH(lacks));
	tcase_add_loop_test(tc, vmm_falls_back_to_split_on_other_backends_with_one_message, 0, (int)LENGTH(backends));
	tcase_add_loop_test(tc, managed_memory_may_exceed_the_device_and_keeps_its_contents, 0, (int)LENGTH(pools));
	tcase_add_test(tc, without_the_managed_backend_memory_ends_at_the_size_of_the_device);
	tcase_add_loop_test(tc, the_default_limit_does_not_apply_to_unpooled_managed_memory, 0, 3);
	tcase_add_test(tc, managed_memory_is_limited_to_the_device_plus_half_the_host_by_default);
	tcase_add_test(tc, cuMemGetInfo_counts_managed_blocks_as_device_memory);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"backend", add}, 1);
}
