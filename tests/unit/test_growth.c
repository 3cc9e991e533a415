/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Before a pool exceeds its peak, split releases memory and vmm moves memory. A steady loop pays for that only in its
 * first rounds.
 */

#include <stdlib.h>

#include "pool/pool_control.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define CAPACITY (16 * GP_GIB)

static uint64_t n_driver_calls(void)
{
	struct gp_stats stats = fixture_stats();

	return stats.driver_allocs + stats.driver_frees + stats.moves;
}

/* Block sizes, and the size of the segment that the pool takes for the first block. */
static const struct {
	uint64_t bytes, segment;
} parts[] = {
	{2 * GP_MIB, 18 * GP_MIB},
	{4 * GP_MIB, 18 * GP_MIB},
	{4 * GP_MIB + GP_ALIGN, 6 * GP_MIB},
	{16 * GP_MIB, 16 * GP_MIB},
	{33 * GP_MIB, 34 * GP_MIB},
};

START_TEST(split_gives_a_block_that_would_fill_a_segment_its_own_segment)
{
	fixture_setup_large(GP_KIND_SPLIT, CAPACITY);
	fixture_alloc(parts[_i].bytes);
	ck_assert_uint_eq(fixture_stats().total_bytes, parts[_i].segment);
}
END_TEST

START_TEST(split_waits_for_returning_memory_before_it_takes_more)
{
	fixture_setup_large(GP_KIND_SPLIT, CAPACITY);
	px.fake.arrives_on_drain_only = true;
	fixture_free(fixture_alloc(40 * GP_MIB));
	fixture_alloc(60 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().peak_total_bytes, 60 * GP_MIB);
}
END_TEST

/* Each round keeps a block, so that no round repeats an earlier one. */
START_TEST(split_releases_idle_segments_as_long_as_the_requests_differ)
{
	fixture_setup_large(GP_KIND_SPLIT, CAPACITY);
	for (uint64_t i = 0; i < 10; i++) {
		fixture_free(fixture_alloc((100 + 20 * i) * GP_MIB));
		fixture_alloc((110 + 20 * i) * GP_MIB);
		ck_assert_uint_le(fixture_stats().total_bytes, fixture_stats().used_bytes + 2 * GP_MIB);
	}
}
END_TEST

/* No fence has been polled that would show that the GPU is done with the segments. */
START_TEST(split_releases_idle_segments_that_were_used_in_serial_mode)
{
	fixture_setup_large(GP_KIND_SPLIT, CAPACITY);
	gp_pool_set_serial(fixture_pool(), true);
	for (uint64_t i = 0; i < 40; i++) {
		uint64_t addr = fixture_alloc((34 + 2 * i) * GP_MIB);

		fixture_work();
		fake_complete_all(&px.fake);
		fixture_free(addr);
		ck_assert_uint_le(fixture_stats().peak_total_bytes, (34 + 2 * i) * GP_MIB);
	}
}
END_TEST

/* One iteration of a loop: blocks of 512 KiB to 256 MiB are allocated and freed at random. */
enum { BLOCKS_MAX = 80, ROUNDS = 14, MANY_ROUNDS = 10, LOOPS = 40 };

static struct {
	unsigned n_steps;
	struct step {
		bool is_alloc;
		unsigned nth;
		uint64_t bytes;
	} steps[2 * BLOCKS_MAX];
} loop;

static uint64_t state;

static uint64_t random_below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static void add_free(unsigned *live, unsigned *n_live)
{
	unsigned i = (unsigned)random_below(*n_live);

	loop.steps[loop.n_steps++] = (struct step){.nth = live[i]};
	live[i] = live[--*n_live];
}

static void make_loop(unsigned seed)
{
	unsigned live[BLOCKS_MAX], n_live = 0, n = 0, n_blocks;

	state = UINT64_C(88172645463325252) + seed * UINT64_C(7919);
	loop.n_steps = 0;
	n_blocks = 20 + (unsigned)random_below(BLOCKS_MAX - 20);
	while (n < n_blocks || n_live) {
		if (n < n_blocks && (!n_live || random_below(100) < 55)) {
			uint64_t power = UINT64_C(1) << (19 + random_below(9));

			loop.steps[loop.n_steps++] = (struct step){true, n, power + random_below(power)};
			live[n_live++] = n++;
		} else {
			add_free(live, &n_live);
		}
	}
}

static void run_loop(void)
{
	uint64_t addresses[BLOCKS_MAX];

	for (unsigned i = 0; i < loop.n_steps; i++) {
		const struct step *step = &loop.steps[i];

		if (step->is_alloc)
			ck_assert_int_eq(gp_pool_alloc(fixture_pool(), step->bytes, 0, &addresses[step->nth]), 0);
		else
			ck_assert_int_eq(gp_pool_free(&px.map, addresses[step->nth], GP_FREE_SYNCED), 0);
	}
	fixture_check();
}

/*
 * The number of random loops that may still call the driver after three rounds, and after ten. These are the figures of
 * the present code, which must not get worse.
 */
static const struct {
	enum gp_kind kind;
	uint64_t leak; /* bytes in each round */
	int max_after_three, max_after_ten;
} limits[] = {
	{GP_KIND_SPLIT, 0, 0, 0},
	{GP_KIND_SPLIT, 4 * GP_KIB, 0, 0},
	{GP_KIND_VMM, 0, 6, 0},
	{GP_KIND_VMM, 4 * GP_KIB, 4, 0},
};

START_TEST(few_random_loops_call_the_driver_after_the_third_round)
{
	int n_after_three = 0, n_after_ten = 0;

	for (unsigned seed = 0; seed < LOOPS; seed++) {
		uint64_t after_three = 0, after_ten = 0;

		fixture_setup_large(limits[_i].kind, CAPACITY);
		make_loop(seed);
		for (int i = 0; i < ROUNDS; i++) {
			if (limits[_i].leak)
				fixture_alloc(limits[_i].leak);
			run_loop();
			after_three = i == 2 ? n_driver_calls() : after_three;
			after_ten = i == MANY_ROUNDS - 1 ? n_driver_calls() : after_ten;
		}
		n_after_three += n_driver_calls() != after_three;
		n_after_ten += n_driver_calls() != after_ten;
		fixture_teardown();
	}
	ck_assert_int_le(n_after_three, limits[_i].max_after_three);
	ck_assert_int_le(n_after_ten, limits[_i].max_after_ten);
	fixture_setup_large(limits[_i].kind, CAPACITY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("growth");
	TCase *tc = tcase_create("growth");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, NULL, fixture_teardown);
	ADD_ROWS(tc, parts, split_gives_a_block_that_would_fill_a_segment_its_own_segment);
	tcase_add_test(tc, split_waits_for_returning_memory_before_it_takes_more);
	tcase_add_test(tc, split_releases_idle_segments_as_long_as_the_requests_differ);
	tcase_add_test(tc, split_releases_idle_segments_that_were_used_in_serial_mode);
	ADD_ROWS(tc, limits, few_random_loops_call_the_driver_after_the_third_round);
	return suite_run(suite);
}
