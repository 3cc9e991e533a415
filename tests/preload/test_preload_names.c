/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Call sites in functions with long names, such as those of templates. */

#include <stdio.h>
#include <string.h>

#include "play.h"

static char text[64 * 1024], json[64 * 1024];

static void check_in(const char *where, const char *part)
{
	ck_assert_msg(strstr(where, part), "expected '%s' in: %s", part, where);
}

static void ask(const char *name)
{
	ck_assert_int_eq(play_run_stat("leaks", text, sizeof(text)), 0);
	ck_assert_int_eq(play_run_stat("leaks --json | tee saved", json, sizeof(json)), 0);
}

static void check_rows(void)
{
	check_in(text, " < hold<...> (app_sites.c:");
	check_in(text, " < hold_here (app_sites.c:");
	check_in(text, " < hold_there (app_sites.c:");
	ck_assert_ptr_null(strstr(text, "std::pair"));
}

START_TEST(long_template_names_lose_their_arguments_and_keep_file_and_line)
{
	const char *full, *end;

	play_run(&(struct play){.program = "app_sites",
		.words = {"templates"},
		.env = (const char *const[]){"GPUPOOL_STACKS=8", NULL},
		.preload = play_library,
		.at_pause = ask});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
	check_rows();
	full = strstr(json, "\"hold<std::pair<int, long>, std::pair<int, long>, ");
	ck_assert_msg(full, "%s", json);
	end = strstr(full, "> (app_sites.c:");
	ck_assert_ptr_nonnull(end);
	ck_assert_ptr_null(memchr(full + 1, '"', (size_t)(end - full - 1)));
	ck_assert_uint_gt((size_t)(end - full), 1500);
	/* A saved answer keeps the names with which it was saved. */
	ck_assert_int_eq(play_run_stat("leaks --from=saved", text, sizeof(text)), 0);
	check_rows();
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, long_template_names_lose_their_arguments_and_keep_file_and_line);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"names", add}, 1);
}
