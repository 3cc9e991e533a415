/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * GPUPOOL_DEBUG: every write to memory that the program does not own is found and reported, and a
 * correct program gets no report.
 */

#include <stdio.h>
#include <string.h>

#include "play.h"

#define MODE "GPUPOOL_DEBUG=poison,guard"

static void ask(const char *name)
{
	play_keep(play_ask("debug"));
}

static void ask_to_check(const char *name)
{
	play_keep(play_ask("debug check"));
}

static void play(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){.program = "app_debug",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
}

static unsigned count(const char *text, const char *part)
{
	unsigned n = 0;

	while ((text = strstr(text, part))) {
		text += strlen(part);
		n++;
	}
	return n;
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

#define POOLS(...)                                                                             \
	{"GPUPOOL_POOL=split", __VA_ARGS__, NULL}, {"GPUPOOL_POOL=binned", __VA_ARGS__, NULL}, \
		{"GPUPOOL_POOL=simple", __VA_ARGS__, NULL},                                    \
	{                                                                                      \
		"GPUPOOL_POOL=vmm", __VA_ARGS__, NULL                                          \
	}

/* Without stacks no two wrong writes are the same, so both blocks of a scenario are reported. */
static const char *const kinds[][4] = {
	POOLS(MODE, "GPUPOOL_STACKS=off"),
	POOLS("GPUPOOL_DEBUG=poison,guard,full", "GPUPOOL_STACKS=off"),
};

/* Bytes before a block are watched only in pools that cut segments. */
static const char *const cut_kinds[][4] = {
	{"GPUPOOL_POOL=split", MODE, "GPUPOOL_STACKS=off", NULL},
	{"GPUPOOL_POOL=vmm", MODE, "GPUPOOL_STACKS=off", NULL},
};

static const struct wrong {
	const char *scenario;
	const char *report, *first[2];
} wrongs[] = {
	{"after-free-copy", "write after a free of", {"the first at +16: 2a 2a 2a 2a f7", "(3145732 bytes, device 0)"}},
	{"after-free-kernel", "write after a free of", {"the first at +16: 2a 2a 2a 2a", "(1000 bytes, device 0)"}},
	{"after-free-cpu", "write after a free of", {"the first at +16: 2a 2a 2a 2a", "(3145732 bytes, pinned)"}},
	{"past-end-copy", "write past the end of", {"the first at +1000: 2a 2a 2a 2a fb", "the first at +3145732:"}},
	{"past-end-kernel", "write past the end of", {"the first at +1000:", "the first at +3145732: 2a 2a 2a 2a fb"}},
	{"past-end-cpu", "write past the end of", {"the first at +1000: 2a 2a 2a 2a fb", "the first at +3145732:"}},
	{"before-start-copy", "write before the start of", {"4 wrong bytes, the first at -4: 2a 2a 2a 2a", "(1000 b"}},
	{"before-start-kernel", "write before the start of", {"4 wrong bytes, the first at -4: 2a", "(3145732 b"}},
};

enum { N_ANYWHERE = 6, N_KINDS = (int)LENGTH(kinds) };

static void check_wrong(const struct wrong *wrong, const char *const *env)
{
	play(wrong->scenario, env, ask);
	ck_assert_msg(count(play_err, wrong->report) == 2, "expected two reports '%s' in: %s", wrong->report, play_err);
	ck_assert_uint_eq(count(play_err, "error: write"), 2);
	check_in(play_err, wrong->first[0]);
	check_in(play_err, wrong->first[1]);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 2);
	ck_assert_uint_eq(play_number(play_answers[0], "n_reports"), 2);
	ck_assert_uint_eq(play_number(play_answers[0], "skipped"), 0);
}

START_TEST(writes_after_free_or_past_the_end_are_found_from_copies_kernels_and_CPU)
{
	check_wrong(&wrongs[_i / N_KINDS], kinds[_i % N_KINDS]);
}
END_TEST

START_TEST(a_write_before_a_block_is_found_in_pool_types_that_cut_segments)
{
	check_wrong(&wrongs[N_ANYWHERE + _i / 2], cut_kinds[_i % 2]);
}
END_TEST

START_TEST(a_wrong_write_report_says_where_the_block_was_allocated_and_freed)
{
	static const char *const env[] = {MODE, NULL};

	play("after-free-copy", env, ask);
	/* Both writes have the same stacks: they are reported once, and counted. */
	ck_assert_uint_eq(count(play_err, "error: write"), 1);
	ck_assert_uint_eq(count(play_err, "  allocated "), 1);
	ck_assert_uint_eq(count(play_err, "  freed "), 1);
	ck_assert_uint_eq(count(play_err, ": app_debug+0x"), 2);
	check_in(play_answers[0], "\"what\":\"after-free\",\"seen\":\"reuse\",");
	check_in(play_answers[0], "\"times\":2,");
	check_in(play_answers[0], "\"bytes\":\"2a2a2a2af77ff77ff77ff77ff77ff77f\"");
	check_in(play_answers[0], "\"allocated\":[[");
	check_in(play_answers[0], "\"freed\":[[");
	check_in(play_answers[0], "/app_debug\"");
	ck_assert_uint_eq(play_number(play_answers[0], "offset"), 16);
}
END_TEST

static const char *const halves[][2] = {{"GPUPOOL_DEBUG=poison", NULL}, {"GPUPOOL_DEBUG=guard", NULL}};

START_TEST(poison_alone_finds_writes_after_free_and_guard_alone_past_the_end)
{
	play("after-free-copy", halves[_i], NULL);
	ck_assert_uint_eq(count(play_err, "error: write"), _i == 0);
	play("past-end-copy", halves[_i], NULL);
	ck_assert_uint_eq(count(play_err, "error: write"), _i == 1);
}
END_TEST

static const char *const searches[][3] = {
	{"GPUPOOL_POOL=split", MODE, NULL},
	{"GPUPOOL_POOL=vmm", "GPUPOOL_DEBUG=poison,guard,full", NULL},
};

START_TEST(a_requested_check_finds_writes_that_no_call_has_noticed)
{
	play("unseen", searches[_i], ask_to_check);
	ck_assert_uint_eq(play_n_answers, 3);
	ck_assert_uint_eq(play_number(play_answers[0], "n_reports"), 0);
	ck_assert_uint_eq(play_number(strstr(play_answers[0], "\"check\":"), "blocks"), 3);
	ck_assert_uint_eq(play_number(strstr(play_answers[1], "\"check\":"), "errors"), 3);
	ck_assert_uint_eq(play_number(play_answers[1], "n_reports"), 3);
	ck_assert_uint_eq(count(play_answers[1], "\"seen\":\"check\""), 3);
	ck_assert_uint_eq(play_number(strstr(play_answers[2], "\"check\":"), "errors"), 0);
	ck_assert_uint_eq(play_number(play_answers[2], "errors"), 3);
	ck_assert_uint_eq(count(play_err, "found by a check"), 3);
}
END_TEST

static void reclaim_and_ask(const char *name)
{
	if (strcmp(name, "reclaim") == 0)
		(void)play_ask("reclaim");
	else
		ask(name);
}

START_TEST(memory_is_checked_before_it_goes_back_to_the_driver)
{
	play("given-back", kinds[_i], reclaim_and_ask);
	check_in(play_err, "found before it went back to the driver: 4 wrong bytes, the first at +4:");
	ck_assert_uint_eq(play_number(play_answers[0], "poisoned_bytes"), 0);
}
END_TEST

START_TEST(a_repeated_wrong_write_is_reported_once_and_counted)
{
	static const char *const env[] = {MODE, NULL};

	play("often", env, ask);
	ck_assert_uint_eq(count(play_err, "error: write"), 1);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 100);
	ck_assert_uint_eq(play_number(play_answers[0], "times"), 100);
}
END_TEST

START_TEST(the_log_shows_16_wrong_writes_and_the_rest_are_only_counted)
{
	static const char *const env[] = {MODE, "GPUPOOL_STACKS=off", NULL};

	play("often", env, ask);
	ck_assert_uint_eq(count(play_err, "error: write"), 16);
	ck_assert_uint_eq(play_number(play_answers[0], "n_reports"), 100);
	ck_assert_uint_eq(count(play_answers[0], "\"what\":\"past-end\""), 64);
}
END_TEST

START_TEST(checks_are_skipped_during_a_capture_and_the_skips_are_counted)
{
	play("capture", kinds[_i], ask_to_check);
	check_in(play_out, "begin: 0\nfree: 0\nalloc: 0\nfree: 0\nend: 0\ngraph: 1\n");
	ck_assert_uint_gt(play_number(play_answers[0], "skipped"), 0);
	/* Damage from before the capture is found later: when the block is reused, or by a requested check. */
	check_in(play_err, "write past the end of");
	check_in(play_err, "4 wrong bytes, the first at +1000:");
}
END_TEST

START_TEST(queries_of_a_guarded_block_answer_with_its_requested_size)
{
	static const char *const asked[] = {"1", "512", "1000", "1048576", "3145732"};
	char expected[1024] = "";

	play("exact", kinds[_i], NULL);
	for (size_t i = 0; i < LENGTH(asked); i++)
		sprintf(expected + strlen(expected),
			"range: 1 %s\naligned: 1\nfree inside: 1\nfree below: 1\nfree: 0\nfree again: 1\n", asked[i]);
	ck_assert_str_eq(play_out, expected);
	ck_assert_ptr_null(strstr(play_err, "error: write"));
}
END_TEST

START_TEST(a_correct_program_gets_no_report_of_wrong_writes)
{
	play("innocent", kinds[_i], ask_to_check);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_gt(play_number(play_answers[0], "checks"), 1000);
	ck_assert_uint_eq(play_number(play_answers[0], "skipped"), 0);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 0);
}
END_TEST

START_TEST(the_report_at_exit_counts_wrong_writes)
{
	static const char *const env[] = {MODE, "GPUPOOL_REPORT=exit", "GPUPOOL_LOG=off", NULL};

	play("past-end-copy", env, NULL);
	check_in(play_err, "writes to memory that the program did not own: 2 found in ");
}
END_TEST

START_TEST(the_debug_request_says_that_GPUPOOL_DEBUG_is_off)
{
	static const char *const env[] = {"GPUPOOL_STACKS=off", NULL};

	play("innocent", env, ask_to_check);
	check_in(play_answers[0], "\"is_on\":false");
	ck_assert_uint_eq(play_number(play_answers[0], "checks"), 0);
	ck_assert_str_eq(play_err, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, writes_after_free_or_past_the_end_are_found_from_copies_kernels_and_CPU, 0, N_ANYWHERE * N_KINDS);
	tcase_add_loop_test(tc, a_write_before_a_block_is_found_in_pool_types_that_cut_segments, 0, 4);
	tcase_add_test(tc, a_wrong_write_report_says_where_the_block_was_allocated_and_freed);
	tcase_add_loop_test(
		tc, poison_alone_finds_writes_after_free_and_guard_alone_past_the_end, 0, (int)LENGTH(halves));
	tcase_add_loop_test(tc, a_requested_check_finds_writes_that_no_call_has_noticed, 0, (int)LENGTH(searches));
	tcase_add_loop_test(tc, memory_is_checked_before_it_goes_back_to_the_driver, 0, N_KINDS);
	tcase_add_test(tc, a_repeated_wrong_write_is_reported_once_and_counted);
	tcase_add_test(tc, the_log_shows_16_wrong_writes_and_the_rest_are_only_counted);
	tcase_add_loop_test(tc, checks_are_skipped_during_a_capture_and_the_skips_are_counted, 0, N_KINDS);
	tcase_add_loop_test(tc, queries_of_a_guarded_block_answer_with_its_requested_size, 0, N_KINDS);
	tcase_add_loop_test(tc, a_correct_program_gets_no_report_of_wrong_writes, 0, N_KINDS);
	tcase_add_test(tc, the_report_at_exit_counts_wrong_writes);
	tcase_add_test(tc, the_debug_request_says_that_GPUPOOL_DEBUG_is_off);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"debug", add}, 1);
}
