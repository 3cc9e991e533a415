/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Pointers from another time, as a thread has them that another's cudaDeviceReset has overtaken: what it frees may be
 * somebody's again, or nobody's yet. The program is wrong; the books have to stay right, and others are not harmed.
 */

#include <check.h>

#include "pool_fixture.h"
#include "tests/suite.h"

/* The program frees what is ours past us: the driver has the address for whoever asks next. */
static void free_past_the_pool(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;
	struct gp_backend be = fake_backend(fake);

	if (call != FAKE_RESERVE)
		return;
	fake->hook = NULL;
	ck_assert_int_eq(be.ops->release(be.arg, *addr), 0);
}

START_TEST(an_address_that_the_driver_gives_out_twice_goes_back_once)
{
	uint64_t addr, again;

	addr = fixture_alloc(20 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	px.fake.hook = free_past_the_pool;
	px.fake.hook_arg = &addr;
	/* With one address twice on the books the invariants are not to be had. */
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

/* Another thread frees it, with such a pointer, and the descriptor comes to stand for what it allocates. */
static void free_from_elsewhere(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg, other;

	if (call == FAKE_RESERVE)
		*addr = 0;
	if (call != FAKE_AVAILABLE || *addr)
		return;
	fake->hook = NULL;
	*addr = fake->log[(fake->n_logged - 1) % FAKE_LOG_SIZE].addr;
	ck_assert_int_eq(gp_pool_free(&px.map, *addr, GP_FREE_SYNCED), 0);
	gp_pool_reclaim(px.pool);
	gp_pool_reclaim(px.pool);
	ck_assert_int_eq(gp_pool_alloc(px.pool, 24 * GP_MIB, 0, &other), 0);
}

START_TEST(who_is_given_a_block_is_told_its_address_though_it_is_freed_at_once)
{
	uint64_t handed = 1, addr, lower;

	px.options.reserve_bytes = 1;
	lower = fixture_alloc(24 * GP_MIB);
	(void)fixture_alloc(16 * GP_MIB);
	fixture_free_as(lower, GP_FREE_SYNCED);
	gp_pool_reclaim(px.pool);
	px.fake.hook = free_from_elsewhere;
	px.fake.hook_arg = &handed;
	ck_assert_int_eq(gp_pool_alloc(px.pool, 40 * GP_MIB, 0, &addr), 0);
	ck_assert_uint_eq(addr, handed);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, an_address_that_the_driver_gives_out_twice_goes_back_once);
	tcase_add_test(tc, who_is_given_a_block_is_told_its_address_though_it_is_freed_at_once);
	return tc;
}

/* Not vmm: its addresses are its own, which no free of the driver's takes away. */
int main(void)
{
	static const enum gp_kind kinds[] = {GP_KIND_NONE, GP_KIND_SIMPLE, GP_KIND_BINNED, GP_KIND_SPLIT};
	Suite *suite = suite_create("stray");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		suite_add_tcase(suite, case_of(kinds[i]));
	return suite_run(suite);
}
