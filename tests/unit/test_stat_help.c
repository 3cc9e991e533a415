/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The help texts of gpupool-stat. */

#include <stdio.h>
#include <string.h>

#include "stat_peer.h"

START_TEST(every_command_has_help_of_at_most_80_columns)
{
	char names[STAT_COMMANDS_MAX][16], usage[64];
	int n = stat_find_commands(names);

	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(STAT(names[i], "--help"), 0);
		snprintf(usage, sizeof(usage), "usage: gpupool-stat %.15s [options]", names[i]);
		stat_check_in(stat_out, usage);
		ck_assert_str_eq(stat_err, "");
		for (const char *line = stat_out; *line; line += strcspn(line, "\n") + 1)
			ck_assert_msg(strcspn(line, "\n") <= 80, "expected at most 80 columns: %s", line);
	}
}
END_TEST

START_TEST(the_command_help_prints_the_same_as_the_option)
{
	char names[STAT_COMMANDS_MAX][16], help[STAT_CATCH_SIZE];
	int n = stat_find_commands(names);

	ck_assert_int_eq(STAT("--help"), 0);
	strcpy(help, stat_out);
	ck_assert_int_eq(STAT("help"), 0);
	ck_assert_str_eq(stat_out, help);
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(STAT(names[i], "--help"), 0);
		strcpy(help, stat_out);
		ck_assert_int_eq(STAT("help", names[i]), 0);
		ck_assert_str_eq(stat_out, help);
		ck_assert_str_eq(stat_err, "");
	}
}
END_TEST

/* The summary stands beside the usage or, if that is long, below it. */
START_TEST(command_summaries_stand_in_one_column_of_the_help)
{
	enum { COLUMN = 21 };
	const char *line;
	int n = 0;

	ck_assert_int_eq(STAT("--help"), 0);
	for (line = strstr(stat_out, "\n  ") + 1; *line == ' '; line += strcspn(line, "\n") + 1, n++) {
		size_t length = strcspn(line, "\n"), below = length + 1 + strspn(line + length + 1, " ");

		ck_assert_msg(length <= 80, "expected at most 80 columns: %s", line);
		ck_assert_msg(below == length + 1 + COLUMN || (line[COLUMN - 1] == ' ' && line[COLUMN] != ' '),
			"expected the summary in its column: %s", line);
	}
	ck_assert_int_gt(n, 10);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, every_command_has_help_of_at_most_80_columns);
	tcase_add_test(tc, the_command_help_prints_the_same_as_the_option);
	tcase_add_test(tc, command_summaries_stand_in_one_column_of_the_help);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_help", add);
}
