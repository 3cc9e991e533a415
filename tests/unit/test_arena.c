/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The kind vmm: where memory is mapped, when chunks move, and the handling of driver errors and of a full device.
 */

#include <errno.h>
#include <stdlib.h>

#include "pool/pool.h"
#include "pool/pool_control.h"
#include "pool/vmm/pin.h"
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

START_TEST(vmm_maps_only_the_memory_that_a_request_lacks)
{
	uint64_t addr = fixture_alloc(10 * GP_MIB);

	ck_assert_uint_eq(fixture_stats().total_bytes, 10 * GP_MIB);
	fixture_free(addr);
	/* The block grows in place. */
	ck_assert_uint_eq(fixture_alloc(16 * GP_MIB), addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, 16 * GP_MIB);
	/* Half a granule is left after this block, and the next block begins there. */
	addr = fixture_alloc(3 * GP_MIB);
	ck_assert_uint_eq(fixture_alloc(3 * GP_MIB), addr + 3 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 22 * GP_MIB);
}
END_TEST

START_TEST(vmm_keeps_small_and_large_blocks_in_separate_arenas)
{
	uint64_t small = fixture_alloc(GP_MIB), large = fixture_alloc(GP_MIB + 1);

	ck_assert_uint_eq(fixture_alloc(GP_KIB), small + GP_MIB);
	ck_assert_uint_ge(large > small ? large - small : small - large, FIXTURE_CAPACITY);
	ck_assert_uint_eq(fixture_stats().total_bytes, 2 * GRANULE);
}
END_TEST

/* Adjacent blocks of two granules, of which every nth is free. */
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

START_TEST(vmm_moves_scattered_free_chunks_together_for_a_large_request)
{
	make_comb(2);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(n_creates(), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, N_BLOCKS * 2 * GRANULE);
	ck_assert_uint_eq(fixture_stats().moves, N_BLOCKS / 2);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 0);
	/* The unmapped addresses serve later blocks. */
	fixture_alloc(2 * GRANULE);
	ck_assert_uint_eq(n_creates(), 1);
}
END_TEST

/* The call that fails for the first time, if any. -ENOMEM: the device is full at that moment. */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
} replacements[] = {
	{FAKE_N_CALLS, 0, 0},
	{FAKE_UNMAP, 1, 719},
	{FAKE_UNMAP, 2, 719},
	{FAKE_RESERVE, 1, -ENOMEM},
	{FAKE_RESERVE, 1, 719},
	{FAKE_MAP, 1, 719},
	{FAKE_MAP, 2, 719},
};

/* Free chunks of 10 MiB lie between blocks in use. A block of 12 MiB takes one, and 2 MiB of new memory. */
START_TEST(a_free_chunk_that_is_too_large_goes_back_for_a_new_one)
{
	const struct fake_plan plan = {replacements[_i].call, replacements[_i].nth, 1, replacements[_i].error};
	uint64_t used, addr;
	int r;

	for (int i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(i % 2 ? GRANULE : 10 * GP_MIB);
	fixture_free_as(blocks[0], GP_FREE_SYNCED);
	fixture_free_as(blocks[2], GP_FREE_SYNCED);
	if (plan.error)
		fake_plan(&px.fake, plan);
	r = fixture_try(12 * GP_MIB, &addr);
	used = 2 * GRANULE + (r ? 0 : 12 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().used_bytes, used);
	ck_assert_uint_eq(fixture_stats().total_bytes, px.fake.reserved_bytes);
	if (!plan.error) {
		ck_assert_uint_eq(fixture_stats().total_bytes, used);
		ck_assert_uint_eq(fixture_stats().moves, 1);
		ck_assert_uint_eq(fixture_stats().driver_frees, 1);
	}
	if (plan.error == -ENOMEM)
		ck_assert_int_eq(r, 0);
	if (!r)
		fixture_free_as(addr, GP_FREE_SYNCED);
	fixture_free_as(blocks[1], GP_FREE_SYNCED);
	fixture_free_as(blocks[3], GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

/* Two gaps are large enough, in either order, and the addresses behind all blocks, too. */
START_TEST(a_block_is_placed_where_it_leaves_the_smallest_gap)
{
	uint64_t sizes[] = {_i ? 4 : 6, 1, _i ? 6 : 4, 1};

	for (int i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(sizes[i] * GRANULE);
	fixture_free_as(blocks[0], GP_FREE_SYNCED);
	fixture_free_as(blocks[2], GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 2 * GRANULE);
	ck_assert_uint_eq(fixture_alloc(3 * GRANULE), blocks[_i ? 0 : 2]);
	ck_assert_uint_eq(fixture_alloc(5 * GRANULE), blocks[_i ? 2 : 0]);
}
END_TEST

/* A gap of 20 MiB lies between free blocks of 6 and 10 MiB. A block of 30 MiB would fit into the gap and the latter. */
START_TEST(a_block_is_placed_beside_a_block_in_use_if_a_rest_would_lie_between_them)
{
	static const uint64_t sizes[] = {2 * GP_MIB, 6 * GP_MIB, 20 * GP_MIB, 10 * GP_MIB};

	for (int i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(sizes[i]);
	for (int i = 1; i < 4; i++)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), 20 * GP_MIB), 20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 18 * GP_MIB);
	ck_assert_uint_eq(fixture_alloc(30 * GP_MIB), blocks[1]);
	ck_assert_uint_eq(fixture_stats().total_bytes, 38 * GP_MIB);
}
END_TEST

START_TEST(vmm_does_not_move_chunks_that_the_gpu_may_still_use)
{
	for (int i = 0; i < N_BLOCKS; i++)
		blocks[i] = fixture_alloc(2 * GRANULE);
	px.fake.has_one_stream = true;
	fixture_work();
	for (int i = 0; i < N_BLOCKS; i += 2)
		fixture_free(blocks[i]);
	/* After a GPU wait the blocks may be handed out, but not moved. */
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 0);
	ck_assert_uint_eq(fixture_stats().moves, 0);
	fake_complete_all(&px.fake);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_gt(fixture_stats().moves, 0);
}
END_TEST

START_TEST(a_partly_used_chunk_is_not_released)
{
	uint64_t addr = fixture_alloc(20 * GP_MIB), kept;

	/* One chunk, whose first half is used. */
	fixture_free_as(addr, GP_FREE_SYNCED);
	kept = fixture_alloc(10 * GP_MIB);
	ck_assert_uint_eq(kept, addr);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 0);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 10 * GP_MIB);
	fixture_free_as(kept, GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 20 * GP_MIB);
}
END_TEST

/* One iteration of a loop. Memory has to move in it as long as the pool is as small as possible. */
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

START_TEST(a_vmm_loop_makes_no_driver_call_after_three_rounds)
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

START_TEST(vmm_grows_instead_of_moving_chunks_in_every_round_of_a_loop)
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
 * The nth call fails. Of the unmap calls that undo the rest after that, the nth_unmap-th and those after it
 * fail, n_unmaps in all. is_half_way: the chunk that is being mapped stays mapped and cannot be unmapped
 * either.
 */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
	unsigned nth_unmap, n_unmaps;
	bool is_half_way;
} failures[] = {
	{FAKE_RESERVE, 1, 719},
	{FAKE_RESERVE, 2, 719},
	{FAKE_RESERVE, 3, 719},
	{FAKE_MAP, 1, 719},
	{FAKE_MAP, 2, 719},
	{FAKE_MAP, 3, 719},
	{FAKE_MAP, 4, -ENOMEM},
	{FAKE_UNMAP, 1, 719},
	{FAKE_UNMAP, 2, 719},
	{FAKE_UNMAP, 3, 719},
	{FAKE_RESERVE, 1, 719, 1, 1},
	{FAKE_RESERVE, 3, 719, 1, 1},
	{FAKE_RESERVE, 3, 719, 2, 1},
	{FAKE_RESERVE, 3, 719, 5, 1},
	{FAKE_RESERVE, 3, 719, 10, 1},
	{FAKE_RESERVE, 4, 719, 1, 100},
	{FAKE_RESERVE, 4, -ENOMEM, 1, 1},
	{FAKE_RESERVE, 4, -ENOMEM, 3, 100},
	{FAKE_MAP, 3, 719, 1, 1},
	{FAKE_MAP, 3, 719, 2, 1},
	{FAKE_MAP, 3, 719, 1, 100},
	{FAKE_MAP, 11, 719, 2, 3},
	{FAKE_MAP, 1, 719, 0, 0, true},
	{FAKE_MAP, 4, 719, 0, 0, true},
	{FAKE_MAP, 9, 719, 0, 0, true},
	{FAKE_MAP, 9, -ENOMEM, 0, 0, true},
	{FAKE_MAP, 12, -ENOMEM, 0, 0, true},
	{FAKE_MAP, 12, 719, 1, 100, true},
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
	fake_plan(&px.fake, (struct fake_plan){failures[failing->row].call, failures[failing->row].nth, 1,
				    failures[failing->row].error});
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

/* The request needs twelve chunks: some are moved, some are new. */
START_TEST(an_error_while_vmm_assembles_a_block_loses_no_memory)
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

/* Frees several chunks and trims `want` bytes, while the driver refuses to unmap the first chunk. */
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

START_TEST(a_chunk_that_cannot_be_unmapped_does_not_keep_others_from_being_released)
{
	stick(40 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 40 * GP_MIB);
}
END_TEST

START_TEST(a_stuck_chunk_is_left_alone_until_a_full_reclaim)
{
	stick(20 * GP_MIB);
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), 59 * GP_MIB), 40 * GP_MIB);
	ck_assert_uint_eq(gp_pool_trim(fixture_pool(), GP_MIB), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 2);
	/* An allocation may use the stuck chunk. */
	fixture_free_as(fixture_alloc(20 * GP_MIB), GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(vmm_uses_new_memory_if_free_chunks_cannot_be_moved)
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

/* The undo of the map fails. Later calls to unmap succeed. */
START_TEST(a_chunk_that_was_mapped_half_way_serves_no_block_and_counts_until_released)
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

START_TEST(at_a_limit_vmm_moves_memory_however_small_the_pool_is)
{
	gp_budget_init(&px.budget, N_BLOCKS * 2 * GRANULE);
	make_comb(2);
	fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
	ck_assert_uint_eq(fixture_stats().used_bytes, N_BLOCKS * 2 * GRANULE);
}
END_TEST

START_TEST(a_vmm_pool_cannot_be_made_without_virtual_memory)
{
	struct gp_pool *pool = NULL;

	px.fake.cannot_map = true;
	ck_assert_int_eq(gp_pool_new(&px.options, &pool), -ENOTSUP);
	ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(an_exported_vmm_block_retires_its_own_chunks_and_no_others)
{
	uint64_t first = fixture_alloc(3 * GP_MIB), shared = fixture_alloc(3 * GP_MIB), last = fixture_alloc(GRANULE);

	ck_assert_uint_eq(shared, first + 3 * GP_MIB); /* they share the second granule, which is a chunk */
	ck_assert_int_eq(gp_pool_export(&px.map, shared), 0);
	fixture_note_export(shared);
	fixture_free_as(shared, GP_FREE_SYNCED);
	fixture_free_as(last, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(GRANULE), last);
	ck_assert_uint_gt(gp_pool_reclaim(fixture_pool()), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, 3 * GRANULE);
	/* The end of the first block lies in memory that was exported. */
	fixture_free_as(first, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, GRANULE);
}
END_TEST

START_TEST(vmm_finds_the_block_of_an_inner_address_among_many)
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

/* Ends the context during a driver call. */
static void drop_during_call(struct fake *fake, enum fake_call call)
{
	if (call != *(enum fake_call *)fake->hook_arg)
		return;
	fake->hook = NULL;
	atomic_store(&fake->has_ended, true);
	gp_pool_drop(px.pool);
	gp_pool_unmap(px.pool);
}

static enum fake_call ending_calls[] = {FAKE_RESERVE, FAKE_MAP, FAKE_UNMAP};

START_TEST(vmm_loses_no_memory_if_the_context_ends_during_a_driver_call)
{
	uint64_t addr;

	make_comb(2);
	px.fake.hook_arg = &ending_calls[_i];
	px.fake.hook = drop_during_call;
	ck_assert_int_eq(gp_pool_alloc(px.pool, 100 * GP_MIB, 0, &addr), GP_E_DEAD);
	ck_assert_ptr_null(px.fake.hook);
	ck_assert_msg(!fake_check_unmapped(&px.fake), "%s", fake_check_unmapped(&px.fake));
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}
END_TEST

/* If they were freed, their next owner would find memory mapped there. */
static int pin(uint64_t addr, uint64_t at, struct gp_pin *ret_pin)
{
	return gp_pool_pin(&px.map, addr, fixture_info(addr).serial, at, ret_pin);
}

START_TEST(a_pinned_chunk_goes_back_only_after_the_unpin)
{
	uint64_t addr = fixture_alloc(4 * GP_MIB);
	struct gp_pin first, second;

	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_note_export(addr);
	ck_assert_int_eq(pin(addr, 0, &first), 0);
	ck_assert_int_eq(pin(addr, 0, &second), 0);
	fixture_free_as(addr, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	gp_pool_unpin(&first);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 4 * GP_MIB);
	gp_pool_unpin(&second);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(a_pinned_chunk_is_not_moved)
{
	uint64_t addr = fixture_alloc(4 * GP_MIB), last = fixture_alloc(4 * GP_MIB);
	struct gp_pin one;

	ck_assert_int_eq(pin(addr, 0, &one), 0);
	fixture_free_as(addr, GP_FREE_SYNCED);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 8 * GP_MIB);
	fixture_free_as(last, GP_FREE_SYNCED);
	gp_pool_unpin(&one);
	gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(pins_name_the_chunks_of_a_block_one_after_the_other)
{
	uint64_t addr, at = 0, last = 0, small;
	unsigned n = 0;
	struct gp_pin one;

	make_comb(2);
	addr = fixture_alloc(N_BLOCKS / 2 * 2 * GRANULE);
	do {
		ck_assert_int_eq(pin(addr, at, &one), 0);
		ck_assert_uint_eq(one.offset, 0);
		ck_assert_uint_eq(one.span_bytes, N_BLOCKS / 2 * 2 * GRANULE);
		ck_assert_uint_ne(one.handle, last);
		last = one.handle;
		at += one.bytes;
		gp_pool_unpin(&one);
		n++;
	} while (at < one.span_bytes);
	ck_assert_uint_eq(at, one.span_bytes);
	ck_assert_uint_gt(n, 1);
	ck_assert_int_eq(pin(addr, at, &one), GP_E_FOREIGN);
	fixture_alloc(GP_KIB);
	small = fixture_alloc(GP_KIB);
	ck_assert_int_eq(pin(small, 0, &one), 0);
	ck_assert_uint_eq(one.offset, GP_KIB);
	ck_assert_uint_eq(one.span_bytes, one.bytes);
	gp_pool_unpin(&one);
}
END_TEST

START_TEST(only_a_block_in_use_with_the_right_serial_number_is_pinned)
{
	uint64_t addr = fixture_alloc(4 * GP_MIB), serial = fixture_info(addr).serial;
	struct gp_pin one;

	ck_assert_int_eq(gp_pool_pin(&px.map, addr, serial + 1, 0, &one), GP_E_FOREIGN);
	ck_assert_int_eq(gp_pool_pin(&px.map, addr + GP_GIB, serial, 0, &one), GP_E_FOREIGN);
	ck_assert_int_eq(gp_pool_pin(&px.map, 1, serial, 0, &one), GP_E_FOREIGN);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_pin(&px.map, addr, serial, 0, &one), GP_E_FOREIGN);
}
END_TEST

START_TEST(a_chunk_that_is_pinned_while_its_context_ends_is_released_by_the_unpin)
{
	uint64_t addr = fixture_alloc(4 * GP_MIB);
	struct gp_pin one;

	ck_assert_int_eq(pin(addr, 0, &one), 0);
	gp_pool_drop(px.pool);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	ck_assert_int_eq(gp_pool_pin(&px.map, addr, 1, 0, &one), GP_E_FOREIGN);
	gp_pool_unpin(&one);
	ck_assert_uint_eq(px.fake.n_chunks, 0);
	ck_assert_msg(!fake_check_unmapped(&px.fake), "%s", fake_check_unmapped(&px.fake));
}
END_TEST

START_TEST(only_the_arena_of_a_chunk_that_cannot_be_unmapped_keeps_its_addresses)
{
	uint64_t both;

	/* One chunk in each arena. They are unmapped in this order. */
	fixture_alloc(GP_MIB);
	fixture_alloc(20 * GP_MIB);
	both = px.fake.addresses_bytes;
	fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 1 + (unsigned)_i, 1, 719});
	gp_pool_drop(px.pool);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_unmap(px.pool);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_UNMAP), 2);
	ck_assert_uint_eq(px.fake.n_chunks, 1);
	ck_assert_uint_eq(px.fake.addresses_bytes, both / 2);
	ck_assert_msg(!fake_check_unmapped(&px.fake), "%s", fake_check_unmapped(&px.fake));
}
END_TEST

static void count_piece(void *n, uint64_t addr, uint64_t bytes)
{
	++*(unsigned *)n;
}

START_TEST(a_dropped_vmm_pool_reports_no_chunks)
{
	unsigned n = 0;

	fixture_alloc(10 * GP_MIB);
	ck_assert_int_eq(gp_pool_each_chunk(px.pool, count_piece, &n), 0);
	ck_assert_uint_eq(n, 1);
	gp_pool_drop(px.pool);
	ck_assert_int_eq(gp_pool_each_chunk(px.pool, count_piece, &n), 0);
	ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(vmm_does_not_wait_for_a_pending_block_that_was_exported)
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

/*
 * Completion becomes required, as when a second context appears, while memory is mapped next to a block that
 * only a GPU wait covers. A capture forbids waiting for that block.
 */
static unsigned n_maps_before;

static void require_completion_during_map(struct fake *fake, enum fake_call call)
{
	if (call != FAKE_MAP || n_maps_before--)
		return;
	fake->hook = NULL;
	atomic_store(&fake->is_capturing, true);
	ck_assert_int_eq(gp_pool_require_completion(px.pool), -EBUSY);
	px.options.completion_only = true;
}

/* Row 0: in the first attempt. Row 1: in a second attempt, after the first found too little memory. */
START_TEST(an_only_ordered_block_is_not_handed_out_once_completion_is_required)
{
	uint64_t addr = fixture_alloc(40 * GP_MIB);

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free(addr);
	fixture_alloc(GP_ALIGN); /* makes a GPU wait, since much is pending */
	ck_assert_uint_eq(fixture_stats().cached_bytes, 40 * GP_MIB + GRANULE - GP_ALIGN);
	n_maps_before = (unsigned)_i;
	if (_i)
		fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 2, 1, -ENOMEM});
	px.fake.hook = require_completion_during_map;
	ck_assert_uint_ne(fixture_alloc(80 * GP_MIB), addr);
	ck_assert_ptr_null(px.fake.hook);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *tc = fixture_case(GP_KIND_VMM);

	tcase_add_test(tc, vmm_maps_only_the_memory_that_a_request_lacks);
	tcase_add_test(tc, vmm_keeps_small_and_large_blocks_in_separate_arenas);
	tcase_add_test(tc, vmm_moves_scattered_free_chunks_together_for_a_large_request);
	tcase_add_test(tc, vmm_does_not_move_chunks_that_the_gpu_may_still_use);
	tcase_add_loop_test(tc, an_only_ordered_block_is_not_handed_out_once_completion_is_required, 0, 2);
	tcase_add_test(tc, a_partly_used_chunk_is_not_released);
	tcase_add_test(tc, a_vmm_loop_makes_no_driver_call_after_three_rounds);
	tcase_add_test(tc, vmm_grows_instead_of_moving_chunks_in_every_round_of_a_loop);
	ADD_ROWS(tc, replacements, a_free_chunk_that_is_too_large_goes_back_for_a_new_one);
	tcase_add_loop_test(tc, a_block_is_placed_where_it_leaves_the_smallest_gap, 0, 2);
	tcase_add_test(tc, a_block_is_placed_beside_a_block_in_use_if_a_rest_would_lie_between_them);
	tcase_add_loop_test(
		tc, an_error_while_vmm_assembles_a_block_loses_no_memory, 0, sizeof(failures) / sizeof(*failures));
	tcase_add_test(tc, a_chunk_that_cannot_be_unmapped_does_not_keep_others_from_being_released);
	tcase_add_test(tc, a_stuck_chunk_is_left_alone_until_a_full_reclaim);
	tcase_add_test(tc, vmm_uses_new_memory_if_free_chunks_cannot_be_moved);
	tcase_add_test(tc, a_chunk_that_was_mapped_half_way_serves_no_block_and_counts_until_released);
	tcase_add_test(tc, at_a_limit_vmm_moves_memory_however_small_the_pool_is);
	tcase_add_test(tc, a_vmm_pool_cannot_be_made_without_virtual_memory);
	tcase_add_test(tc, an_exported_vmm_block_retires_its_own_chunks_and_no_others);
	tcase_add_test(tc, vmm_does_not_wait_for_a_pending_block_that_was_exported);
	tcase_add_test(tc, a_pinned_chunk_goes_back_only_after_the_unpin);
	tcase_add_test(tc, a_pinned_chunk_is_not_moved);
	tcase_add_test(tc, pins_name_the_chunks_of_a_block_one_after_the_other);
	tcase_add_test(tc, only_a_block_in_use_with_the_right_serial_number_is_pinned);
	tcase_add_test(tc, a_chunk_that_is_pinned_while_its_context_ends_is_released_by_the_unpin);
	tcase_add_test(tc, vmm_finds_the_block_of_an_inner_address_among_many);
	tcase_add_test(tc, a_dropped_vmm_pool_reports_no_chunks);
	tcase_add_loop_test(tc, only_the_arena_of_a_chunk_that_cannot_be_unmapped_keeps_its_addresses, 0, 2);
	tcase_add_loop_test(tc, vmm_loses_no_memory_if_the_context_ends_during_a_driver_call, 0,
		sizeof(ending_calls) / sizeof(*ending_calls));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
