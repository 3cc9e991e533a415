/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>

#include "common/nearest.h"
#include "tests/suite.h"

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static const char *const names[] = {"status", "list", "limit", "leaks", "reclaim", "top", "oom"};

static const struct {
	const char *word, *name; /* NULL: none is near */
} rows[] = {
	{"lsit", "list"},
	{"tpo", "top"},
	{"omo", "oom"},
	{"stauts", "status"},
	{"leak", "leaks"},
	{"limt", "limit"},
	{"lixt", "list"},
	{"limt=8GiB", "limit"},
	{"rec", "reclaim"},
	{"recl", "reclaim"},
	{"re", NULL},
	{"xyz", NULL},
	{"", NULL},
	{"=list", NULL},
	{"listlistlist", NULL},
	{"0123456789012345678901234567890123456789012345678901234567890123456789", NULL},
};

START_TEST(a_mistyped_word_finds_the_name_that_was_probably_meant)
{
	struct gp_nearest nearest;

	gp_nearest_init_word(&nearest, rows[_i].word);
	for (size_t i = 0; i < LENGTH(names); i++)
		gp_nearest_try(&nearest, names[i]);
	if (rows[_i].name)
		ck_assert_pstr_eq(nearest.name, rows[_i].name);
	else
		ck_assert_ptr_null(nearest.name);
}
END_TEST

START_TEST(the_distance_counts_inserted_removed_replaced_and_exchanged_letters)
{
	ck_assert_uint_eq(gp_nearest_distance("", 0, "abc", 3), 3);
	ck_assert_uint_eq(gp_nearest_distance("abc", 3, "", 0), 3);
	ck_assert_uint_eq(gp_nearest_distance("abc", 3, "abc", 3), 0);
	ck_assert_uint_eq(gp_nearest_distance("abc", 3, "axc", 3), 1);
	ck_assert_uint_eq(gp_nearest_distance("abc", 3, "acb", 3), 1);
	ck_assert_uint_eq(gp_nearest_distance("kitten", 6, "sitting", 7), 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nearest");
	TCase *tc = tcase_create("nearest");

	ADD_ROWS(tc, rows, a_mistyped_word_finds_the_name_that_was_probably_meant);
	tcase_add_test(tc, the_distance_counts_inserted_removed_replaced_and_exchanged_letters);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
