/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The public header, in programs with the library and without it. */

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

#define QUIET "GPUPOOL_LOG=error"
#define GPU   "SIMGPU_MEMORY=1GiB"

static const char *const kinds[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split", "GPUPOOL_POOL=vmm"};

/* Runs app_api with the library preloaded, and expects success without a message. */
static void play_api(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){
		.program = "app_api", .words = {scenario}, .env = env, .preload = play_library, .at_pause = at_pause});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}

static const char *const functions[] = {"status", "reclaim", "free now", "get limit", "set limit", "set limit percent",
	"defer begin", "defer end", "no cache begin", "no cache end", "hook", "region begin", "region end",
	"region invalidate"};

START_TEST(without_gpupool_every_api_function_returns_ENOSYS)
{
	const char *off[] = {"GPUPOOL=off", NULL};

	play_run(&(struct play){
		.program = "app_api", .words = {"all"}, .env = off, .preload = _i ? play_library : NULL});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("version"), (uint64_t)_i);
	for (size_t i = 0; i < LENGTH(functions); i++)
		ck_assert_uint_eq(play_fact(functions[i]), ENOSYS);
	ck_assert_uint_eq(play_fact("errno"), 77);
}
END_TEST

/*
 * Writes a copy of the simulated driver in which a dispensable header claims that there are notes at an unmapped
 * address.
 */
static void write_misleading_driver(const char *path)
{
	char from[PATH_MAX];
	static unsigned char bytes[8 << 20];
	Elf64_Ehdr *file = (Elf64_Ehdr *)(void *)bytes;
	Elf64_Phdr *headers;
	FILE *f;
	size_t n;
	int i = 0;

	snprintf(from, sizeof(from), "%s/libcuda.so.1", play_sim_dir);
	f = fopen(from, "rb");
	ck_assert_ptr_nonnull(f);
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	ck_assert_uint_lt(n, sizeof(bytes));
	headers = (Elf64_Phdr *)(void *)(bytes + file->e_phoff);
	while (i < file->e_phnum && headers[i].p_type != PT_GNU_RELRO)
		i++;
	ck_assert_int_lt(i, file->e_phnum);
	headers[i] = (Elf64_Phdr){.p_type = PT_NOTE, .p_vaddr = UINT64_C(1) << 40, .p_memsz = 64, .p_align = 4};
	f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_api_header_survives_a_library_with_wrong_program_headers)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/libmisled.so", play_dir);
	write_misleading_driver(path);
	play_run(&(struct play){.program = "app_api", .words = {"all"}, .preload = path});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("version"), 0);
}
END_TEST

START_TEST(every_api_function_succeeds_before_CUDA_is_initialised)
{
	play_run(&(struct play){
		.program = _i ? "app_api_inside" : "app_api", .words = {"all"}, .preload = _i ? NULL : play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("version"), 1);
	for (size_t i = 0; i < LENGTH(functions); i++)
		ck_assert_uint_eq(play_fact(functions[i]), 0);
	ck_assert_uint_eq(play_fact("errno"), 77);
}
END_TEST

static const struct {
	const char *program;
	bool is_static;
} programs[] = {
	{"api_c99"},
	{"api_c11"},
	{"api_fixed"},
	{"api_link_h"},
	{"api_static", true},
#if HAS_CPP
	{"api_cpp"},
#endif
};

START_TEST(the_header_alone_finds_the_library_in_all_but_static_programs)
{
	struct play play = {.program = programs[_i].program};

	play_run(&play);
	ck_assert_str_eq(play_out, "here 0 there 0 refusals 17\n");
	play.preload = play_library;
	play_run(&play);
	ck_assert_str_eq(
		play_out, programs[_i].is_static ? "here 0 there 0 refusals 17\n" : "here 1 there 1 refusals 0\n");
	ck_assert_int_eq(play_status, 0);
}
END_TEST

static const struct {
	const char *name;
	uint64_t error;
} refusals[] = {
	{"status", ENODEV},
	{"status of all", ENODEV},
	{"reclaim", ENODEV},
	{"free now", ENODEV},
	{"get limit", ENODEV},
	{"set limit", ENODEV},
	{"no bytes", EINVAL},
	{"no percent", EINVAL},
	{"too many percent", EINVAL},
	{"defer end", EINVAL},
	{"no cache end", EINVAL},
	{"good", 0},
};

START_TEST(api_calls_with_invalid_arguments_are_refused)
{
	play_api("wrong", NULL, NULL);
	for (size_t i = 0; i < LENGTH(refusals); i++)
		ck_assert_msg(play_fact(refusals[i].name) == refusals[i].error, "%s: got error %u", refusals[i].name,
			(unsigned)play_fact(refusals[i].name));
}
END_TEST

START_TEST(a_program_can_query_its_memory_and_release_its_cache)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_api("memory", env, NULL);
	ck_assert_uint_eq(play_fact("used"), 8192);
	ck_assert_uint_eq(play_fact("requested"), 8192);
	ck_assert_uint_eq(play_fact("blocks"), 1);
	ck_assert_uint_eq(play_fact("limit is none"), 1);
	ck_assert_uint_eq(play_fact("device total"), 1024 * MIB);
	ck_assert_uint_lt(play_fact("device free"), 1024 * MIB);
	ck_assert_uint_eq(play_fact("used after the free"), 0);
	ck_assert_uint_ge(play_fact("cached or pending"), 8192);
	ck_assert_uint_eq(play_fact("total is the sum"), 1);
	ck_assert_uint_ge(play_fact("reclaimed"), 8192);
	ck_assert_uint_eq(play_fact("total after the reclaim"), 0);
	ck_assert_uint_eq(play_fact("pinned used"), MIB);
	ck_assert_uint_eq(play_fact("pinned released"), MIB);
	ck_assert_uint_eq(play_fact("pinned total"), 0);
}
END_TEST

START_TEST(free_now_waits_for_the_GPU_and_reclaim_does_not)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_api("free-now", env, NULL);
	ck_assert_uint_eq(play_fact("pending"), 32 * MIB);
	ck_assert_uint_ge(play_fact("left by the reclaim"), 32 * MIB);
	ck_assert_uint_eq(play_fact("stream query"), 0);
	ck_assert_uint_eq(play_fact("total"), 0);
}
END_TEST

/* The answer to "reclaim" says what stays, in the terms of "status". */
static void check_reclaim(void)
{
	static const char *const keys[] = {"used_bytes", "cached_bytes", "pending_bytes", "returning_bytes"};
	uint64_t left[LENGTH(keys)];
	const char *answer = play_ask("reclaim");

	for (size_t i = 0; i < LENGTH(keys); i++)
		left[i] = play_number(answer, keys[i]);
	ck_assert_uint_ge(left[0], 2 * MIB);
	answer = play_ask("status");
	for (size_t i = 0; i < LENGTH(keys); i++)
		ck_assert_uint_eq(play_number(answer, keys[i]), left[i]);
}

static void raise_limit(const char *name)
{
	const char *answer;

	check_reclaim();
	answer = play_ask("limit");

	ck_assert_uint_eq(play_number(answer, "limit_bytes"), 64 * MIB);
	answer = play_ask("limit set 0=12.5%");
	ck_assert_uint_eq(play_number(answer, "limit_bytes"), 128 * MIB);
	answer = play_ask("limit set pinned 5MiB");
	ck_assert_uint_eq(play_number(strstr(answer, "\"pinned\""), "limit_bytes"), 5 * MIB);
	answer = play_ask("limit set 0=lots");
	ck_assert_ptr_nonnull(strstr(answer, "\"reason\":\"usage\""));
	answer = play_ask("limit set");
	ck_assert_ptr_nonnull(strstr(answer, "\"reason\":\"usage\""));
	answer = play_ask("limit get");
	ck_assert_uint_eq(play_number(answer, "limit_bytes"), 128 * MIB);
}

START_TEST(lowering_a_limit_releases_cached_memory_but_no_blocks_in_use)
{
	const char *env[] = {kinds[_i], GPU, QUIET, NULL};

	play_api("limits", env, raise_limit);
	ck_assert_uint_eq(play_fact("percentage before CUDA"), 0);
	ck_assert_uint_eq(play_fact("query before CUDA"), EAGAIN);
	ck_assert_uint_eq(play_fact("get"), 0);
	ck_assert_uint_eq(play_fact("half of the device"), 512 * MIB);
	ck_assert_uint_eq(play_fact("limit below use"), 0);
	ck_assert_uint_ge(play_fact("limited used"), 100 * MIB);
	ck_assert_uint_eq(play_fact("limited total"), play_fact("limited used"));
	ck_assert_uint_eq(play_fact("alloc over the limit"), 2);
	ck_assert_uint_eq(play_fact("wrong words"), 0);
	ck_assert_uint_eq(play_fact("alloc after the free"), 0);
	ck_assert_uint_le(play_fact("total"), 64 * MIB);
	ck_assert_uint_eq(play_fact("large alloc"), 2);
	ck_assert_uint_eq(play_fact("alloc without a limit"), 0);
	ck_assert_uint_eq(play_fact("pinned limit"), 3 * MIB);
}
END_TEST

static void defer_by_requests(const char *name)
{
	ck_assert_uint_eq(play_number(play_ask("defer on"), "scopes"), 1);
	ck_assert_uint_eq(play_number(play_ask("defer on"), "scopes"), 1);
	ck_assert_uint_eq(play_number(play_ask("status"), "defer_scopes"), 1);
	ck_assert_uint_eq(play_number(play_ask("defer"), "scopes"), 1);
	ck_assert_uint_eq(play_number(play_ask("defer off"), "scopes"), 0);
	ck_assert_uint_eq(play_number(play_ask("defer off"), "scopes"), 0);
	ck_assert_uint_eq(play_number(play_ask("defer"), "scopes"), 0);
	ck_assert_ptr_nonnull(strstr(play_ask("defer maybe"), "\"reason\":\"usage\""));
	ck_assert_uint_eq(play_number(play_ask("defer on"), "scopes"), 1);
}

START_TEST(defer_scopes_nest_and_an_out_of_memory_flushes_despite_them)
{
	const char *env[] = {"GPUPOOL_POOL=none", GPU, NULL};

	play_api("defer", env, defer_by_requests);
	ck_assert_uint_eq(play_fact("queued"), 25);
	ck_assert_uint_eq(play_fact("still queued"), 25);
	ck_assert_uint_eq(play_fact("flushed"), 0);
	ck_assert_uint_eq(play_fact("queued again"), 5);
	ck_assert_uint_eq(play_fact("end of another scope"), EINVAL);
	ck_assert_uint_ge(play_fact("queued by request"), 30);
	ck_assert_uint_eq(play_fact("large alloc"), 0);
	ck_assert_uint_eq(play_fact("queued at the end"), 0);
}
END_TEST

START_TEST(blocks_allocated_or_freed_in_a_no_cache_scope_are_not_cached)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_api("no-cache", env, NULL);
	ck_assert_uint_eq(play_fact("kept by another thread"), 1);
	ck_assert_uint_ge(play_fact("growth"), 7 * MIB);
	ck_assert_uint_le(play_fact("growth"), 8 * MIB);
	ck_assert_uint_eq(play_fact("uncached block is gone"), 1);
	ck_assert_uint_eq(play_fact("bytes left"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(an_oom_hook_may_make_room_before_an_allocation_fails)
{
	const char *env[] = {kinds[_i], GPU, QUIET, "GPUPOOL_RESERVE=0", NULL};

	play_api("hook", env, NULL);
	ck_assert_str_eq(play_out, "in the hook: 2\nin the hook: 2\n");
	ck_assert_uint_eq(play_fact("alloc"), 0);
	ck_assert_uint_eq(play_fact("calls"), 1);
	ck_assert_uint_eq(play_fact("device"), 0);
	ck_assert_uint_eq(play_fact("bytes"), 700 * MIB);
	/* Only the allocation inside the hook has failed. */
	ck_assert_uint_eq(play_fact("ooms"), 1);
	ck_assert_uint_eq(play_fact("second alloc"), 2);
	ck_assert_uint_eq(play_fact("calls after second alloc"), 2);
	ck_assert_uint_eq(play_fact("async alloc"), 0);
	ck_assert_uint_eq(play_fact("calls after async alloc"), 3);
	ck_assert_uint_eq(play_fact("alloc without hook"), 2);
	ck_assert_uint_eq(play_fact("calls after unset"), 3);
}
END_TEST

/* Sends requests while the threads work. */
static void send_requests(const char *name)
{
	for (int i = 0; i < 5; i++) {
		play_ask("yield 73696d756c61746564206770750000 1048576");
		play_ask("defer on");
		play_ask("limit set 50%");
		play_ask("defer off");
	}
	play_ask("limit set none");
}

START_TEST(many_threads_use_scopes_and_change_limits_at_once_without_errors)
{
	const char *env[] = {kinds[_i], GPU, QUIET, NULL};

	play_api("threads", env, send_requests);
	/* 64 MiB are always enough for the blocks of four threads. */
	ck_assert_uint_eq(play_fact("refused"), 0);
	ck_assert_uint_eq(play_fact("used"), 0);
	ck_assert_uint_eq(play_fact("total"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

#ifdef PYTHON
static const char with_python[] = "active True True\n"
				  "empty 0 0 0 0 0\n"
				  "one 0 512 512 0\n"
				  "freed 0 512 512 1\n"
				  "given back 0 0 0\n"
				  "half 536870912\n"
				  "limit 104857600 2\n"
				  "hook 0 [(0, 105906176)] 0\n"
				  "scopes 0 True 0\n"
				  "region True True 2097152\n"
				  "no name: Invalid argument\n"
				  "device 7: No such device\n"
				  "no region: No such file or directory\n"
				  "to: to='disk' is neither 'host' nor 'none'\n"
				  "Effective GPU memory usage: 0.39% (4.000 MiB/1.000 GiB)\n"
				  "CUDA GPU memory usage: 0 bytes\n"
				  "Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)\n";

static const char without_python[] = "active False False\n"
				     "empty 0 0 0 0 0\n"
				     "one 0 0 0 0\n"
				     "freed 0 0 0 0\n"
				     "given back 0 0 0\n"
				     "not active: gpupool does not serve this process; start it with gpupool-run\n"
				     "scopes 0 True 0\n"
				     "region False True 0\n"
				     "no name\n"
				     "device 7\n"
				     "no region 0\n"
				     "to: to='disk' is neither 'host' nor 'none'\n"
				     "Effective GPU memory usage: 0.00% (0 bytes/0 bytes)\n"
				     "CUDA GPU memory usage: 0 bytes\n"
				     "Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)\n";

START_TEST(the_Python_module_offers_the_functions_of_CuPy_and_others)
{
	const char *env[] = {"MODULE=" MODULE, "PYTHONDONTWRITEBYTECODE=1", "GPUPOOL_POOL=simple", GPU, QUIET, NULL};

	play_run(&(struct play){
		.program = PYTHON, .words = {"-S", SCRIPT}, .env = env, .preload = _i ? play_library : NULL});
	ck_assert_str_eq(play_out, _i ? with_python : without_python);
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}
END_TEST
#endif

static void add(TCase *tc)
{
	int n = (int)LENGTH(kinds);

	tcase_add_loop_test(tc, without_gpupool_every_api_function_returns_ENOSYS, 0, 2);
	tcase_add_test(tc, the_api_header_survives_a_library_with_wrong_program_headers);
	tcase_add_loop_test(tc, every_api_function_succeeds_before_CUDA_is_initialised, 0, 2);
	tcase_add_loop_test(
		tc, the_header_alone_finds_the_library_in_all_but_static_programs, 0, (int)LENGTH(programs));
	tcase_add_test(tc, api_calls_with_invalid_arguments_are_refused);
	tcase_add_loop_test(tc, a_program_can_query_its_memory_and_release_its_cache, 0, n);
	tcase_add_loop_test(tc, free_now_waits_for_the_GPU_and_reclaim_does_not, 0, n);
	tcase_add_loop_test(tc, lowering_a_limit_releases_cached_memory_but_no_blocks_in_use, 0, n);
	tcase_add_test(tc, defer_scopes_nest_and_an_out_of_memory_flushes_despite_them);
	tcase_add_loop_test(tc, blocks_allocated_or_freed_in_a_no_cache_scope_are_not_cached, 0, n);
	tcase_add_loop_test(tc, an_oom_hook_may_make_room_before_an_allocation_fails, 0, n);
	tcase_add_loop_test(tc, many_threads_use_scopes_and_change_limits_at_once_without_errors, 0, n);
#ifdef PYTHON
	/* The emulator cannot run the machine's own Python. */
	if (!getenv(EMULATOR))
		tcase_add_loop_test(tc, the_Python_module_offers_the_functions_of_CuPy_and_others, 0, 2);
#endif
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"api", add}, 1);
}
