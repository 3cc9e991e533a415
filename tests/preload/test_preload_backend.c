/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* GPUPOOL_BACKEND: the same programs on managed and on stream-ordered memory, and where there is none of it. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "play.h"

#define MANAGED "GPUPOOL_BACKEND=managed"
#define ASYNC	"GPUPOOL_BACKEND=async"

static char backend[64], pool[64], reuse[64];
static uint64_t total_bytes, limit_bytes, device_bytes;

static void read_word(const char *json, const char *name, char word[static 64])
{
	const char *at = strstr(json, name);

	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at + strlen(name), "%63[a-z]", word), 1);
}

static void look(const char *name)
{
	const char *status = play_ask("status");

	read_word(status, "\"pool\":\"", pool);
	read_word(status, "\"reuse\":\"", reuse);
	read_word(strstr(status, "\"devices\""), "\"backend\":\"", backend);
	total_bytes = play_number(status, "peak_total_bytes");
	limit_bytes = play_number(status, "limit_bytes");
	device_bytes = play_number(status, "device_total_bytes");
}

static bool is_said_once(const char *text)
{
	const char *at = strstr(play_err, text);

	return at && !strstr(at + 1, text);
}

static const char *const pools[] = {"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned",
	"GPUPOOL_POOL=split"};
static const struct {
	const char *env, *name, *reuse;
} backends[] = {{MANAGED, "managed", "completed"}, {ASYNC, "async", "ordered"}};

enum { N_PAIRS = LENGTH(pools) * LENGTH(backends) };

START_TEST(every_kind_of_pool_keeps_its_words_on_every_backend)
{
	const char *env[] = {pools[_i % LENGTH(pools)], backends[_i / LENGTH(pools)].env, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"words"}, .env = env, .at_pause = look});
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_str_eq(backend, backends[_i / LENGTH(pools)].name);
	ck_assert_str_eq(reuse, backends[_i / LENGTH(pools)].reuse);
}
END_TEST

/* A kind may wait a little for what was freed, rather than grow. */
START_TEST(who_allocates_and_frees_waits_on_no_backend_where_it_does_not_on_device_memory)
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

/* What the driver is asked for in a loop of 200. */
static const struct {
	const char *env, *asked, *not_asked;
} loops[] = {
	{"GPUPOOL_BACKEND=device", "cuMemAlloc_v2", "cuMemAllocManaged"},
	{MANAGED, "cuMemAllocManaged", "cuMemAllocFromPoolAsync"},
	{ASYNC, "cuMemAllocFromPoolAsync", "cuMemAllocManaged"},
};

START_TEST(a_loop_asks_the_driver_once_for_memory_of_its_backend)
{
	const char *env[] = {loops[_i].env, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"reuse"}, .env = env});
	ck_assert_uint_eq(play_fact(loops[_i].asked), 1);
	ck_assert_uint_eq(play_fact(loops[_i].not_asked), 0);
}
END_TEST

START_TEST(memory_of_every_backend_ends_with_its_context)
{
	const char *env[] = {pools[_i % LENGTH(pools)], backends[_i / LENGTH(pools)].env, NULL};

	play_same(&(struct play){.program = "app_mapped", .words = {"ends"}, .env = env});
	ck_assert_str_eq(play_out, "all is back: 1\n");
}
END_TEST

START_TEST(a_legacy_handle_is_refused_as_the_driver_refuses_it_and_a_line_names_the_backend_to_use)
{
	const char *env[] = {backends[_i].env, NULL};

	play_run(&(struct play){.program = "app_backend", .words = {"export"}, .env = env, .preload = play_library});
	ck_assert_str_eq(play_out, "legacy handle: 1\nagain: 1\nfree: 0\n");
	ck_assert(is_said_once("GPUPOOL_BACKEND=device can share memory"));
}
END_TEST

/* Each is enough. */
static const char *const lacks[][2] = {
	{MANAGED, "SIMGPU_LACKS=89"},
	{MANAGED, "SIMGPU_HIDE=cuMemAllocManaged"},
	{ASYNC, "SIMGPU_LACKS=115"},
	{ASYNC, "SIMGPU_HIDE=cuMemPoolCreate"},
	{ASYNC, "SIMGPU_FAULT=cuMemPoolCreate:1+=801"},
	{ASYNC, "SIMGPU_FAULT=cuMemAllocFromPoolAsync:1+=801"},
	{ASYNC, "SIMGPU_DRIVER_VERSION=11010"},
};

START_TEST(where_a_backend_is_not_to_be_had_the_memory_is_the_devices_and_a_line_says_so)
{
	const char *env[] = {lacks[_i][0], lacks[_i][1], NULL};

	play_run(&(struct play){
		.program = "app_backend", .words = {"words"}, .env = env, .preload = play_library, .at_pause = look});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert(is_said_once("is not to be had on device 0"));
	ck_assert_str_eq(backend, "device");
}
END_TEST

START_TEST(the_kind_vmm_gives_way_to_split_on_other_backends_and_a_line_says_so)
{
	const char *env[] = {"GPUPOOL_POOL=vmm", backends[_i].env, NULL};

	play_run(&(struct play){
		.program = "app_backend", .words = {"words"}, .env = env, .preload = play_library, .at_pause = look});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert(is_said_once("the pool is split"));
	ck_assert_str_eq(pool, "split");
	ck_assert_str_eq(backend, backends[_i].name);
}
END_TEST

START_TEST(managed_memory_goes_beyond_the_device_and_keeps_its_words)
{
	const char *env[] = {MANAGED, pools[_i], "SIMGPU_MEMORY=128M", NULL};

	play_run(&(struct play){
		.program = "app_backend", .words = {"beyond"}, .env = env, .preload = play_library, .at_pause = look});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "something is free: 0\nwrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_uint_ge(total_bytes, 3 * 128 * MIB);
	ck_assert_uint_eq(device_bytes, 128 * MIB);
}
END_TEST

START_TEST(without_managed_memory_the_device_is_the_end)
{
	static const char *const env[] = {"SIMGPU_MEMORY=128M", NULL};

	play_run(&(struct play){.program = "app_backend", .words = {"beyond"}, .env = env, .preload = play_library});
	ck_assert_int_ne(play_status, 0);
}
END_TEST

START_TEST(managed_memory_is_limited_by_the_device_and_half_of_the_machine_unless_told_otherwise)
{
	static const char *const unsaid[] = {MANAGED, "SIMGPU_MEMORY=128M", NULL};
	static const char *const said[] = {
		MANAGED, "SIMGPU_MEMORY=128M", "GPUPOOL_POOL=none", "GPUPOOL_LIMIT=320MiB", NULL};
	struct play play = {.program = "app_backend", .words = {"words"}, .preload = play_library, .at_pause = look};
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	play.env = unsaid;
	play_run(&play);
	ck_assert_uint_eq(limit_bytes, 128 * MIB + machine / 2);
	play.env = said;
	play.words[0] = "until-full";
	play_run(&play);
	ck_assert_str_eq(play_out, "refused with: 2\n");
	ck_assert_uint_eq(limit_bytes, 320 * MIB);
	ck_assert_uint_eq(play_fact("blocks"), 320 / 16);
}
END_TEST

START_TEST(a_limit_that_nobody_set_does_not_hold_for_what_is_not_pooled)
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

START_TEST(managed_memory_counts_for_the_program_as_if_it_were_on_the_device)
{
	static const char *const env[] = {MANAGED, NULL};

	play_same(&(struct play){.program = "app_backend", .words = {"info"}, .env = env});
	ck_assert_str_eq(play_out, "MiB less: 64\nMiB less once it is written: 64\nall is back: 1\n");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, every_kind_of_pool_keeps_its_words_on_every_backend, 0, N_PAIRS);
	tcase_add_loop_test(
		tc, who_allocates_and_frees_waits_on_no_backend_where_it_does_not_on_device_memory, 0, N_PAIRS);
	tcase_add_loop_test(tc, a_loop_asks_the_driver_once_for_memory_of_its_backend, 0, (int)LENGTH(loops));
	tcase_add_loop_test(tc, memory_of_every_backend_ends_with_its_context, 0, N_PAIRS);
	tcase_add_loop_test(tc, a_legacy_handle_is_refused_as_the_driver_refuses_it_and_a_line_names_the_backend_to_use,
		0, (int)LENGTH(backends));
	tcase_add_loop_test(tc, where_a_backend_is_not_to_be_had_the_memory_is_the_devices_and_a_line_says_so, 0,
		(int)LENGTH(lacks));
	tcase_add_loop_test(
		tc, the_kind_vmm_gives_way_to_split_on_other_backends_and_a_line_says_so, 0, (int)LENGTH(backends));
	tcase_add_loop_test(tc, managed_memory_goes_beyond_the_device_and_keeps_its_words, 0, (int)LENGTH(pools));
	tcase_add_test(tc, without_managed_memory_the_device_is_the_end);
	tcase_add_loop_test(tc, a_limit_that_nobody_set_does_not_hold_for_what_is_not_pooled, 0, 3);
	tcase_add_test(tc, managed_memory_is_limited_by_the_device_and_half_of_the_machine_unless_told_otherwise);
	tcase_add_test(tc, managed_memory_counts_for_the_program_as_if_it_were_on_the_device);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"backend", add}, 1);
}
