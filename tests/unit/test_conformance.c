/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Guarantees of the pools of every kind. Each test runs for each kind. */
#include <check.h>
#include <errno.h>

#include "pool/pool.h"
#include "pool/pool_control.h"
#include "pool_fixture.h"
#include "tests/suite.h"

static bool keeps_blocks(void)
{
	return px.options.kind != GP_KIND_NONE;
}

static const uint64_t some_sizes[] = {1, 511, 512, 513, 4097, 100000, GP_MIB, GP_MIB + 1, 3 * GP_MIB};

enum { N_SIZES = sizeof(some_sizes) / sizeof(*some_sizes) };

START_TEST(a_block_is_aligned_and_at_least_as_large_as_requested)
{
	for (int i = 0; i < N_SIZES; i++) {
		struct gp_block_info info = fixture_info(fixture_alloc(some_sizes[i]));

		ck_assert_uint_eq(info.size, some_sizes[i]);
		ck_assert_uint_ge(info.rounded, some_sizes[i]);
		ck_assert_uint_eq(info.rounded % GP_ALIGN, 0);
		ck_assert(info.is_used);
	}
}
END_TEST

START_TEST(live_blocks_do_not_overlap)
{
	uint64_t addrs[3 * N_SIZES];

	for (int i = 0; i < 3 * N_SIZES; i++) {
		uint64_t bytes = some_sizes[i % N_SIZES];

		addrs[i] = fixture_alloc(bytes);
		for (int j = 0; j < i; j++)
			ck_assert(addrs[i] + bytes <= addrs[j] || addrs[j] + some_sizes[j % N_SIZES] <= addrs[i]);
	}
}
END_TEST

START_TEST(a_block_is_found_by_every_address_inside_it)
{
	uint64_t addr, bytes = 3 * GP_MIB + 5;

	addr = fixture_alloc(bytes);
	ck_assert_uint_eq(fixture_info(addr + 1).addr, addr);
	ck_assert_uint_eq(fixture_info(addr + bytes - 1).addr, addr);
	ck_assert_uint_eq(fixture_info(addr + bytes - 1).size, bytes);
}
END_TEST

START_TEST(every_allocation_gets_a_new_serial_number)
{
	uint64_t addr, serial;

	addr = fixture_alloc(1000);
	serial = fixture_info(addr).serial;
	ck_assert_uint_gt(serial, 0);
	for (int i = 0; i < 5; i++) {
		fixture_free(addr);
		addr = fixture_alloc(1000);
		ck_assert_uint_gt(fixture_info(addr).serial, serial);
		serial = fixture_info(addr).serial;
	}
}
END_TEST

START_TEST(a_double_free_is_refused_without_a_driver_call)
{
	uint64_t addr, keep, before;

	keep = fixture_alloc(GP_KIB);
	addr = fixture_alloc(GP_KIB);
	fixture_free(addr);
	before = px.fake.n_logged;
	ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_NOT_USED);
	ck_assert_uint_eq(px.fake.n_logged, before);
	ck_assert_uint_eq(fixture_stats().double_frees, 1);
	fixture_free(keep);
}
END_TEST

START_TEST(an_interior_free_is_refused_without_a_driver_call)
{
	uint64_t addr, before;

	addr = fixture_alloc(8 * GP_KIB);
	before = px.fake.n_logged;
	ck_assert_int_eq(gp_pool_free(&px.map, addr + 1, GP_FREE_NORMAL), GP_E_INTERIOR);
	ck_assert_int_eq(gp_pool_free(&px.map, addr + 4096, GP_FREE_NORMAL), GP_E_INTERIOR);
	ck_assert_uint_eq(px.fake.n_logged, before);
	ck_assert_uint_eq(fixture_stats().invalid_frees, 2);
	ck_assert(fixture_info(addr).is_used);
	fixture_free(addr);
}
END_TEST

START_TEST(a_pointer_that_is_not_the_pools_is_reported_as_foreign)
{
	struct gp_block_info info;
	uint64_t addr;

	addr = fixture_alloc(GP_KIB);
	ck_assert_int_eq(gp_pool_free(&px.map, addr - GP_GIB, GP_FREE_NORMAL), GP_E_FOREIGN);
	ck_assert_int_eq(gp_pool_info(&px.map, addr - GP_GIB, &info), GP_E_FOREIGN);
	ck_assert_int_eq(gp_pool_export(&px.map, addr - GP_GIB), GP_E_FOREIGN);
}
END_TEST

/* Requests larger than the device. */
static const uint64_t hopeless[] = {
	FIXTURE_CAPACITY + 1,
	4 * FIXTURE_CAPACITY,
	UINT64_C(1) << 53,
	(UINT64_C(1) << 53) + 1,
	UINT64_C(1) << 62,
	UINT64_MAX - 512,
	UINT64_MAX,
};

START_TEST(a_request_beyond_the_device_fails_without_the_driver_and_keeps_the_cache)
{
	uint64_t addr, cached;

	cached = fixture_alloc(4 * GP_MIB);
	fixture_free(cached);
	fake_calls(&px.fake, FAKE_RESERVE);
	for (size_t i = 0; i < sizeof(hopeless) / sizeof(*hopeless); i++)
		ck_assert_int_eq(fixture_try(hopeless[i], &addr), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	ck_assert_uint_eq(fixture_stats().ooms, sizeof(hopeless) / sizeof(*hopeless));
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), cached);
}
END_TEST

START_TEST(a_huge_request_never_gets_a_smaller_block)
{
	uint64_t bytes = (UINT64_C(1) << 53) + 12345, addr;

	fake_deinit(&px.fake);
	fake_init(&px.fake, UINT64_C(1) << 60);
	px.options.capacity_bytes = UINT64_MAX;
	/* An arena is not that long. */
	if (px.options.kind == GP_KIND_VMM) {
		ck_assert_int_eq(fixture_try(bytes, &addr), -ENOMEM);
		return;
	}
	addr = fixture_alloc(bytes);
	ck_assert_uint_ge(fixture_info(addr).rounded, bytes);
}
END_TEST

START_TEST(a_limit_is_never_exceeded_and_a_freed_block_can_be_reused_below_it)
{
	uint64_t addr, third, unused;

	gp_budget_init(&px.budget, 24 * GP_MIB);
	fixture_alloc(8 * GP_MIB);
	addr = fixture_alloc(8 * GP_MIB);
	third = fixture_alloc(4 * GP_MIB);
	ck_assert_int_eq(fixture_try(8 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_le(px.fake.reserved_bytes, 24 * GP_MIB);
	fixture_free(addr);
	fake_calls(&px.fake, FAKE_RESERVE);
	fixture_alloc(8 * GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), !keeps_blocks());
	fixture_free(third);
}
END_TEST

START_TEST(a_failed_reservation_leaves_the_counters_and_the_budget_unchanged)
{
	struct gp_stats before, after;
	uint64_t addr;

	fixture_alloc(100);
	before = fixture_stats();
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 1, 100, -ENOMEM});
	ck_assert_int_eq(fixture_try(10 * GP_MIB, &addr), -ENOMEM);
	after = fixture_stats();
	ck_assert_uint_eq(after.total_bytes, before.total_bytes);
	ck_assert_uint_eq(after.used_bytes, before.used_bytes);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), before.total_bytes);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE});
	fixture_alloc(10 * GP_MIB);
}
END_TEST

START_TEST(a_driver_error_other_than_out_of_memory_is_returned_without_retry)
{
	uint64_t addr, cached;

	cached = fixture_alloc(4 * GP_MIB);
	fixture_free_as(cached, GP_FREE_SYNCED);
	fake_calls(&px.fake, FAKE_RESERVE);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 1, 1, 719});
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &addr), 719);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 1);
	ck_assert_int_eq(px.fake.log[(px.fake.n_logged - 1) % FAKE_LOG_SIZE].call, FAKE_RESERVE);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_settle].count, 0);
}
END_TEST

START_TEST(a_free_by_a_thread_that_may_not_call_the_driver_leaves_the_block_used)
{
	struct gp_stats before;
	uint64_t addr;

	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	before = fixture_stats();
	fake_plan(&px.fake, (struct fake_plan){FAKE_RECORD, 1, 2, -EPERM});
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_NOT_PERMITTED);
		fixture_check();
	}
	ck_assert(fixture_info(addr).is_used);
	ck_assert_uint_eq(fixture_stats().used_bytes, before.used_bytes);
	ck_assert_uint_eq(fixture_stats().pending_bytes, before.pending_bytes);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	fixture_free(addr);
	ck_assert_uint_eq(fixture_stats().double_frees, 0);
}
END_TEST

START_TEST(an_exported_block_goes_back_to_the_driver_once_it_is_freed_and_completed)
{
	uint64_t addr, n_chunks;

	px.options.completion_only = true;
	addr = fixture_alloc(40 * GP_MIB);
	n_chunks = fake_calls(&px.fake, FAKE_RESERVE);
	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_note_export(addr);
	fixture_work();
	fixture_free(addr);
	fixture_alloc(40 * GP_MIB);
	fake_complete_all(&px.fake);
	fixture_alloc(40 * GP_MIB);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().driver_frees, n_chunks);
}
END_TEST

START_TEST(a_reclaim_releases_all_cached_memory_and_no_used_memory)
{
	uint64_t addrs[8];

	for (int i = 0; i < 8; i++)
		addrs[i] = fixture_alloc(20 * GP_MIB);
	for (int i = 1; i < 8; i++)
		fixture_free(addrs[i]);
	ck_assert_uint_ge(gp_pool_reclaim(fixture_pool()), 7 * 20 * GP_MIB - 20 * GP_MIB);
	gp_pool_reclaim(fixture_pool());
	fixture_check();
	ck_assert_uint_ge(fixture_stats().total_bytes, 20 * GP_MIB);
	ck_assert_uint_lt(fixture_stats().total_bytes, 100 * GP_MIB);
	fixture_free(addrs[0]);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

START_TEST(a_reclaim_does_not_wait_for_the_gpu)
{
	uint64_t addr;

	addr = fixture_alloc(20 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

START_TEST(memory_returning_to_the_driver_is_counted_until_it_has_arrived)
{
	uint64_t addr;

	px.fake.arrives_on_drain_only = true;
	px.options.pending_count_max = 0;
	addr = fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_free_as(addr, GP_FREE_UNFENCED);
	ck_assert_uint_eq(fixture_stats().returning_bytes, px.fake.reserved_bytes);
	ck_assert_uint_eq(fixture_stats().total_bytes, px.fake.reserved_bytes);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), px.fake.reserved_bytes);
}
END_TEST

static void check_dead(uint64_t addr, uint64_t before)
{
	uint64_t unused;

	ck_assert_int_eq(gp_pool_alloc(px.pool, 1, 0, &unused), GP_E_DEAD);
	ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_FOREIGN);
	ck_assert_uint_eq(gp_pool_reclaim(px.pool), 0);
	ck_assert_int_eq(gp_pool_rescue(px.pool, 1, NULL, NULL, NULL), GP_E_DEAD);
	gp_pool_require_completion(px.pool);
	gp_pool_set_overlap(px.pool, true);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
	ck_assert_uint_eq(px.fake.n_logged, before);
}

START_TEST(a_dropped_pool_forgets_all_its_blocks_without_a_driver_call)
{
	uint64_t addr, pending, cached;

	addr = fixture_alloc(4 * GP_MIB);
	pending = fixture_alloc(4 * GP_MIB);
	cached = fixture_alloc(4 * GP_MIB);
	fixture_free_as(cached, GP_FREE_SYNCED);
	fixture_work();
	fixture_free(pending);
	gp_pool_drop(fixture_pool());
	check_dead(addr, px.fake.n_logged);
	/* A second drop changes nothing. */
	gp_pool_drop(fixture_pool());
	check_dead(pending, px.fake.n_logged);
}
END_TEST

/* Ends the context while the driver is being asked for memory. */
static void drop_during_reserve(struct fake *fake, enum fake_call call)
{
	fake->hook = NULL;
	if (call == FAKE_RESERVE)
		gp_pool_drop(px.pool);
}

START_TEST(a_reservation_during_which_the_context_ends_is_not_released)
{
	uint64_t addr;

	fixture_pool();
	px.fake.hook = drop_during_reserve;
	ck_assert_int_eq(gp_pool_alloc(px.pool, 4 * GP_MIB, 0, &addr), GP_E_DEAD);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	/* Chunks of memory outlive the context, so vmm does release its chunk. */
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), px.options.kind == GP_KIND_VMM);
}
END_TEST

START_TEST(a_free_reaches_the_pool_that_the_block_came_from)
{
	struct gp_pool *other;
	uint64_t addr;

	fixture_pool();
	ck_assert_int_eq(gp_pool_new(&px.options, &other), 0);
	ck_assert_int_eq(gp_pool_alloc(other, 5 * GP_MIB, 0, &addr), 0);
	fixture_alloc(5 * GP_MIB);
	fixture_free(addr);
	ck_assert_ptr_null(gp_pool_check(other));
	ck_assert_uint_eq(fixture_stats().n_used_blocks, 1);
	gp_pool_drop(other);
	gp_pool_unmap(other);
	gp_pool_put(other);
}
END_TEST

static bool count_used(void *arg, const struct gp_block_info *info)
{
	uint64_t *sum = arg;

	ck_assert(info->is_used);
	*sum += info->size;
	return *sum < 60 * GP_MIB;
}

START_TEST(the_walk_over_used_blocks_ends_when_the_callback_returns_false)
{
	uint64_t sum = 0, freed;

	for (int i = 0; i < 3; i++)
		fixture_alloc(10 * GP_MIB);
	freed = fixture_alloc(15 * GP_MIB);
	fixture_free(freed);
	gp_pool_each_used(fixture_pool(), count_used, &sum);
	ck_assert_uint_eq(sum, 30 * GP_MIB);
	for (int i = 0; i < 5; i++)
		fixture_alloc(10 * GP_MIB);
	sum = 0;
	gp_pool_each_used(fixture_pool(), count_used, &sum);
	ck_assert_uint_eq(sum, 60 * GP_MIB);
}
END_TEST

struct walk {
	uint64_t segment, next, left, used, cached;
};

static bool walk_on(void *arg, const struct gp_block_info *info)
{
	struct walk *walk = arg;

	/*
	 * An arena has unmapped parts, and its segments are chunks, whose bounds are independent of the
	 * blocks.
	 */
	if (info->is_mapped) {
		walk->next = info->addr;
		walk->segment = info->segment_base;
		walk->left = info->rounded;
		ck_assert_uint_le(info->segment_base, info->addr);
		ck_assert_uint_lt(info->addr, info->segment_base + info->segment_size);
	}
	if (!walk->left) {
		walk->segment = walk->next = info->segment_base;
		walk->left = info->segment_size;
	}
	ck_assert_uint_eq(info->segment_base, walk->segment);
	ck_assert_uint_eq(info->addr, walk->next);
	ck_assert_uint_le(info->rounded, walk->left);
	ck_assert(!(info->is_used && info->is_cached));
	walk->next += info->rounded;
	walk->left -= info->rounded;
	walk->used += info->is_used ? info->rounded : 0;
	walk->cached += info->is_cached ? info->rounded : 0;
	return true;
}

START_TEST(the_walk_over_all_blocks_covers_every_segment_without_gaps)
{
	struct walk walk = {0};
	uint64_t addrs[12];

	for (int i = 0; i < 12; i++)
		addrs[i] = fixture_alloc(i % 3 ? 5000 : 5 * GP_MIB);
	for (int i = 0; i < 12; i += 2)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	gp_pool_each_block(fixture_pool(), walk_on, &walk);
	ck_assert_uint_eq(walk.left, 0);
	ck_assert_uint_eq(walk.used, fixture_stats().used_bytes);
	ck_assert_uint_eq(walk.cached, fixture_stats().cached_bytes);
}
END_TEST

START_TEST(the_counters_follow_an_allocation_a_free_and_a_reuse)
{
	uint64_t addr;
	struct gp_stats stats;

	addr = fixture_alloc(1000);
	stats = fixture_stats();
	ck_assert_uint_eq(stats.requested_bytes, 1000);
	ck_assert_uint_ge(stats.used_bytes, 1000);
	ck_assert_uint_eq(stats.n_used_blocks, 1);
	ck_assert_uint_eq(stats.misses, 1);
	ck_assert_uint_eq(stats.driver_allocs, 1);
	fixture_free(addr);
	stats = fixture_stats();
	ck_assert_uint_eq(stats.requested_bytes + stats.used_bytes + stats.n_used_blocks, 0);
	ck_assert_uint_eq(stats.unused_bytes, stats.pending_bytes + stats.cached_bytes);
	ck_assert_uint_eq(stats.fence_records, 1);
	ck_assert_uint_gt(stats.peak_used_bytes, 0);
	fixture_alloc(1000);
	stats = fixture_stats();
	ck_assert_uint_eq(stats.hits, keeps_blocks());
	ck_assert_uint_eq(stats.misses, 2 - keeps_blocks());
}
END_TEST

START_TEST(near_the_end_of_the_device_no_memory_stays_cached)
{
	uint64_t addrs[5];

	px.options.reserve_bytes = 100 * GP_MIB;
	for (int i = 0; i < 5; i++)
		addrs[i] = fixture_alloc(40 * GP_MIB);
	for (int i = 0; i < 5; i++) {
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
		ck_assert(fixture_stats().cached_bytes == 0 ||
			  FIXTURE_CAPACITY - px.fake.reserved_bytes >= 100 * GP_MIB ||
			  px.options.kind == GP_KIND_SPLIT);
	}
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_ge(FIXTURE_CAPACITY - px.fake.reserved_bytes, 100 * GP_MIB);
}
END_TEST

/* The work is complete, but no fence has been polled that would show it. */
START_TEST(near_the_end_of_the_device_memory_used_in_serial_mode_goes_back)
{
	uint64_t addrs[2], left;

	px.options.reserve_bytes = 100 * GP_MIB;
	gp_pool_set_serial(fixture_pool(), true);
	for (int i = 0; i < 2; i++)
		addrs[i] = fixture_alloc(40 * GP_MIB);
	for (int i = 0; i < 2; i++) {
		fixture_work();
		fake_complete_all(&px.fake);
		fixture_free(addrs[i]);
	}
	fixture_alloc(90 * GP_MIB);
	left = FIXTURE_CAPACITY - px.fake.reserved_bytes + fixture_stats().returning_bytes;
	ck_assert_uint_ge(left, 100 * GP_MIB);
}
END_TEST

/* Memory that the device, or the limit, leaves: enough for the request, but not for its size class. */
static const struct {
	uint64_t outside, limit;
} shortages[] = {{23 * GP_MIB, UINT64_MAX}, {0, 233 * GP_MIB}};

START_TEST(a_request_that_fits_succeeds_even_if_its_rounded_size_does_not_fit)
{
	uint64_t bytes = 229 * GP_MIB + 1, addr;

	(void)fixture_pool();
	px.fake.outside = shortages[_i].outside;
	atomic_store(&px.budget.limit_bytes, shortages[_i].limit);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fixture_try(bytes, &addr), 0);
		ck_assert_uint_ge(fixture_info(addr).rounded, bytes);
		fixture_free(addr);
	}
	ck_assert_int_eq(fixture_try(234 * GP_MIB, &addr), -ENOMEM);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, a_block_is_aligned_and_at_least_as_large_as_requested);
	tcase_add_test(tc, live_blocks_do_not_overlap);
	tcase_add_test(tc, a_block_is_found_by_every_address_inside_it);
	tcase_add_test(tc, every_allocation_gets_a_new_serial_number);
	tcase_add_test(tc, a_double_free_is_refused_without_a_driver_call);
	tcase_add_test(tc, an_interior_free_is_refused_without_a_driver_call);
	tcase_add_test(tc, a_pointer_that_is_not_the_pools_is_reported_as_foreign);
	tcase_add_test(tc, a_request_beyond_the_device_fails_without_the_driver_and_keeps_the_cache);
	tcase_add_test(tc, a_huge_request_never_gets_a_smaller_block);
	tcase_add_loop_test(tc, a_request_that_fits_succeeds_even_if_its_rounded_size_does_not_fit, 0,
		sizeof(shortages) / sizeof(*shortages));
	tcase_add_test(tc, a_limit_is_never_exceeded_and_a_freed_block_can_be_reused_below_it);
	tcase_add_test(tc, a_failed_reservation_leaves_the_counters_and_the_budget_unchanged);
	tcase_add_test(tc, a_driver_error_other_than_out_of_memory_is_returned_without_retry);
	tcase_add_test(tc, a_free_by_a_thread_that_may_not_call_the_driver_leaves_the_block_used);
	tcase_add_test(tc, an_exported_block_goes_back_to_the_driver_once_it_is_freed_and_completed);
	tcase_add_test(tc, a_reclaim_releases_all_cached_memory_and_no_used_memory);
	tcase_add_test(tc, a_reclaim_does_not_wait_for_the_gpu);
	tcase_add_test(tc, memory_returning_to_the_driver_is_counted_until_it_has_arrived);
	tcase_add_test(tc, a_dropped_pool_forgets_all_its_blocks_without_a_driver_call);
	tcase_add_test(tc, a_reservation_during_which_the_context_ends_is_not_released);
	tcase_add_test(tc, a_free_reaches_the_pool_that_the_block_came_from);
	tcase_add_test(tc, the_walk_over_used_blocks_ends_when_the_callback_returns_false);
	tcase_add_test(tc, the_walk_over_all_blocks_covers_every_segment_without_gaps);
	tcase_add_test(tc, the_counters_follow_an_allocation_a_free_and_a_reuse);
	tcase_add_test(tc, near_the_end_of_the_device_no_memory_stays_cached);
	if (kind != GP_KIND_NONE) /* the kind none caches nothing */
		tcase_add_test(tc, near_the_end_of_the_device_memory_used_in_serial_mode_goes_back);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("conformance");

	for (int kind = 0; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of((enum gp_kind)kind));
	return suite_run(suite);
}
