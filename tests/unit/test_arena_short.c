/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Attempts of vmm to serve a request while memory is short. */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "pool_fixture.h"
#include "tests/suite.h"

/*
 * Memory that an attempt itself gives back does not count as new supply. Otherwise each round would lead to
 * another futile attempt.
 */
START_TEST(a_vmm_request_that_does_not_fit_is_tried_only_twice)
{
	uint64_t addr;

	fixture_alloc(180 * GP_MIB);
	fake_calls(&px.fake, FAKE_RESERVE);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &addr), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 2 * 4); /* three chunks fit, the fourth does not */
	ck_assert_uint_eq(fixture_stats().total_bytes, 180 * GP_MIB);
}
END_TEST

START_TEST(a_vmm_request_is_tried_only_twice_if_the_driver_maps_nothing)
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

/*
 * Returns the rest of a chunk whose first 2 MiB are used. It cannot be released, but a block can use it
 * together with the addresses after it.
 */
static uint64_t alloc_rest_of_chunk(void)
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

static uint64_t freed_during_rounds;

static void free_during_rounds(struct fake *fake, enum fake_call call)
{
	if (call != FAKE_ASK_PROCESSES)
		return;
	fake->hook = NULL;
	fake_note_free(fake, freed_during_rounds, 18 * GP_MIB, FAKE_FREED_SYNCED);
	ck_assert_int_eq(gp_pool_free(&px.map, freed_during_rounds, GP_FREE_SYNCED), 0);
}

/*
 * The request is for 36 MiB, of which another thread frees 18. The device has enough left for the other 18,
 * and also for the first chunk of the failing attempt (30 MiB), or only for the other 18 (19 MiB).
 */
static const unsigned left_mib[] = {30, 19};

START_TEST(a_block_freed_during_the_rounds_leads_to_a_retry_of_a_vmm_request)
{
	freed_during_rounds = alloc_rest_of_chunk();
	leave_free(left_mib[_i] * GP_MIB);
	px.fake.hook = free_during_rounds;
	ck_assert_uint_eq(fixture_alloc(36 * GP_MIB), freed_during_rounds);
	ck_assert_ptr_null(px.fake.hook);
}
END_TEST

/* Like the test above, but the 18 MiB are pending, and a GPU wait is no longer enough for them. */
START_TEST(a_block_completed_during_the_rounds_leads_to_a_retry_of_a_vmm_request)
{
	uint64_t other = fixture_alloc(40 * GP_MIB), rest = alloc_rest_of_chunk();

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free(rest);
	fixture_free(other);
	fixture_alloc(GP_ALIGN); /* makes a GPU wait, since much is pending */
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
	Suite *suite = suite_create("arena_short");
	TCase *tc = fixture_case(GP_KIND_VMM);

	tcase_add_test(tc, a_vmm_request_that_does_not_fit_is_tried_only_twice);
	tcase_add_test(tc, a_vmm_request_is_tried_only_twice_if_the_driver_maps_nothing);
	ADD_ROWS(tc, left_mib, a_block_freed_during_the_rounds_leads_to_a_retry_of_a_vmm_request);
	ADD_ROWS(tc, left_mib, a_block_completed_during_the_rounds_leads_to_a_retry_of_a_vmm_request);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
