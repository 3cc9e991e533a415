/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Stale pointers, as a thread has them after another thread's cudaDeviceReset. The memory that it frees may
 * belong to another owner by then, or to none yet. The program is wrong, but the counters must stay right and
 * other owners must not be harmed.
 */

#include <check.h>

#include "pool_fixture.h"
#include "tests/suite.h"

/* Plays a free of a pooled block that bypasses the hooks: the driver may hand out the address again. */
static void free_past_the_pool(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;
	struct gp_backend be = fake_backend(fake);

	if (call != FAKE_RESERVE)
		return;
	fake->hook = NULL;
	ck_assert_int_eq(be.ops->release(be.arg, *addr), 0);
}

START_TEST(an_address_that_the_driver_hands_out_twice_goes_back_once)
{
	uint64_t addr, again;

	addr = fixture_alloc(20 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	px.fake.hook = free_past_the_pool;
	px.fake.hook_arg = &addr;
	/* The invariants cannot hold while one address is recorded twice, so they are not checked here. */
	ck_assert_int_eq(gp_pool_alloc(px.pool, 40 * GP_MIB, 0, &again), 0);
	ck_assert_uint_eq(again, addr);
	ck_assert_int_eq(gp_pool_free(&px.map, again, GP_FREE_NORMAL), 0);
	fake_complete_all(&px.fake);
	gp_pool_reclaim(px.pool);
	gp_pool_reclaim(px.pool);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(fixture_stats().driver_frees, 1);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

/*
 * Plays another thread, which frees the new block by a stale pointer. The descriptor is then reused for
 * another block.
 */
static void free_from_elsewhere(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg, other;

	if (call == FAKE_RESERVE)
		*addr = 0;
	if (call != FAKE_ASK_SIBLINGS || *addr)
		return;
	fake->hook = NULL;
	*addr = fake->log[(fake->n_logged - 1) % FAKE_LOG_SIZE].addr;
	ck_assert_int_eq(gp_pool_free(&px.map, *addr, GP_FREE_SYNCED), 0);
	gp_pool_reclaim(px.pool);
	gp_pool_reclaim(px.pool);
	ck_assert_int_eq(gp_pool_alloc(px.pool, 24 * GP_MIB, 0, &other), 0);
}

START_TEST(an_allocation_returns_its_address_even_if_another_thread_frees_it_at_once)
{
	uint64_t freed_addr = 1, addr, lower;

	/* More than there is, so that an allocation asks other pools for memory before it returns. */
	px.options.reserve_bytes = 1024 * GP_GIB;
	lower = fixture_alloc(24 * GP_MIB);
	(void)fixture_alloc(16 * GP_MIB);
	fixture_free_as(lower, GP_FREE_SYNCED);
	gp_pool_reclaim(px.pool);
	px.fake.hook = free_from_elsewhere;
	px.fake.hook_arg = &freed_addr;
	ck_assert_int_eq(gp_pool_alloc(px.pool, 40 * GP_MIB, 0, &addr), 0);
	ck_assert_uint_eq(addr, freed_addr);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, an_address_that_the_driver_hands_out_twice_goes_back_once);
	tcase_add_test(tc, an_allocation_returns_its_address_even_if_another_thread_frees_it_at_once);
	return tc;
}

/* The kind vmm is left out, since no free of the driver can release its reserved addresses. */
int main(void)
{
	static const enum gp_kind kinds[] = {GP_KIND_NONE, GP_KIND_SIMPLE, GP_KIND_BINNED, GP_KIND_SPLIT};
	Suite *suite = suite_create("stray");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		suite_add_tcase(suite, case_of(kinds[i]));
	return suite_run(suite);
}
