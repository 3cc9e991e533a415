/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* GPUPOOL_DEBUG: every write to memory of nobody is found and told of, and nobody who makes none is told anything. */

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
	ck_assert_msg(play_status == 0, "ended with %d: %s", play_status, play_err);
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
	ck_assert_msg(strstr(text, part), "no '%s' in: %s", part, text);
}

#define POOLS(...)                                                                                                     \
	{"GPUPOOL_POOL=split", __VA_ARGS__, NULL}, {"GPUPOOL_POOL=binned", __VA_ARGS__, NULL},                         \
		{"GPUPOOL_POOL=simple", __VA_ARGS__, NULL}, {"GPUPOOL_POOL=vmm", __VA_ARGS__, NULL}

/* Without stacks two are never the same, and so both blocks of a scenario are told of. */
static const char *const kinds[][4] = {
	POOLS(MODE, "GPUPOOL_STACKS=off"),
	POOLS("GPUPOOL_DEBUG=poison,guard,full", "GPUPOOL_STACKS=off"),
};

/* The first two kinds of each row: what is before a block is watched where blocks are cut. */
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
	ck_assert_msg(count(play_err, wrong->report) == 2, "%s", play_err);
	ck_assert_uint_eq(count(play_err, "error: write"), 2);
	check_in(play_err, wrong->first[0]);
	check_in(play_err, wrong->first[1]);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 2);
	ck_assert_uint_eq(play_number(play_answers[0], "n_reports"), 2);
	ck_assert_uint_eq(play_number(play_answers[0], "skipped"), 0);
}

START_TEST(a_write_to_memory_of_nobody_is_found_whoever_makes_it)
{
	check_wrong(&wrongs[_i / N_KINDS], kinds[_i % N_KINDS]);
}
END_TEST

START_TEST(a_write_before_a_block_is_found_where_blocks_are_cut)
{
	check_wrong(&wrongs[N_ANYWHERE + _i / 2], cut_kinds[_i % 2]);
}
END_TEST

START_TEST(a_report_says_where_the_block_came_from_and_where_it_went)
{
	static const char *const env[] = {MODE, NULL};

	play("after-free-copy", env, ask);
	/* One place: told once, and counted. */
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

START_TEST(each_half_finds_what_is_its_own)
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

START_TEST(who_asks_for_a_check_gets_what_nobody_has_come_across)
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
	ck_assert_uint_eq(count(play_err, "seen by a check"), 3);
}
END_TEST

static void reclaim_and_ask(const char *name)
{
	if (strcmp(name, "reclaim") == 0)
		(void)play_ask("reclaim");
	else
		ask(name);
}

START_TEST(what_goes_back_to_the_driver_is_looked_at_before)
{
	play("given-back", kinds[_i], reclaim_and_ask);
	check_in(play_err, "seen when it went back to the driver: 4 wrong bytes, the first at +4:");
	ck_assert_uint_eq(play_number(play_answers[0], "poisoned_bytes"), 0);
}
END_TEST

START_TEST(the_same_mistake_is_told_of_once_and_counted)
{
	static const char *const env[] = {MODE, NULL};

	play("often", env, ask);
	ck_assert_uint_eq(count(play_err, "error: write"), 1);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 100);
	ck_assert_uint_eq(play_number(play_answers[0], "times"), 100);
}
END_TEST

START_TEST(many_mistakes_do_not_flood_whoever_reads)
{
	static const char *const env[] = {MODE, "GPUPOOL_STACKS=off", NULL};

	play("often", env, ask);
	ck_assert_uint_eq(count(play_err, "error: write"), 16);
	ck_assert_uint_eq(play_number(play_answers[0], "n_reports"), 100);
	ck_assert_uint_eq(count(play_answers[0], "\"what\":\"past-end\""), 64);
}
END_TEST

START_TEST(nothing_is_looked_at_while_something_captures_and_that_is_counted)
{
	play("capture", kinds[_i], ask_to_check);
	check_in(play_out, "begin: 0\nfree: 0\nalloc: 0\nfree: 0\nend: 0\ngraph: 1\n");
	ck_assert_uint_gt(play_number(play_answers[0], "skipped"), 0);
	/* What was damaged before is found later: when the block is used again, or is asked for. */
	check_in(play_err, "write past the end of");
	check_in(play_err, "4 wrong bytes, the first at +1000:");
}
END_TEST

START_TEST(the_program_is_told_what_it_asked_for)
{
	static const char *const asked[] = {"1", "512", "1000", "1048576", "3145732"};
	char expected[1024] = "";

	play("exact", kinds[_i], NULL);
	for (size_t i = 0; i < LENGTH(asked); i++)
		sprintf(expected + strlen(expected),
			"range: 1 %s\naligned: 1\ninterior: 1\nbefore: 1\nfree: 0\nagain: 1\n", asked[i]);
	ck_assert_str_eq(play_out, expected);
	ck_assert_ptr_null(strstr(play_err, "error: write"));
}
END_TEST

START_TEST(an_innocent_program_is_told_nothing)
{
	play("innocent", kinds[_i], ask_to_check);
	ck_assert_str_eq(play_out, "wrong: 0\n");
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_gt(play_number(play_answers[0], "checks"), 1000);
	ck_assert_uint_eq(play_number(play_answers[0], "skipped"), 0);
	ck_assert_uint_eq(play_number(play_answers[0], "errors"), 0);
}
END_TEST

START_TEST(the_report_at_exit_counts_what_was_found)
{
	static const char *const env[] = {MODE, "GPUPOOL_REPORT=exit", "GPUPOOL_LOG=off", NULL};

	play("past-end-copy", env, NULL);
	check_in(play_err, "writes to memory that was not the program's: 2 found in ");
}
END_TEST

START_TEST(a_process_that_does_not_debug_says_so)
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
		tc, a_write_to_memory_of_nobody_is_found_whoever_makes_it, 0, N_ANYWHERE * N_KINDS);
	tcase_add_loop_test(tc, a_write_before_a_block_is_found_where_blocks_are_cut, 0, 4);
	tcase_add_test(tc, a_report_says_where_the_block_came_from_and_where_it_went);
	tcase_add_loop_test(tc, each_half_finds_what_is_its_own, 0, (int)LENGTH(halves));
	tcase_add_loop_test(tc, who_asks_for_a_check_gets_what_nobody_has_come_across, 0, (int)LENGTH(searches));
	tcase_add_loop_test(tc, what_goes_back_to_the_driver_is_looked_at_before, 0, N_KINDS);
	tcase_add_test(tc, the_same_mistake_is_told_of_once_and_counted);
	tcase_add_test(tc, many_mistakes_do_not_flood_whoever_reads);
	tcase_add_loop_test(tc, nothing_is_looked_at_while_something_captures_and_that_is_counted, 0, N_KINDS);
	tcase_add_loop_test(tc, the_program_is_told_what_it_asked_for, 0, N_KINDS);
	tcase_add_loop_test(tc, an_innocent_program_is_told_nothing, 0, N_KINDS);
	tcase_add_test(tc, the_report_at_exit_counts_what_was_found);
	tcase_add_test(tc, a_process_that_does_not_debug_says_so);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"debug", add}, 1);
}
