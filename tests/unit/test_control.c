/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Controls of a running pool: defer and no-cache scopes, changing limits, trimming, siblings. */

#include <check.h>
#include <errno.h>

#include "pool/pool.h"
#include "pool/pool_control.h"
#include "pool/tcache.h"
#include "pool_fixture.h"
#include "tests/suite.h"

static _Atomic unsigned n_defers;

static void setup_kind(int kind)
{
	fixture_setup((enum gp_kind)kind);
	atomic_store(&n_defers, 0);
	px.options.n_defers = &n_defers;
}

/* Sets up a queue of `count_max` entries, inside `defers` defer scopes. */
static void setup_queue(uint64_t count_max, unsigned defers)
{
	setup_kind(GP_KIND_NONE);
	px.options.pending_count_max = count_max;
	atomic_store(&n_defers, defers);
}

/* Frees n blocks that the GPU still uses. */
static void free_many(unsigned n)
{
	uint64_t addrs[32];

	ck_assert_uint_le(n, 32);
	for (unsigned i = 0; i < n; i++)
		addrs[i] = fixture_alloc(GP_MIB);
	fixture_work();
	for (unsigned i = 0; i < n; i++)
		fixture_free(addrs[i]);
}

START_TEST(the_free_that_exceeds_the_queue_length_flushes_the_queue)
{
	setup_queue(10, 0);
	free_many(10);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 10);
	free_many(1);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
}
END_TEST

START_TEST(a_defer_scope_delays_flushes_until_its_end)
{
	setup_queue(10, 2);
	free_many(30);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 30);
	atomic_store(&n_defers, 1);
	gp_pool_flush(px.pool, true);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 30);
	atomic_store(&n_defers, 0);
	gp_pool_flush(px.pool, true);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
	fake_complete_all(&px.fake);
	gp_pool_reclaim(px.pool);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(the_end_of_a_defer_scope_does_not_flush_a_queue_within_its_limit)
{
	setup_queue(10, 1);
	free_many(10);
	atomic_store(&n_defers, 0);
	gp_pool_flush(px.pool, true);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 10);
}
END_TEST

START_TEST(a_defer_scope_queues_frees_even_if_the_queue_length_is_zero)
{
	setup_queue(0, 1);
	free_many(3);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 3);
	atomic_store(&n_defers, 0);
	free_many(1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 1);
}
END_TEST

START_TEST(running_out_of_memory_in_a_defer_scope_flushes_the_queue)
{
	setup_queue(10, 1);
	free_many(30);
	px.fake.pause_completes = 1;
	fixture_alloc(FIXTURE_CAPACITY - GP_MIB);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
}
END_TEST

/* No fence can be recorded until an earlier one completes, so the call waits for the oldest fence first. */
START_TEST(a_wait_for_all_work_succeeds_with_every_fence_slot_in_use)
{
	static uint64_t addrs[GP_FENCE_SLOTS + 1];

	setup_kind(GP_KIND_BINNED);
	for (int i = 0; i <= GP_FENCE_SLOTS; i++)
		addrs[i] = fixture_alloc(512);
	for (int i = 0; i <= GP_FENCE_SLOTS; i++) {
		fixture_work();
		fixture_free(addrs[i]);
	}
	ck_assert_int_eq(gp_pool_synchronize(px.pool), 0);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), atomic_load(&px.fake.submitted));
	gp_pool_reclaim(px.pool);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(a_grace_period_is_over_once_the_work_before_it_is_complete)
{
	uint64_t seq = 0, before, after;

	setup_kind(GP_KIND_SPLIT);
	before = fake_submit(&px.fake, 1);
	ck_assert_int_eq(gp_pool_grace_begin(fixture_pool(), &seq), 0);
	after = fake_submit(&px.fake, 1);
	ck_assert(!gp_pool_grace_is_over(fixture_pool(), seq));
	fake_complete(&px.fake, before);
	ck_assert(gp_pool_grace_is_over(fixture_pool(), seq));
	fake_complete(&px.fake, after);
}
END_TEST

START_TEST(a_grace_period_that_begins_in_a_capture_ends_after_a_later_fence)
{
	uint64_t seq = 0;

	setup_kind(GP_KIND_SPLIT);
	fake_submit(&px.fake, 1);
	atomic_store(&px.fake.is_capturing, true);
	ck_assert_int_eq(gp_pool_grace_begin(fixture_pool(), &seq), 0);
	fake_complete_all(&px.fake);
	ck_assert(!gp_pool_grace_is_over(fixture_pool(), seq));
	atomic_store(&px.fake.is_capturing, false);
	ck_assert(gp_pool_grace_is_over(fixture_pool(), seq));
}
END_TEST

START_TEST(a_grace_period_does_not_begin_where_a_fence_would_wait_or_fails)
{
	uint64_t seq = 0;

	setup_kind(GP_KIND_SPLIT);
	fake_submit(&px.fake, 1);
	atomic_store(&px.fake.record_waits, true);
	ck_assert_int_eq(gp_pool_grace_begin(fixture_pool(), &seq), -ENOTSUP);
	atomic_store(&px.fake.record_waits, false);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RECORD, 1, 1, 719});
	ck_assert_int_eq(gp_pool_grace_begin(fixture_pool(), &seq), 719);
	fake_complete_all(&px.fake);
}
END_TEST

START_TEST(a_block_allocated_uncached_goes_back_after_its_gpu_work_when_freed)
{
	struct gp_stats stats;
	uint64_t addr;

	setup_kind(_i);
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), 3 * GP_MIB, &(struct gp_alloc_options){0}, &addr), 0);
	fixture_check();
	fixture_work();
	fixture_free(addr);
	gp_pool_flush(px.pool, true);
	if (_i != GP_KIND_NONE && _i != GP_KIND_VMM)
		ck_assert_uint_eq(fixture_stats().returning_bytes, fixture_stats().total_bytes);
	fake_complete_all(&px.fake);
	/* The kind none looks for completed releases when a queue is long, vmm when memory is freed. */
	if (_i == GP_KIND_NONE)
		gp_pool_reclaim(px.pool);
	else
		fixture_free_as(fixture_alloc(GP_KIB), GP_FREE_SYNCED);
	gp_pool_stats(px.pool, &stats);
	ck_assert_uint_lt(stats.cached_bytes, 3 * GP_MIB);
	ck_assert_uint_lt(stats.total_bytes - stats.returning_bytes, 3 * GP_MIB);
}
END_TEST

/* Only a free of the program may release by the driver's own free, which waits. */
START_TEST(only_a_free_avoids_a_slow_release_begin)
{
	uint64_t addr;

	setup_kind(_i);
	px.fake.is_first_release_slow = true;
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), 3 * GP_MIB, &(struct gp_alloc_options){0}, &addr), 0);
	fixture_free(addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
	fixture_free(fixture_alloc(3 * GP_MIB));
	ck_assert_uint_gt(gp_pool_reclaim(px.pool), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 1);
}
END_TEST

START_TEST(an_uncached_allocation_does_not_use_cached_blocks)
{
	uint64_t addr = 0;

	setup_kind(_i);
	fixture_free_as(fixture_alloc(3 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), 3 * GP_MIB, &(struct gp_alloc_options){0}, &addr), 0);
	fixture_check();
	ck_assert_uint_eq(fixture_stats().misses, 2);
	fixture_free_as(addr, GP_FREE_SYNCED);
}
END_TEST

START_TEST(an_uncached_allocation_runs_the_retry_rounds_when_memory_is_full)
{
	uint64_t addr;

	setup_kind(GP_KIND_SPLIT);
	fixture_free_as(fixture_alloc(200 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_alloc_uncached(px.pool, 200 * GP_MIB, &(struct gp_alloc_options){0}, &addr), 0);
	fixture_check();
	fixture_free(addr);
}
END_TEST

START_TEST(a_block_freed_uncached_is_not_cached)
{
	struct gp_block_info info;
	uint64_t addr, other;

	setup_kind(_i);
	addr = fixture_alloc(GP_MIB);
	other = fixture_alloc(GP_MIB);
	fake_note_free(&px.fake, addr, GP_MIB, FAKE_FREED);
	ck_assert_int_eq(gp_pool_free_uncached(&px.map, addr, GP_FREE_NORMAL), 0);
	fixture_check();
	/* The rest of a shared segment may still be used. */
	if (_i == GP_KIND_SPLIT)
		ck_assert_uint_gt(fixture_stats().total_bytes, 2 * GP_MIB);
	else if (_i != GP_KIND_VMM)
		ck_assert_uint_eq(fixture_stats().total_bytes - fixture_stats().returning_bytes, GP_MIB);
	fixture_free(other);
	/* The segment goes back once all of it is free. */
	fixture_free_as(fixture_alloc(100 * GP_MIB), GP_FREE_SYNCED);
	if (_i == GP_KIND_SPLIT)
		ck_assert_int_eq(gp_pool_info(&px.map, other, &info), GP_E_FOREIGN);
}
END_TEST

START_TEST(a_trim_releases_segments_until_the_requested_size_is_reached)
{
	uint64_t addrs[8];

	setup_kind(GP_KIND_SIMPLE);
	for (int i = 0; i < 8; i++)
		addrs[i] = fixture_alloc(10 * GP_MIB);
	for (int i = 0; i < 8; i++)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_trim(px.pool, 25 * GP_MIB), 30 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 50 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_settle].count, 0);
}
END_TEST

START_TEST(nothing_stays_cached_while_another_process_lacks_memory)
{
	uint64_t addrs[4], in_use;

	setup_kind(_i);
	for (int i = 0; i < 4; i++)
		addrs[i] = fixture_alloc(20 * GP_MIB);
	in_use = px.fake.reserved_bytes;
	atomic_store(&px.fake.is_wanted, true);
	gp_pool_press(px.pool);
	fixture_free_as(addrs[0], GP_FREE_SYNCED);
	fixture_free_as(addrs[1], GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, in_use / 2);
	atomic_store(&px.fake.is_wanted, false);
	/* The first free finds that the memory is no longer wanted. */
	fixture_free_as(addrs[2], GP_FREE_SYNCED);
	fixture_free_as(addrs[3], GP_FREE_SYNCED);
	ck_assert_uint_ge(fixture_stats().cached_bytes + fixture_stats().pending_bytes, 20 * GP_MIB);
}
END_TEST

START_TEST(frees_release_memory_above_a_lowered_limit)
{
	uint64_t addrs[8], unused;

	setup_kind(_i);
	for (int i = 0; i < 8; i++)
		addrs[i] = fixture_alloc(20 * GP_MIB);
	atomic_store(&px.budget.limit_bytes, 100 * GP_MIB);
	ck_assert_int_eq(fixture_try(20 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_ge(fixture_stats().used_bytes, 160 * GP_MIB);
	for (int i = 0; i < 4; i++)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	gp_pool_flush(px.pool, true);
	ck_assert_uint_le(fixture_stats().total_bytes, 100 * GP_MIB);
	ck_assert_uint_ge(fixture_stats().used_bytes, 80 * GP_MIB);
	fixture_alloc(10 * GP_MIB);
}
END_TEST

START_TEST(an_uncounted_out_of_memory_is_not_in_the_counters)
{
	uint64_t unused;

	setup_kind(GP_KIND_SPLIT);
	ck_assert_int_eq(fixture_try(2 * FIXTURE_CAPACITY, &unused), -ENOMEM);
	ck_assert_uint_eq(fixture_stats().ooms, 1);
	gp_pool_uncount_oom(px.pool);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
}
END_TEST

START_TEST(an_invalidated_pool_does_not_cache_blocks_that_were_in_use_at_the_time)
{
	struct gp_invalidated count;
	uint64_t busy, small, idle;

	setup_kind(_i);
	busy = fixture_alloc(5 * GP_MIB);
	small = fixture_alloc(GP_ALIGN);
	idle = fixture_alloc(40 * GP_MIB);
	fixture_free_as(idle, GP_FREE_SYNCED);
	(void)gp_pool_invalidate(px.pool, &count);
	fixture_check();
	ck_assert_uint_eq(count.busy_blocks, 2);
	ck_assert_uint_eq(count.busy_bytes, fixture_stats().used_bytes);
	ck_assert_uint_le(fixture_stats().total_bytes, 44 * GP_MIB);
	fixture_work();
	fixture_free(busy);
	fixture_free(small);
	fake_complete_all(&px.fake);
	/* Blocks that are allocated now are cached as usual. */
	idle = fixture_alloc(3 * GP_MIB);
	fixture_free_as(idle, GP_FREE_SYNCED);
	(void)gp_pool_trim(px.pool, 1);
	ck_assert_uint_le(fixture_stats().total_bytes, 32 * GP_MIB);
	(void)gp_pool_invalidate(px.pool, &count);
	ck_assert_uint_eq(count.busy_blocks, 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

static struct gp_pool *new_sibling(void)
{
	struct gp_pool_options options = px.options;
	struct gp_pool *pool = NULL;

	options.sibling = fixture_pool();
	options.owner = &px;
	options.number = 7;
	ck_assert_int_eq(gp_pool_new(&options, &pool), 0);
	ck_assert_ptr_eq(gp_pool_owner(pool), &px);
	ck_assert_uint_eq(gp_pool_number(pool), 7);
	return pool;
}

static uint64_t alloc_in(struct gp_pool *pool, uint64_t bytes)
{
	const char *breach;
	uint64_t addr = 0;

	ck_assert_int_eq(gp_pool_alloc(pool, bytes, 0, &addr), 0);
	breach = fake_check_hand_out(&px.fake, addr, bytes, true);
	ck_assert_msg(!breach, "%s", breach);
	ck_assert_ptr_null(gp_pool_check(pool));
	return addr;
}

static void end_sibling(struct gp_pool *pool)
{
	ck_assert_ptr_null(gp_pool_check(pool));
	gp_pool_drop(pool);
	gp_pool_unmap(pool);
	gp_pool_put(pool);
}

START_TEST(sibling_pools_share_fences_but_not_memory)
{
	struct gp_pool *sibling;
	struct gp_stats stats;
	uint64_t own_block, sibling_block;

	setup_kind(_i);
	sibling = new_sibling();
	own_block = fixture_alloc(5 * GP_MIB);
	sibling_block = alloc_in(sibling, 5 * GP_MIB);
	fixture_work();
	fixture_free(own_block);
	fixture_free(sibling_block);
	fake_complete_all(&px.fake);
	/* A sibling reuses the blocks that were freed to it, and not those of the other pool. */
	ck_assert_uint_ne(alloc_in(sibling, 5 * GP_MIB), own_block);
	gp_pool_stats(sibling, &stats);
	ck_assert_uint_eq(stats.hits, _i != GP_KIND_NONE);
	ck_assert_uint_eq(stats.fence_records, 0);
	ck_assert_uint_ge(fixture_stats().fence_records, 1);
	ck_assert_uint_eq(px.budget.charged_bytes, stats.total_bytes + fixture_stats().total_bytes);
	/* Either pool may end first. */
	end_sibling(sibling);
	sibling = new_sibling();
	(void)alloc_in(sibling, GP_MIB);
	gp_pool_drop(px.pool);
	gp_pool_put(px.pool);
	px.pool = NULL;
	end_sibling(sibling);
	ck_assert_uint_eq(px.budget.charged_bytes, 0);
}
END_TEST

/* Either of the two pools may be the one that noticed the shortage. */
START_TEST(near_the_end_of_the_device_no_memory_stays_cached_in_siblings)
{
	struct gp_pool *sibling;
	uint64_t addrs[3];

	setup_kind(_i);
	px.options.reserve_bytes = 100 * GP_MIB;
	sibling = new_sibling();
	for (int i = 0; i < 3; i++)
		addrs[i] = alloc_in(sibling, 40 * GP_MIB);
	fixture_alloc(80 * GP_MIB);
	for (int i = 0; i < 2; i++)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	ck_assert_uint_ge(FIXTURE_CAPACITY - px.fake.reserved_bytes, 100 * GP_MIB);
	fixture_free_as(addrs[2], GP_FREE_SYNCED);
	end_sibling(sibling);
}
END_TEST

START_TEST(running_out_of_memory_asks_sibling_pools_before_other_contexts)
{
	setup_kind(GP_KIND_SPLIT);
	px.fake.outside = 200 * GP_MIB;
	px.fake.siblings_yield = px.fake.contexts_yield = 100 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_all].gained_bytes, 100 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_fences].count, 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_CONTEXTS), 0);
}
END_TEST

/* Plays another thread, which reclaims while the rounds run. */
static void reclaim_sibling(struct fake *fake, enum fake_call call)
{
	if (call == FAKE_TRIM)
		(void)gp_pool_reclaim(fake->hook_arg);
}

START_TEST(memory_that_a_sibling_releases_during_the_rounds_leads_to_a_retry)
{
	struct gp_pool *sibling;

	setup_kind(_i);
	sibling = new_sibling();
	fixture_free_as(alloc_in(sibling, 200 * GP_MIB), GP_FREE_SYNCED);
	px.fake.hook = reclaim_sibling;
	px.fake.hook_arg = sibling;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_fences].count, 0);
	px.fake.hook = NULL;
	end_sibling(sibling);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *tc = tcase_create("control");

	tcase_add_checked_fixture(tc, NULL, fixture_teardown);
	tcase_add_test(tc, the_free_that_exceeds_the_queue_length_flushes_the_queue);
	tcase_add_test(tc, a_defer_scope_delays_flushes_until_its_end);
	tcase_add_test(tc, the_end_of_a_defer_scope_does_not_flush_a_queue_within_its_limit);
	tcase_add_test(tc, a_defer_scope_queues_frees_even_if_the_queue_length_is_zero);
	tcase_add_test(tc, running_out_of_memory_in_a_defer_scope_flushes_the_queue);
	tcase_add_loop_test(tc, nothing_stays_cached_while_another_process_lacks_memory, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, a_wait_for_all_work_succeeds_with_every_fence_slot_in_use);
	tcase_add_test(tc, a_grace_period_is_over_once_the_work_before_it_is_complete);
	tcase_add_test(tc, a_grace_period_that_begins_in_a_capture_ends_after_a_later_fence);
	tcase_add_test(tc, a_grace_period_does_not_begin_where_a_fence_would_wait_or_fails);
	tcase_add_loop_test(tc, a_block_allocated_uncached_goes_back_after_its_gpu_work_when_freed, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, only_a_free_avoids_a_slow_release_begin, 0, GP_KIND_VMM);
	tcase_add_loop_test(tc, an_uncached_allocation_does_not_use_cached_blocks, 0, GP_KIND_VMM);
	tcase_add_test(tc, an_uncached_allocation_runs_the_retry_rounds_when_memory_is_full);
	tcase_add_loop_test(tc, a_block_freed_uncached_is_not_cached, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, a_trim_releases_segments_until_the_requested_size_is_reached);
	tcase_add_loop_test(tc, frees_release_memory_above_a_lowered_limit, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, an_uncounted_out_of_memory_is_not_in_the_counters);
	tcase_add_loop_test(tc, an_invalidated_pool_does_not_cache_blocks_that_were_in_use_at_the_time, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, sibling_pools_share_fences_but_not_memory, 0, GP_N_KINDS);
	tcase_add_loop_test(
		tc, near_the_end_of_the_device_no_memory_stays_cached_in_siblings, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, running_out_of_memory_asks_sibling_pools_before_other_contexts);
	tcase_add_loop_test(
		tc, memory_that_a_sibling_releases_during_the_rounds_leads_to_a_retry, GP_KIND_SIMPLE, GP_N_KINDS);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
