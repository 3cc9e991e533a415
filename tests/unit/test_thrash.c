/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool/thrash.h"

#include <check.h>

#include "tests/suite.h"

#define SIZE (3 * GP_MIB)
#define USED (100 * GP_MIB)

static struct gp_thrash thrash;

static void setup(void)
{
	thrash = (struct gp_thrash){0};
	gp_thrash_begin(&thrash, USED);
}

START_TEST(a_request_that_was_never_noted_is_not_known)
{
	ck_assert(!gp_thrash_is_known(&thrash, SIZE, USED));
	ck_assert(!gp_thrash_is_known(&thrash, 0, 0));
}
END_TEST

START_TEST(a_request_of_another_size_or_at_another_use_is_not_known)
{
	gp_thrash_note(&thrash, SIZE, USED);
	ck_assert(gp_thrash_is_known(&thrash, SIZE, USED));
	ck_assert(!gp_thrash_is_known(&thrash, SIZE + GP_ALIGN, USED));
	ck_assert(!gp_thrash_is_known(&thrash, SIZE, USED - GP_MIB));
	/* A small difference in use does not matter. */
	ck_assert(gp_thrash_is_known(&thrash, SIZE, USED - GP_ALIGN));
}
END_TEST

START_TEST(most_notes_are_remembered_when_they_are_as_many_as_the_table_has_entries)
{
	enum { N = 1 << GP_THRASH_LOG2 };
	unsigned known = 0;

	for (unsigned i = 0; i < N; i++)
		gp_thrash_note(&thrash, SIZE, USED - i * GP_MIB / 4);
	for (unsigned i = 0; i < N; i++)
		known += gp_thrash_is_known(&thrash, SIZE, USED - i * GP_MIB / 4);
	ck_assert_uint_ge(known, N / 2);
}
END_TEST

/* Bytes in use after the note, and whether the note is dropped then. */
static const struct {
	uint64_t used;
	bool is_dropped;
} rises[] = {
	{USED / 2, false},
	{USED, false},
	{USED + GP_ALIGN, false},
	{USED + USED / 16, false},
	{USED + USED / 16 + GP_ALIGN, true},
	{USED * 2, true},
};

START_TEST(notes_are_dropped_once_use_has_risen_by_more_than_a_sixteenth)
{
	gp_thrash_note(&thrash, SIZE, USED);
	gp_thrash_begin(&thrash, rises[_i].used);
	ck_assert_int_eq(gp_thrash_is_known(&thrash, SIZE, USED), !rises[_i].is_dropped);
	ck_assert_uint_eq(thrash.count, rises[_i].is_dropped ? 0 : 1);
}
END_TEST

START_TEST(notes_are_dropped_after_a_rise_in_many_small_steps)
{
	gp_thrash_note(&thrash, SIZE, USED);
	for (uint64_t used = USED; used < USED + USED / 8; used += GP_MIB)
		gp_thrash_begin(&thrash, used);
	ck_assert_uint_eq(thrash.count, 0);
}
END_TEST

START_TEST(many_notes_count_as_an_excess_even_if_all_requests_differ)
{
	unsigned n = 0;

	for (; !gp_thrash_excess(&thrash); n++) {
		ck_assert_uint_lt(n, 1000);
		gp_thrash_note(&thrash, SIZE + n * GP_ALIGN, USED);
	}
	gp_thrash_note(&thrash, SIZE, USED);
	ck_assert_uint_eq(gp_thrash_excess(&thrash), 2);
	ck_assert_uint_gt(n, 50);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("thrash");
	TCase *tc = tcase_create("thrash");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_request_that_was_never_noted_is_not_known);
	tcase_add_test(tc, a_request_of_another_size_or_at_another_use_is_not_known);
	tcase_add_test(tc, most_notes_are_remembered_when_they_are_as_many_as_the_table_has_entries);
	tcase_add_loop_test(
		tc, notes_are_dropped_once_use_has_risen_by_more_than_a_sixteenth, 0, sizeof(rises) / sizeof(*rises));
	tcase_add_test(tc, notes_are_dropped_after_a_rise_in_many_small_steps);
	tcase_add_test(tc, many_notes_count_as_an_excess_even_if_all_requests_differ);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
