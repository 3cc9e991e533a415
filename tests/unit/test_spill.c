/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Chunks that go to host memory and come back: which ones, what an error leaves, and what they count as. */

#include <errno.h>
#include <stdlib.h>

#include "pool/pool_control.h"
#include "pool/vmm/cold.h"
#include "pool/vmm/pin.h"
#include "pool/vmm/sleep.h"
#include "pool/vmm/spill.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define CHUNK (20 * GP_MIB)

enum { N = 5 };

static uint64_t blocks[N];
static int error;

static void make_blocks(void)
{
	for (int i = 0; i < N; i++)
		blocks[i] = fixture_alloc(CHUNK);
}

static uint64_t move(bool is_out, uint64_t bytes, uint64_t most)
{
	struct gp_pool *pool = fixture_pool();
	uint64_t moved;

	fake_complete_all(&px.fake);
	ck_assert_int_eq(gp_pool_sleep_enter(pool, 0), 0);
	moved = is_out ? gp_spill_out(&pool, 1, bytes, most, &error) : gp_spill_in(&pool, 1, most, bytes, &error);
	gp_pool_sleep_leave(pool);
	fixture_check();
	return moved;
}

static uint64_t out(uint64_t bytes)
{
	return move(true, bytes, UINT64_MAX);
}

static uint64_t in(void)
{
	return move(false, UINT64_MAX, UINT64_MAX);
}

static bool is_in_host(uint64_t addr)
{
	bool is_of_host = false;

	/* The content is always that of the address, wherever its memory is. */
	ck_assert_uint_eq(fake_content(&px.fake, addr, &is_of_host), addr);
	ck_assert(gp_spill_is_at(&px.map, addr) == is_of_host);
	return is_of_host;
}

static int count_in_host(void)
{
	int n = 0;

	for (int i = 0; i < N; i++)
		n += is_in_host(blocks[i]);
	return n;
}

START_TEST(chunks_go_as_far_as_needed_and_come_back_with_their_content)
{
	make_blocks();
	ck_assert_uint_eq(out(30 * GP_MIB), 2 * CHUNK);
	ck_assert_int_eq(error, 0);
	ck_assert_int_eq(count_in_host(), 2);
	ck_assert_uint_eq(px.fake.reserved_bytes, 3 * CHUNK);
	ck_assert_uint_eq(px.fake.host_bytes, 2 * CHUNK);
	ck_assert_uint_eq(fixture_stats().spilled_bytes, 2 * CHUNK);
	ck_assert_uint_eq(fixture_stats().total_bytes, N * CHUNK);
	ck_assert_uint_eq(in(), 2 * CHUNK);
	ck_assert_int_eq(count_in_host(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, N * CHUNK);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert(fixture_stats().spills == 2 && fixture_stats().spill_returns == 2);
}
END_TEST

START_TEST(memory_in_the_host_does_not_count_against_the_limit_until_it_comes_back)
{
	gp_budget_init(&px.budget, N * CHUNK);
	make_blocks();
	ck_assert_uint_eq(out(CHUNK), CHUNK);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), (N - 1) * CHUNK);
	fixture_alloc(CHUNK);
	ck_assert_uint_eq(in(), 0);
	ck_assert_int_eq(error, -ENOMEM);
	fixture_free_as(blocks[0], GP_FREE_SYNCED);
	(void)gp_pool_reclaim(fixture_pool());
	ck_assert_uint_le(atomic_load(&px.budget.charged_bytes), N * CHUNK);
}
END_TEST

START_TEST(nothing_moves_if_too_little_could)
{
	make_blocks();
	ck_assert_uint_eq(out((N + 1) * CHUNK), 0);
	ck_assert_int_eq(error, -ENOMEM);
	ck_assert_uint_eq(move(true, 2 * CHUNK, 2 * CHUNK - 1), 0);
	ck_assert_int_eq(error, -ENOMEM);
	ck_assert_int_eq(count_in_host(), 0);
}
END_TEST

START_TEST(the_largest_chunks_go_first_and_the_last_one_is_the_smallest_that_is_enough)
{
	uint64_t small = fixture_alloc(4 * GP_MIB), large;

	make_blocks();
	large = fixture_alloc(10 * GP_MIB);
	ck_assert_uint_eq(out(22 * GP_MIB), CHUNK + 4 * GP_MIB);
	ck_assert_int_eq(count_in_host(), 1);
	ck_assert(is_in_host(small) && !is_in_host(large));
}
END_TEST

START_TEST(cold_memory_goes_first_and_comes_back_last)
{
	make_blocks();
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[2], 0), 0);
	/* A part of less than half does not make a chunk cold. */
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[3] + GP_MIB, 8 * GP_MIB), 0);
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[4] + GP_MIB, 6 * GP_MIB), 0);
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[4] + 8 * GP_MIB, 6 * GP_MIB), 0);
	ck_assert_uint_eq(out(CHUNK), CHUNK);
	ck_assert_uint_eq(out(CHUNK), CHUNK);
	ck_assert(is_in_host(blocks[2]) && is_in_host(blocks[4]));
	ck_assert_uint_eq(out(CHUNK), CHUNK);
	ck_assert_uint_eq(move(false, UINT64_MAX, CHUNK), CHUNK);
	ck_assert(is_in_host(blocks[2]) && is_in_host(blocks[4]) && count_in_host() == 2);
}
END_TEST

/* Chunks of large blocks may exceed the size of a part. They would stay in the host for good. */
START_TEST(a_chunk_that_is_larger_than_a_part_comes_back_alone)
{
	make_blocks();
	ck_assert_uint_eq(out(3 * CHUNK), 3 * CHUNK);
	ck_assert_uint_eq(move(false, CHUNK / 2, UINT64_MAX), CHUNK);
	ck_assert_int_eq(error, 0);
	ck_assert_uint_eq(move(false, CHUNK + 1, UINT64_MAX), 2 * CHUNK);
	ck_assert_int_eq(count_in_host(), 0);
}
END_TEST

START_TEST(memory_is_not_cold_any_more_once_it_was_freed)
{
	make_blocks();
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[2], CHUNK), 0);
	fixture_free_as(blocks[2], GP_FREE_SYNCED);
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[2], CHUNK), GP_E_FOREIGN);
	ck_assert_uint_eq(fixture_alloc(CHUNK), blocks[2]);
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[4], CHUNK), 0);
	ck_assert_uint_eq(out(CHUNK), CHUNK);
	ck_assert(is_in_host(blocks[4]));
}
END_TEST

START_TEST(only_bytes_of_a_block_in_use_can_be_cold)
{
	make_blocks();
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[1] + 1, CHUNK), GP_E_FOREIGN);
	ck_assert_int_eq(gp_cold_note(&px.map, 4096, 1), GP_E_FOREIGN);
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[1] + 1, CHUNK - 1), 0);
	/* The same again replaces it. */
	ck_assert_int_eq(gp_cold_note(&px.map, blocks[1], 0), 0);
	fixture_check();
}
END_TEST

/* Each step of a move fails once, for the nth chunk. A chunk takes two maps and two unmaps. */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
	unsigned n_moved;
} failures[] = {
	{FAKE_HOST_CREATE, 1, -ENOMEM, 0},
	{FAKE_HOST_CREATE, 3, -ENOMEM, 2},
	{FAKE_COPY, 1, 999, 0},
	{FAKE_COPY, 3, 999, 2},
	{FAKE_MAP, 1, 999, 0},
	{FAKE_MAP, 2, 999, 0}, /* in place of the old memory, which is mapped again */
	{FAKE_MAP, 5, 999, 2},
	{FAKE_UNMAP, 1, 0, 3}, /* of the spare addresses: tried again */
	{FAKE_UNMAP, 2, 999, 0},
	{FAKE_UNMAP, 6, 999, 2},
};

START_TEST(a_move_that_fails_leaves_each_chunk_on_one_side_with_its_content)
{
	make_blocks();
	fake_plan(&px.fake, (struct fake_plan){failures[_i].call, failures[_i].nth, 1,
				    failures[_i].error ? failures[_i].error : 999});
	ck_assert_uint_eq(out(3 * CHUNK), failures[_i].n_moved * CHUNK);
	ck_assert_int_eq(error, failures[_i].error);
	ck_assert_int_eq(count_in_host(), (int)failures[_i].n_moved);
	ck_assert_uint_eq(fixture_stats().spilled_bytes, failures[_i].n_moved * CHUNK);
	if (failures[_i].n_moved < 3)
		ck_assert_uint_eq(out((3 - failures[_i].n_moved) * CHUNK), (3 - failures[_i].n_moved) * CHUNK);
	ck_assert_int_eq(count_in_host(), 3);
	ck_assert_uint_eq(in(), 3 * CHUNK);
	ck_assert_int_eq(count_in_host(), 0);
}
END_TEST

static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
	unsigned n_back;
} return_failures[] = {
	{FAKE_RESERVE, 1, -ENOMEM, 0},
	{FAKE_RESERVE, 3, -ENOMEM, 2},
	{FAKE_COPY, 3, 999, 2},
	{FAKE_MAP, 6, 999, 2},
	{FAKE_UNMAP, 6, 999, 2},
};

START_TEST(a_return_that_fails_leaves_each_chunk_on_one_side_with_its_content)
{
	make_blocks();
	ck_assert_uint_eq(out(3 * CHUNK), 3 * CHUNK);
	fake_plan(&px.fake,
		(struct fake_plan){return_failures[_i].call, return_failures[_i].nth, 1, return_failures[_i].error});
	ck_assert_uint_eq(in(), return_failures[_i].n_back * CHUNK);
	ck_assert_int_eq(error, return_failures[_i].error);
	ck_assert_int_eq(count_in_host(), 3 - (int)return_failures[_i].n_back);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), (2 + return_failures[_i].n_back) * CHUNK);
	ck_assert_uint_eq(in(), (3 - return_failures[_i].n_back) * CHUNK);
}
END_TEST

/* Both memories of a chunk cannot be mapped for a while. */
START_TEST(a_chunk_that_is_nowhere_for_a_moment_is_mapped_as_soon_as_the_driver_lets_it)
{
	make_blocks();
	/* The old and the new memory are tried in turns. */
	fake_plan(&px.fake, (struct fake_plan){FAKE_MAP, 2, 6 + (unsigned)_i, 999});
	ck_assert_uint_eq(out(CHUNK), _i ? 0 : CHUNK);
	ck_assert_int_eq(count_in_host(), !_i);
}
END_TEST

START_TEST(chunks_that_are_pinned_exported_or_stuck_stay)
{
	struct gp_pool *pool = fixture_pool();
	struct gp_pin pin;

	make_blocks();
	fixture_note_export(blocks[0]);
	ck_assert_int_eq(gp_pool_export(&px.map, blocks[0]), 0);
	ck_assert_uint_eq(out(N * CHUNK), 0);
	ck_assert_uint_eq(out((N - 1) * CHUNK), (N - 1) * CHUNK);
	ck_assert(!is_in_host(blocks[0]));
	ck_assert_uint_eq(in(), (N - 1) * CHUNK);
	ck_assert_int_eq(gp_pool_pin(&px.map, blocks[0], fixture_info(blocks[0]).serial, 0, &pin), 0);
	ck_assert_int_eq(gp_pool_sleep_enter(pool, 0), -EAGAIN);
	gp_pool_unpin(&pin);
}
END_TEST

START_TEST(free_blocks_in_the_host_are_reused_and_a_free_chunk_goes_back_to_the_host)
{
	uint64_t host;

	make_blocks();
	ck_assert_uint_eq(out(N * CHUNK), N * CHUNK);
	host = blocks[1];
	fixture_free_as(host, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(CHUNK), host);
	fixture_free_as(host, GP_FREE_SYNCED);
	/* It does not move to other addresses for a larger block, for which there is new memory. */
	fixture_alloc(30 * GP_MIB);
	ck_assert_uint_eq(px.fake.reserved_bytes, 30 * GP_MIB);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), CHUNK);
	ck_assert_uint_eq(px.fake.host_bytes, (N - 1) * CHUNK);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 30 * GP_MIB);
	fixture_check();
}
END_TEST

START_TEST(a_block_comes_back_as_a_whole)
{
	struct gp_pool *pool = fixture_pool();
	uint64_t block = fixture_alloc(60 * GP_MIB), other = fixture_alloc(CHUNK);
	int r;

	ck_assert_uint_eq(out(80 * GP_MIB), 80 * GP_MIB);
	ck_assert(gp_spill_has(&px.map, block + 50 * GP_MIB) && gp_spill_has(&px.map, other));
	ck_assert_int_eq(gp_pool_sleep_enter(pool, 0), 0);
	r = gp_spill_in_block(pool, block + GP_MIB);
	gp_pool_sleep_leave(pool);
	ck_assert_int_eq(r, 0);
	ck_assert(!gp_spill_has(&px.map, block) && gp_spill_has(&px.map, other));
	ck_assert(!gp_spill_has(&px.map, 4096));
}
END_TEST

START_TEST(a_pool_with_memory_in_the_host_can_end)
{
	make_blocks();
	ck_assert_uint_eq(out(2 * CHUNK), 2 * CHUNK);
	gp_pool_drop(px.pool);
	px.fake.has_ended = true;
	gp_pool_unmap(px.pool);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

/* Round 7. */

static uint64_t asked_bytes[16], asked_least[16];
static unsigned n_asked;

static uint64_t make_room(uint64_t bytes, uint64_t least)
{
	uint64_t free = FIXTURE_CAPACITY - px.fake.reserved_bytes, missing = bytes - gp_min(free, bytes);

	ck_assert_uint_eq(px.fake.seeks, 1);
	asked_bytes[n_asked] = bytes;
	asked_least[n_asked++] = least;
	return out(gp_max(missing, least));
}

START_TEST(a_request_that_would_fail_is_served_once_memory_has_gone)
{
	uint64_t addr;

	px.options.spills = true;
	px.fake.make_room = make_room;
	for (int i = 0; i < 12; i++)
		fixture_alloc(CHUNK);
	addr = fixture_alloc(50 * GP_MIB);
	ck_assert(!gp_spill_has(&px.map, addr));
	ck_assert_uint_eq(n_asked, 1);
	ck_assert_uint_eq(asked_bytes[0], 50 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().spilled_bytes, 2 * CHUNK);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_spill].count, 1);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_spill].gained_bytes, 2 * CHUNK);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
	ck_assert_uint_eq(px.fake.seeks, 0);
}
END_TEST

static uint64_t make_no_room(uint64_t bytes, uint64_t least)
{
	n_asked++;
	return 0;
}

START_TEST(a_request_fails_if_no_memory_can_go)
{
	uint64_t addr;

	px.options.spills = _i != 0;
	px.fake.make_room = make_no_room;
	for (int i = 0; i < 12; i++)
		fixture_alloc(CHUNK);
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &addr), -ENOMEM);
	ck_assert_uint_eq(n_asked, _i != 0);
	ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_spill].count, 0);
	ck_assert_uint_eq(fixture_stats().ooms, 1);
}
END_TEST

/* Another thread takes what was moved for this one. */
static uint64_t lose_room(uint64_t bytes, uint64_t least)
{
	uint64_t moved = make_room(bytes, least);

	px.fake.outside += n_asked < 3 ? moved : 0;
	return moved;
}

START_TEST(more_memory_goes_if_other_threads_take_the_memory_that_became_free)
{
	px.options.spills = true;
	px.fake.make_room = lose_room;
	for (int i = 0; i < 12; i++)
		fixture_alloc(CHUNK);
	fixture_alloc(30 * GP_MIB);
	ck_assert_uint_eq(n_asked, 3);
	ck_assert_uint_lt(asked_least[0], asked_least[1]);
	ck_assert_uint_lt(asked_least[1], asked_least[2]);
	ck_assert_uint_eq(asked_least[2], 30 * GP_MIB);
}
END_TEST

enum { N_STEPS = 800, N_BLOCKS = 16 };

/* Random steps. The fixture checks every invariant after each of them. */
START_TEST(random_allocations_frees_and_moves_keep_every_invariant_and_all_content)
{
	static const enum fake_call calls[] = {FAKE_HOST_CREATE, FAKE_COPY, FAKE_MAP, FAKE_UNMAP, FAKE_RESERVE};
	const char *text = getenv("GPUPOOL_TEST_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : 28;
	uint64_t own[N_BLOCKS] = {0};

	for (int i = 0; i < N_STEPS; i++) {
		unsigned action = (unsigned)rand_r(&seed) % 8, which = (unsigned)rand_r(&seed) % N_BLOCKS;
		unsigned fault = (unsigned)rand_r(&seed) % 8, nth = 1 + (unsigned)rand_r(&seed) % 4;

		if (own[which] && action < 4) {
			fixture_free_as(own[which], action < 2 ? GP_FREE_NORMAL : GP_FREE_SYNCED);
			own[which] = 0;
		} else if (action < 4) {
			uint64_t size = (uint64_t)rand_r(&seed) % (action ? 30 * GP_MIB : 64 * GP_KIB) + 1;

			if (fixture_try(size, &own[which]))
				own[which] = 0;
			else if (action == 1)
				(void)gp_cold_note(&px.map, own[which], 0);
		} else if (action == 4) {
			fixture_work();
		} else if (action == 5) {
			(void)gp_pool_reclaim(fixture_pool());
			fixture_check();
		} else {
			if (fault < sizeof(calls) / sizeof(*calls))
				fake_plan(&px.fake,
					(struct fake_plan){calls[fault], nth, 1, fault && fault != 4 ? 999 : -ENOMEM});
			(void)move(action == 6, (uint64_t)rand_r(&seed) % (60 * GP_MIB), 100 * GP_MIB);
			if (fault < sizeof(calls) / sizeof(*calls))
				fake_plan(&px.fake, (struct fake_plan){calls[fault], 1, 0, 0});
		}
	}
	while (in())
		;
	ck_assert_uint_eq(px.fake.host_bytes, fixture_stats().spilled_bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spill");
	TCase *tc = fixture_case(GP_KIND_VMM);

	tcase_add_test(tc, chunks_go_as_far_as_needed_and_come_back_with_their_content);
	tcase_add_test(tc, memory_in_the_host_does_not_count_against_the_limit_until_it_comes_back);
	tcase_add_test(tc, nothing_moves_if_too_little_could);
	tcase_add_test(tc, the_largest_chunks_go_first_and_the_last_one_is_the_smallest_that_is_enough);
	tcase_add_test(tc, cold_memory_goes_first_and_comes_back_last);
	tcase_add_test(tc, a_chunk_that_is_larger_than_a_part_comes_back_alone);
	tcase_add_test(tc, memory_is_not_cold_any_more_once_it_was_freed);
	tcase_add_test(tc, only_bytes_of_a_block_in_use_can_be_cold);
	ADD_ROWS(tc, failures, a_move_that_fails_leaves_each_chunk_on_one_side_with_its_content);
	ADD_ROWS(tc, return_failures, a_return_that_fails_leaves_each_chunk_on_one_side_with_its_content);
	tcase_add_loop_test(tc, a_chunk_that_is_nowhere_for_a_moment_is_mapped_as_soon_as_the_driver_lets_it, 0, 2);
	tcase_add_test(tc, chunks_that_are_pinned_exported_or_stuck_stay);
	tcase_add_test(tc, free_blocks_in_the_host_are_reused_and_a_free_chunk_goes_back_to_the_host);
	tcase_add_test(tc, a_block_comes_back_as_a_whole);
	tcase_add_test(tc, a_pool_with_memory_in_the_host_can_end);
	tcase_add_test(tc, a_request_that_would_fail_is_served_once_memory_has_gone);
	tcase_add_loop_test(tc, a_request_fails_if_no_memory_can_go, 0, 2);
	tcase_add_test(tc, more_memory_goes_if_other_threads_take_the_memory_that_became_free);
	tcase_add_test(tc, random_allocations_frees_and_moves_keep_every_invariant_and_all_content);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
