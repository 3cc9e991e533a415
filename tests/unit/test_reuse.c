/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The conditions for the reuse of a freed block. Each test runs for each kind of pool that it applies to. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/reuse.h"
#include "pool_fixture.h"
#include "tests/suite.h"

static bool keeps_blocks(void)
{
	return px.options.kind != GP_KIND_NONE;
}

static const uint64_t some_sizes[] = {1, 511, 512, 513, 4097, 100000, GP_MIB, GP_MIB + 1, 3 * GP_MIB};

enum { N_SIZES = sizeof(some_sizes) / sizeof(*some_sizes) };

START_TEST(a_freed_block_is_reused_without_a_driver_allocation)
{
	uint64_t addr, again;

	for (int i = 0; i < N_SIZES; i++) {
		addr = fixture_alloc(some_sizes[i]);
		fixture_free(addr);
		fake_calls(&px.fake, FAKE_RESERVE);
		again = fixture_alloc(some_sizes[i]);
		/* split and vmm may cut another block. */
		if (keeps_blocks() && px.options.kind < GP_KIND_SPLIT)
			ck_assert_uint_eq(again, addr);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), !keeps_blocks());
	}
}
END_TEST

START_TEST(a_request_larger_than_the_freed_block_gets_another_block)
{
	uint64_t addr, larger;

	addr = fixture_alloc(4 * GP_MIB);
	fixture_free(addr);
	larger = fixture_alloc(120 * GP_MIB);
	/* The new block may begin at the same address if it was enlarged. */
	ck_assert(larger != addr || fixture_info(larger).is_mapped);
	ck_assert_uint_ge(fixture_info(larger).rounded, 120 * GP_MIB);
}
END_TEST

START_TEST(a_block_in_use_by_the_gpu_is_not_reused_if_completion_is_required)
{
	uint64_t addr, other;

	px.options.completion_only = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_eq(fixture_stats().pending_bytes,
		fixture_stats().total_bytes - fixture_stats().used_bytes - fixture_stats().cached_bytes);
	other = fixture_alloc(4 * GP_MIB);
	ck_assert_uint_ne(other, addr);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(a_pending_block_is_reused_after_a_gpu_wait_if_that_is_enough)
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
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), keeps_blocks());
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

START_TEST(a_second_block_is_allocated_before_a_gpu_wait_stalls_the_gpu)
{
	uint64_t first, second;

	px.fake.has_one_stream = true;
	first = fixture_alloc(48 * GP_MIB);
	fixture_work();
	fixture_free(first);
	second = fixture_alloc(48 * GP_MIB);
	ck_assert_uint_ne(second, first);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
}
END_TEST

START_TEST(overlapping_streams_get_no_gpu_wait_for_a_little_memory)
{
	uint64_t addr;

	gp_pool_set_overlap(fixture_pool(), true);
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
}
END_TEST

#define TURN (16 * GP_MIB)

/* Frees the block, and lets the pool find out that no work uses it. */
static void free_and_cache(uint64_t addr)
{
	fixture_free(addr);
	fake_complete_all(&px.fake);
	(void)gp_reuse_flush(fixture_pool(), false);
}

/*
 * Caches one block of the size, or for vmm two that merge, while another is pending. Returns the queries of an
 * allocation of the size.
 */
static unsigned queries_beside_a_pending_block(uint64_t size)
{
	uint64_t addrs[3];

	gp_pool_set_overlap(fixture_pool(), true);
	for (unsigned i = 0; i < 3; i++)
		addrs[i] = fixture_alloc(size);
	free_and_cache(addrs[0]);
	if (px.options.kind == GP_KIND_VMM)
		free_and_cache(addrs[1]);
	fixture_work();
	fixture_free(addrs[2]);
	(void)fake_calls(&px.fake, FAKE_QUERY);
	ck_assert_uint_eq(fixture_alloc(size), addrs[0]);
	return fake_calls(&px.fake, FAKE_QUERY);
}

START_TEST(with_overlapping_streams_a_cached_block_that_fits_is_used_without_a_query)
{
	ck_assert_uint_eq(queries_beside_a_pending_block(TURN), 0);
}
END_TEST

/* A part of a granule cannot be moved, so the pool looks for the best place for it. */
START_TEST(with_overlapping_streams_vmm_queries_for_a_request_that_is_no_whole_granules)
{
	ck_assert_uint_ne(queries_beside_a_pending_block(TURN + px.options.page_bytes), 0);
}
END_TEST

/* Requests of whole granules, and a cached block for each that is not a small multiple of it. */
static const struct {
	uint64_t cached, bytes;
} poor_fits[] = {
	{TURN + TURN / 2, TURN},
	{TURN, TURN / 2 - 2 * GP_MIB},
	{(GP_OVERLAP_TURNS + 1) * 2 * GP_MIB, 2 * GP_MIB},
};

START_TEST(with_overlapping_streams_vmm_queries_before_it_cuts_a_block_that_fits_poorly)
{
	uint64_t cached = fixture_alloc(poor_fits[_i].cached), pending = fixture_alloc(TURN);

	gp_pool_set_overlap(fixture_pool(), true);
	free_and_cache(cached);
	fixture_work();
	fixture_free(pending);
	(void)fake_calls(&px.fake, FAKE_QUERY);
	(void)fixture_alloc(poor_fits[_i].bytes);
	ck_assert_uint_ne(fake_calls(&px.fake, FAKE_QUERY), 0);
}
END_TEST

/* A cached block of whole granules in size, but not in place. */
START_TEST(with_overlapping_streams_vmm_queries_before_it_cuts_a_block_within_granules)
{
	uint64_t cached, after;

	(void)fixture_alloc(TURN + px.options.page_bytes);
	cached = fixture_alloc(TURN);
	after = fixture_alloc(TURN - px.options.page_bytes);
	ck_assert_uint_ne(cached % px.options.granule, 0);
	gp_pool_set_overlap(fixture_pool(), true);
	free_and_cache(cached);
	fixture_work();
	fixture_free(after);
	(void)fake_calls(&px.fake, FAKE_QUERY);
	(void)fixture_alloc(TURN);
	ck_assert_uint_ne(fake_calls(&px.fake, FAKE_QUERY), 0);
}
END_TEST

static void *free_block(void *addr)
{
	fixture_free(*(uint64_t *)addr);
	return NULL;
}

/*
 * Submits work to one stream after the other. Another thread frees the block of each, until the maximum number
 * of blocks is pending. is_last_mine: this thread frees the last block, and its free would have waited for all
 * the work.
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
		ck_assert_int_eq(pthread_create(&thread, NULL, free_block, &addrs[i]), 0);
		pthread_join(thread, NULL);
	}
	ck_assert_uint_eq(fixture_stats().pending_bytes, TURNS * TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}

START_TEST(with_overlapping_streams_the_pool_waits_for_the_oldest_block_on_the_host)
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
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
}
END_TEST

START_TEST(a_futile_wait_is_short_rare_and_followed_by_a_gpu_wait)
{
	unsigned n_waits = 0, n_gpu_waits = 0;

	px.fake.pause_completes = 0;
	px.fake.pause_ns = 100000;
	fill_turns(true);
	for (int i = 0; i < 600; i++) {
		uint64_t addr = fixture_alloc(TURN);
		unsigned n_pauses = fake_calls(&px.fake, FAKE_PAUSE);

		n_gpu_waits += fake_calls(&px.fake, FAKE_GPU_WAIT);
		n_waits += n_pauses != 0;
		ck_assert_uint_le(n_pauses, 10);
		fixture_work();
		fixture_free(addr);
	}
	ck_assert_uint_ge(n_gpu_waits, 600 / 8);
	ck_assert_uint_ge(n_waits, 2);
	ck_assert_uint_le(n_waits, 10);
}
END_TEST

/* Allocates and frees until the host waits for the GPU. Returns the number of GPU waits until then. */
static unsigned count_gpu_waits_to_host_wait(void)
{
	unsigned n_gpu_waits = 0, n_pauses = 0;

	while (!n_pauses && n_gpu_waits < 1000) {
		uint64_t addr = fixture_alloc(TURN);

		n_pauses = fake_calls(&px.fake, FAKE_PAUSE);
		n_gpu_waits += fake_calls(&px.fake, FAKE_GPU_WAIT);
		fixture_work();
		fixture_free(addr);
	}
	return n_gpu_waits;
}

/* A futile wait is followed by a GPU wait, which counts, too. */
START_TEST(futile_waits_drop_to_one_in_256_gpu_waits_until_a_wait_succeeds)
{
	px.fake.pause_completes = 0;
	px.fake.pause_ns = 100000;
	fill_turns(true);
	for (unsigned n = 1; n <= 256; n *= 2)
		ck_assert_uint_eq(count_gpu_waits_to_host_wait(), n);
	ck_assert_uint_eq(count_gpu_waits_to_host_wait(), 256);
	fake_complete_all(&px.fake);
	px.fake.pause_completes = 1;
	px.fake.pause_ns = 100;
	ck_assert_uint_eq(count_gpu_waits_to_host_wait(), 255);
	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(count_gpu_waits_to_host_wait(), 0);
}
END_TEST

/* The pool would wait for one part after the other until enough adjacent parts are complete. */
START_TEST(with_overlapping_streams_the_pool_does_not_wait_for_parts_of_a_block)
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
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
}
END_TEST

static void *take_turns(void *unused)
{
	fill_turns(true);
	(void)fixture_alloc(TURN);
	return NULL;
}

/* A thread that frees nothing does not wait. That does not count against a thread that frees and may wait. */
START_TEST(a_wait_that_was_not_made_does_not_count_as_futile)
{
	pthread_t thread;
	uint64_t addr;

	px.fake.pause_ns = 1000;
	fill_turns(false);
	addr = fixture_alloc(TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_turns, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_PAUSE), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
}
END_TEST

START_TEST(with_overlapping_streams_a_block_of_another_thread_gets_a_gpu_wait_at_once)
{
	fill_turns(false);
	(void)fixture_alloc(TURN);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_PAUSE), 0);
	ck_assert_uint_eq(fixture_stats().fence_waits, 0);
}
END_TEST

/* Enough memory to be worth a stall. */
#define MUCH (100 * GP_MIB)

static void complete_in_pause(struct fake *fake, enum fake_call call)
{
	if (call == FAKE_PAUSE)
		fake_complete_all(fake);
}

START_TEST(the_pool_waits_for_a_freed_block_before_it_exceeds_its_peak)
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

/* This thread's own free would have made it wait as long. A free of another thread would not. */
START_TEST(the_pool_grows_if_a_block_freed_by_another_thread_takes_too_long)
{
	uint64_t addr = fixture_alloc(MUCH);
	pthread_t thread;

	ck_assert_int_eq(gp_pool_require_completion(px.pool), 0);
	fixture_work();
	ck_assert_int_eq(pthread_create(&thread, NULL, free_block, &addr), 0);
	pthread_join(thread, NULL);
	atomic_store(&px.fake.waitable, 0);
	ck_assert_uint_ne(fixture_alloc(MUCH), addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, 2 * MUCH);
}
END_TEST

START_TEST(an_unfenced_block_waits_for_completion_even_if_a_gpu_wait_is_enough)
{
	uint64_t addr;

	px.fake.has_one_stream = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free_as(addr, GP_FREE_UNFENCED);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(no_waiting_record_is_made_for_unfenced_blocks_before_a_free_that_may_wait)
{
	uint64_t addr, last;

	px.options.pending_count_max = 4;
	px.fake.record_waits = true;
	last = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fake_calls(&px.fake, FAKE_RECORD);
	for (int i = 0; i < 8; i++) {
		addr = fixture_alloc(4 * GP_MIB);
		fixture_free_as(addr, GP_FREE_UNFENCED);
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

START_TEST(a_block_that_was_unfenced_once_is_ordinary_after_its_next_free)
{
	uint64_t addr = fixture_alloc(40 * GP_MIB), unused;

	px.fake.has_one_stream = true;
	fixture_free_as(addr, GP_FREE_UNFENCED);
	addr = fixture_alloc(40 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	/* No memory is left and the work never completes, so only a GPU wait helps. */
	px.fake.outside = FIXTURE_CAPACITY - px.fake.reserved_bytes;
	ck_assert_int_eq(fixture_try(40 * GP_MIB, &unused), 0);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_stats().rounds[GP_ROUND_enough].count, 0);
}
END_TEST

START_TEST(a_block_freed_after_a_synchronisation_is_reused_without_a_record)
{
	uint64_t addr, other;

	px.options.completion_only = true;
	other = fixture_alloc(4 * GP_MIB);
	addr = fixture_alloc(4 * GP_MIB);
	/* The block is reused although another block of its size is still pending. */
	fixture_work();
	fixture_free(other);
	fake_calls(&px.fake, FAKE_RECORD);
	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 0);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), addr);
}
END_TEST

START_TEST(during_a_capture_frees_succeed_and_only_usable_blocks_are_reused)
{
	uint64_t cached, pending;

	cached = fixture_alloc(4 * GP_MIB);
	pending = fixture_alloc(6 * GP_MIB);
	fixture_free_as(cached, GP_FREE_SYNCED);
	atomic_store(&px.fake.is_capturing, true);
	fixture_work();
	fake_note_free(&px.fake, pending, 6 * GP_MIB, FAKE_FREED_UNFENCED);
	ck_assert_int_eq(gp_pool_free(&px.map, pending, GP_FREE_NORMAL), 0);
	/* Usable blocks are still handed out. The rest stays pending. */
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(4 * GP_MIB), cached);
	ck_assert_uint_ne(fixture_alloc(6 * GP_MIB), pending);
	atomic_store(&px.fake.is_capturing, false);
	fake_complete_all(&px.fake);
	if (keeps_blocks())
		ck_assert_uint_eq(fixture_alloc(6 * GP_MIB), pending);
}
END_TEST

START_TEST(the_pending_queue_keeps_its_limit_during_a_capture)
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
	/*
	 * The memory goes back by the driver's own free, as the program's free would have done; or after a
	 * wait as long, for all that was freed.
	 */
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_RELEASE), 8);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
	atomic_store(&px.fake.is_capturing, false);
}
END_TEST

START_TEST(an_unfenced_free_in_a_capture_makes_no_thread_wait)
{
	uint64_t addr;

	px.options.pending_bytes_max = 0;
	addr = fixture_alloc(23 * GP_MIB);
	fixture_work();
	atomic_store(&px.fake.is_capturing, true);
	fixture_free_as(addr, GP_FREE_UNFENCED);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	atomic_store(&px.fake.is_capturing, false);
}
END_TEST

START_TEST(once_completion_is_required_a_gpu_wait_is_not_enough_for_reuse)
{
	uint64_t addr;

	px.fake.has_one_stream = true;
	addr = fixture_alloc(4 * GP_MIB);
	fixture_work();
	fixture_free(addr);
	addr = fixture_alloc(4 * GP_MIB); /* after a GPU wait, if the kind keeps blocks */
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	px.options.completion_only = true;
	ck_assert_uint_ge(atomic_load(&px.fake.completed), atomic_load(&px.fake.ordered));
	fixture_work();
	fixture_free(addr);
	fixture_alloc(4 * GP_MIB);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
}
END_TEST

START_TEST(an_only_ordered_cached_block_is_withheld_while_a_capture_forbids_the_wait)
{
	uint64_t small, large;

	px.fake.has_one_stream = true;
	small = fixture_alloc(40 * GP_MIB);
	large = fixture_alloc(60 * GP_MIB);
	fixture_work();
	fixture_free(large);
	fixture_free(small);
	fixture_alloc(40 * GP_MIB); /* now the other block is cached as well */
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

	tcase_add_test(tc, a_freed_block_is_reused_without_a_driver_allocation);
	tcase_add_test(tc, a_request_larger_than_the_freed_block_gets_another_block);
	tcase_add_test(tc, a_block_in_use_by_the_gpu_is_not_reused_if_completion_is_required);
	tcase_add_test(tc, a_pending_block_is_reused_after_a_gpu_wait_if_that_is_enough);
	tcase_add_test(tc, a_second_block_is_allocated_before_a_gpu_wait_stalls_the_gpu);
	tcase_add_test(tc, overlapping_streams_get_no_gpu_wait_for_a_little_memory);
	if (kind != GP_KIND_NONE) {
		tcase_add_test(tc, with_overlapping_streams_the_pool_waits_for_the_oldest_block_on_the_host);
		tcase_add_test(tc, a_futile_wait_is_short_rare_and_followed_by_a_gpu_wait);
		if (kind == GP_KIND_SPLIT) /* the test is slow, and the kind makes no difference */
			tcase_add_test(tc, futile_waits_drop_to_one_in_256_gpu_waits_until_a_wait_succeeds);
		tcase_add_test(tc, a_wait_that_was_not_made_does_not_count_as_futile);
		tcase_add_test(tc, with_overlapping_streams_a_block_of_another_thread_gets_a_gpu_wait_at_once);
	}
	if (kind == GP_KIND_VMM) {
		tcase_add_test(tc, with_overlapping_streams_vmm_queries_for_a_request_that_is_no_whole_granules);
		ADD_ROWS(tc, poor_fits, with_overlapping_streams_vmm_queries_before_it_cuts_a_block_that_fits_poorly);
		tcase_add_test(tc, with_overlapping_streams_vmm_queries_before_it_cuts_a_block_within_granules);
	}
	if (kind == GP_KIND_SPLIT || kind == GP_KIND_VMM) {
		tcase_add_test(tc, with_overlapping_streams_a_cached_block_that_fits_is_used_without_a_query);
		tcase_add_test(tc, with_overlapping_streams_the_pool_does_not_wait_for_parts_of_a_block);
		tcase_add_test(tc, the_pool_waits_for_a_freed_block_before_it_exceeds_its_peak);
		tcase_add_test(tc, the_pool_grows_if_a_block_freed_by_another_thread_takes_too_long);
	}
	tcase_add_test(tc, an_unfenced_block_waits_for_completion_even_if_a_gpu_wait_is_enough);
	tcase_add_test(tc, no_waiting_record_is_made_for_unfenced_blocks_before_a_free_that_may_wait);
	tcase_add_test(tc, a_block_that_was_unfenced_once_is_ordinary_after_its_next_free);
	tcase_add_test(tc, a_block_freed_after_a_synchronisation_is_reused_without_a_record);
	tcase_add_test(tc, during_a_capture_frees_succeed_and_only_usable_blocks_are_reused);
	tcase_add_test(tc, the_pending_queue_keeps_its_limit_during_a_capture);
	tcase_add_test(tc, an_unfenced_free_in_a_capture_makes_no_thread_wait);
	tcase_add_test(tc, once_completion_is_required_a_gpu_wait_is_not_enough_for_reuse);
	tcase_add_test(tc, an_only_ordered_cached_block_is_withheld_while_a_capture_forbids_the_wait);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("reuse");

	for (int kind = 0; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of((enum gp_kind)kind));
	return suite_run(suite);
}
