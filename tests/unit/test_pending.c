/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>

#include "pool/pending.h"
#include "tests/suite.h"

static struct gp_pending p;
static struct gp_segment segment, retired = {.is_retired = true};
static struct gp_block blocks[256];
static int n_blocks;

static void setup(void)
{
	gp_pending_init(&p);
	n_blocks = 0;
}

static struct gp_block *add_to(struct gp_segment *s, uint64_t size, uint64_t seq, uint8_t flags)
{
	struct gp_block *b = &blocks[n_blocks++];

	*b = (struct gp_block){.size = size, .seq = seq, .flags = flags, .segment = s};
	gp_pending_add(&p, b);
	return b;
}

static struct gp_block *add(uint64_t size, uint64_t seq, uint8_t flags)
{
	return add_to(&segment, size, seq, flags);
}

START_TEST(the_pending_queue_counts_its_blocks_and_bytes)
{
	struct gp_block *a = add(512, 3, 0), *b = add(GP_MIB, 7, GP_BLOCK_UNFENCED);

	ck_assert_uint_eq(p.count, 2);
	ck_assert_uint_eq(p.bytes, GP_MIB + 512);
	ck_assert_uint_eq(p.newest_seq, 7);
	gp_pending_remove(&p, b);
	gp_pending_remove(&p, a);
	ck_assert_uint_eq(p.count, 0);
	ck_assert_uint_eq(p.bytes, 0);
	ck_assert_uint_eq(p.bitmap[0] | p.bitmap[1], 0);
}
END_TEST

static const struct {
	uint64_t seq, ordered, completed;
	uint8_t flags;
	bool is_usable;
} usables[] = {
	{5, 5, 1, 0, false},
	{5, 6, 1, 0, true},
	{5, 6, 6, 0, true},
	{5, 6, 1, GP_BLOCK_UNFENCED, false},
	{5, 6, 5, GP_BLOCK_UNFENCED, false},
	{5, 6, 6, GP_BLOCK_UNFENCED, true},
	{0, 1, 1, 0, true},
};

START_TEST(an_unfenced_block_is_usable_on_completion_only)
{
	struct gp_block *b = add(512, usables[_i].seq, usables[_i].flags);
	struct gp_block *taken = gp_pending_take_usable(&p, usables[_i].ordered, usables[_i].completed);

	ck_assert_ptr_eq(taken, usables[_i].is_usable ? b : NULL);
	ck_assert_uint_eq(p.count, !usables[_i].is_usable);
}
END_TEST

START_TEST(blocks_queued_out_of_sequence_are_taken_as_soon_as_they_are_usable)
{
	struct gp_block *late = add(512, 9, 0), *first = add(512, 4, 0), *mid = add(512, 6, 0);
	struct gp_block *untouched = add(512, 0, 0);

	ck_assert_ptr_eq(gp_pending_take_usable(&p, 1, 1), untouched);
	ck_assert_ptr_null(gp_pending_take_usable(&p, 1, 1));
	ck_assert_ptr_eq(gp_pending_take_usable(&p, 8, 1), first);
	ck_assert_ptr_eq(gp_pending_take_usable(&p, 8, 1), mid);
	ck_assert_ptr_null(gp_pending_take_usable(&p, 8, 1));
	ck_assert_ptr_eq(gp_pending_take_usable(&p, 10, 1), late);
}
END_TEST

/* Sizes at and around the boundaries of the bins, and beyond the last bin. */
static const uint64_t sizes[] = {
	512,
	1024,
	1536,
	2048,
	4096 - 512,
	4096,
	4096 + 512,
	5 * GP_KIB,
	GP_MIB - 512,
	GP_MIB,
	16 * GP_MIB - 512,
	16 * GP_MIB,
	28 * GP_MIB,
	32 * GP_MIB,
	GP_GIB,
	100 * GP_GIB,
};

enum { N_SIZES = sizeof(sizes) / sizeof(*sizes) };

START_TEST(a_pending_block_is_found_by_exactly_the_ranges_that_contain_its_size)
{
	struct gp_block *b = add(sizes[_i], 1, 0);

	for (int min = 0; min < N_SIZES; min++) {
		for (int max = min; max < N_SIZES; max++) {
			bool fits = min <= _i && _i <= max;

			ck_assert_ptr_eq(gp_pending_find(&p, sizes[min], sizes[max]), fits ? b : NULL);
		}
		ck_assert_ptr_eq(gp_pending_find(&p, sizes[min], UINT64_MAX), min <= _i ? b : NULL);
	}
	ck_assert_ptr_null(gp_pending_find(&p, sizes[_i] + 512, UINT64_MAX));
	ck_assert_ptr_null(gp_pending_find(&p, 512, sizes[_i] - 1));
}
END_TEST

START_TEST(the_pending_block_freed_first_is_found_among_several_that_fit)
{
	struct gp_block *b;

	add(GP_MIB, 8, 0);
	b = add(4 * GP_MIB, 5, 0);
	add(2 * GP_MIB, 6, 0);
	add(512, 1, 0);
	ck_assert_ptr_eq(gp_pending_find(&p, GP_MIB, UINT64_MAX), b);
	ck_assert_ptr_eq(gp_pending_find(&p, 0, UINT64_MAX), &blocks[3]);
}
END_TEST

enum { MANY = 100 };

/* Adds that many blocks, the last with the highest fence sequence. */
static void add_many(unsigned n, uint64_t first_seq, uint8_t flags)
{
	for (unsigned i = 0; i < n; i++)
		(void)add(512, first_seq + i, flags);
}

/* Takes all blocks, and returns the number of those behind one. The order of their sequences must hold. */
static unsigned count_behind(const struct gp_block *block)
{
	uint64_t last = 0;
	unsigned n = 0;
	bool is_found = false;

	while (p.count) {
		struct gp_block *b = gp_pending_take_usable(&p, UINT64_MAX, UINT64_MAX);

		ck_assert_uint_ge(b->seq, last);
		last = b->seq;
		n += is_found;
		is_found |= b == block;
	}
	ck_assert(is_found);
	return n;
}

#define STREAM_FLAGS (GP_BLOCK_UNFENCED | GP_BLOCK_STREAM)

/* It is not usable before those that it stands behind. */
START_TEST(a_block_of_a_stream_passes_over_few_others)
{
	struct gp_block *old;

	add_many(MANY, 10, STREAM_FLAGS);
	add_many(MANY, 200, STREAM_FLAGS);
	old = add(512, 150, STREAM_FLAGS);
	ck_assert_uint_eq(old->seq, 200 + MANY - 1 - 64);
	ck_assert_uint_eq(count_behind(old), 64);
}
END_TEST

START_TEST(a_block_of_a_stream_near_either_end_gets_to_its_place)
{
	struct gp_block *oldest, *newest;

	add_many(MANY, 10, STREAM_FLAGS);
	add_many(MANY, 200, STREAM_FLAGS);
	oldest = add(512, 10, STREAM_FLAGS);
	newest = add(512, 290, STREAM_FLAGS);
	ck_assert_uint_eq(oldest->seq, 10);
	ck_assert_uint_eq(newest->seq, 290);
	ck_assert_uint_ge(count_behind(oldest), 2 * MANY);
}
END_TEST

/* A thread cache may hold a block until its work is done, while others are freed. */
START_TEST(an_old_block_of_no_stream_gets_to_its_place)
{
	static const uint8_t flags[] = {0, GP_BLOCK_UNFENCED};
	struct gp_block *old;

	add_many(MANY, 10, flags[_i]);
	add_many(MANY, 200, flags[_i]);
	old = add(512, 150, flags[_i]);
	ck_assert_uint_eq(old->seq, 150);
	ck_assert_uint_eq(count_behind(old), MANY);
}
END_TEST

START_TEST(unfenced_and_exported_blocks_are_never_found_to_be_waited_for)
{
	add(GP_MIB, 1, GP_BLOCK_UNFENCED);
	add_to(&retired, GP_MIB, 2, 0);
	ck_assert_ptr_null(gp_pending_find(&p, GP_MIB, UINT64_MAX));
	ck_assert_ptr_null(gp_pending_find(&p, 0, UINT64_MAX));
	ck_assert_uint_eq(p.count, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pending");
	TCase *tc = tcase_create("pending");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, the_pending_queue_counts_its_blocks_and_bytes);
	tcase_add_loop_test(tc, an_unfenced_block_is_usable_on_completion_only, 0, sizeof(usables) / sizeof(*usables));
	tcase_add_test(tc, blocks_queued_out_of_sequence_are_taken_as_soon_as_they_are_usable);
	tcase_add_loop_test(tc, a_pending_block_is_found_by_exactly_the_ranges_that_contain_its_size, 0, N_SIZES);
	tcase_add_test(tc, the_pending_block_freed_first_is_found_among_several_that_fit);
	tcase_add_test(tc, a_block_of_a_stream_passes_over_few_others);
	tcase_add_test(tc, a_block_of_a_stream_near_either_end_gets_to_its_place);
	tcase_add_loop_test(tc, an_old_block_of_no_stream_gets_to_its_place, 0, 2);
	tcase_add_test(tc, unfenced_and_exported_blocks_are_never_found_to_be_waited_for);
	return suite_run(suite);
}
