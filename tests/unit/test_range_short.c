/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* What of vmm is tried, and how often, where memory is short. */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "pool_fixture.h"
#include "tests/suite.h"

/* What attempts give back of their own is no news to them, or one that is as vain would follow in each round. */
START_TEST(a_request_that_does_not_fit_is_tried_twice_and_no_more)
{
	uint64_t addr;

	fixture_alloc(180 * GP_MIB);
	fake_calls(&px.fake, FAKE_RESERVE);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &addr), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 2 * 4); /* three pieces fit, the fourth does not */
	ck_assert_uint_eq(fixture_stats().total_bytes, 180 * GP_MIB);
}
END_TEST

START_TEST(a_driver_that_maps_nothing_is_asked_twice_and_no_more)
{
	uint64_t addr;

	fixture_alloc(20 * GP_MIB);
	fake_plan(&px.fake, (struct fake_plan){FAKE_MAP, 1, 1000, -ENOMEM});
	fake_calls(&px.fake, FAKE_RESERVE);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &addr), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 2);
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
}
END_TEST

/* A piece whose first 2 MiB are used: the rest cannot go back, but serves what has the addresses behind it. */
static uint64_t alloc_rest_of_piece(void)
{
	uint64_t piece = fixture_alloc(20 * GP_MIB), rest;

	fixture_free_as(piece, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(2 * GP_MIB), piece);
	rest = fixture_alloc(18 * GP_MIB);
	ck_assert_uint_eq(rest, piece + 2 * GP_MIB);
	return rest;
}

static void leave_free(uint64_t bytes)
{
	px.fake.outside = px.fake.capacity - fixture_stats().total_bytes - bytes;
}

static uint64_t freed_there;

static void free_there(struct fake *fake, enum fake_call call)
{
	if (call != FAKE_ASK_PROCESSES)
		return;
	fake->hook = NULL;
	fake_note_free(fake, freed_there, 18 * GP_MIB, FAKE_FREED_SYNCED);
	ck_assert_int_eq(gp_pool_free(&px.map, freed_there, GP_FREE_SYNCED), 0);
}

/* 36 MiB, 18 of which are freed by another thread: with what is left for the rest, and a first piece or none. */
static const unsigned left_mib[] = {30, 19};

START_TEST(what_is_freed_while_memory_is_short_is_news)
{
	freed_there = alloc_rest_of_piece();
	leave_free(left_mib[_i] * GP_MIB);
	px.fake.hook = free_there;
	ck_assert_uint_eq(fixture_alloc(36 * GP_MIB), freed_there);
	ck_assert_ptr_null(px.fake.hook);
}
END_TEST

/* The same, of which 18 MiB wait for work that may not be ordered upon any more. */
START_TEST(what_completes_while_memory_is_short_is_news)
{
	uint64_t other = fixture_alloc(40 * GP_MIB), rest = alloc_rest_of_piece();

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free(rest);
	fixture_free(other);
	fixture_alloc(GP_ALIGN); /* orders, since so much is pending */
	ck_assert_uint_eq(fixture_alloc(40 * GP_MIB), other);
	atomic_store(&px.fake.is_capturing, true);
	ck_assert_int_eq(gp_pool_require_completion(px.pool), -EBUSY);
	atomic_store(&px.fake.is_capturing, false);
	px.options.completion_only = true;
	leave_free(left_mib[_i] * GP_MIB);
	px.fake.pause_completes = 1;
	px.fake.pause_ns = 1000000;
	ck_assert_uint_eq(fixture_alloc(36 * GP_MIB), rest);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("range_short");
	TCase *tc = fixture_case(GP_KIND_VMM);

	tcase_add_test(tc, a_request_that_does_not_fit_is_tried_twice_and_no_more);
	tcase_add_test(tc, a_driver_that_maps_nothing_is_asked_twice_and_no_more);
	ADD_ROWS(tc, left_mib, what_is_freed_while_memory_is_short_is_news);
	ADD_ROWS(tc, left_mib, what_completes_while_memory_is_short_is_news);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
