/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The kind vmm: where its memory is, when it moves, and what happens when the driver has no more of it. */

#include <errno.h>
#include <stdlib.h>

#include "pool/mapped.h"
#include "pool/pool_control.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define GRANULE (2 * GP_MIB)

static uint64_t n_driver_calls(void)
{
	struct gp_stats stats = fixture_stats();

	return stats.driver_allocs + stats.driver_frees + stats.moves;
}

static unsigned n_creates(void)
{
	return fake_calls(&px.fake, FAKE_RESERVE);
}

START_TEST(only_what_a_request_lacks_is_mapped)
{
	uint64_t addr = fixture_alloc(10 * GP_MIB);

	ck_assert_uint_eq(fixture_stats().total_bytes, 10 * GP_MIB);
	fixture_free(addr);
	/* It grows where it is. */
	ck_assert_uint_eq(fixture_alloc(16 * GP_MIB), addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, 16 * GP_MIB);
	/* Half a granule is left of this one, and the next begins there. */
	addr = fixture_alloc(3 * GP_MIB);
	ck_assert_uint_eq(fixture_alloc(3 * GP_MIB), addr + 3 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 22 * GP_MIB);
}
END_TEST

START_TEST(small_blocks_and_large_ones_are_far_apart)
{
	uint64_t small = fixture_alloc(GP_MIB), large = fixture_alloc(GP_MIB + 1);

	ck_assert_uint_eq(fixture_alloc(GP_KIB), small + GP_MIB);
	ck_assert_uint_ge(large > small ? large - small : small - large, FIXTURE_CAPACITY);
	ck_assert_uint_eq(fixture_stats().total_bytes, 2 * GRANULE);
}
END_TEST

/* Blocks of two granules, next to one another, some of which are free: every other one, or fewer. */
enum { N_BLOCKS = 16 };

static uint64_t blocks[N_BLOCKS];

static void make_comb(int every)
{
	for (int i = 0; i < N_BLOCKS; i++)
		blocks[i] = fixture_alloc(2 * GRANULE);
	for (int i = 0; i < N_BLOCKS; i += every)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	n_creates();
}

START_TEST(memory_that_lies_free_in_pieces_is_moved_together)
{
	make_comb(2);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(n_creates(), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, N_BLOCKS * 2 * GRANULE);
	ck_assert_uint_eq(fixture_stats().moves, N_BLOCKS / 2);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 0);
	/* The holes are addresses for others. */
	fixture_alloc(2 * GRANULE);
	ck_assert_uint_eq(n_creates(), 1);
}
END_TEST

START_TEST(what_the_gpu_may_still_touch_does_not_move)
{
	for (int i = 0; i < N_BLOCKS; i++)
		blocks[i] = fixture_alloc(2 * GRANULE);
	px.fake.has_one_stream = true;
	fixture_work();
	for (int i = 0; i < N_BLOCKS; i += 2)
		fixture_free(blocks[i]);
	/* Ordered it may be handed out, but not moved. */
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 0);
	ck_assert_uint_eq(fixture_stats().moves, 0);
	fake_complete_all(&px.fake);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_gt(fixture_stats().moves, 0);
}
END_TEST

START_TEST(a_piece_that_is_partly_used_stays_where_it_is)
{
	uint64_t addr = fixture_alloc(20 * GP_MIB), kept;

	/* One piece, and the first half of it is used. */
	fixture_free_as(addr, GP_FREE_SYNCED);
	kept = fixture_alloc(10 * GP_MIB);
	ck_assert_uint_eq(kept, addr);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 0);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 10 * GP_MIB);
	fixture_free_as(kept, GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 20 * GP_MIB);
}
END_TEST

/* A round of a loop in which memory has to move while the pool is as small as it can be. */
static void run_round(void)
{
	uint64_t large;

	make_comb(8);
	large = fixture_alloc(4 * GRANULE);
	for (int i = 0; i < N_BLOCKS; i++)
		if (i % 8)
			fixture_free_as(blocks[i], GP_FREE_SYNCED);
	fixture_free_as(large, GP_FREE_SYNCED);
}

START_TEST(a_loop_calls_the_driver_no_more_after_three_rounds)
{
	uint64_t calls;

	for (int i = 0; i < 3; i++)
		run_round();
	calls = n_driver_calls();
	ck_assert_uint_gt(fixture_stats().moves, 0);
	for (int i = 0; i < 10; i++)
		run_round();
	ck_assert_uint_eq(n_driver_calls(), calls);
}
END_TEST

START_TEST(a_loop_that_would_move_for_ever_gets_more_memory_instead)
{
	uint64_t addr;
	int n = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		blocks[i] = fixture_alloc(2 * GRANULE);
	do {
		uint64_t moves = fixture_stats().moves;

		for (int i = 0; i < N_BLOCKS; i += 2)
			fixture_free_as(blocks[i], GP_FREE_SYNCED);
		addr = fixture_alloc((8 + n % 3) * GRANULE);
		fixture_free_as(addr, GP_FREE_SYNCED);
		for (int i = 0; i < N_BLOCKS; i += 2)
			blocks[i] = fixture_alloc(2 * GRANULE);
		if (moves == fixture_stats().moves)
			break;
	} while (++n < 100);
	ck_assert_int_lt(n, 50);
}
END_TEST

/*
 * The nth call fails; and then, of those that undo the rest, the nth call to unmap and those behind it. is_half_way:
 * what is being mapped is mapped then, and cannot be unmapped either.
 */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
	unsigned nth_unmap, n_unmaps;
	bool is_half_way;
} failures[] = {
	{FAKE_RESERVE, 1, 719}, {FAKE_RESERVE, 2, 719}, {FAKE_RESERVE, 3, 719},
	{FAKE_MAP, 1, 719}, {FAKE_MAP, 2, 719}, {FAKE_MAP, 3, 719}, {FAKE_MAP, 4, -ENOMEM},
	{FAKE_UNMAP, 1, 719}, {FAKE_UNMAP, 2, 719}, {FAKE_UNMAP, 3, 719},
	{FAKE_RESERVE, 1, 719, 1, 1}, {FAKE_RESERVE, 3, 719, 1, 1}, {FAKE_RESERVE, 3, 719, 2, 1},
	{FAKE_RESERVE, 3, 719, 5, 1}, {FAKE_RESERVE, 3, 719, 10, 1}, {FAKE_RESERVE, 4, 719, 1, 100},
	{FAKE_RESERVE, 4, -ENOMEM, 1, 1}, {FAKE_RESERVE, 4, -ENOMEM, 3, 100},
	{FAKE_MAP, 3, 719, 1, 1}, {FAKE_MAP, 3, 719, 2, 1}, {FAKE_MAP, 3, 719, 1, 100}, {FAKE_MAP, 11, 719, 2, 3},
	{FAKE_MAP, 1, 719, 0, 0, true}, {FAKE_MAP, 4, 719, 0, 0, true}, {FAKE_MAP, 9, 719, 0, 0, true},
	{FAKE_MAP, 9, -ENOMEM, 0, 0, true}, {FAKE_MAP, 12, -ENOMEM, 0, 0, true}, {FAKE_MAP, 12, 719, 1, 100, true},
};

struct failing {
	int row;
	unsigned n_calls;
};

static void fail_to_unmap(struct fake *fake, enum fake_call call)
{
	struct failing *failing = fake->hook_arg;
	unsigned nth = failures[failing->row].nth_unmap, count = failures[failing->row].n_unmaps;

	if (call == failures[failing->row].call && ++failing->n_calls == failures[failing->row].nth && count)
		fake_plan(fake, (struct fake_plan){FAKE_UNMAP, nth, count, 718});
}

static void plan_failures(struct failing *failing)
{
	fake_plan(&px.fake, (struct fake_plan){
		failures[failing->row].call, failures[failing->row].nth, 1, failures[failing->row].error});
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNDO, 1, failures[failing->row].is_half_way, 718});
	px.fake.hook_arg = failing;
	px.fake.hook = fail_to_unmap;
}

static void forget_failures(const struct failing *failing)
{
	px.fake.hook = NULL;
	fake_plan(&px.fake, (struct fake_plan){failures[failing->row].call});
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP});
}

/* Twelve pieces: some are moved, some are new. */
START_TEST(an_error_on_the_way_loses_nothing)
{
	struct failing failing = {.row = _i};
	uint64_t used, addr = 0;
	int r;

	make_comb(2);
	used = fixture_stats().used_bytes;
	plan_failures(&failing);
	r = fixture_try(100 * GP_MIB, &addr);
	ck_assert(r == 0 || r == 719);
	ck_assert_uint_eq(fixture_stats().used_bytes, used + (r ? 0 : 100 * GP_MIB));
	ck_assert_uint_eq(fixture_stats().total_bytes, px.fake.reserved_bytes);
	ck_assert(!(failures[_i].n_unmaps || failures[_i].is_half_way) || fixture_stats().release_errors > 0);
	forget_failures(&failing);
	if (r)
		addr = fixture_alloc(100 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	for (int i = 1; i < N_BLOCKS; i += 2)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

/* Several pieces that lie free, of which the driver does not unmap the first. */
static void stick(uint64_t want)
{
	for (int i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(20 * GP_MIB);
	for (int i = 0; i < 4; i++)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 1, 1, 719});
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), want), want);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 1 + want / (20 * GP_MIB));
	ck_assert_uint_eq(fixture_stats().release_errors, 1);
}

START_TEST(what_cannot_be_unmapped_keeps_nothing_else_from_going_back)
{
	stick(40 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 40 * GP_MIB);
}
END_TEST

START_TEST(what_could_not_be_unmapped_is_left_alone_until_all_is_to_go_back)
{
	stick(20 * GP_MIB);
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), 59 * GP_MIB), 40 * GP_MIB);
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), GP_MIB), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 2);
	/* Whoever wants memory can have it. */
	fixture_free_as(fixture_alloc(20 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(what_cannot_be_moved_stays_and_other_memory_serves)
{
	uint64_t addr;

	make_comb(2);
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 1, 100, 719});
	addr = fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), N_BLOCKS / 2);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(2 * GRANULE), blocks[0]);
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP});
}
END_TEST

/* In vain at first, and once the driver is not asked to any more. */
START_TEST(what_was_mapped_half_way_serves_nobody_and_counts_until_it_goes)
{
	uint64_t addr;

	fake_plan(&px.fake, (struct fake_plan){FAKE_MAP, 1, 1, 719});
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNDO, 1, 1, 718});
	ck_assert_int_eq(fixture_try(20 * GP_MIB, &addr), 719);
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
	for (int i = 0; i < 3; i++)
		blocks[i] = fixture_alloc(20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 80 * GP_MIB);
	for (int i = 0; i < 3; i++)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 0);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 80 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(at_a_limit_memory_moves_however_little_the_pool_has)
{
	gp_budget_init(&px.budget, N_BLOCKS * 2 * GRANULE);
	make_comb(2);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
	ck_assert_uint_eq(fixture_stats().used_bytes, N_BLOCKS * 2 * GRANULE);
}
END_TEST

START_TEST(where_nothing_can_be_mapped_there_is_no_such_pool)
{
	struct gp_pool *pool = NULL;

	px.fake.cannot_map = true;
	ck_assert_int_eq(gp_pool_new(&px.options, &pool), -ENOTSUP);
	ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(an_exported_block_takes_its_pieces_with_it_and_nothing_else)
{
	uint64_t first = fixture_alloc(3 * GP_MIB), shared = fixture_alloc(3 * GP_MIB), last = fixture_alloc(GRANULE);

	ck_assert_uint_eq(shared, first + 3 * GP_MIB); /* they share the second granule, which is a piece */
	ck_assert_int_eq(gp_pool_export(&px.map, shared), 0);
	fixture_note_export(shared);
	fixture_free_as(shared, GP_FREE_SYNCED);
	fixture_free_as(last, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(GRANULE), last);
	ck_assert_uint_gt(gp_pool_reclaim(fixture_pool()), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, 3 * GRANULE);
	/* The other's end lies in memory that was exported. */
	fixture_free_as(first, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, GRANULE);
}
END_TEST

START_TEST(an_address_inside_a_block_is_found_among_many)
{
	uint64_t small[200], large = fixture_alloc(100 * GP_MIB + 512);

	for (int i = 0; i < 200; i++)
		small[i] = fixture_alloc(512 * (uint64_t)(1 + i % 7));
	for (int i = 0; i < 200; i += 3)
		fixture_free_as(small[i], GP_FREE_SYNCED);
	for (int i = 1; i < 200; i += 3)
		ck_assert_uint_eq(fixture_info(small[i] + 100).addr, small[i]);
	ck_assert_uint_eq(fixture_info(large + 77 * GP_MIB).addr, large);
	ck_assert(!fixture_info(large + 100 * GP_MIB + GRANULE).is_used);
}
END_TEST

/* The context ends while the thread is at the driver's. */
static void drop_there(struct fake *fake, enum fake_call call)
{
	if (call != *(enum fake_call *)fake->hook_arg)
		return;
	fake->hook = NULL;
	atomic_store(&fake->has_ended, true);
	gp_pool_drop(px.pool);
	gp_pool_unmap(px.pool);
}

static enum fake_call places[] = {FAKE_RESERVE, FAKE_MAP, FAKE_UNMAP};

START_TEST(nothing_is_lost_when_the_context_ends_meanwhile)
{
	uint64_t addr;

	make_comb(2);
	px.fake.hook_arg = &places[_i];
	px.fake.hook = drop_there;
	ck_assert_int_eq(gp_pool_alloc(px.pool, 100 * GP_MIB, 0, &addr), GP_E_DEAD);
	ck_assert_ptr_null(px.fake.hook);
	ck_assert_msg(!fake_check_unmapped(&px.fake), "%s", fake_check_unmapped(&px.fake));
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}
END_TEST

/* Whoever got them next would find memory there. */
START_TEST(addresses_where_the_driver_unmaps_nothing_even_in_the_end_are_kept_and_no_others)
{
	uint64_t both;

	/* A piece in each range. They are unmapped in that order. */
	fixture_alloc(GP_MIB);
	fixture_alloc(20 * GP_MIB);
	both = px.fake.addresses_bytes;
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 1 + (unsigned)_i, 1, 719});
	gp_pool_drop(px.pool);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 2);
	ck_assert_uint_eq(px.fake.n_pieces, 1);
	ck_assert_uint_eq(px.fake.addresses_bytes, both / 2);
	ck_assert_msg(!fake_check_unmapped(&px.fake), "%s", fake_check_unmapped(&px.fake));
}
END_TEST

static void count_piece(void *n, uint64_t addr, uint64_t bytes)
{
	++*(unsigned *)n;
}

/* The list of them is for gp_pool_unmap alone then, which takes no lock. */
START_TEST(a_pool_that_is_gone_has_no_pieces_to_tell_of)
{
	unsigned n = 0;

	fixture_alloc(10 * GP_MIB);
	ck_assert_int_eq(gp_pool_each_piece(px.pool, count_piece, &n), 0);
	ck_assert_uint_eq(n, 1);
	gp_pool_drop(px.pool);
	ck_assert_int_eq(gp_pool_each_piece(px.pool, count_piece, &n), 0);
	ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(a_pending_block_that_was_exported_is_not_waited_for_in_vain)
{
	uint64_t addr;

	px.options.completion_only = true;
	px.options.pending_bytes_max = 0;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_note_export(addr);
	fixture_alloc(4 * GP_MIB);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
}
END_TEST

/* A second context comes, say, while memory is mapped behind what may be used on order alone; and nobody can wait. */
static unsigned n_maps_before;

static void require_completion_there(struct fake *fake, enum fake_call call)
{
	if (call != FAKE_MAP || n_maps_before--)
		return;
	fake->hook = NULL;
	atomic_store(&fake->is_capturing, true);
	ck_assert_int_eq(gp_pool_require_completion(px.pool), -EBUSY);
	px.options.completion_only = true;
}

/* In the first attempt, or in one that follows another, which found too little memory. */
START_TEST(what_was_taken_on_order_alone_is_not_handed_out_once_that_is_not_enough)
{
	uint64_t addr = fixture_alloc(40 * GP_MIB);

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free(addr);
	fixture_alloc(GP_ALIGN); /* orders, since so much is pending */
	ck_assert_uint_eq(fixture_stats().cached_bytes, 40 * GP_MIB + GRANULE - GP_ALIGN);
	n_maps_before = (unsigned)_i;
	if (_i)
		fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 2, 1, -ENOMEM});
	px.fake.hook = require_completion_there;
	ck_assert_uint_ne(fixture_alloc(80 * GP_MIB), addr);
	ck_assert_ptr_null(px.fake.hook);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("range");
	TCase *tc = fixture_case(GP_KIND_VMM);

	tcase_add_test(tc, only_what_a_request_lacks_is_mapped);
	tcase_add_test(tc, small_blocks_and_large_ones_are_far_apart);
	tcase_add_test(tc, memory_that_lies_free_in_pieces_is_moved_together);
	tcase_add_test(tc, what_the_gpu_may_still_touch_does_not_move);
	tcase_add_loop_test(tc, what_was_taken_on_order_alone_is_not_handed_out_once_that_is_not_enough, 0, 2);
	tcase_add_test(tc, a_piece_that_is_partly_used_stays_where_it_is);
	tcase_add_test(tc, a_loop_calls_the_driver_no_more_after_three_rounds);
	tcase_add_test(tc, a_loop_that_would_move_for_ever_gets_more_memory_instead);
	tcase_add_loop_test(tc, an_error_on_the_way_loses_nothing, 0, sizeof(failures) / sizeof(*failures));
	tcase_add_test(tc, what_cannot_be_unmapped_keeps_nothing_else_from_going_back);
	tcase_add_test(tc, what_could_not_be_unmapped_is_left_alone_until_all_is_to_go_back);
	tcase_add_test(tc, what_cannot_be_moved_stays_and_other_memory_serves);
	tcase_add_test(tc, what_was_mapped_half_way_serves_nobody_and_counts_until_it_goes);
	tcase_add_test(tc, at_a_limit_memory_moves_however_little_the_pool_has);
	tcase_add_test(tc, where_nothing_can_be_mapped_there_is_no_such_pool);
	tcase_add_test(tc, an_exported_block_takes_its_pieces_with_it_and_nothing_else);
	tcase_add_test(tc, a_pending_block_that_was_exported_is_not_waited_for_in_vain);
	tcase_add_test(tc, an_address_inside_a_block_is_found_among_many);
	tcase_add_test(tc, a_pool_that_is_gone_has_no_pieces_to_tell_of);
	tcase_add_loop_test(
		tc, addresses_where_the_driver_unmaps_nothing_even_in_the_end_are_kept_and_no_others, 0, 2);
	tcase_add_loop_test(tc, nothing_is_lost_when_the_context_ends_meanwhile, 0, sizeof(places) / sizeof(*places));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
