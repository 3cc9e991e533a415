/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool/marks.h"

#include <check.h>

#include "tests/suite.h"

#define SIZE (3 * GP_MIB)
#define USED (100 * GP_MIB)

static struct gp_marks marks;

static void setup(void)
{
	marks = (struct gp_marks){0};
	gp_marks_begin(&marks, USED);
}

START_TEST(what_was_never_noted_is_not_known)
{
	ck_assert(!gp_marks_is_known(&marks, SIZE, USED));
	ck_assert(!gp_marks_is_known(&marks, 0, 0));
}
END_TEST

START_TEST(another_size_or_another_use_is_another_request)
{
	gp_marks_note(&marks, SIZE, USED);
	ck_assert(gp_marks_is_known(&marks, SIZE, USED));
	ck_assert(!gp_marks_is_known(&marks, SIZE + GP_ALIGN, USED));
	ck_assert(!gp_marks_is_known(&marks, SIZE, USED - GP_MIB));
	/* But for a little. */
	ck_assert(gp_marks_is_known(&marks, SIZE, USED - GP_ALIGN));
}
END_TEST

START_TEST(most_of_as_many_notes_as_there_are_places_are_remembered)
{
	enum { N = 1 << GP_MARKS_LOG2 };
	unsigned known = 0;

	for (unsigned i = 0; i < N; i++)
		gp_marks_note(&marks, SIZE, USED - i * GP_MIB / 4);
	for (unsigned i = 0; i < N; i++)
		known += gp_marks_is_known(&marks, SIZE, USED - i * GP_MIB / 4);
	ck_assert_uint_ge(known, N / 2);
}
END_TEST

/* Bytes in use after the notes, and whether those are forgotten then. */
static const struct {
	uint64_t used;
	bool is_forgotten;
} rises[] = {
	{USED / 2, false},
	{USED, false},
	{USED + GP_ALIGN, false},
	{USED + USED / 16, false},
	{USED + USED / 16 + GP_ALIGN, true},
	{USED * 2, true},
};

START_TEST(notes_are_forgotten_once_more_is_used_by_a_share)
{
	gp_marks_note(&marks, SIZE, USED);
	gp_marks_begin(&marks, rises[_i].used);
	ck_assert_int_eq(gp_marks_is_known(&marks, SIZE, USED), !rises[_i].is_forgotten);
	ck_assert_uint_eq(marks.count, rises[_i].is_forgotten ? 0 : 1);
}
END_TEST

START_TEST(a_rise_in_many_small_steps_is_seen_too)
{
	gp_marks_note(&marks, SIZE, USED);
	for (uint64_t used = USED; used < USED + USED / 8; used += GP_MIB)
		gp_marks_begin(&marks, used);
	ck_assert_uint_eq(marks.count, 0);
}
END_TEST

START_TEST(notes_without_end_are_an_excess_whatever_they_are_for)
{
	unsigned n = 0;

	for (; !gp_marks_excess(&marks); n++) {
		ck_assert_uint_lt(n, 1000);
		gp_marks_note(&marks, SIZE + n * GP_ALIGN, USED);
	}
	gp_marks_note(&marks, SIZE, USED);
	ck_assert_uint_eq(gp_marks_excess(&marks), 2);
	ck_assert_uint_gt(n, 50);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("marks");
	TCase *tc = tcase_create("marks");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, what_was_never_noted_is_not_known);
	tcase_add_test(tc, another_size_or_another_use_is_another_request);
	tcase_add_test(tc, most_of_as_many_notes_as_there_are_places_are_remembered);
	tcase_add_loop_test(tc, notes_are_forgotten_once_more_is_used_by_a_share, 0, sizeof(rises) / sizeof(*rises));
	tcase_add_test(tc, a_rise_in_many_small_steps_is_seen_too);
	tcase_add_test(tc, notes_without_end_are_an_excess_whatever_they_are_for);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
