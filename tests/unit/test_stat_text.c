/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/suite.h"
#include "tools/text/stat_say.h"
#include "tools/text/stat_text.h"

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const struct {
	uint64_t bytes;
	const char *text, *julia;
} sizes[] = {
	{0, "0 B", "0 bytes"},
	{1, "1 B", "1 byte"},
	{1023, "1023 B", "1023 bytes"},
	{1024, "1.00 KiB", "1.000 KiB"},
	{8192, "8.00 KiB", "8.000 KiB"},
	{10229, "9.99 KiB", "9.989 KiB"},
	{10236, "10.0 KiB", "9.996 KiB"},
	{102348, "99.9 KiB", "99.949 KiB"},
	{102349, "100 KiB", "99.950 KiB"},
	{1048063, "1023 KiB", "1023.499 KiB"},
	{1048064, "1.00 MiB", "1023.500 KiB"},
	{1048576, "1.00 MiB", "1.000 MiB"},
	{16904998912, "15.7 GiB", "15.744 GiB"},
	{UINT64_MAX, "16.0 EiB", "16.000 EiB"},
};

START_TEST(sizes_have_three_digits_and_a_unit)
{
	char text[STAT_TEXT_MAX];

	stat_bytes(text, sizes[_i].bytes);
	ck_assert_str_eq(text, sizes[_i].text);
	stat_bytes_julia(text, sizes[_i].bytes);
	ck_assert_str_eq(text, sizes[_i].julia);
}
END_TEST

static const struct {
	uint64_t ns;
	const char *duration, *age;
} times[] = {
	{0, "0 ns", "0s"},
	{999, "999 ns", "0s"},
	{1000, "1.00 us", "0s"},
	{3210000, "3.21 ms", "0s"},
	{999499999, "999 ms", "0s"},
	{999500000, "1.00 s", "0s"},
	{59999999999, "60.0 s", "59s"},
	{303000000000, "303 s", "5m03s"},
	{11520000000000, "11520 s", "3h12m"},
	{90000000000000, "90000 s", "1d01h"},
	{UINT64_MAX, "18446744074 s", "213503d23h"},
};

START_TEST(durations_and_ages_are_formatted_briefly)
{
	char text[STAT_TEXT_MAX];

	stat_duration(text, times[_i].ns);
	ck_assert_str_eq(text, times[_i].duration);
	stat_age(text, times[_i].ns);
	ck_assert_str_eq(text, times[_i].age);
}
END_TEST

static const struct {
	const char *text, *clean;
	size_t columns;
} texts[] = {
	{"python train.py", "python train.py", 15},
	{"\x1b[31mred\x1b[0m", "?[31mred?[0m", 12},
	{"a\nb\tc\r\x7f", "a?b?c??", 7},
	{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 9},
	{"\xe6\xb1\x89 e\xcc\x81!", "\xe6\xb1\x89 e\xcc\x81!", 5},
	{"py\xe2\x80\x8bt\xe2\x80\x8dh\xe2\x81\xa0on", "py?t?h?on", 9},
	{"a\xf3\xa0\x81\xa2\xc2\xad\xef\xbb\xbf\xef\xb8\x8f", "a????", 5},
	{"\xc2\x9b[2J", "?[2J", 4},
	{"\xe2\x80\xaeterces\xe2\x81\xa6", "?terces?", 8},
	{"\xd8\x9c\xed\xa0\x80", "????", 4},
	{"\xff\xc3:\xc0\x80\xed", "??:???", 6},
	{"0123456789012345678901234567890123456789", "0123456789012345678901234567890", 31},
	{"012345678901234567890123456789\xc3\xbc", "012345678901234567890123456789", 30},
};

START_TEST(texts_are_cleaned_and_cut_between_characters)
{
	char clean[32];

	stat_clean(clean, sizeof(clean), texts[_i].text);
	ck_assert_str_eq(clean, texts[_i].clean);
	ck_assert_uint_eq(stat_columns(clean), texts[_i].columns);
}
END_TEST

START_TEST(a_text_is_cut_between_characters)
{
	static const size_t bytes[] = {0, 1, 3, 6, 7, 7};

	ck_assert_uint_eq(stat_cut("a\xc3\xbc\xe2\x82\xac!", (size_t)_i), bytes[_i]);
	ck_assert_uint_eq(stat_cut("\xe6\xb1\x89\xe6\xb1\x89", (size_t)_i), (size_t)(_i > 4 ? 4 : _i) / 2 * 3);
}
END_TEST

static const struct {
	const char *text;
	size_t width;
	const char *lines;
} lines[] = {
	{"", 40, "\n"},
	{"one line", 40, "one line\n"},
	{"one line", 0, "one line\n"},
	{"as much as fits, no less", 24, "as much as fits, no less\n"},
	{"as much as fits, no less", 23, "as much as fits, no\n  less\n"},
	{"as much as fits, and what follows is a little further in", 20,
		"as much as fits, and\n  what follows is a\n  little further in\n"},
	{"unbreakablewords", 10, "unbreakabl\n  ewords\n"},
	{"columns \xe2\x96\x88\xe2\x96\x88 count", 10, "columns \xe2\x96\x88\xe2\x96\x88\n  count\n"},
	{"too narrow a terminal", 3, "too narrow a terminal\n"},
};

START_TEST(lines_are_broken_between_words)
{
	FILE *own = stdout;
	size_t length;
	char *text;

	stdout = open_memstream(&text, &length);
	ck_assert_ptr_nonnull(stdout);
	stat_print_lines(lines[_i].text, lines[_i].width);
	fclose(stdout);
	stdout = own;
	ck_assert_str_eq(text, lines[_i].lines);
	free(text);
}
END_TEST

enum { IN_TIME = 7 };

static void leave_in_time(void)
{
	_exit(IN_TIME);
}

START_TEST(the_cleanup_function_runs_before_an_exit_for_lack_of_memory)
{
	int one;

	stat_before_end(leave_in_time);
	ck_assert_ptr_eq(stat_alloc(&one), &one);
	stat_alloc(NULL);
}
END_TEST

START_TEST(a_very_wide_table_cell_does_not_widen_every_row)
{
	static const char *const headings[] = {"<A", "<B"};
	char wide[2000], *text;
	const char *cells[] = {wide, "b"};
	FILE *own = stdout;
	size_t length;
	struct stat_table *table = stat_table_new(headings, 2);

	memset(wide, 'x', sizeof(wide) - 1);
	wide[sizeof(wide) - 1] = '\0';
	stat_table_add(table, cells);
	cells[0] = "a";
	stat_table_add(table, cells);
	stdout = open_memstream(&text, &length);
	ck_assert_ptr_nonnull(stdout);
	stat_table_print(table, 0);
	fclose(stdout);
	stdout = own;
	stat_table_free(table);
	ck_assert_uint_eq(length, 3 * (STAT_COLUMN_MAX + 2 + 2));
	free(text);
}
END_TEST

START_TEST(a_stack_in_a_narrow_table_keeps_the_file_and_line_of_its_first_frame)
{
	static const char *const headings[] = {">A", "<B"};
	const char *cells[] = {"1", "Namespace::Class::grow_it_by_a_lot (grid.cpp:212) < main (main.cpp:7)"};
	struct stat_table *table = stat_table_new(headings, 2);
	FILE *own = stdout;
	size_t length;
	char *text;

	stat_table_add(table, cells);
	stdout = open_memstream(&text, &length);
	ck_assert_ptr_nonnull(stdout);
	stat_table_print(table, 40);
	fclose(stdout);
	stdout = own;
	stat_table_free(table);
	ck_assert_str_eq(text, "A  B\n1  Namespace::...by_a_lot (grid.cpp:212)\n");
	free(text);
}
END_TEST

static Suite *text_suite(void)
{
	Suite *suite = suite_create("stat_text");
	TCase *tc = tcase_create("text");

	tcase_add_loop_test(tc, sizes_have_three_digits_and_a_unit, 0, ROWS(sizes));
	tcase_add_loop_test(tc, durations_and_ages_are_formatted_briefly, 0, ROWS(times));
	tcase_add_loop_test(tc, texts_are_cleaned_and_cut_between_characters, 0, ROWS(texts));
	tcase_add_loop_test(tc, a_text_is_cut_between_characters, 0, 6);
	tcase_add_loop_test(tc, lines_are_broken_between_words, 0, ROWS(lines));
	tcase_add_exit_test(tc, the_cleanup_function_runs_before_an_exit_for_lack_of_memory, IN_TIME);
	tcase_add_test(tc, a_very_wide_table_cell_does_not_widen_every_row);
	tcase_add_test(tc, a_stack_in_a_narrow_table_keeps_the_file_and_line_of_its_first_frame);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(text_suite());
}
