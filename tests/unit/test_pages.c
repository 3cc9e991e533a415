/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Start addresses of blocks that are cut from a larger piece of memory. Large blocks start at a page, since
 * the driver exports only whole pages. Small blocks start at a multiple of GP_ALIGN.
 */

#include <errno.h>

#include "pool/pool_impl.h"
#include "pool_fixture.h"
#include "tests/suite.h"

enum { N_LIVE = 32, N_STEPS = 1500, N_SEVERAL = 8 };

static const uint64_t pages[] = {0, 4 * GP_KIB, 16 * GP_KIB, 64 * GP_KIB}; /* 0: not set in the options */

static uint64_t set_page(int i)
{
	px.options.page_bytes = pages[i];
	return gp_max(pages[i], GP_ALIGN);
}

static uint64_t below(uint64_t *state, uint64_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % n;
}

/* Large sizes, odd and even, from the smallest on. */
static const uint64_t large[] = {GP_MIB + 1, GP_MIB + 512, GP_MIB + 4096, 2 * GP_MIB - 1, 2 * GP_MIB, 3 * GP_MIB + 1000,
	5 * GP_MIB - 512, 9 * GP_MIB + 4097, 20 * GP_MIB + 3, 30 * GP_MIB};

START_TEST(large_blocks_begin_at_pages_and_consist_of_whole_pages)
{
	uint64_t page = set_page(_i);

	for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++) {
		struct gp_block_info info = fixture_info(fixture_alloc(large[i]));

		ck_assert_uint_eq(info.addr % page, 0);
		ck_assert_uint_eq(info.rounded % page, 0);
		ck_assert_uint_eq(info.size, large[i]);
		ck_assert_uint_lt(info.rounded - large[i], page);
	}
}
END_TEST

/* Random allocations and frees, so that large blocks are cut from memory of earlier blocks. */
START_TEST(large_blocks_begin_at_pages_even_where_other_blocks_were)
{
	uint64_t page = set_page(_i), addrs[N_LIVE] = {0}, seed = 11;
	unsigned n_large = 0;

	for (int i = 0; i < N_STEPS; i++) {
		uint64_t k = below(&seed, N_LIVE);
		uint64_t bytes = 1 + below(&seed, i % 4 ? 8 * GP_MIB : 64 * GP_KIB);

		if (addrs[k])
			fixture_free_as(addrs[k], GP_FREE_SYNCED);
		if (fixture_try(bytes, &addrs[k]))
			addrs[k] = 0;
		if (!addrs[k] || bytes <= GP_SMALL_MAX)
			continue;
		n_large++;
		ck_assert_uint_eq(addrs[k] % page, 0);
	}
	ck_assert_uint_gt(n_large, N_STEPS / 2);
}
END_TEST

/* As with the driver, whose small blocks lie in slabs, too. */
START_TEST(small_blocks_begin_at_pages_while_all_requests_are_whole_pages)
{
	uint64_t page = set_page(_i), addrs[N_LIVE] = {0}, seed = 5;

	for (int i = 0; i < N_STEPS; i++) {
		uint64_t k = below(&seed, N_LIVE);

		if (addrs[k])
			fixture_free_as(addrs[k], GP_FREE_SYNCED);
		addrs[k] = fixture_alloc((1 + below(&seed, GP_SMALL_MAX / page)) * page);
		ck_assert_uint_eq(addrs[k] % page, 0);
	}
}
END_TEST

START_TEST(small_blocks_follow_one_another_without_a_gap)
{
	uint64_t first, last;

	set_page(_i);
	first = last = fixture_alloc(100);
	for (int i = 0; i < 100; i++) {
		uint64_t addr = fixture_alloc(100);

		ck_assert_uint_eq(addr, last + GP_ALIGN);
		last = addr;
	}
	ck_assert_uint_eq(fixture_info(first).segment_base, fixture_info(last).segment_base);
}
END_TEST

START_TEST(the_guard_before_large_blocks_is_one_page)
{
	uint64_t page = set_page(_i);
	struct gp_block_info info = fixture_info(fixture_alloc(3 * GP_MIB));

	ck_assert_uint_eq(info.addr, info.segment_base + page);
	info = fixture_info(fixture_alloc(100));
	ck_assert_uint_eq(info.addr, info.segment_base + GP_ALIGN);
}
END_TEST

/* Sizes for which the guard leaves no room for a last block, or leaves less than a page after it. */
START_TEST(a_segment_can_be_released_whole_after_any_use)
{
	uint64_t addrs[N_SEVERAL];

	set_page(_i);
	for (size_t n = 1; n <= N_SEVERAL; n++) {
		for (size_t i = 0; i < n; i++)
			addrs[i] = fixture_alloc(2 * GP_MIB - n * 3000);
		for (size_t i = 0; i < n; i++)
			fixture_free_as(addrs[i], GP_FREE_SYNCED);
		gp_pool_reclaim(fixture_pool());
		ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	}
}
END_TEST

/* The limit leaves room for the bytes, but not for whole pages. */
START_TEST(a_large_block_begins_at_a_page_even_if_memory_is_short)
{
	uint64_t page = set_page(_i), addr = 0, bytes = 2 * GP_MIB + GP_ALIGN;

	atomic_store(&px.budget.limit_bytes, bytes + page);
	ck_assert_int_eq(fixture_try(bytes, &addr), 0);
	ck_assert_uint_eq(addr % page, 0);
	ck_assert_uint_eq(fixture_info(addr).rounded % page, 0);
	fixture_free_as(addr, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	atomic_store(&px.budget.limit_bytes, bytes);
	ck_assert_int_eq(fixture_try(bytes, &addr), page > GP_ALIGN ? -ENOMEM : 0);
}
END_TEST

START_TEST(the_pool_check_finds_a_large_block_that_begins_inside_a_page)
{
	set_page(1);
	fixture_alloc(GP_MIB + 4096);
	fixture_alloc(GP_MIB + 4096);
	px.pool->options.page_bytes = 64 * GP_KIB;
	ck_assert_ptr_nonnull(gp_pool_check(px.pool));
	px.pool->options.page_bytes = 4 * GP_KIB;
	ck_assert_ptr_null(gp_pool_check(px.pool));
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	ADD_ROWS(tc, pages, large_blocks_begin_at_pages_and_consist_of_whole_pages);
	ADD_ROWS(tc, pages, large_blocks_begin_at_pages_even_where_other_blocks_were);
	ADD_ROWS(tc, pages, small_blocks_begin_at_pages_while_all_requests_are_whole_pages);
	ADD_ROWS(tc, pages, small_blocks_follow_one_another_without_a_gap);
	tcase_add_test(tc, the_pool_check_finds_a_large_block_that_begins_inside_a_page);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *split = case_of(GP_KIND_SPLIT);

	ADD_ROWS(split, pages, the_guard_before_large_blocks_is_one_page);
	ADD_ROWS(split, pages, a_segment_can_be_released_whole_after_any_use);
	ADD_ROWS(split, pages, a_large_block_begins_at_a_page_even_if_memory_is_short);
	suite_add_tcase(suite, split);
	suite_add_tcase(suite, case_of(GP_KIND_VMM));
	return suite_run(suite);
}
