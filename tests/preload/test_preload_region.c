/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Regions: named caches that a thread enters for a while. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

#define GPU "SIMGPU_MEMORY=1GiB"

static const char *const kinds[] = {"GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split",
	"GPUPOOL_POOL=vmm", "GPUPOOL_THREAD_CACHE=0", "GPUPOOL_REUSE=completed"};

static void play_region(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){.program = "app_region",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_int_eq(play_status, 0);
}

static void check_quiet(void)
{
	ck_assert_str_eq(play_err, "");
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

static uint64_t sum_up(const char *answer, const char *name)
{
	char key[64];
	uint64_t sum = 0;

	snprintf(key, sizeof(key), "\"%s\":", name);
	while ((answer = strstr(answer, key))) {
		sum += play_number(answer, name);
		answer += strlen(key);
	}
	return sum;
}

static void list_two(const char *name)
{
	const char *answer = play_ask("region list");
	uint64_t cached = sum_up(answer, "cached_bytes");

	ck_assert_uint_eq(count(answer, "\"name\":"), 2);
	ck_assert_ptr_nonnull(strstr(answer, "\"name\":\"a\",\"device\":0,\"used_bytes\":0,"));
	ck_assert_ptr_nonnull(strstr(answer, "\"name\":\"b\","));
	ck_assert_uint_ge(cached + sum_up(answer, "pending_bytes"), 2 * 40 * MIB);
	ck_assert_uint_eq(sum_up(answer, "misses") + sum_up(answer, "hits"), 20);
	answer = play_ask("status");
	ck_assert_uint_eq(play_number(answer, "regions"), 2);
	/* The device's figures include those of all regions. */
	ck_assert_uint_ge(play_number(answer, "cached_bytes") + play_number(answer, "pending_bytes"), 3 * 40 * MIB);
	answer = play_ask("map");
	ck_assert_uint_eq(count(answer, "\"region\":\"a\""), 1);
	ck_assert_uint_eq(count(answer, "\"region\":\"b\""), 1);
	ck_assert_uint_ge(count(answer, "\"region\":null"), 1);
}

START_TEST(a_block_freed_in_a_region_is_reused_only_in_that_region)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_region("apart", env, list_two);
	check_quiet();
	ck_assert_uint_eq(play_fact("shared"), 0);
	ck_assert_uint_eq(play_fact("misses on known sizes"), 0);
	ck_assert_uint_ge(play_fact("cached"), 3 * 40 * MIB);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static const char *const nested[] = {"inner again", "inner differs from outer", "same region again", "outer again",
	"inner at depth 100", "outer after 99 ends", "inner in a recursion", "outer after 99999 ends"};

START_TEST(regions_nest_and_the_innermost_serves_allocations)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_region("nest", env, NULL);
	check_quiet();
	for (size_t i = 0; i < LENGTH(nested); i++)
		ck_assert_msg(play_fact(nested[i]) == 1, "%s: expected the fact to be 1", nested[i]);
	ck_assert_uint_eq(play_fact("one end too many"), EINVAL);
	ck_assert_uint_eq(play_fact("end outside"), EINVAL);
}
END_TEST

START_TEST(entering_a_region_affects_one_thread_and_its_cache_serves_all_threads)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_region("threads", env, NULL);
	check_quiet();
	ck_assert_uint_eq(play_fact("end in another thread"), EINVAL);
	ck_assert_uint_eq(play_fact("end in a new thread"), EINVAL);
	ck_assert_uint_eq(play_fact("b got another block"), 1);
	ck_assert_uint_eq(play_fact("a got its block again"), 1);
	ck_assert_uint_eq(play_fact("b got its block again"), 1);
	ck_assert_uint_eq(play_fact("main thread still in a"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(no_block_of_a_region_is_reused_while_the_gpu_uses_it)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_region("fence", env, NULL);
	check_quiet();
	ck_assert_uint_eq(play_fact("wrong words"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(an_out_of_memory_takes_from_idle_regions_before_a_request_fails)
{
	const char *env[] = {kinds[_i], GPU, "GPUPOOL_LOG=error", "GPUPOOL_RESERVE=0", NULL};

	play_region("full", env, NULL);
	check_quiet();
	ck_assert_str_eq(play_out, "after a: 0\nafter none: 0\nafter b: 0\ntoo much: 2\n");
	ck_assert_uint_eq(play_fact("ooms"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_taken_from_another_region_is_not_used_before_its_work_ends)
{
	const char *env[] = {kinds[_i], GPU, "GPUPOOL_LOG=error", "GPUPOOL_RESERVE=0", NULL};

	play_region("behind", env, NULL);
	check_quiet();
	ck_assert_str_eq(play_out, "in b: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void check_fragmented(const char *name)
{
	const char *answer = play_ask("oom");

	ck_assert_ptr_nonnull(strstr(answer, "\"cause\":\"fragmented\""));
	ck_assert_uint_ge(play_number(answer, "largest_unused_bytes"), 10 * MIB);
	ck_assert_uint_ge(play_number(answer, "n_partly_used_segments"), 2);
}

START_TEST(an_out_of_memory_report_counts_fragmented_free_memory_of_regions)
{
	const char *env[] = {"GPUPOOL_POOL=split", GPU, "GPUPOOL_LOG=error", NULL};

	play_region("parts", env, check_fragmented);
	check_quiet();
	ck_assert_str_eq(play_out, "large: 2\n");
}
END_TEST

/* Checks what other answers report about the region, of which one block is in use. */
static void check_mine(void)
{
	const char *answer = play_ask("blocks"), *region = strstr(answer, "\"region\":\"mine\"");

	ck_assert_msg(region, "expected the region in: %s", answer);
	ck_assert_uint_eq(count(answer, "\"region\":\"mine\""), 1);
	ck_assert_uint_eq(count(answer, "\"region\":"), play_number(answer, "n_blocks"));
	answer = strstr(play_ask("status"), "\"by_region\":[{\"name\":\"mine\",");
	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_ge(play_number(answer, "used_bytes"), 6 * MIB);
	ck_assert_uint_ge(play_number(answer, "cached_bytes") + play_number(answer, "pending_bytes"), 40 * MIB);
}

static void invalidate_by_request(const char *name)
{
	const char *answer;

	check_mine();
	answer = play_ask("region invalidate mine");
	ck_assert_uint_ge(play_number(answer, "released_bytes"), 40 * MIB);
	ck_assert_uint_eq(play_number(answer, "busy_blocks"), 1);
	ck_assert_uint_ge(play_number(answer, "busy_bytes"), 6 * MIB);
	ck_assert_uint_eq(count(answer, "\"name\":\"mine\""), 1);
	answer = play_ask("region invalidate my%20own");
	ck_assert_ptr_nonnull(strstr(answer, "there is no region 'my own'"));
	answer = play_ask("region invalidate");
	ck_assert_ptr_nonnull(strstr(answer, "\"reason\":\"usage\""));
}

START_TEST(an_invalidated_region_releases_its_cache_now_and_busy_blocks_later)
{
	const char *env[] = {kinds[_i], GPU, "GPUPOOL_RESERVE=0", NULL};

	play_region("invalidate", env, invalidate_by_request);
	check_quiet();
	ck_assert_uint_ge(play_fact("released"), 40 * MIB);
	ck_assert_uint_ge(play_fact("total shrank by"), 40 * MIB);
	ck_assert_uint_ge(play_fact("used"), 6 * MIB);
	ck_assert_uint_eq(play_fact("region serves again"), 1);
	/* Only the block that was allocated afterwards is left. */
	ck_assert_uint_lt(play_fact("left by reclaim"), 36 * MIB);
	ck_assert_uint_eq(play_fact("cached again"), 1);
	ck_assert_uint_eq(play_fact("unknown region"), 0);
	ck_assert_uint_lt(play_fact("total"), 36 * MIB);
}
END_TEST

START_TEST(a_region_has_memory_in_stream_order_of_its_own)
{
	const char *env[] = {GPU, kinds[_i], NULL};

	play_region("in-stream-order", env, NULL);
	ck_assert_str_eq(play_out, "inside again: 0\ninside again, inside: 1\n");
	ck_assert_uint_eq(play_fact("by the driver"), 0);
	ck_assert_uint_ge(play_fact("released"), 40 * MIB);
	ck_assert_uint_eq(play_fact("total shrank by"), play_fact("released"));
	ck_assert_uint_le(
		play_fact("chunks of a second region"), 1); /* none to try whether the driver can map memory */
	/* Under split there are two pools in the region. */
	if (strstr(kinds[_i], "split") || strstr(kinds[_i], "REUSE") || strstr(kinds[_i], "THREAD"))
		ck_assert_uint_ge(play_fact("released"), 80 * MIB);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(without_addresses_for_a_further_pool_in_stream_order_regions_share_one)
{
	static const char *const env[] = {GPU, "GPUPOOL_POOL=split", NULL};

	play_region("without-addresses", env, NULL);
	ck_assert_uint_eq(play_fact("faults"), 1);
	ck_assert_uint_eq(play_fact("plain memory in stream order"), 0);
	ck_assert_uint_eq(play_fact("reused outside"), 0);
	ck_assert_uint_eq(count(play_err, "cannot create a further cache in stream order on device 0"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_context_that_ends_releases_the_memory_of_its_regions)
{
	const char *env[] = {kinds[_i], GPU, "GPUPOOL_LOG=error", NULL};

	play_region("reset", env, NULL);
	check_quiet();
	ck_assert_uint_eq(play_fact("free is unchanged"), 1);
	ck_assert_uint_eq(play_fact("total"), 0);
	ck_assert_uint_eq(play_fact("second miss"), 0);
	ck_assert_uint_eq(play_fact("not reused outside"), 1);
}
END_TEST

START_TEST(threads_in_regions_survive_the_end_of_their_context)
{
	const char *env[] = {kinds[_i], GPU, "GPUPOOL_LOG=error", NULL};

	play_region("ends", env, NULL);
	check_quiet();
	ck_assert_uint_eq(play_fact("bad"), 0);
	ck_assert_uint_eq(play_fact("used"), 0);
	ck_assert_uint_eq(play_fact("freed now"), 1);
	ck_assert_uint_eq(play_fact("total"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_free_in_a_region_after_the_driver_has_ended_returns_its_error)
{
	const char *env[] = {kinds[_i], GPU, "SIMGPU_DEINIT_AT_EXIT=1", NULL};

	play_region("ended", env, NULL);
	check_quiet();
	ck_assert_str_eq(play_out, "free at exit: 4\n");
}
END_TEST

START_TEST(regions_beyond_the_64th_use_the_common_cache_with_one_message)
{
	const char *env[] = {"GPUPOOL_POOL=simple", "GPUPOOL_THREAD_CACHE=0", GPU, NULL};

	play_region("many", env, NULL);
	ck_assert_uint_eq(count(play_err, "\n"), 1);
	ck_assert_ptr_nonnull(strstr(play_err, "there are 64 regions already: 'region 64'"));
	ck_assert_uint_eq(play_fact("shared"), 5 + 4 + 3 + 2 + 1);
	ck_assert_uint_eq(play_fact("first again"), 1);
	ck_assert_uint_eq(play_fact("last region is none"), 1);
}
END_TEST

START_TEST(region_names_must_be_printable_and_shorter_than_64_characters)
{
	char name[16];

	play_region("wrong", NULL, NULL);
	check_quiet();
	for (int i = 0; i < 7; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		ck_assert_uint_eq(play_fact(name), i < 6 ? EINVAL : 0);
	}
	ck_assert_uint_eq(play_fact("end"), 0);
	ck_assert_uint_eq(play_fact("end again"), EINVAL);
}
END_TEST

static void send_requests(const char *name)
{
	for (int i = 0; i < 5; i++) {
		play_ask("region list");
		play_ask("region invalidate a");
		play_ask("reclaim");
	}
}

START_TEST(many_threads_enter_and_leave_the_same_regions_without_errors)
{
	const char *env[] = {kinds[_i], GPU, NULL};

	play_region("crowd", env, send_requests);
	check_quiet();
	ck_assert_uint_eq(play_fact("failed"), 0);
	ck_assert_uint_eq(play_fact("used"), 0);
	ck_assert_uint_eq(play_fact("total"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static uint64_t hits_inside, misses_inside;

static void read_loop(const char *name)
{
	const char *answer = play_ask("region list");

	hits_inside = play_number(answer, "hits");
	misses_inside = play_number(answer, "misses");
}

/* 1000 turns with two blocks each, and with a result that stays for a while. */
START_TEST(a_loop_in_a_region_hits_its_cache_despite_allocations_outside)
{
	const char *env[] = {kinds[_i], "SIMGPU_MEMORY=8GiB", NULL};

	play_region("loop-region", env, read_loop);
	check_quiet();
	ck_assert_uint_eq(hits_inside, 1998);
	ck_assert_uint_eq(misses_inside, 2);
	ck_assert_uint_eq(play_fact("hits") + play_fact("misses"), 3000);
	ck_assert_uint_eq(play_fact("races"), 0);
	play_region("loop", env, NULL);
	ck_assert_uint_eq(play_fact("hits") + play_fact("misses"), 3000);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void check_regions(const char *const *names, size_t n)
{
	const char *answer = play_ask("region list");
	char text[96];

	ck_assert_msg(count(answer, "\"name\":") == n, "expected %u regions in: %s", (unsigned)n, answer);
	for (size_t i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "\"name\":\"%s\"", names[i]);
		ck_assert_msg(strstr(answer, text), "expected '%s' in: %s", text, answer);
	}
}

static void check_threads(const char *name)
{
	static const char *const names[] = {"loader-1", "loader-2", "by hand"};

	check_regions(names, LENGTH(names));
}

static void check_loaders(const char *name)
{
	static const char *const names[] = {"loaders", "by hand"};

	check_regions(names, LENGTH(names));
}

START_TEST(a_rule_puts_threads_into_regions_by_name)
{
	const char *rules[] = {"GPUPOOL_REGIONS=thread=loader-?", "GPUPOOL_REGIONS=nvtx,thread=load*:loaders"};
	const char *env[] = {rules[_i], "GPUPOOL_POOL=simple", GPU, NULL};

	play_run(&(struct play){.program = "app_rules",
		.words = {"threads"},
		.env = env,
		.preload = play_library,
		.at_pause = _i ? check_loaders : check_threads});
	ck_assert_int_eq(play_status, 0);
	check_quiet();
	ck_assert_uint_eq(play_fact("by hand"), 1);
	ck_assert_uint_eq(play_fact("own block again"), 1);
}
END_TEST

static void check_library(const char *name)
{
	static const char *const names[] = {"libcaller.so", "by hand"};

	check_regions(names, LENGTH(names));
}

static void check_fft(const char *name)
{
	static const char *const names[] = {"fft", "by hand"};

	check_regions(names, LENGTH(names));
}

START_TEST(a_rule_puts_allocations_of_a_library_into_a_region)
{
	const char *rules[] = {"GPUPOOL_REGIONS=lib=libc?ller.so*", "GPUPOOL_REGIONS=thread=x,lib=*caller*:fft"};
	const char *env[] = {rules[_i], "GPUPOOL_POOL=simple", GPU, NULL};

	play_run(&(struct play){.program = "app_rules",
		.words = {"library"},
		.env = env,
		.preload = play_library,
		.at_pause = _i ? check_fft : check_library});
	ck_assert_int_eq(play_status, 0);
	check_quiet();
	ck_assert_uint_eq(play_fact("separate blocks"), 1);
	ck_assert_uint_eq(play_fact("program's block again"), 1);
	ck_assert_uint_eq(play_fact("library's block again"), 1);
	ck_assert_uint_eq(play_fact("entered region wins"), 1);
}
END_TEST

START_TEST(the_message_lists_the_rounds_of_the_region_even_if_the_oom_hook_allocates)
{
	static const char *const env[] = {"GPUPOOL_REGIONS=lib=libcaller*:its", GPU, NULL};

	play_run(&(struct play){.program = "app_rules", .words = {"full"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_msg(strstr(play_err, "tried: "), "expected a line with the retry rounds in: %s", play_err);
}
END_TEST

#ifdef HAS_NVTX
static void check_ranges(const char *name)
{
	static const char *const names[] = {"forward pass", "plain ex", "wide ?", "registered"};

	check_regions(names, LENGTH(names));
}

static void check_some(const char *name)
{
	static const char *const names[] = {"forward pass", "wide ?", "wide ex"};

	check_regions(names, LENGTH(names));
}

static void check_none(const char *name)
{
	check_regions(NULL, 0);
}

static const struct {
	const char *rules;
	void (*look)(const char *name);
	bool is_injected;
	uint64_t n_shared;
} injections[] = {
	{"GPUPOOL_REGIONS=nvtx", check_ranges, true, 0},
	{"GPUPOOL_REGIONS=nvtx=for*,nvtx=wide*", check_some, true, 1},
	{"GPUPOOL_REGIONS=nvtx", check_none, false, 10},
	{"GPUPOOL_REGIONS=off", check_none, true, 10},
};

START_TEST(nvtx_ranges_of_an_unmodified_program_are_regions)
{
	char injection[512];
	const char *env[] = {injections[_i].rules, "GPUPOOL_POOL=simple", GPU, injection, NULL};

	snprintf(injection, sizeof(injection), "NVTX_INJECTION64_PATH=%s", play_library);
	if (!injections[_i].is_injected)
		env[3] = NULL;
	play_run(&(struct play){.program = "app_nvtx",
		.words = {"ranges"},
		.env = env,
		.preload = play_library,
		.at_pause = injections[_i].look});
	ck_assert_int_eq(play_status, 0);
	check_quiet();
	/* These are the results without an NVTX tool. */
	ck_assert_str_eq(play_out, "push: -2\npop: -2\npop without a range: -2\n");
	ck_assert_uint_eq(play_fact("shared"), injections[_i].n_shared);
}
END_TEST

START_TEST(nvtx_domains_stay_distinct_beyond_the_limit_of_registered_texts)
{
	char injection[512];
	const char *env[] = {"GPUPOOL_REGIONS=nvtx", "GPUPOOL_POOL=simple", GPU, injection, NULL};

	snprintf(injection, sizeof(injection), "NVTX_INJECTION64_PATH=%s", play_library);
	play_run(&(struct play){.program = "app_nvtx", .words = {"texts"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	check_quiet();
	ck_assert_uint_eq(play_fact("shared"), 1);
}
END_TEST
#endif

static void add(TCase *tc)
{
	int n = (int)LENGTH(kinds);

	tcase_add_loop_test(tc, a_block_freed_in_a_region_is_reused_only_in_that_region, 0, n);
	tcase_add_loop_test(tc, regions_nest_and_the_innermost_serves_allocations, 0, n);
	tcase_add_loop_test(tc, entering_a_region_affects_one_thread_and_its_cache_serves_all_threads, 0, n);
	tcase_add_loop_test(tc, no_block_of_a_region_is_reused_while_the_gpu_uses_it, 0, n);
	tcase_add_loop_test(tc, an_out_of_memory_takes_from_idle_regions_before_a_request_fails, 0, n);
	tcase_add_loop_test(tc, memory_taken_from_another_region_is_not_used_before_its_work_ends, 0, n);
	tcase_add_test(tc, an_out_of_memory_report_counts_fragmented_free_memory_of_regions);
	tcase_add_loop_test(tc, an_invalidated_region_releases_its_cache_now_and_busy_blocks_later, 0, n);
	tcase_add_loop_test(tc, a_region_has_memory_in_stream_order_of_its_own, 0, n);
	tcase_add_test(tc, without_addresses_for_a_further_pool_in_stream_order_regions_share_one);
	tcase_add_loop_test(tc, a_context_that_ends_releases_the_memory_of_its_regions, 0, n);
	tcase_add_loop_test(tc, threads_in_regions_survive_the_end_of_their_context, 0, n);
	tcase_add_loop_test(tc, a_free_in_a_region_after_the_driver_has_ended_returns_its_error, 0, n);
	tcase_add_test(tc, regions_beyond_the_64th_use_the_common_cache_with_one_message);
	tcase_add_test(tc, region_names_must_be_printable_and_shorter_than_64_characters);
	tcase_add_loop_test(tc, many_threads_enter_and_leave_the_same_regions_without_errors, 0, n);
	tcase_add_loop_test(tc, a_loop_in_a_region_hits_its_cache_despite_allocations_outside, 0, n);
	tcase_add_loop_test(tc, a_rule_puts_threads_into_regions_by_name, 0, 2);
	tcase_add_loop_test(tc, a_rule_puts_allocations_of_a_library_into_a_region, 0, 2);
	tcase_add_test(tc, the_message_lists_the_rounds_of_the_region_even_if_the_oom_hook_allocates);
#ifdef HAS_NVTX
	tcase_add_loop_test(tc, nvtx_ranges_of_an_unmodified_program_are_regions, 0, (int)LENGTH(injections));
	tcase_add_test(tc, nvtx_domains_stay_distinct_beyond_the_limit_of_registered_texts);
#endif
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"region", add}, 1);
}
