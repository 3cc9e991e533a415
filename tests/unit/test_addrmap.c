/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The address map alone: blocks and segments of a pool that holds nothing else. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"
#include "pool/kind.h"
#include "pool/ladder.h"
#include "pool/pool_impl.h"
#include "tests/suite.h"

static struct gp_addrmap map;
static struct gp_budget budget;
static struct fake fake;
static struct gp_pool *pool;
static struct gp_segment segment, foreign_segment;

static void setup(void)
{
	struct gp_pool_options options = {
		.kind = GP_KIND_SIMPLE,
		.backend = fake_backend(&fake),
		.map = &map,
		.budget = &budget,
		.granule = 2 * GP_MIB,
	};

	fake_init(&fake, GP_MIB);
	gp_addrmap_init(&map);
	gp_budget_init(&budget, GP_NO_LIMIT);
	ck_assert_int_eq(gp_pool_new(&options, &pool), 0);
	segment = (struct gp_segment){.base = GP_GIB, .size = GP_MIB, .pool = pool};
	foreign_segment = (struct gp_segment){.base = GP_GIB, .size = GP_MIB};
}

static void teardown(void)
{
	gp_pool_put(pool);
	gp_addrmap_deinit(&map);
	fake_deinit(&fake);
}

static void make_block(struct gp_block *block, uint64_t addr, enum gp_block_state state)
{
	*block = (struct gp_block){.addr = addr, .size = GP_ALIGN, .segment = &segment};
	gp_block_set_state(block, state);
}

static const struct {
	enum gp_block_state state;
	enum gp_claim claim;
} claims[] = {
	{GP_BLOCK_USED, GP_CLAIM_OK},
	{GP_BLOCK_FREEING, GP_CLAIM_NOT_USED},
	{GP_BLOCK_PENDING, GP_CLAIM_NOT_USED},
	{GP_BLOCK_CACHED, GP_CLAIM_NOT_USED},
	{GP_BLOCK_RETURNING, GP_CLAIM_NOT_USED},
};

START_TEST(only_a_used_block_can_be_claimed)
{
	struct gp_pool *found = NULL;
	struct gp_block block, *claimed = NULL;

	make_block(&block, GP_GIB, claims[_i].state);
	gp_addrmap_add_block(&map, &block);
	ck_assert_int_eq(gp_addrmap_claim(&map, GP_GIB, &found, &claimed), claims[_i].claim);
	ck_assert_ptr_eq(found, pool);
	gp_pool_put(found);
	if (claims[_i].claim == GP_CLAIM_OK) {
		ck_assert_ptr_eq(claimed, &block);
		ck_assert_int_eq(gp_block_state(&block), GP_BLOCK_FREEING);
		/* A block can be claimed only once. */
		ck_assert_int_eq(gp_addrmap_claim(&map, GP_GIB, &found, &claimed), GP_CLAIM_NOT_USED);
		gp_pool_put(found);
	}
	gp_addrmap_remove_block(&map, &block);
}
END_TEST

START_TEST(a_lock_free_claim_takes_only_used_blocks_of_the_given_pool)
{
	struct gp_block block;
	uint64_t word;

	make_block(&block, GP_GIB, claims[_i].state);
	word = atomic_load(&block.word);
	gp_addrmap_add_block(&map, &block);
	ck_assert(!gp_addrmap_is_seen(&map, GP_GIB + GP_ALIGN));
	ck_assert(gp_addrmap_is_seen(&map, GP_GIB)); /* though the program does not hold it */
	ck_assert_ptr_null(gp_addrmap_try_claim(&map, GP_GIB + GP_ALIGN, pool));
	block.segment = &foreign_segment;
	ck_assert_ptr_null(gp_addrmap_try_claim(&map, GP_GIB, pool));
	ck_assert_uint_eq(atomic_load(&block.word), word);
	block.segment = &segment;
	if (claims[_i].claim == GP_CLAIM_OK) {
		ck_assert_ptr_eq(gp_addrmap_try_claim(&map, GP_GIB, pool), &block);
		ck_assert_int_eq(gp_block_state(&block), GP_BLOCK_FREEING);
	}
	word = atomic_load(&block.word);
	ck_assert_ptr_null(gp_addrmap_try_claim(&map, GP_GIB, pool));
	ck_assert_uint_eq(atomic_load(&block.word), word);
	gp_addrmap_remove_block(&map, &block);
	ck_assert_ptr_null(gp_addrmap_try_claim(&map, GP_GIB, pool));
}
END_TEST

static struct gp_block seen; /* the block that the claim has found; the interlude then changes it */

static void do_nothing(void)
{
}

static void free_seen(void)
{
	ck_assert(gp_block_claim(&seen, atomic_load(&seen.word)));
	gp_block_set_state(&seen, GP_BLOCK_CACHED);
}

static void hand_out_again(void)
{
	free_seen();
	(void)gp_block_hand_out(&seen, 1, 0, 2);
}

static void move_to(struct gp_segment *to, uint64_t addr)
{
	free_seen();
	gp_addrmap_remove_block(&map, &seen);
	gp_block_set_state(&seen, GP_BLOCK_UNUSED);
	gp_block_set_address(&seen, to, addr);
	gp_addrmap_add_block(&map, &seen);
	(void)gp_block_hand_out(&seen, 1, 0, 2);
}

static void use_elsewhere(void)
{
	move_to(&segment, GP_GIB + GP_ALIGN);
}

static void move_to_another_pool(void)
{
	move_to(&foreign_segment, GP_GIB);
}

static const struct {
	void (*meanwhile)(void);
	enum gp_block_state state;
	bool is_claimed;
} interludes[] = {
	{do_nothing, GP_BLOCK_FREEING, true},
	{free_seen, GP_BLOCK_CACHED, false},
	{hand_out_again, GP_BLOCK_USED, false},
	{use_elsewhere, GP_BLOCK_USED, false},
	{move_to_another_pool, GP_BLOCK_USED, false},
};

START_TEST(a_lock_free_claim_fails_if_the_block_changed_after_it_was_found)
{
	struct gp_block *claimed;

	make_block(&seen, GP_GIB, GP_BLOCK_UNUSED);
	gp_addrmap_add_block(&map, &seen);
	(void)gp_block_hand_out(&seen, 1, 0, 1);
	gp_addrmap_before_claim = interludes[_i].meanwhile;
	claimed = gp_addrmap_try_claim(&map, GP_GIB, pool);
	gp_addrmap_before_claim = NULL;
	ck_assert_ptr_eq(claimed, interludes[_i].is_claimed ? &seen : NULL);
	ck_assert_int_eq(gp_block_state(&seen), interludes[_i].state);
	gp_addrmap_remove_block(&map, &seen);
}
END_TEST

/*
 * A thread that found a descriptor without a lock may still read it, and never mistakes a later hand-out for
 * the one that it saw, even of another pool.
 */
START_TEST(descriptors_pass_from_pool_to_pool_and_keep_counting_hand_outs)
{
	struct gp_pool_options options = pool->options;
	struct gp_descriptor_batch *batches[GP_N_DESCRIPTORS];
	uint64_t word = 0;

	options.capacity_bytes = GP_MIB;
	gp_pool_put(pool);
	for (int i = 0; i < 3; i++) {
		struct gp_request request;
		struct gp_claim_token token = {0};

		ck_assert_int_eq(gp_pool_new(&options, &pool), 0);
		request = gp_request_of(pool, GP_ALIGN);
		ck_assert_int_eq(gp_ladder_climb(pool, &request, &token), 0);
		for (int k = 0; k < GP_N_DESCRIPTORS; k++) {
			ck_assert(i == 0 || pool->batches[k] == batches[k]);
			ck_assert_ptr_nonnull(pool->batches[k]);
			ck_assert_ptr_null(map.batches[k]);
			batches[k] = pool->batches[k];
		}
		ck_assert_uint_gt(token.word, word);
		ck_assert_ptr_eq(gp_addrmap_try_claim(&map, token.addr, pool), token.block);
		word = token.word;
		gp_pool_drop(pool);
		gp_pool_put(pool);
		for (int k = 0; k < GP_N_DESCRIPTORS; k++)
			ck_assert_ptr_eq(map.batches[k], batches[k]);
	}
	ck_assert_int_eq(gp_pool_new(&options, &pool), 0);
}
END_TEST

static const struct {
	uint64_t addr;
	bool is_ours;
} probes[] = {
	{GP_GIB - 1, false},
	{GP_GIB, true},
	{GP_GIB + 1, true},
	{GP_GIB + GP_MIB - 1, true},
	{GP_GIB + GP_MIB, false},
	{0, false},
	{UINT64_MAX, false},
};

START_TEST(an_address_inside_a_segment_belongs_to_its_pool)
{
	uint64_t addr = probes[_i].addr;
	struct gp_pool *found = NULL;
	struct gp_block *claimed;
	enum gp_claim claim;

	gp_addrmap_add_segment(&map, &segment);
	ck_assert_ptr_eq(gp_addrmap_segment_of(&map, addr), probes[_i].is_ours ? &segment : NULL);
	found = gp_addrmap_pool_of(&map, addr);
	ck_assert_ptr_eq(found, probes[_i].is_ours ? pool : NULL);
	gp_pool_put(found);
	claim = gp_addrmap_claim(&map, addr, &found, &claimed);
	ck_assert_int_eq(claim, probes[_i].is_ours ? GP_CLAIM_INTERIOR : GP_CLAIM_FOREIGN);
	if (probes[_i].is_ours)
		gp_pool_put(found);
	gp_addrmap_remove_segment(&map, &segment);
	ck_assert_ptr_null(gp_addrmap_segment_of(&map, addr));
}
END_TEST

static const struct {
	uint64_t addr, bytes;
	bool is_ours;
} ranges[] = {
	{GP_GIB - GP_MIB, GP_MIB, false},
	{GP_GIB - GP_MIB, GP_MIB + 1, true},
	{GP_GIB - GP_MIB, 8 * GP_MIB, true},
	{GP_GIB, 1, true},
	{GP_GIB + GP_MIB / 2, 8 * GP_MIB, true},
	{GP_GIB + GP_MIB - 1, 1, true},
	{GP_GIB + GP_MIB, GP_GIB, false},
};

START_TEST(an_address_range_that_overlaps_a_segment_belongs_to_its_pool)
{
	struct gp_pool *found;

	gp_addrmap_add_segment(&map, &segment);
	found = gp_addrmap_pool_in(&map, ranges[_i].addr, ranges[_i].bytes);
	ck_assert_ptr_eq(found, ranges[_i].is_ours ? pool : NULL);
	gp_pool_put(found);
	gp_addrmap_remove_segment(&map, &segment);
	ck_assert_ptr_null(gp_addrmap_pool_in(&map, ranges[_i].addr, ranges[_i].bytes));
}
END_TEST

enum { MANY = 40000 };

/* A lookup that took the lock would never end. */
START_TEST(an_address_beyond_all_segments_needs_no_lock)
{
	gp_addrmap_add_segment(&map, &segment);
	gp_mutex_lock(&map.segments_lock);
	ck_assert_ptr_null(gp_addrmap_pool_of(&map, GP_GIB - 1));
	ck_assert_ptr_null(gp_addrmap_pool_in(&map, GP_GIB - GP_MIB, GP_MIB));
	ck_assert_ptr_null(gp_addrmap_pool_of(&map, GP_GIB + GP_MIB));
	ck_assert_ptr_null(gp_addrmap_pool_of(&map, UINT64_MAX));
	gp_mutex_unlock(&map.segments_lock);
	gp_addrmap_remove_segment(&map, &segment);
}
END_TEST

START_TEST(all_blocks_are_found_again_while_the_map_grows)
{
	struct gp_block *blocks = aligned_alloc(_Alignof(struct gp_block), MANY * sizeof(*blocks)), *claimed;
	struct gp_pool *found;

	ck_assert_ptr_nonnull(blocks);
	memset(blocks, 0, MANY * sizeof(*blocks));
	for (uint64_t i = 0; i < MANY; i++) {
		make_block(&blocks[i], i * i * GP_ALIGN, GP_BLOCK_USED);
		gp_addrmap_add_block(&map, &blocks[i]);
	}
	for (uint64_t i = 0; i < MANY; i += 2)
		gp_addrmap_remove_block(&map, &blocks[i]);
	for (uint64_t i = 1; i < MANY; i += 4) {
		ck_assert_ptr_eq(gp_addrmap_try_claim(&map, i * i * GP_ALIGN, pool), &blocks[i]);
		gp_block_set_state(&blocks[i], GP_BLOCK_USED);
	}
	for (uint64_t i = 0; i < MANY; i++) {
		enum gp_claim claim = gp_addrmap_claim(&map, i * i * GP_ALIGN, &found, &claimed);

		ck_assert_int_eq(claim, i % 2 ? GP_CLAIM_OK : GP_CLAIM_FOREIGN);
		if (i % 2 == 0)
			continue;
		ck_assert_ptr_eq(claimed, &blocks[i]);
		gp_pool_put(found);
		gp_addrmap_remove_block(&map, &blocks[i]);
	}
	free(blocks);
}
END_TEST

START_TEST(neighbouring_blocks_spread_over_the_shards_of_the_map)
{
	static struct gp_block blocks[6400];
	size_t fullest = 0;

	for (uint64_t i = 0; i < 6400; i++) {
		make_block(&blocks[i], GP_GIB + i * 2 * GP_MIB, GP_BLOCK_USED);
		gp_addrmap_add_block(&map, &blocks[i]);
	}
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++)
		fullest = gp_max(fullest, map.shards[i].n_blocks);
	/* 100 on average: threads that free neighbouring blocks rarely meet at one lock. */
	ck_assert_uint_lt(fullest, 200);
	for (int i = 0; i < 6400; i++)
		gp_addrmap_remove_block(&map, &blocks[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("addrmap");
	TCase *tc = tcase_create("addrmap");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, only_a_used_block_can_be_claimed, 0, sizeof(claims) / sizeof(*claims));
	tcase_add_loop_test(
		tc, a_lock_free_claim_takes_only_used_blocks_of_the_given_pool, 0, sizeof(claims) / sizeof(*claims));
	tcase_add_loop_test(tc, a_lock_free_claim_fails_if_the_block_changed_after_it_was_found, 0,
		sizeof(interludes) / sizeof(*interludes));
	tcase_add_test(tc, descriptors_pass_from_pool_to_pool_and_keep_counting_hand_outs);
	tcase_add_loop_test(tc, an_address_inside_a_segment_belongs_to_its_pool, 0, sizeof(probes) / sizeof(*probes));
	tcase_add_loop_test(
		tc, an_address_range_that_overlaps_a_segment_belongs_to_its_pool, 0, sizeof(ranges) / sizeof(*ranges));
	tcase_add_test(tc, an_address_beyond_all_segments_needs_no_lock);
	tcase_add_test(tc, all_blocks_are_found_again_while_the_map_grows);
	tcase_add_test(tc, neighbouring_blocks_spread_over_the_shards_of_the_map);
	return suite_run(suite);
}
