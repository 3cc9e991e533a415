/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Blocks that survive the end of their context, in the kind vmm. */

#include <pthread.h>
#include <sched.h>

#include "pool/pool_query.h"
#include "pool/pool_ref.h"
#include "pool/vmm/sleep.h"
#include "pool_fixture.h"
#include "tests/suite.h"

enum { STREAM = 7 };

static _Atomic uint64_t kept_bytes;
static uint64_t survivors[8];
static unsigned n_survivors;

static void setup(void)
{
	fixture_setup(GP_KIND_VMM);
	atomic_store(&kept_bytes, 0);
	n_survivors = 0;
	px.options.survivor_bytes = &kept_bytes;
}

static bool survive(void *is_refused, const struct gp_block_info *info)
{
	if (is_refused)
		return false;
	survivors[n_survivors++] = info->addr;
	return true;
}

/* Ends the context as a program does that holds blocks. The caller has a reference. */
static struct gp_pool *end(void *is_refused)
{
	struct gp_pool *pool = gp_pool_get(fixture_pool());

	gp_pool_drop_except(px.pool, survive, is_refused);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	return pool;
}

static void check_gone(void)
{
	ck_assert_uint_eq(px.fake.n_chunks, 0);
	ck_assert_uint_eq(px.fake.addresses_bytes, 0);
	ck_assert_uint_eq(atomic_load(&kept_bytes), 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}

/* Plain blocks end, and so does what the program has freed. */
START_TEST(only_used_blocks_in_stream_order_survive)
{
	struct gp_pool *pool;
	uint64_t streamed, freed;

	(void)fixture_alloc(3 * GP_MIB);
	streamed = fixture_alloc_on(3 * GP_MIB, STREAM);
	freed = fixture_alloc_on(3 * GP_MIB, STREAM);
	fixture_free_on(freed, STREAM);
	pool = end(NULL);
	ck_assert_uint_eq(n_survivors, 1);
	ck_assert_uint_eq(survivors[0], streamed);
	ck_assert_uint_gt(px.fake.n_chunks, 0);
	ck_assert_uint_gt(atomic_load(&kept_bytes), 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), atomic_load(&kept_bytes));
	gp_pool_end_survivor(pool, streamed, 3 * GP_MIB);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

START_TEST(a_chunk_stays_until_the_last_of_its_survivors_is_freed)
{
	struct gp_pool *pool;
	uint64_t one = fixture_alloc_on(64 * GP_KIB, STREAM), other = fixture_alloc_on(64 * GP_KIB, STREAM);

	pool = end(NULL);
	ck_assert_uint_eq(n_survivors, 2);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	gp_pool_end_survivor(pool, one, 64 * GP_KIB);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	gp_pool_end_survivor(pool, other, 64 * GP_KIB);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

/* A block grows into a gap beside another chunk, so that it lies in two. */
START_TEST(a_survivor_in_several_chunks_keeps_all_of_them)
{
	struct gp_pool *pool;
	uint64_t small = fixture_alloc_on(20 * GP_MIB, STREAM), large;

	fixture_free_on(small, STREAM);
	large = fixture_alloc_on(60 * GP_MIB, STREAM);
	ck_assert_uint_ge(px.fake.n_chunks, 2);
	pool = end(NULL);
	ck_assert_uint_eq(n_survivors, 1);
	ck_assert_uint_ge(atomic_load(&kept_bytes), 60 * GP_MIB);
	gp_pool_end_survivor(pool, large, 60 * GP_MIB);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

START_TEST(a_block_that_may_not_survive_ends_with_the_pool)
{
	struct gp_pool *pool;

	(void)fixture_alloc_on(3 * GP_MIB, STREAM);
	pool = end(&n_survivors);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

/* The free of a survivor may come before the driver has ended the context. */
START_TEST(a_survivor_that_is_freed_during_the_end_goes_back_with_the_rest)
{
	uint64_t addr = fixture_alloc_on(3 * GP_MIB, STREAM);

	(void)fixture_pool();
	gp_pool_drop_except(px.pool, survive, NULL);
	gp_pool_end_survivor(px.pool, addr, 3 * GP_MIB);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	check_gone();
}
END_TEST

/* Work of another context uses a block that was freed in the order of its stream. */
START_TEST(the_memory_of_a_free_that_is_under_way_stays_until_its_second_step)
{
	uint64_t addr = fixture_alloc_on(3 * GP_MIB, STREAM);
	struct gp_claimed claimed;
	struct gp_pool *pool;

	ck_assert_int_eq(gp_pool_free_begin(&px.map, addr, &claimed), 0);
	pool = end(NULL);
	ck_assert_uint_eq(n_survivors, 0);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	gp_pool_free_end(&claimed, false, NULL);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

static void *free_it(void *addr)
{
	return (void *)(intptr_t)gp_pool_free(&px.map, *(uint64_t *)addr, GP_FREE_NORMAL);
}

static pthread_t freeing;

/* Starts a free of the block that survives, and gives it time to reach the pool's lock, which this thread has. */
static bool survive_while_freed(void *unused, const struct gp_block_info *info)
{
	survivors[0] = info->addr;
	ck_assert_int_eq(pthread_create(&freeing, NULL, free_it, &survivors[0]), 0);
	for (unsigned i = 0; i < 1000; i++)
		sched_yield();
	return true;
}

START_TEST(a_free_that_meets_the_end_of_the_context_is_not_taken_for_a_wrong_one)
{
	void *r;

	(void)fixture_alloc_on(3 * GP_MIB, STREAM);
	gp_pool_drop_except(px.pool, survive_while_freed, NULL);
	ck_assert_int_eq(pthread_join(freeing, &r), 0);
	ck_assert((intptr_t)r == GP_E_DEAD || (intptr_t)r == GP_E_FOREIGN);
	gp_pool_end_survivor(px.pool, survivors[0], 3 * GP_MIB);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	check_gone();
}
END_TEST

/* A thread moves memory of the pool to the host. */
START_TEST(nothing_survives_whose_memory_is_on_the_move)
{
	struct gp_pool *pool;

	(void)fixture_alloc_on(3 * GP_MIB, STREAM);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	pool = end(NULL);
	ck_assert_uint_eq(n_survivors, 0);
	gp_pool_sleep_leave(px.pool);
	check_gone();
	gp_pool_put(pool);
}
END_TEST

/* The driver refuses to unmap the memory: it is released, so it no longer counts, and its addresses stay. */
START_TEST(a_survivor_that_cannot_be_unmapped_no_longer_counts)
{
	struct gp_pool *pool;
	uint64_t addr = fixture_alloc_on(3 * GP_MIB, STREAM);

	pool = end(NULL);
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 1, 1, 719});
	gp_pool_end_survivor(pool, addr, 3 * GP_MIB);
	ck_assert_uint_eq(atomic_load(&kept_bytes), 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
	ck_assert_uint_gt(px.fake.addresses_bytes, 0);
	gp_pool_put(pool);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("survive");
	TCase *tc = tcase_create("survive");

	tcase_add_checked_fixture(tc, setup, fixture_teardown);
	tcase_add_test(tc, only_used_blocks_in_stream_order_survive);
	tcase_add_test(tc, a_chunk_stays_until_the_last_of_its_survivors_is_freed);
	tcase_add_test(tc, a_survivor_in_several_chunks_keeps_all_of_them);
	tcase_add_test(tc, a_block_that_may_not_survive_ends_with_the_pool);
	tcase_add_test(tc, a_survivor_that_is_freed_during_the_end_goes_back_with_the_rest);
	tcase_add_test(tc, the_memory_of_a_free_that_is_under_way_stays_until_its_second_step);
	tcase_add_test(tc, a_free_that_meets_the_end_of_the_context_is_not_taken_for_a_wrong_one);
	tcase_add_test(tc, nothing_survives_whose_memory_is_on_the_move);
	tcase_add_test(tc, a_survivor_that_cannot_be_unmapped_no_longer_counts);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
