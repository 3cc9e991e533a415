/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Behaviour that differs between the kinds of pools. */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "pool/sizeclass.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define UNIT GP_ALIGN

/* none */

static uint64_t released(void)
{
	return fake_calls(&px.fake, FAKE_RELEASE_BEGIN) + fake_calls(&px.fake, FAKE_RELEASE);
}

START_TEST(none_flushes_the_whole_queue_with_the_free_that_exceeds_its_length)
{
	px.options.pending_count_max = 10;
	for (int i = 0; i < 10; i++) {
		uint64_t addr = fixture_alloc(1000);

		fixture_free(addr);
		ck_assert_uint_eq(fixture_stats().n_pending_blocks, i + 1);
	}
	ck_assert_uint_eq(released(), 0);
	fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(released(), 11);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
}
END_TEST

START_TEST(none_flushes_the_queue_when_it_exceeds_its_byte_limit)
{
	uint64_t one, rest;

	px.options.pending_bytes_max = 200 * UNIT;
	rest = fixture_alloc(200 * UNIT);
	one = fixture_alloc(1);
	fixture_free(rest);
	ck_assert_uint_eq(released(), 0);
	fixture_free(one);
	ck_assert_uint_eq(released(), 2);
}
END_TEST

START_TEST(none_with_queue_length_zero_uses_the_drivers_own_free)
{
	uint64_t addr;

	px.options.pending_count_max = 0;
	addr = fixture_alloc(1000);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

START_TEST(none_never_waits_if_it_can_release_behind_a_fence)
{
	px.options.pending_count_max = 3;
	for (int i = 0; i < 4; i++) {
		uint64_t addr = fixture_alloc(1000);

		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
	ck_assert_uint_eq(fixture_stats().returning_bytes, 4 * 1024);
	fake_complete_all(&px.fake);
	fixture_alloc(1000);
	ck_assert_uint_eq(fixture_stats().returning_bytes, 0);
}
END_TEST

START_TEST(none_waits_like_the_drivers_free_if_more_is_returning_than_may_be_queued)
{
	px.options.pending_count_max = 3;
	px.options.pending_bytes_max = 100 * UNIT;
	for (int i = 0; i < 100; i++) {
		uint64_t addr = fixture_alloc(10 * UNIT);

		fixture_work();
		fixture_free(addr);
		ck_assert_uint_le(fixture_stats().total_bytes, (100 + 2 * 40) * UNIT);
	}
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_RELEASE_DRAIN), 1);
}
END_TEST

START_TEST(none_releases_an_unfenced_block_only_once_it_is_completed)
{
	uint64_t addr;

	px.options.pending_count_max = 0;
	addr = fixture_alloc(1000);
	fixture_work();
	fixture_free_as(addr, GP_FREE_UNFENCED);
	ck_assert_uint_eq(released(), 0);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(released(), 0);
	fake_complete_all(&px.fake);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(released(), 1);
}
END_TEST

START_TEST(an_error_in_the_release_of_one_queued_block_loses_no_other)
{
	px.options.pending_count_max = 10;
	fake_plan(&px.fake, (struct fake_plan){FAKE_RELEASE_BEGIN, 3, 1, 719});
	for (int i = 0; i < 11; i++)
		fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(released(), 11);
	ck_assert_uint_eq(fixture_stats().release_errors, 1);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(fixture_stats().driver_frees, 11);
}
END_TEST

START_TEST(none_polls_no_fence_at_an_allocation)
{
	uint64_t addr = fixture_alloc(1000);

	fixture_work();
	fixture_free(addr);
	fake_calls(&px.fake, FAKE_QUERY);
	fixture_alloc(1000);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_QUERY), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
}
END_TEST

/*
 * A backend whose first release_begin takes long. The fake reports a wait for work for which no free of the program
 * would have waited.
 */

static void set_up_slow_release(uint64_t pending_count_max)
{
	px.options.pending_count_max = pending_count_max;
	px.fake.pause_ns = 1000;
	px.fake.is_first_release_slow = true;
}

START_TEST(none_releases_by_the_drivers_own_free_while_the_gpu_is_idle_and_release_begin_slow)
{
	px.fake.reports_submissions = _i;
	set_up_slow_release(3);
	for (int i = 0; i < 4; i++) {
		uint64_t addr = fixture_alloc(1000);

		fixture_work();
		fake_complete_all(&px.fake);
		fixture_free(addr);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 4);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 4);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

START_TEST(none_awaits_the_fence_of_an_idle_gpu_before_a_slow_release_begin)
{
	set_up_slow_release(1);
	for (int i = 0; i < 2; i++) {
		uint64_t addr = fixture_alloc(1000);

		fixture_work();
		fixture_free(addr);
	}
	/* Each pause completes one piece of work. */
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_PAUSE), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 2);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
}
END_TEST

START_TEST(none_uses_a_slow_release_begin_while_the_gpu_is_busy_and_does_not_wait_for_it)
{
	uint64_t start_ns;

	px.fake.reports_submissions = _i;
	set_up_slow_release(3);
	px.fake.pause_completes = 0;
	start_ns = atomic_load(&px.fake.now_ns);
	for (int i = 0; i < 4; i++) {
		uint64_t addr = fixture_alloc(1000);

		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 4);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
	ck_assert_uint_le(atomic_load(&px.fake.now_ns) - start_ns, 100000);
}
END_TEST

START_TEST(release_begin_is_used_after_256_releases_by_the_drivers_own_free)
{
	set_up_slow_release(1);
	for (int i = 0; i < 300; i++)
		fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 256);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 44);
}
END_TEST

START_TEST(release_begin_is_used_once_it_has_been_used)
{
	set_up_slow_release(1);
	px.fake.pause_completes = 0;
	fixture_free(fixture_alloc(1000));
	fixture_work();
	fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 2);
	fake_complete_all(&px.fake);
	fixture_free(fixture_alloc(1000));
	fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 2);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
}
END_TEST

START_TEST(a_record_that_waits_is_made_once_for_a_free_where_release_begin_is_slow)
{
	set_up_slow_release(1);
	atomic_store(&px.fake.record_waits, true);
	fixture_free(fixture_alloc(1000));
	fixture_work();
	fixture_free(fixture_alloc(1000));
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 2);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 2);
}
END_TEST

START_TEST(a_free_that_must_not_wait_uses_a_slow_release_begin)
{
	set_up_slow_release(0);
	fixture_free_as(fixture_alloc(1000), GP_FREE_UNFENCED);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 1);
}
END_TEST

/* simple */

static const struct {
	uint64_t cached, asked;
	bool is_served;
} fits[] = {
	{40 * GP_MIB, 40 * GP_MIB, true},
	{40 * GP_MIB, 39 * GP_MIB, true},
	{40 * GP_MIB, 36 * GP_MIB, true},
	{40 * GP_MIB, 30 * GP_MIB, false},
	{40 * GP_MIB, 42 * GP_MIB, false},
	{200 * GP_MIB, 4 * GP_KIB, false},
	{GP_KIB, 512, true},
	{2 * GP_KIB, 512, false},
};

START_TEST(simple_reuses_a_block_only_if_it_is_not_much_too_large)
{
	uint64_t addr = fixture_alloc(fits[_i].cached);

	fixture_free(addr);
	ck_assert_int_eq(fixture_alloc(fits[_i].asked) == addr, fits[_i].is_served);
}
END_TEST

START_TEST(simple_takes_the_block_nearest_in_size)
{
	uint64_t large = fixture_alloc(44 * GP_MIB), near = fixture_alloc(42 * GP_MIB);

	fixture_free(near);
	fixture_free(large);
	ck_assert_uint_eq(fixture_alloc(40 * GP_MIB), near);
}
END_TEST

/* binned */

START_TEST(binned_hands_out_the_block_that_was_freed_last)
{
	uint64_t first = fixture_alloc(5 * GP_MIB), last = fixture_alloc(5 * GP_MIB);

	fixture_free_as(first, GP_FREE_SYNCED);
	fixture_alloc(GP_KIB); /* polls: the first block enters its bin before the last */
	fixture_free_as(last, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(5 * GP_MIB), last);
}
END_TEST

static const struct {
	uint64_t first, second;
	bool is_same_class;
} classes[] = {
	{1200, 1400, true},
	{1200, 1537, false},
	{GP_MIB + 1, 9 * GP_MIB / 8, true},
	/* Above half a granule the driver takes a whole granule anyway. */
	{GP_MIB + GP_MIB / 2, 2 * GP_MIB, true},
	{2 * GP_MIB, 2 * GP_MIB + 1, false},
	{100 * GP_MIB, 104 * GP_MIB, true},
	{104 * GP_MIB, 104 * GP_MIB + 1, false},
};

START_TEST(binned_serves_a_size_class_with_its_own_blocks_only)
{
	uint64_t addr = fixture_alloc(classes[_i].first);

	fixture_free(addr);
	ck_assert_int_eq(fixture_alloc(classes[_i].second) == addr, classes[_i].is_same_class);
}
END_TEST

/* Sizes that the granule rounds to the same block size may still belong to several classes. */
START_TEST(binned_never_hands_out_a_block_smaller_than_the_request)
{
	uint64_t sizes[200], addrs[200];

	px.options.granule = 64 * GP_KIB;
	for (int i = 0; i < 200; i++) {
		sizes[i] = 20000 + (uint64_t)i * 3001;
		addrs[i] = fixture_alloc(sizes[i]);
	}
	for (int i = 0; i < 200; i++)
		fixture_free(addrs[i]);
	for (int i = 199; i >= 0; i--)
		ck_assert_uint_ge(fixture_info(fixture_alloc(sizes[i])).rounded, sizes[i]);
}
END_TEST

/* split */

/* Large blocks are rounded to pages; test_pages.c has more about that. */
static const struct {
	uint64_t bytes, rounded;
} units[] = {
	{1, UNIT},
	{511, UNIT},
	{512, UNIT},
	{513, 2 * UNIT},
	{3 * GP_MIB + 1, 3 * GP_MIB + FIXTURE_PAGE},
};

START_TEST(split_rounds_small_blocks_to_512_bytes_and_large_ones_to_pages)
{
	ck_assert_uint_eq(fixture_info(fixture_alloc(units[_i].bytes)).rounded, units[_i].rounded);
}
END_TEST

START_TEST(split_cuts_blocks_from_the_start_of_one_segment)
{
	uint64_t a = fixture_alloc(2 * UNIT), b = fixture_alloc(2 * UNIT), c = fixture_alloc(UNIT);

	ck_assert_uint_eq(b, a + 2 * UNIT);
	ck_assert_uint_eq(c, b + 2 * UNIT);
	ck_assert_uint_eq(fixture_stats().driver_allocs, 1);
}
END_TEST

static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

START_TEST(split_merges_three_neighbours_freed_in_any_order)
{
	uint64_t addrs[3], last;

	for (int i = 0; i < 3; i++)
		addrs[i] = fixture_alloc(4 * UNIT);
	last = fixture_alloc(UNIT);
	for (int i = 0; i < 3; i++)
		fixture_free_as(addrs[orders[_i][i]], GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_alloc(12 * UNIT), addrs[0]);
	ck_assert_uint_eq(fixture_info(last).addr, last);
}
END_TEST

START_TEST(split_can_release_a_segment_once_all_its_blocks_are_free)
{
	uint64_t addrs[10];

	for (int i = 0; i < 10; i++)
		addrs[i] = fixture_alloc(3 * GP_MIB);
	for (int i = 0; i < 10; i += 2)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	for (int i = 1; i < 10; i += 2)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

START_TEST(split_takes_the_best_fit_and_among_equals_the_lowest_address)
{
	static const uint64_t sizes[] = {8, 3, 5, 5, 9};
	uint64_t addrs[5];

	for (int i = 0; i < 5; i++) {
		addrs[i] = fixture_alloc(sizes[i] * UNIT);
		fixture_alloc(UNIT); /* keeps them apart */
	}
	for (int i = 4; i >= 0; i--)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	fixture_alloc(UNIT);
	ck_assert_uint_eq(fixture_alloc(4 * UNIT), addrs[2]);
	ck_assert_uint_eq(fixture_alloc(4 * UNIT), addrs[3]);
	ck_assert_uint_eq(fixture_alloc(6 * UNIT), addrs[0]);
}
END_TEST

START_TEST(split_keeps_small_and_large_blocks_in_separate_segments)
{
	uint64_t small = fixture_alloc(GP_MIB), large = fixture_alloc(GP_MIB + 1);

	ck_assert_uint_ne(fixture_info(small).segment_base, fixture_info(large).segment_base);
	fixture_free_as(large, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_info(fixture_alloc(GP_KIB)).segment_base, fixture_info(small).segment_base);
}
END_TEST

START_TEST(split_never_hands_out_the_base_of_a_shared_segment)
{
	uint64_t addr;

	for (int i = 0; i < 200; i++) {
		struct gp_block_info info;

		addr = fixture_alloc(1 + (uint64_t)i * 9973);
		info = fixture_info(addr);
		ck_assert_int_eq(info.addr == info.segment_base, info.is_whole);
	}
	/* So a free that bypasses the hooks names no allocation of the driver. */
	px.options.backend.ops->release(px.options.backend.arg, addr);
	ck_assert_ptr_nonnull(atomic_load(&px.fake.breach));
	atomic_store(&px.fake.breach, NULL);
}
END_TEST

/* Block sizes that must not take a segment each. */
static const uint64_t powers[] = {256 * GP_KIB, 512 * GP_KIB, GP_MIB, 2 * GP_MIB, 4 * GP_MIB, 8 * GP_MIB, 16 * GP_MIB};

START_TEST(split_packs_blocks_of_power_of_two_sizes_with_at_most_half_overhead)
{
	uint64_t bytes = 128 * GP_MIB;

	for (uint64_t i = 0; i < bytes / powers[_i]; i++)
		fixture_alloc(powers[_i]);
	ck_assert_uint_le(fixture_stats().total_bytes, bytes + bytes / 2);
}
END_TEST

START_TEST(split_merges_many_freed_blocks_for_fewer_larger_ones)
{
	uint64_t addrs[8];

	for (int i = 0; i < 8; i++)
		addrs[i] = fixture_alloc(16 * GP_MIB);
	for (int i = 0; i < 8; i++)
		fixture_free(addrs[i]);
	for (int i = 0; i < 4; i++)
		fixture_alloc(32 * GP_MIB);
	ck_assert_uint_le(fixture_stats().peak_total_bytes, (128 + 34 + 8) * GP_MIB);
}
END_TEST

START_TEST(split_serves_alternating_sizes_below_a_tight_limit)
{
	gp_budget_init(&px.budget, 200 * GP_MIB);
	for (int i = 0; i < 100; i++) {
		uint64_t small = fixture_alloc(32 * GP_MIB), large;

		fixture_free(small);
		large = fixture_alloc(160 * GP_MIB);
		fixture_free(large);
	}
}
END_TEST

START_TEST(split_holds_a_bounded_multiple_of_a_slowly_growing_buffer)
{
	fake_deinit(&px.fake);
	fake_init(&px.fake, 100 * GP_GIB);
	px.options.capacity_bytes = 100 * GP_GIB;
	for (uint64_t bytes = 100 * GP_MIB; bytes < GP_GIB; bytes += bytes / 100) {
		uint64_t addr = fixture_alloc(bytes);

		fixture_free(addr);
		ck_assert_uint_le(fixture_stats().total_bytes, 6 * bytes);
	}
}
END_TEST

/* The neighbour that the GPU still uses, left or right, and the one that is freed first. */
static const struct {
	bool is_left_busy, is_busy_first;
} neighbours[] = {{false, false}, {false, true}, {true, false}, {true, true}};

START_TEST(split_does_not_release_a_segment_of_which_a_part_is_only_ordered)
{
	uint64_t whole = fixture_alloc(100 * GP_MIB), left, right, busy, done;

	px.fake.has_one_stream = true;
	fixture_free_as(whole, GP_FREE_SYNCED);
	left = fixture_alloc(40 * GP_MIB);
	right = fixture_alloc(40 * GP_MIB);
	busy = neighbours[_i].is_left_busy ? left : right;
	done = neighbours[_i].is_left_busy ? right : left;
	if (!neighbours[_i].is_busy_first)
		fixture_free_as(done, GP_FREE_SYNCED);
	fixture_work();
	fixture_free(busy);
	fixture_alloc(UNIT); /* makes a GPU wait, since much is pending */
	if (neighbours[_i].is_busy_first)
		fixture_free_as(done, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	fixture_check();
	ck_assert_uint_ge(atomic_load(&px.fake.ordered), 1);
	ck_assert_uint_ge(px.fake.reserved_bytes, 100 * GP_MIB);
	fake_complete_all(&px.fake);
	ck_assert_uint_ge(gp_pool_reclaim(fixture_pool()), 100 * GP_MIB);
}
END_TEST

START_TEST(split_cuts_an_only_ordered_block_into_only_ordered_parts)
{
	uint64_t addr = fixture_alloc(100 * GP_MIB);

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free(addr);
	fixture_alloc(20 * GP_MIB); /* after a GPU wait, from the start of the block */
	atomic_store(&px.fake.is_capturing, true);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), -EBUSY);
	px.options.completion_only = true;
	fixture_alloc(20 * GP_MIB);
}
END_TEST

START_TEST(split_keeps_a_long_idle_segment_that_is_only_ordered)
{
	px.fake.has_one_stream = true;
	for (uint64_t i = 0; i < 6; i++) {
		uint64_t addr = fixture_alloc((8 + 2 * i) * GP_MIB);

		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_eq(fixture_stats().driver_frees, 0);
}
END_TEST

START_TEST(split_releases_a_long_idle_segment_when_it_grows)
{
	for (uint64_t i = 0; i < 6; i++) {
		uint64_t addr = fixture_alloc((20 + 2 * i) * GP_MIB);

		fixture_free(addr);
	}
	ck_assert_uint_gt(fixture_stats().driver_frees, 0);
}
END_TEST

/*
 * Sizes in MiB. is_alone: each block is freed before the next allocation, otherwise at the end of the round.
 */
static const struct {
	uint64_t sizes[4];
	bool is_alone;
} loops[] = {
	{{20, 30, 40, 50}, true},
	{{50, 40, 30, 20}, true},
	{{50, 20, 60, 30}, true},
	{{20, 30, 40, 50}, false},
	{{5, 100, 7, 3}, true},
};

START_TEST(split_makes_no_driver_call_from_the_fourth_round_of_a_loop_on)
{
	uint64_t calls = 0, blocks[4];

	for (int i = 0; i < 20; i++) {
		if (i == 3)
			calls = fixture_stats().driver_allocs + fixture_stats().driver_frees;
		for (int nth = 0; nth < 4; nth++) {
			blocks[nth] = fixture_alloc(loops[_i].sizes[nth] * GP_MIB);
			if (loops[_i].is_alone)
				fixture_free(blocks[nth]);
		}
		for (int nth = 0; nth < 4 && !loops[_i].is_alone; nth++)
			fixture_free(blocks[nth]);
	}
	ck_assert_uint_eq(fixture_stats().driver_allocs + fixture_stats().driver_frees, calls);
}
END_TEST

START_TEST(split_releases_idle_segments_before_its_total_exceeds_the_peak)
{
	fixture_free(fixture_alloc(40 * GP_MIB));
	fixture_alloc(60 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().driver_frees, 1);
	ck_assert_uint_eq(fixture_stats().peak_total_bytes, 60 * GP_MIB);
}
END_TEST

START_TEST(a_small_request_does_not_wait_for_a_large_block_that_cannot_serve_it)
{
	uint64_t addr;

	px.options.completion_only = true;
	px.options.pending_bytes_max = 0;
	addr = fixture_alloc(GP_MIB + GP_MIB / 2);
	fixture_work();
	fixture_free(addr);
	fixture_alloc(GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

static TCase *case_of_none(void)
{
	TCase *tc = fixture_case(GP_KIND_NONE);

	tcase_add_test(tc, none_flushes_the_whole_queue_with_the_free_that_exceeds_its_length);
	tcase_add_test(tc, none_flushes_the_queue_when_it_exceeds_its_byte_limit);
	tcase_add_test(tc, none_with_queue_length_zero_uses_the_drivers_own_free);
	tcase_add_test(tc, none_never_waits_if_it_can_release_behind_a_fence);
	tcase_add_test(tc, none_waits_like_the_drivers_free_if_more_is_returning_than_may_be_queued);
	tcase_add_test(tc, none_releases_an_unfenced_block_only_once_it_is_completed);
	tcase_add_test(tc, an_error_in_the_release_of_one_queued_block_loses_no_other);
	tcase_add_test(tc, none_polls_no_fence_at_an_allocation);
	tcase_add_loop_test(
		tc, none_releases_by_the_drivers_own_free_while_the_gpu_is_idle_and_release_begin_slow, 0, 2);
	tcase_add_test(tc, none_awaits_the_fence_of_an_idle_gpu_before_a_slow_release_begin);
	tcase_add_loop_test(tc, none_uses_a_slow_release_begin_while_the_gpu_is_busy_and_does_not_wait_for_it, 0, 2);
	tcase_add_test(tc, release_begin_is_used_after_256_releases_by_the_drivers_own_free);
	tcase_add_test(tc, release_begin_is_used_once_it_has_been_used);
	tcase_add_test(tc, a_record_that_waits_is_made_once_for_a_free_where_release_begin_is_slow);
	tcase_add_test(tc, a_free_that_must_not_wait_uses_a_slow_release_begin);
	return tc;
}

static TCase *case_of_simple(void)
{
	TCase *tc = fixture_case(GP_KIND_SIMPLE);

	ADD_ROWS(tc, fits, simple_reuses_a_block_only_if_it_is_not_much_too_large);
	tcase_add_test(tc, simple_takes_the_block_nearest_in_size);
	return tc;
}

static TCase *case_of_binned(void)
{
	TCase *tc = fixture_case(GP_KIND_BINNED);

	tcase_add_test(tc, binned_hands_out_the_block_that_was_freed_last);
	ADD_ROWS(tc, classes, binned_serves_a_size_class_with_its_own_blocks_only);
	tcase_add_test(tc, binned_never_hands_out_a_block_smaller_than_the_request);
	return tc;
}

static TCase *case_of_split(void)
{
	TCase *tc = fixture_case(GP_KIND_SPLIT);

	ADD_ROWS(tc, units, split_rounds_small_blocks_to_512_bytes_and_large_ones_to_pages);
	tcase_add_test(tc, split_cuts_blocks_from_the_start_of_one_segment);
	ADD_ROWS(tc, orders, split_merges_three_neighbours_freed_in_any_order);
	tcase_add_test(tc, split_can_release_a_segment_once_all_its_blocks_are_free);
	tcase_add_test(tc, split_takes_the_best_fit_and_among_equals_the_lowest_address);
	tcase_add_test(tc, split_keeps_small_and_large_blocks_in_separate_segments);
	tcase_add_test(tc, split_never_hands_out_the_base_of_a_shared_segment);
	ADD_ROWS(tc, powers, split_packs_blocks_of_power_of_two_sizes_with_at_most_half_overhead);
	tcase_add_test(tc, split_merges_many_freed_blocks_for_fewer_larger_ones);
	tcase_add_test(tc, split_serves_alternating_sizes_below_a_tight_limit);
	tcase_add_test(tc, split_holds_a_bounded_multiple_of_a_slowly_growing_buffer);
	ADD_ROWS(tc, neighbours, split_does_not_release_a_segment_of_which_a_part_is_only_ordered);
	tcase_add_test(tc, split_cuts_an_only_ordered_block_into_only_ordered_parts);
	tcase_add_test(tc, split_keeps_a_long_idle_segment_that_is_only_ordered);
	tcase_add_test(tc, split_releases_a_long_idle_segment_when_it_grows);
	ADD_ROWS(tc, loops, split_makes_no_driver_call_from_the_fourth_round_of_a_loop_on);
	tcase_add_test(tc, split_releases_idle_segments_before_its_total_exceeds_the_peak);
	tcase_add_test(tc, a_small_request_does_not_wait_for_a_large_block_that_cannot_serve_it);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("kinds");

	suite_add_tcase(suite, case_of_none());
	suite_add_tcase(suite, case_of_simple());
	suite_add_tcase(suite, case_of_binned());
	suite_add_tcase(suite, case_of_split());
	return suite_run(suite);
}
