/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Names of functions, shortened to fit on a line. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/suite.h"
#include "tools/text/stat_name.h"

#define TEN(text)   text text text text text text text text text text
#define PAIRS       TEN("std::pair<int, long>, ")
#define LETTERS_100 TEN("abcdefghij")
#define UMLAUTS_20  TEN("\xc3\xa4")
#define UMLAUTS_200 TEN(UMLAUTS_20)

static const struct {
	const char *name, *expected;
} names[] = {
	{"", ""},
	{"main (main.cpp:7)", "main (main.cpp:7)"},
	{"0x10", "0x10"},
	{"solver+0x1000", "solver+0x1000"},
	{"Grid<float>::grow (grid.cpp:212)", "Grid<float>::grow (grid.cpp:212)"},
	{"<module> (net.py:12)", "<module> (net.py:12)"},
	{"std::vector<float, std::allocator<float> >::push_back (a.cpp:3)", "std::vector<...>::push_back (a.cpp:3)"},
	{"A<" PAIRS "int>::B<" PAIRS "int>::run (tmpl.cpp:8)", "A<...>::B<...>::run (tmpl.cpp:8)"},
	{"A<" PAIRS "int>::f (a.h:1) < B<" PAIRS "int>::g (b.h:2) < main (m.cpp:3)",
		"A<...>::f (a.h:1) < B<...>::g (b.h:2) < main (m.cpp:3)"},
	{"bool operator< <" PAIRS "int>(A, A) (a.cpp:1)", "bool operator< <...>(A, A) (a.cpp:1)"},
	{"s& operator<< <" PAIRS "int> (a.cpp:1)", "s& operator<< <...> (a.cpp:1)"},
	{"P::operator-><" PAIRS "int> (a.cpp:1)", "P::operator-><...> (a.cpp:1)"},
	{"P<" PAIRS "int>::operator-> (a.cpp:1)", "P<...>::operator-> (a.cpp:1)"},
	{"A::operator<=> (a.cpp:1)", "A::operator<=> (a.cpp:1)"},
	{"A::operator>>=<" PAIRS "int> (a.cpp:1)", "A::operator>>=<...> (a.cpp:1)"},
	{"std::function<void (std::vector<int>, long, long)>::operator() (f.h:9)",
		"std::function<...>::operator() (f.h:9)"},
	{"A<(bool)((sizeof (long))>(sizeof (int)))>::f (a.cpp:1)", "A<...>::f (a.cpp:1)"},
	{"A<decltype((long_name)->other_name())>::f (a.cpp:1)", "A<...>::f (a.cpp:1)"},
	{"A<" LETTERS_100 "::f (a.cpp:1)", "A<" LETTERS_100 "::f (a.cpp:1)"},
	{"A<" LETTERS_100 ")>::f (a.cpp:1)", "A<" LETTERS_100 ")>::f (a.cpp:1)"},
	{"<<<<<<<<<<<<<<<<<<<<<<<<", "<<<<<<<<<<<<<<<<<<<<<<<<"},
	{"start" LETTERS_100 LETTERS_100 "end (a.cpp:12)",
		"start" LETTERS_100 "abcdefghijabc..."
		"efghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijend (a.cpp:12)"},
};

START_TEST(long_template_lists_and_the_middle_of_long_names_are_left_out)
{
	char text[4096];

	snprintf(text, sizeof(text), "%s", names[_i].name);
	stat_name_shorten(text);
	ck_assert_str_eq(text, names[_i].expected);
	stat_name_shorten(text);
	ck_assert_str_eq(text, names[_i].expected);
}
END_TEST

START_TEST(a_function_name_is_cut_between_characters)
{
	char text[1024] = "x" UMLAUTS_200 " (a.cpp:1)";

	stat_name_shorten(text);
	ck_assert_uint_le(strlen(text), 200 + strlen(" (a.cpp:1)"));
	ck_assert_ptr_nonnull(strstr(text, "\xc3\xa4...\xc3\xa4"));
	ck_assert_ptr_nonnull(strstr(text, "\xc3\xa4 (a.cpp:1)"));
}
END_TEST

static const struct {
	const char *text;
	size_t columns;
	const char *expected;
} fits[] = {
	{"grow_the_grid_by_a_lot (grid.cpp:212) < main (main.cpp:7)", 80,
		"grow_the_grid_by_a_lot (grid.cpp:212) < main (main.cpp:7)"},
	{"grow_the_grid_by_a_lot (grid.cpp:212) < main (main.cpp:7)", 37,
		"grow_the_grid_by_a_lot (grid.cpp:212) < main (main.cpp:7)"},
	{"grow_the_grid_by_a_lot (grid.cpp:212) < main (main.cpp:7)", 30,
		"grow_th...a_lot (grid.cpp:212) < main (main.cpp:7)"},
	{"grow_the_grid_by_a_lot (grid.cpp:212)", 15, "grow_the_grid_by_a_lot (grid.cpp:212)"},
	{"/usr/lib/libfft.so+0x1234", 10, "/usr/lib/libfft.so+0x1234"},
};

START_TEST(the_first_frame_keeps_its_file_and_line_in_a_narrow_column)
{
	char text[256];

	snprintf(text, sizeof(text), "%s", fits[_i].text);
	stat_name_fit(text, fits[_i].columns);
	ck_assert_str_eq(text, fits[_i].expected);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stat_name");
	TCase *tc = tcase_create("stat_name");

	ADD_ROWS(tc, names, long_template_lists_and_the_middle_of_long_names_are_left_out);
	tcase_add_test(tc, a_function_name_is_cut_between_characters);
	ADD_ROWS(tc, fits, the_first_frame_keeps_its_file_and_line_in_a_narrow_column);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
