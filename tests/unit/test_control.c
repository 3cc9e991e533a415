/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* What a running pool can be told: scopes that defer or do not cache, limits that change, memory to give back. */

#include <check.h>
#include <errno.h>

#include "pool/mapped.h"
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

/* A queue of so many entries, in so many scopes that defer. */
static void setup_queue(uint64_t count_max, unsigned defers)
{
	setup_kind(GP_KIND_NONE);
	px.options.pending_count_max = count_max;
	atomic_store(&n_defers, defers);
}

/* The first as many as the queue takes, and one more: then all go. */
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

START_TEST(the_entry_after_the_last_that_fits_flushes_the_queue)
{
	setup_queue(10, 0);
	free_many(10);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 10);
	free_many(1);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
}
END_TEST

START_TEST(a_defer_scope_holds_flushes_back_and_its_end_makes_up_for_them)
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

START_TEST(the_end_of_a_defer_scope_leaves_alone_what_is_below_the_limit)
{
	setup_queue(10, 1);
	free_many(10);
	atomic_store(&n_defers, 0);
	gp_pool_flush(px.pool, true);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 10);
}
END_TEST

START_TEST(a_defer_scope_queues_even_where_there_is_no_queue)
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

START_TEST(running_out_of_memory_in_a_defer_scope_flushes)
{
	setup_queue(10, 1);
	free_many(30);
	px.fake.pause_completes = 1;
	fixture_alloc(FIXTURE_CAPACITY - GP_MIB);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
}
END_TEST

/* Nothing more can be recorded until some of that is done: then the oldest is waited for first. */
START_TEST(a_wait_for_all_work_comes_after_as_many_fences_as_there_can_be)
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

START_TEST(a_block_allocated_uncached_goes_back_behind_the_gpu_when_it_is_freed)
{
	struct gp_stats stats;
	uint64_t addr;

	setup_kind(_i);
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), 3 * GP_MIB, 0, &addr), 0);
	fixture_check();
	fixture_work();
	fixture_free(addr);
	gp_pool_flush(px.pool, true);
	if (_i != GP_KIND_NONE && _i != GP_KIND_VMM)
		ck_assert_uint_eq(fixture_stats().returning_bytes, fixture_stats().total_bytes);
	fake_complete_all(&px.fake);
	/* The kind none looks when its queue is long, vmm when memory is freed. */
	if (_i == GP_KIND_NONE)
		gp_pool_reclaim(px.pool);
	else
		fixture_free_as(fixture_alloc(GP_KIB), GP_FREE_SYNCED);
	gp_pool_stats(px.pool, &stats);
	ck_assert_uint_lt(stats.cached_bytes, 3 * GP_MIB);
	ck_assert_uint_lt(stats.total_bytes - stats.returning_bytes, 3 * GP_MIB);
}
END_TEST

START_TEST(an_uncached_allocation_takes_nothing_out_of_the_cache)
{
	uint64_t addr = 0;

	setup_kind(_i);
	fixture_free_as(fixture_alloc(3 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), 3 * GP_MIB, 0, &addr), 0);
	fixture_check();
	ck_assert_uint_eq(fixture_stats().misses, 2);
	fixture_free_as(addr, GP_FREE_SYNCED);
}
END_TEST

START_TEST(an_uncached_allocation_goes_through_the_rounds)
{
	uint64_t addr;

	setup_kind(GP_KIND_SPLIT);
	fixture_free_as(fixture_alloc(200 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_alloc_uncached(px.pool, 200 * GP_MIB, 0, &addr), 0);
	fixture_check();
	fixture_free(addr);
}
END_TEST

START_TEST(a_block_freed_uncached_is_not_kept)
{
	struct gp_block_info info;
	uint64_t addr, other;

	setup_kind(_i);
	addr = fixture_alloc(GP_MIB);
	other = fixture_alloc(GP_MIB);
	fake_note_free(&px.fake, addr, GP_MIB, FAKE_FREED);
	ck_assert_int_eq(gp_pool_free_uncached(&px.map, addr, GP_FREE_NORMAL), 0);
	fixture_check();
	/* Of a shared segment the rest is still good to be used. */
	if (_i == GP_KIND_SPLIT)
		ck_assert_uint_gt(fixture_stats().total_bytes, 2 * GP_MIB);
	else if (_i != GP_KIND_VMM)
		ck_assert_uint_eq(fixture_stats().total_bytes - fixture_stats().returning_bytes, GP_MIB);
	fixture_free(other);
	/* Once all of it is free it goes. */
	fixture_free_as(fixture_alloc(100 * GP_MIB), GP_FREE_SYNCED);
	if (_i == GP_KIND_SPLIT)
		ck_assert_int_eq(gp_pool_info(&px.map, other, &info), GP_E_FOREIGN);
}
END_TEST

START_TEST(trimming_gives_back_as_much_as_is_wanted)
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

START_TEST(frees_give_back_what_is_over_a_limit_that_was_lowered)
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

START_TEST(an_excused_failure_did_not_reach_the_program)
{
	uint64_t unused;

	setup_kind(GP_KIND_SPLIT);
	ck_assert_int_eq(fixture_try(2 * FIXTURE_CAPACITY, &unused), -ENOMEM);
	ck_assert_uint_eq(fixture_stats().ooms, 1);
	gp_pool_excuse(px.pool);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
}
END_TEST

START_TEST(an_invalidated_pool_keeps_nothing_of_what_was_used_then)
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
	/* What comes now is cached as ever. */
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

START_TEST(siblings_share_their_fences_and_no_memory)
{
	struct gp_pool *sibling;
	struct gp_stats stats;
	uint64_t mine, its;

	setup_kind(_i);
	sibling = new_sibling();
	mine = fixture_alloc(5 * GP_MIB);
	its = alloc_in(sibling, 5 * GP_MIB);
	fixture_work();
	fixture_free(mine);
	fixture_free(its);
	fake_complete_all(&px.fake);
	/* It has what it has freed itself, and not the other's. */
	ck_assert_uint_ne(alloc_in(sibling, 5 * GP_MIB), mine);
	gp_pool_stats(sibling, &stats);
	ck_assert_uint_eq(stats.hits, _i != GP_KIND_NONE);
	ck_assert_uint_eq(stats.fence_records, 0);
	ck_assert_uint_ge(fixture_stats().fence_records, 1);
	ck_assert_uint_eq(px.budget.charged_bytes, stats.total_bytes + fixture_stats().total_bytes);
	/* Either may end first. */
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

/* Whichever of them has found out. */
START_TEST(near_the_end_of_the_device_nothing_stays_cached_in_siblings_either)
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

START_TEST(running_out_of_memory_asks_siblings_before_anybody_else)
{
	setup_kind(GP_KIND_SPLIT);
	px.fake.outside = 200 * GP_MIB;
	px.fake.siblings_yield = px.fake.contexts_yield = 100 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_all].yielded_bytes, 100 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_fences].count, 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_CONTEXTS), 0);
}
END_TEST

/* Another thread, while the rounds are run. */
static void reclaim_sibling(struct fake *fake, enum fake_call call)
{
	if (call == FAKE_TRIM)
		(void)gp_pool_reclaim(fake->hook_arg);
}

START_TEST(what_a_sibling_gives_back_meanwhile_is_worth_another_attempt)
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
	tcase_add_test(tc, the_entry_after_the_last_that_fits_flushes_the_queue);
	tcase_add_test(tc, a_defer_scope_holds_flushes_back_and_its_end_makes_up_for_them);
	tcase_add_test(tc, the_end_of_a_defer_scope_leaves_alone_what_is_below_the_limit);
	tcase_add_test(tc, a_defer_scope_queues_even_where_there_is_no_queue);
	tcase_add_test(tc, running_out_of_memory_in_a_defer_scope_flushes);
	tcase_add_test(tc, a_wait_for_all_work_comes_after_as_many_fences_as_there_can_be);
	tcase_add_loop_test(tc, a_block_allocated_uncached_goes_back_behind_the_gpu_when_it_is_freed, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, an_uncached_allocation_takes_nothing_out_of_the_cache, 0, GP_KIND_VMM);
	tcase_add_test(tc, an_uncached_allocation_goes_through_the_rounds);
	tcase_add_loop_test(tc, a_block_freed_uncached_is_not_kept, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, trimming_gives_back_as_much_as_is_wanted);
	tcase_add_loop_test(tc, frees_give_back_what_is_over_a_limit_that_was_lowered, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_test(tc, an_excused_failure_did_not_reach_the_program);
	tcase_add_loop_test(tc, an_invalidated_pool_keeps_nothing_of_what_was_used_then, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, siblings_share_their_fences_and_no_memory, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, near_the_end_of_the_device_nothing_stays_cached_in_siblings_either, GP_KIND_SIMPLE,
		GP_N_KINDS);
	tcase_add_test(tc, running_out_of_memory_asks_siblings_before_anybody_else);
	tcase_add_loop_test(
		tc, what_a_sibling_gives_back_meanwhile_is_worth_another_attempt, GP_KIND_SIMPLE, GP_N_KINDS);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
