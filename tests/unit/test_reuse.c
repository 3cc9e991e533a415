/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* When a freed block may be reused, whatever the kind: every test runs for each of them. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool_fixture.h"
#include "tests/suite.h"

static bool keeps_blocks(void)
{
	return px.options.kind != GP_KIND_NONE;
}

static const uint64_t some_sizes[] = {
	1, 511, 512, 513, 4097, 100000, GP_MIB, GP_MIB + 1, 3 * GP_MIB};

enum { N_SIZES = sizeof(some_sizes) / sizeof(*some_sizes) };

START_TEST(a_freed_block_is_reused_without_the_driver)
{
	uint64_t addr, again;

	for (int i = 0; i < N_SIZES; i++) {
		addr = fixture_alloc(some_sizes[i]);
		fixture_free(addr);
		fake_calls(&px.fake, FAKE_RESERVE);
		again = fixture_alloc(some_sizes[i]);
		/* split and vmm may cut another one. */
		if (keeps_blocks() && px.options.kind < GP_KIND_SPLIT)
			ck_assert_uint_eq(again, addr);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), !keeps_blocks());
	}
}
END_TEST

START_TEST(a_request_larger_than_the_freed_block_gets_another)
{
	uint64_t addr, larger;

	addr = fixture_alloc(4 * GP_MIB);
	fixture_free(addr);
	larger = fixture_alloc(120 * GP_MIB);
	/* Or it begins there and is larger now. */
	ck_assert(larger != addr || fixture_info(larger).is_mapped);
	ck_assert_uint_ge(fixture_info(larger).rounded, 120 * GP_MIB);
}
END_TEST

START_TEST(a_block_that_the_gpu_still_uses_is_not_reused_where_completion_is_needed)
{
	uint64_t addr, other;

	px.options.completion_only = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_eq(fixture_stats().pending_bytes, fixture_stats().total_bytes -
								 fixture_stats().used_bytes -
								 fixture_stats().cached_bytes);
	other = fixture_alloc(4 * GP_MIB);
	ck_assert_uint_ne(other, addr);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(a_block_is_reused_behind_an_order_where_that_is_enough)
{
	uint64_t addr, other;

	px.fake.has_one_stream = true;
	addr = fixture_alloc(40 * GP_MIB);
	other = fixture_alloc(40 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	fixture_free(other);
	if (keeps_blocks()) {
		uint64_t again = fixture_alloc(40 * GP_MIB);

		ck_assert(again == addr || again == other);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), keeps_blocks());
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

START_TEST(two_blocks_take_turns_before_an_order_stops_the_gpu)
{
	uint64_t first, second;

	px.fake.has_one_stream = true;
	first = fixture_alloc(48 * GP_MIB);
	fixture_work();
	fixture_free(first);
	second = fixture_alloc(48 * GP_MIB);
	ck_assert_uint_ne(second, first);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
}
END_TEST

START_TEST(overlapping_streams_are_not_ordered_for_a_little_memory)
{
	uint64_t addr;

	gp_pool_set_overlap(fixture_pool(), true);
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
}
END_TEST

#define TURN (16 * GP_MIB)

static void *free_it(void *addr)
{
	fixture_free(*(uint64_t *)addr);
	return NULL;
}

/*
 * One stream after the other has work, and all of what it used is freed by another thread: as many as may be pending,
 * and no more. is_last_mine: but the last, and that free would have waited for all.
 */
static void fill_turns(bool is_last_mine)
{
	enum { TURNS = 8 };
	uint64_t addrs[TURNS];

	gp_pool_set_overlap(fixture_pool(), true);
	for (int i = 0; i < TURNS; i++) {
		pthread_t thread;

		addrs[i] = fixture_alloc(TURN);
		fixture_work();
		if (is_last_mine && i == TURNS - 1) {
			fixture_free(addrs[i]);
			break;
		}
		ck_assert_int_eq(pthread_create(&thread, NULL, free_it, &addrs[i]), 0);
		pthread_join(thread, NULL);
	}
	ck_assert_uint_eq(fixture_stats().pending_bytes, TURNS * TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}

START_TEST(where_streams_overlap_the_oldest_is_waited_for_and_no_order_empties_them)
{
	uint64_t total;

	px.fake.pause_ns = 1000;
	fill_turns(true);
	total = fixture_stats().total_bytes;
	for (int i = 0; i < 20; i++) {
		uint64_t addr = fixture_alloc(TURN);

		ck_assert_uint_ge(fake_calls(&px.fake, FAKE_PAUSE), 1);
		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
}
END_TEST

START_TEST(a_wait_in_vain_is_short_followed_by_an_order_and_seldom)
{
	unsigned n_waits = 0, n_orders = 0;

	px.fake.pause_completes = 0;
	px.fake.pause_ns = 100000;
	fill_turns(true);
	for (int i = 0; i < 600; i++) {
		uint64_t addr = fixture_alloc(TURN);
		unsigned n_pauses = fake_calls(&px.fake, FAKE_PAUSE);

		n_orders += fake_calls(&px.fake, FAKE_ORDER);
		n_waits += n_pauses != 0;
		ck_assert_uint_le(n_pauses, 10);
		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_ge(n_orders, 600 / 8);
	ck_assert_uint_ge(n_waits, 2);
	ck_assert_uint_le(n_waits, 10);
}
END_TEST

/* Allocates and frees until the host waits for the GPU. How many orders there were until then. */
static unsigned count_orders_to_wait(void)
{
	unsigned n_orders = 0, n_pauses = 0;

	while (!n_pauses && n_orders < 1000) {
		uint64_t addr = fixture_alloc(TURN);

		n_pauses = fake_calls(&px.fake, FAKE_PAUSE);
		n_orders += fake_calls(&px.fake, FAKE_ORDER);
		fixture_work();
		fixture_free(addr);
	}
	return n_orders;
}

/* An order comes with the wait that was in vain. */
START_TEST(waits_in_vain_end_at_one_in_256_orders_and_go_on_as_soon_as_one_is_not)
{
	px.fake.pause_completes = 0;
	px.fake.pause_ns = 100000;
	fill_turns(true);
	for (unsigned n = 1; n <= 256; n *= 2)
		ck_assert_uint_eq(count_orders_to_wait(), n);
	ck_assert_uint_eq(count_orders_to_wait(), 256);
	fake_complete_all(&px.fake);
	px.fake.pause_completes = 1;
	px.fake.pause_ns = 100;
	ck_assert_uint_eq(count_orders_to_wait(), 255);
	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(count_orders_to_wait(), 0);
}
END_TEST

/* One after the other would be waited for until enough of them lie side by side. */
START_TEST(where_streams_overlap_parts_of_what_is_wanted_are_not_waited_for)
{
	enum { PARTS = 32 };
	uint64_t addrs[PARTS];

	gp_pool_set_overlap(fixture_pool(), true);
	for (int i = 0; i < PARTS; i++)
		addrs[i] = fixture_alloc(8 * TURN / PARTS);
	for (int i = 0; i < PARTS; i++) {
		fixture_work();
		fixture_free(addrs[i]);
	}
	(void)fixture_alloc(TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

static void *take_turns(void *unused)
{
	fill_turns(true);
	(void)fixture_alloc(TURN);
	return NULL;
}

/* Who frees nothing does not wait; who frees and may is none the worse for it. */
START_TEST(what_is_not_waited_for_is_no_wait_in_vain)
{
	pthread_t thread;
	uint64_t addr;

	px.fake.pause_ns = 1000;
	fill_turns(false);
	addr = fixture_alloc(TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_turns, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_PAUSE), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
}
END_TEST

START_TEST(where_streams_overlap_what_another_thread_freed_is_ordered_upon_at_once)
{
	fill_turns(false);
	(void)fixture_alloc(TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
	ck_assert_uint_eq(fixture_stats().fence_waits, 0);
}
END_TEST

/* As much as is worth a stall. */
#define MUCH (100 * GP_MIB)

static void complete_in_pause(struct fake *fake, enum fake_call call)
{
	if (call == FAKE_PAUSE)
		fake_complete_all(fake);
}

START_TEST(before_it_holds_more_than_ever_the_pool_waits_for_what_was_freed)
{
	uint64_t addr = fixture_alloc(MUCH);

	ck_assert_int_eq(gp_pool_require_completion(px.pool), 0);
	fixture_work();
	fixture_free(addr);
	px.fake.hook = complete_in_pause;
	ck_assert_uint_eq(fixture_alloc(MUCH), addr);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
}
END_TEST

/* Its own free would have made this thread wait as long; another's would not. */
START_TEST(but_it_grows_where_another_thread_s_free_takes_too_long)
{
	uint64_t addr = fixture_alloc(MUCH);
	pthread_t thread;

	ck_assert_int_eq(gp_pool_require_completion(px.pool), 0);
	fixture_work();
	ck_assert_int_eq(pthread_create(&thread, NULL, free_it, &addr), 0);
	pthread_join(thread, NULL);
	atomic_store(&px.fake.waitable, 0);
	ck_assert_uint_ne(fixture_alloc(MUCH), addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, 2 * MUCH);
}
END_TEST

START_TEST(a_late_block_waits_for_completion_even_where_an_order_is_enough)
{
	uint64_t addr;

	px.fake.has_one_stream = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free_as(addr, GP_FREE_LATE);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(where_a_record_waits_none_is_made_for_late_blocks_before_a_free_that_may_wait)
{
	uint64_t addr, last;

	px.options.pending_count_max = 4;
	px.fake.record_waits = true;
	last = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fake_calls(&px.fake, FAKE_RECORD);
	for (int i = 0; i < 8; i++) {
		addr = fixture_alloc(4 * GP_MIB);
		fixture_free_as(addr, GP_FREE_LATE);
	}
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 0);
	fixture_free(last);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 1);
	fake_complete_all(&px.fake);
	fixture_free(fixture_alloc(512));
	ck_assert_uint_lt(fixture_stats().pending_bytes, 4 * GP_MIB);
}
END_TEST

START_TEST(a_block_that_was_late_once_is_an_ordinary_one_the_next_time)
{
	uint64_t addr = fixture_alloc(40 * GP_MIB), unused;

	px.fake.has_one_stream = true;
	fixture_free_as(addr, GP_FREE_LATE);
	addr = fixture_alloc(40 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	/* With no memory left an order is what helps; completion never comes. */
	px.fake.outside = FIXTURE_CAPACITY - px.fake.reserved_bytes;
	ck_assert_int_eq(fixture_try(40 * GP_MIB, &unused), 0);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_enough].count, 0);
}
END_TEST

START_TEST(a_synced_block_is_reused_at_once_and_without_a_record)
{
	uint64_t addr, other;

	px.options.completion_only = true;
	other = fixture_alloc(4 * GP_MIB);
	addr = fixture_alloc(4 * GP_MIB);
	/* Even behind another of its size that has to wait. */
	fixture_work();
	fixture_free(other);
	fake_calls(&px.fake, FAKE_RECORD);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 0);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(a_capture_makes_nobody_call_the_driver_for_a_fence_that_succeeds)
{
	uint64_t cached, pending;

	cached = fixture_alloc(4 * GP_MIB);
	pending = fixture_alloc(6 * GP_MIB);
	fixture_free_as(cached, GP_FREE_SYNCED);
	atomic_store(&px.fake.is_capturing, true);
	fixture_work();
	fake_note_free(&px.fake, pending, 6 * GP_MIB, FAKE_FREED_LATE);
	ck_assert_int_eq(gp_pool_free(&px.map, pending, GP_FREE_NORMAL), 0);
	/* What is usable is still served, the rest waits. */
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), cached);
	ck_assert_uint_ne(fixture_alloc(6 * GP_MIB), pending);
	atomic_store(&px.fake.is_capturing, false);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(6 * GP_MIB), pending);
}
END_TEST

START_TEST(the_queue_keeps_its_limit_while_a_capture_lasts)
{
	px.options.pending_bytes_max = 60 * GP_MIB;
	fixture_pool();
	atomic_store(&px.fake.is_capturing, true);
	for (unsigned i = 0; i < 32; i++) {
		uint64_t addr = fixture_alloc(23 * GP_MIB);

		fixture_work();
		fixture_free(addr);
		ck_assert_uint_le(fixture_stats().pending_bytes, 60 * GP_MIB);
	}
	/* By the driver's own free, as the program's would have been; or by a wait as long, for all that was freed. */
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_RELEASE), 8);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
	atomic_store(&px.fake.is_capturing, false);
}
END_TEST

START_TEST(nobody_waits_for_a_late_free_in_a_capture)
{
	uint64_t addr;

	px.options.pending_bytes_max = 0;
	addr = fixture_alloc(23 * GP_MIB);
	fixture_work();
	atomic_store(&px.fake.is_capturing, true);
	fixture_free_as(addr, GP_FREE_LATE);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	atomic_store(&px.fake.is_capturing, false);
}
END_TEST

START_TEST(after_completion_was_required_nothing_is_handed_out_on_order_alone)
{
	uint64_t addr;

	px.fake.has_one_stream = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	addr = fixture_alloc(4 * GP_MIB); /* on order, where blocks are kept */
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	px.options.completion_only = true;
	ck_assert_uint_ge(atomic_load(&px.fake.completed), atomic_load(&px.fake.ordered));
	fixture_work();
	fixture_free(addr);
	fixture_alloc(4 * GP_MIB);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
}
END_TEST

START_TEST(what_was_cached_on_order_alone_is_kept_back_while_a_capture_forbids_the_wait)
{
	uint64_t small, large;

	px.fake.has_one_stream = true;
	small = fixture_alloc(40 * GP_MIB);
	large = fixture_alloc(60 * GP_MIB);
	fixture_work();
	fixture_free(large);
	fixture_free(small);
	fixture_alloc(40 * GP_MIB); /* now the other one is cached as well */
	atomic_store(&px.fake.is_capturing, true);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), (keeps_blocks() ? -EBUSY : 0));
	px.options.completion_only = true;
	fixture_alloc(60 * GP_MIB);
	atomic_store(&px.fake.is_capturing, false);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	fixture_alloc(60 * GP_MIB);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, a_freed_block_is_reused_without_the_driver);
	tcase_add_test(tc, a_request_larger_than_the_freed_block_gets_another);
	tcase_add_test(
		tc, a_block_that_the_gpu_still_uses_is_not_reused_where_completion_is_needed);
	tcase_add_test(tc, a_block_is_reused_behind_an_order_where_that_is_enough);
	tcase_add_test(tc, two_blocks_take_turns_before_an_order_stops_the_gpu);
	tcase_add_test(tc, overlapping_streams_are_not_ordered_for_a_little_memory);
	if (kind != GP_KIND_NONE) {
		tcase_add_test(tc, where_streams_overlap_the_oldest_is_waited_for_and_no_order_empties_them);
		tcase_add_test(tc, a_wait_in_vain_is_short_followed_by_an_order_and_seldom);
		if (kind == GP_KIND_SPLIT) /* long, and the same for all */
			tcase_add_test(tc, waits_in_vain_end_at_one_in_256_orders_and_go_on_as_soon_as_one_is_not);
		tcase_add_test(tc, what_is_not_waited_for_is_no_wait_in_vain);
		tcase_add_test(tc, where_streams_overlap_what_another_thread_freed_is_ordered_upon_at_once);
	}
	if (kind == GP_KIND_SPLIT || kind == GP_KIND_VMM) {
		tcase_add_test(tc, where_streams_overlap_parts_of_what_is_wanted_are_not_waited_for);
		tcase_add_test(tc, before_it_holds_more_than_ever_the_pool_waits_for_what_was_freed);
		tcase_add_test(tc, but_it_grows_where_another_thread_s_free_takes_too_long);
	}
	tcase_add_test(tc, a_late_block_waits_for_completion_even_where_an_order_is_enough);
	tcase_add_test(tc, where_a_record_waits_none_is_made_for_late_blocks_before_a_free_that_may_wait);
	tcase_add_test(tc, a_block_that_was_late_once_is_an_ordinary_one_the_next_time);
	tcase_add_test(tc, a_synced_block_is_reused_at_once_and_without_a_record);
	tcase_add_test(tc, a_capture_makes_nobody_call_the_driver_for_a_fence_that_succeeds);
	tcase_add_test(tc, the_queue_keeps_its_limit_while_a_capture_lasts);
	tcase_add_test(tc, nobody_waits_for_a_late_free_in_a_capture);
	tcase_add_test(tc, after_completion_was_required_nothing_is_handed_out_on_order_alone);
	tcase_add_test(
		tc, what_was_cached_on_order_alone_is_kept_back_while_a_capture_forbids_the_wait);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("reuse");

	for (int kind = 0; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of((enum gp_kind)kind));
	return suite_run(suite);
}
