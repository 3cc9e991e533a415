/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A pool that cuts segments is switched to make each new block a segment (a driver allocation). */

#include <errno.h>

#include "pool_fixture.h"
#include "tests/suite.h"

enum { N = 6 };

static const uint64_t sizes[N] = {512, 5000, 700000, 3 * GP_MIB, 5 * GP_MIB, 40 * GP_MIB};

START_TEST(after_the_switch_to_whole_segments_each_new_block_is_a_segment)
{
	uint64_t old = fixture_alloc(3 * GP_MIB);

	ck_assert(!fixture_info(old).is_whole);
	gp_pool_set_whole(fixture_pool());
	for (int i = 0; i < N; i++) {
		struct gp_block_info info = fixture_info(fixture_alloc(sizes[i]));

		ck_assert(info.is_whole);
		ck_assert_uint_eq(info.addr, info.segment_base);
		ck_assert_uint_eq(info.size, sizes[i]);
	}
	ck_assert(!fixture_info(old).is_whole);
}
END_TEST

START_TEST(the_switch_to_whole_segments_releases_shared_segments_once_they_are_free)
{
	uint64_t kept = fixture_alloc(3 * GP_MIB), freed = fixture_alloc(40 * GP_MIB);

	fixture_free_as(freed, GP_FREE_SYNCED);
	fixture_free_as(fixture_alloc(4096), GP_FREE_SYNCED);
	gp_pool_set_whole(fixture_pool());
	ck_assert_uint_eq(
		fixture_stats().total_bytes - fixture_stats().returning_bytes, fixture_info(kept).segment_size);
	fixture_free_as(kept, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(after_the_switch_to_whole_segments_free_parts_are_not_used)
{
	uint64_t kept = fixture_alloc(3 * GP_MIB), segment = fixture_info(kept).segment_base;
	uint64_t size = fixture_info(kept).segment_size, addr;

	gp_pool_set_whole(fixture_pool());
	for (int i = 0; i < 8; i++) {
		addr = fixture_alloc(2 * GP_MIB);
		ck_assert(addr < segment || addr >= segment + size);
	}
}
END_TEST

START_TEST(blocks_that_are_whole_segments_are_cached_and_reused)
{
	uint64_t addr, allocs;

	gp_pool_set_whole(fixture_pool());
	addr = fixture_alloc(5 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	allocs = fixture_stats().driver_allocs;
	ck_assert_uint_eq(fixture_alloc(5 * GP_MIB), addr);
	ck_assert_uint_eq(fixture_stats().driver_allocs, allocs);
}
END_TEST

START_TEST(after_the_switch_to_whole_segments_pending_parts_are_not_waited_for)
{
	uint64_t part;

	px.options.completion_only = true;
	part = fixture_alloc(3 * GP_MIB);
	fixture_work();
	fixture_free(part);
	gp_pool_set_whole(fixture_pool());
	ck_assert(fixture_info(fixture_alloc(3 * GP_MIB)).is_whole);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
}
END_TEST

START_TEST(a_second_switch_to_whole_segments_changes_nothing)
{
	uint64_t addr;

	gp_pool_set_whole(fixture_pool());
	addr = fixture_alloc(5 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	gp_pool_set_whole(fixture_pool());
	ck_assert_uint_eq(fixture_alloc(5 * GP_MIB), addr);
}
END_TEST

START_TEST(a_dropped_pool_accepts_the_switch_to_whole_segments)
{
	gp_pool_drop(fixture_pool());
	gp_pool_set_whole(fixture_pool());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("whole");
	TCase *tc = fixture_case(GP_KIND_SPLIT);

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, after_the_switch_to_whole_segments_each_new_block_is_a_segment);
	tcase_add_test(tc, the_switch_to_whole_segments_releases_shared_segments_once_they_are_free);
	tcase_add_test(tc, after_the_switch_to_whole_segments_free_parts_are_not_used);
	tcase_add_test(tc, blocks_that_are_whole_segments_are_cached_and_reused);
	tcase_add_test(tc, after_the_switch_to_whole_segments_pending_parts_are_not_waited_for);
	tcase_add_test(tc, a_second_switch_to_whole_segments_changes_nothing);
	tcase_add_test(tc, a_dropped_pool_accepts_the_switch_to_whole_segments);
	return suite_run(suite);
}
