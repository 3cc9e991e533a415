/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Thread caches: the calls that they save, the blocks that they keep, and when they flush them. */

#include <stdlib.h>

#include "pool/ownlock.h"
#include "pool/pool_control.h"
#include "tcache_fixture.h"
#include "tests/suite.h"

/* In kinds where each block is a driver allocation, it takes some rounds until there are enough blocks. */
START_TEST(a_loop_on_a_thread_cache_needs_one_record_and_query_for_many_rounds)
{
	unsigned n = px.options.kind == GP_KIND_SPLIT || px.options.kind == GP_KIND_VMM ? 1 : 8;

	start();
	for (unsigned i = 0; i < n; i++)
		warm_up(SMALL);
	for (unsigned i = 0; i < ROUNDS; i++)
		put(take(SMALL));
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), ROUNDS / DEPTH + 1);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_QUERY), ROUNDS / DEPTH + 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	end();
}
END_TEST

/* The blocks are small compared to the steps in which these kinds grow. */
START_TEST(a_loop_on_a_thread_cache_grows_the_pool_to_at_most_the_cache_size)
{
	enum { N = 5 };

	start();
	for (int i = 0; i < N; i++)
		warm_up(GP_MIB);
	ck_assert_uint_le(fixture_stats().total_bytes, px.options.thread_cache_bytes);
	end();
}
END_TEST

/* Nothing is submitted any more, so that no new fence shows the end of the lag. */
START_TEST(a_thread_cache_serves_again_once_the_gpu_has_caught_up)
{
	unsigned n_kept = 0;

	px.fake.reports_submissions = true;
	start();
	(void)fake_submit(&px.fake, 4);
	for (unsigned i = 0; i < ROUNDS; i++) {
		put(take(SMALL));
		atomic_fetch_add(&px.fake.now_ns, GP_LAG_NS / DEPTH);
	}
	ck_assert(gp_fence_lags(own_cache->fence));
	fake_complete_all(&px.fake);
	for (unsigned i = 0; i < ROUNDS; i++)
		put(take(SMALL));
	clear_calls();
	for (unsigned i = 0; i < ROUNDS; i++)
		n_kept += put(take(SMALL));
	ck_assert_uint_eq(n_kept, ROUNDS);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_QUERY), 0);
	end();
}
END_TEST

/* Far more blocks than a cache holds. The excess goes to the pool together with the fence that covers it. */
START_TEST(a_batch_of_frees_into_a_thread_cache_needs_few_records)
{
	enum { BATCH = 16 * DEPTH };
	uint64_t addrs[BATCH];

	start();
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < BATCH; i++)
			addrs[i] = take(4 * GP_KIB);
		(void)fake_calls(&px.fake, FAKE_RECORD);
		for (unsigned i = 0; i < BATCH; i++)
			ck_assert(put(addrs[i]));
		ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), BATCH / DEPTH + 1);
	}
	ck_assert_uint_eq(fixture_stats().used_bytes, 0);
	end();
}
END_TEST

START_TEST(a_batch_of_frees_into_a_thread_cache_keeps_the_pending_limit)
{
	enum { BATCH = 16 * DEPTH };
	uint64_t addrs[BATCH];

	px.options.pending_bytes_max = px.options.thread_cache_bytes = GP_MIB;
	own_cache = gp_tcache_new(fixture_pool());
	for (unsigned i = 0; i < BATCH; i++)
		addrs[i] = take(16 * GP_KIB);
	for (unsigned i = 0; i < BATCH; i++) {
		put(addrs[i]);
		ck_assert_uint_le(fixture_stats().pending_bytes, 2 * GP_MIB);
	}
	end();
}
END_TEST

START_TEST(blocks_in_a_thread_cache_count_as_free_memory)
{
	struct gp_stats stats;
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(addr));
	stats = fixture_stats();
	ck_assert_uint_eq(stats.used_bytes, 0);
	ck_assert_uint_eq(stats.requested_bytes, 0);
	ck_assert_uint_eq(stats.n_used_blocks, 0);
	ck_assert_uint_ge(stats.unused_bytes, SMALL);
	ck_assert_uint_eq(stats.total_bytes, stats.cached_bytes + stats.pending_bytes);
	ck_assert(!fixture_info(addr).is_used);
	end();
}
END_TEST

static void check_same_stats(const struct gp_stats *stats)
{
	struct gp_stats waited = fixture_stats();

	ck_assert_uint_eq(stats->hits, waited.hits);
	ck_assert_uint_eq(stats->misses, waited.misses);
	ck_assert_uint_eq(stats->used_bytes, waited.used_bytes);
	ck_assert_uint_eq(stats->requested_bytes, waited.requested_bytes);
	ck_assert_uint_eq(stats->unused_bytes, waited.unused_bytes);
	ck_assert_uint_eq(stats->total_bytes, waited.total_bytes);
}

/* An exit handler asks, perhaps in a thread that is inside. */
START_TEST(counters_are_refused_without_waiting_while_a_thread_is_inside_its_cache)
{
	struct gp_stats stats;
	uint64_t addr;

	start();
	addr = take(SMALL);
	put(take(SMALL));
	ck_assert(gp_ownlock_enter_if_open(&own_cache->cache.lock));
	ck_assert(!gp_pool_try_stats(px.pool, &stats));
	gp_ownlock_leave(&own_cache->cache.lock);
	ck_assert(gp_pool_try_stats(px.pool, &stats));
	check_same_stats(&stats);
	put(addr);
	end();
}
END_TEST

START_TEST(counters_are_refused_without_waiting_while_a_thread_holds_the_lock_of_the_pool)
{
	struct gp_stats stats;

	start();
	put(take(SMALL));
	gp_mutex_lock(&px.pool->lock);
	ck_assert(!gp_pool_try_stats(px.pool, &stats));
	gp_mutex_unlock(&px.pool->lock);
	ck_assert(gp_pool_try_stats(px.pool, &stats));
	check_same_stats(&stats);
	end();
}
END_TEST

START_TEST(a_double_free_of_a_cached_block_is_refused_by_the_cache_and_the_pool)
{
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(addr));
	ck_assert_int_eq(gp_tcache_put(own_cache, addr), -ENOENT);
	ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_NOT_USED);
	ck_assert_uint_eq(fixture_stats().double_frees, 1);
	end();
}
END_TEST

START_TEST(a_thread_cache_ignores_address_0_and_requests_of_0_bytes)
{
	start();
	ck_assert(put(take(SMALL)));
	ck_assert_int_eq(gp_tcache_put(own_cache, 0), -ENOENT);
	ck_assert_uint_eq(gp_tcache_take(own_cache, 0, 0), 0);
	end();
}
END_TEST

/* Otherwise the threads that closed the lock would wait for this thread. */
START_TEST(a_thread_that_finds_the_owner_lock_closed_is_not_inside)
{
	struct gp_ownlock l = {.is_light = _i};

	gp_ownlock_close(&l);
	ck_assert(!gp_ownlock_enter_if_open(&l));
	gp_ownlock_await(&l);
	gp_ownlock_open(&l);
	ck_assert(gp_ownlock_enter_if_open(&l));
	gp_ownlock_leave(&l);
	gp_ownlock_await(&l);
}
END_TEST

static unsigned n_barriers;

static void count_barrier(void)
{
	n_barriers++;
}

/*
 * The owner's first entry after the barrier was found still executes a full barrier. From then on, the other threads
 * execute the shared barrier for each of their checks.
 */
START_TEST(the_owner_lock_becomes_light_with_the_first_entry_that_finds_a_barrier)
{
	static gp_barrier_source source;
	struct gp_ownlock l = {.barrier = &source};

	ck_assert(gp_ownlock_try(&l));
	gp_ownlock_leave(&l);
	ck_assert(!l.is_light);
	gp_barrier_make(&source);
	atomic_store(&source, count_barrier);
	ck_assert(!l.is_light);
	ck_assert(gp_ownlock_try(&l));
	gp_ownlock_leave(&l);
	ck_assert(l.is_light);
	ck_assert_uint_eq(n_barriers, 0);
	gp_barrier_make(&source);
	ck_assert_uint_eq(n_barriers, 1);
}
END_TEST

/* The cache remembers the address, but the block belongs to another owner by now. */
START_TEST(a_cache_does_not_free_a_block_that_was_freed_and_allocated_elsewhere)
{
	uint64_t addr, again = 0;

	start();
	addr = take(SMALL);
	fixture_free(addr);
	fake_complete_all(&px.fake);
	while (again != addr)
		again = fixture_alloc(SMALL);
	ck_assert_int_eq(gp_tcache_put(own_cache, addr), -ENOENT);
	ck_assert(fixture_info(addr).is_used);
	end();
}
END_TEST

START_TEST(a_thread_cache_keeps_no_blocks_while_the_gpu_lags)
{
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(take(GP_MIB)));
	fixture_work();
	fixture_free(fixture_alloc(SMALL));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gp_fence_poll(fixture_pool()->fence), -EAGAIN);
		atomic_fetch_add(&px.fake.now_ns, GP_LAG_NS);
	}
	ck_assert_int_eq(gp_fence_poll(fixture_pool()->fence), -EAGAIN);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 2);
	(void)fake_calls(&px.fake, FAKE_RECORD);
	ck_assert(!put(addr));
	/* The record of this free also covers the blocks that were in the cache. No later fence does. */
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_RECORD), 1);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 3);
	ck_assert_int_eq(gp_fence_gpu_wait(fixture_pool()->fence), 0);
	end();
}
END_TEST

/*
 * Two threads take turns: a fence that one of them records covers the blocks of the other, and is queried
 * once.
 */
START_TEST(thread_caches_share_their_fences)
{
	struct gp_tcache *both[2];
	uint64_t addrs[2];

	start();
	both[0] = own_cache;
	both[1] = gp_tcache_new(fixture_pool());
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		if (i == 2 * ROUNDS) {
			(void)fake_calls(&px.fake, FAKE_RECORD);
			(void)fake_calls(&px.fake, FAKE_QUERY);
		}
		own_cache = both[i % 2];
		addrs[i % 2] = take(SMALL);
		ck_assert(put(addrs[i % 2]));
	}
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), ROUNDS / DEPTH + 1);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_QUERY), ROUNDS / DEPTH + 1);
	gp_tcache_free(both[1]);
	own_cache = both[0];
	end();
}
END_TEST

/* The fence is recent because another thread has just recorded it, which is usual with many threads. */
START_TEST(a_thread_cache_keeps_blocks_while_a_recent_fence_is_incomplete)
{
	enum { STEP_NS = 1000 };
	uint64_t done;

	start();
	warm_up(SMALL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		ck_assert(put(take(SMALL)));
		done = fake_submit(&px.fake, 0);
		fixture_work();
		fixture_free(fixture_alloc(4 * GP_MIB));
		fake_complete(&px.fake, done);
		atomic_fetch_add(&px.fake.now_ns, STEP_NS);
	}
	fake_complete_all(&px.fake);
	end();
}
END_TEST

/* The caches hold as many blocks as a slab has room for. */
START_TEST(the_pool_flushes_thread_caches_before_it_grows)
{
	enum { N = 2 * GP_MIB / SMALL - 1, N_KEPT = 8 };
	uint64_t addrs[N_KEPT], reserved;

	start();
	for (unsigned i = 0; i < N_KEPT; i++)
		addrs[i] = take(SMALL);
	for (unsigned i = 0; i < N_KEPT; i++)
		ck_assert(put(addrs[i]));
	reserved = fixture_stats().total_bytes;
	for (unsigned i = 0; i < N; i++)
		(void)fixture_alloc(SMALL);
	ck_assert_uint_eq(fixture_stats().total_bytes, reserved);
	(void)fixture_alloc(SMALL);
	ck_assert_uint_gt(fixture_stats().total_bytes, reserved);
	end();
}
END_TEST

/* Many sizes, each of them rare. */
START_TEST(blocks_of_many_sizes_in_a_thread_cache_share_fences)
{
	uint64_t addrs[DEPTH], random = 1;
	unsigned n_kept = 0;

	start();
	for (unsigned i = 0; i < DEPTH; i++)
		addrs[i] = take(GP_ALIGN * (1 + i * 60));
	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (i == ROUNDS)
			(void)fake_calls(&px.fake, FAKE_RECORD);
		n_kept += put(addrs[i % DEPTH]);
		addrs[i % DEPTH] = take(GP_ALIGN * (1 + (random >> 33) % 2048));
	}
	ck_assert_uint_gt(n_kept, ROUNDS);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), ROUNDS / 4);
	end();
}
END_TEST

/* Otherwise blocks from an earlier phase of the program would keep out the sizes that it needs now. */
START_TEST(a_thread_cache_full_of_unused_sizes_makes_room)
{
	uint64_t addrs[DEPTH];
	unsigned n_kept = 0;

	px.options.thread_cache_bytes = GP_MIB;
	own_cache = gp_tcache_new(fixture_pool());
	for (unsigned i = 0; i < DEPTH; i++)
		addrs[i] = take(SMALL - i * GP_ALIGN);
	for (unsigned i = 0; i < DEPTH; i++)
		(void)put(addrs[i]);
	for (unsigned i = 0; i < ROUNDS; i++)
		n_kept += put(take(40 * GP_KIB));
	ck_assert_uint_gt(n_kept, ROUNDS / 2);
	end();
}
END_TEST

START_TEST(an_allocation_that_runs_out_of_memory_flushes_thread_caches)
{
	uint64_t addr;

	start();
	for (unsigned i = 0; i < 8; i++)
		ck_assert(put(take(SMALL)));
	ck_assert_int_eq(fixture_try(FIXTURE_CAPACITY - 2 * GP_MIB, &addr), 0);
	end();
}
END_TEST

/* Takes the last block of a full device. All other memory is in use. */
static uint64_t take_last(void)
{
	uint64_t addr = take(SMALL);

	unsigned n_others = 2 * GP_MIB / SMALL - (px.options.kind == GP_KIND_VMM ? 1 : 2); /* this block, and a guard */

	for (unsigned i = 0; i < n_others; i++)
		(void)fixture_alloc(SMALL);
	px.fake.outside = px.fake.capacity - px.fake.reserved_bytes;
	return addr;
}

static void take_again(uint64_t addr)
{
	ck_assert_uint_eq(take(SMALL), addr);
}

static void take_from_the_pool(uint64_t addr)
{
	ck_assert_uint_eq(fixture_alloc(SMALL), addr);
}

static void take_after_the_end(uint64_t addr)
{
	end();
	take_from_the_pool(addr);
	start();
}

static void (*const ways_to_take[])(uint64_t addr) = {take_again, take_from_the_pool, take_after_the_end};

/* The GPU completes all work after *n_pauses pauses. */
static void complete_later(struct fake *fake, enum fake_call call)
{
	unsigned *n_pauses = fake->hook_arg;

	if (call == FAKE_PAUSE && *n_pauses && --*n_pauses == 0)
		fake_complete_all(fake);
}

/*
 * The free recorded no fence. Only a fence that is recorded now tells when the block is free, and a kernel
 * launched since then may delay that fence.
 */
START_TEST(an_allocation_waits_for_a_cached_block_rather_than_failing)
{
	unsigned n_pauses = 400;
	uint64_t addr;

	start();
	addr = take_last();
	ck_assert(put(addr));
	fixture_work();
	px.fake.hook_arg = &n_pauses;
	px.fake.hook = complete_later;
	ways_to_take[_i](addr);
	px.fake.hook = NULL;
	end();
}
END_TEST

static void reach_the_limit(void)
{
	atomic_store(&px.budget.limit_bytes, fixture_stats().total_bytes);
}

static void fill_the_device(void)
{
	uint64_t unused;

	ck_assert_int_eq(fixture_try(SMALL, &unused), -ENOMEM);
}

static void (*const shortages[])(void) = {reach_the_limit, fill_the_device};

/* The driver would hand the memory to the next request, even if the GPU still uses it. */
START_TEST(a_block_freed_while_memory_is_full_can_be_reused_at_once)
{
	uint64_t addr;

	start();
	addr = take_last();
	shortages[_i]();
	put(addr);
	fixture_work();
	ck_assert_uint_eq(take(SMALL), addr);
	ck_assert_uint_eq(fixture_stats().fence_waits, 0);
	end();
}
END_TEST

START_TEST(a_failed_large_request_does_not_stop_the_caching_of_small_blocks)
{
	uint64_t addr, unused;

	start();
	addr = take(SMALL);
	ck_assert_int_eq(fixture_try(px.fake.capacity - SMALL / 2, &unused), -ENOMEM);
	ck_assert(put(addr));
	end();
}
END_TEST

/* Plays another thread, which frees while the allocation waits. */
static void put_during_pause(struct fake *fake, enum fake_call call)
{
	uint64_t addr = *(uint64_t *)fake->hook_arg;

	if (call != FAKE_PAUSE || !addr)
		return;
	*(uint64_t *)fake->hook_arg = 0;
	(void)put(addr);
}

START_TEST(a_thread_cache_does_not_keep_a_block_that_an_allocation_waits_for)
{
	uint64_t addr;

	px.options.oom_wait_ns = 500000000;
	start();
	addr = take_last();
	px.fake.hook_arg = &addr;
	px.fake.hook = put_during_pause;
	(void)fixture_alloc(SMALL);
	px.fake.hook = NULL;
	end();
}
END_TEST

/* As with a free into the pool, the program gets the error, and the block is free. */
START_TEST(a_failed_record_at_a_cached_free_loses_no_block)
{
	enum { ERROR = 700 };
	uint64_t addrs[DEPTH];
	unsigned n_errors = 0;

	start();
	for (unsigned i = 0; i < DEPTH; i++)
		addrs[i] = take(SMALL);
	fake_plan(&px.fake, (struct fake_plan){.call = FAKE_RECORD, .nth = 1, .count = 1, .error = ERROR});
	for (unsigned i = 0; i < DEPTH; i++) {
		int r = gp_tcache_put(own_cache, addrs[i]);

		ck_assert(r == 0 || r == ERROR);
		n_errors += r == ERROR;
		fixture_check();
	}
	ck_assert_uint_eq(n_errors, 1);
	ck_assert_uint_eq(fixture_stats().used_bytes, 0);
	for (unsigned i = 0; i < DEPTH; i++)
		ck_assert_int_eq(gp_pool_free(&px.map, addrs[i], GP_FREE_NORMAL), GP_E_NOT_USED);
	fake_complete_all(&px.fake);
	(void)take(SMALL);
	end();
}
END_TEST

START_TEST(the_end_of_a_thread_flushes_its_cache_into_the_pool)
{
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(addr));
	end();
	ck_assert(!fixture_info(addr).is_used);
	(void)gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

/* Frees a block into the cache and makes a GPU wait. Returns true if the next allocation reuses the block. */
static bool is_reused_after_gpu_wait(void)
{
	uint64_t addr = take(SMALL), other = fixture_alloc(SMALL);

	fixture_work();
	ck_assert(put(addr));
	fixture_free(other);
	ck_assert_int_eq(gp_fence_gpu_wait(fixture_pool()->fence), 0);
	return take(SMALL) == addr;
}

START_TEST(a_gpu_wait_is_not_enough_for_a_thread_cache_if_completion_is_required)
{
	start();
	ck_assert(is_reused_after_gpu_wait());
	fake_complete_all(&px.fake);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	(void)gp_fence_poll(fixture_pool()->fence); /* polls, and sees that the GPU keeps up */
	ck_assert(!is_reused_after_gpu_wait());
	fake_complete_all(&px.fake);
	end();
}
END_TEST

static const struct {
	uint64_t thread_cache_bytes, pending_count_max, pending_bytes_max;
} refusals[] = {
	{0, UINT64_MAX, UINT64_MAX},
	{16 * GP_MIB, 10, UINT64_MAX},
	{16 * GP_MIB, UINT64_MAX, 8 * GP_MIB},
};

START_TEST(a_pool_whose_options_leave_no_room_has_no_thread_caches)
{
	px.options.thread_cache_bytes = refusals[_i].thread_cache_bytes;
	px.options.pending_count_max = refusals[_i].pending_count_max;
	px.options.pending_bytes_max = refusals[_i].pending_bytes_max;
	ck_assert_ptr_null(gp_tcache_new(fixture_pool()));
}
END_TEST

START_TEST(the_kind_none_has_no_thread_caches)
{
	px.options.thread_cache_bytes = 16 * GP_MIB;
	ck_assert_ptr_null(gp_tcache_new(fixture_pool()));
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, a_loop_on_a_thread_cache_needs_one_record_and_query_for_many_rounds);
	tcase_add_test(tc, a_loop_on_a_thread_cache_grows_the_pool_to_at_most_the_cache_size);
	tcase_add_test(tc, a_thread_cache_serves_again_once_the_gpu_has_caught_up);
	tcase_add_test(tc, a_batch_of_frees_into_a_thread_cache_needs_few_records);
	tcase_add_test(tc, a_batch_of_frees_into_a_thread_cache_keeps_the_pending_limit);
	tcase_add_test(tc, blocks_in_a_thread_cache_count_as_free_memory);
	tcase_add_test(tc, counters_are_refused_without_waiting_while_a_thread_is_inside_its_cache);
	tcase_add_test(tc, counters_are_refused_without_waiting_while_a_thread_holds_the_lock_of_the_pool);
	tcase_add_test(tc, a_double_free_of_a_cached_block_is_refused_by_the_cache_and_the_pool);
	tcase_add_test(tc, a_thread_cache_ignores_address_0_and_requests_of_0_bytes);
	tcase_add_loop_test(tc, a_thread_that_finds_the_owner_lock_closed_is_not_inside, 0, 2);
	tcase_add_test(tc, the_owner_lock_becomes_light_with_the_first_entry_that_finds_a_barrier);
	tcase_add_test(tc, a_cache_does_not_free_a_block_that_was_freed_and_allocated_elsewhere);
	tcase_add_test(tc, a_thread_cache_keeps_no_blocks_while_the_gpu_lags);
	tcase_add_test(tc, a_thread_cache_keeps_blocks_while_a_recent_fence_is_incomplete);
	tcase_add_test(tc, a_thread_cache_full_of_unused_sizes_makes_room);
	tcase_add_test(tc, an_allocation_that_runs_out_of_memory_flushes_thread_caches);
	tcase_add_loop_test(tc, an_allocation_waits_for_a_cached_block_rather_than_failing, 0,
		sizeof(ways_to_take) / sizeof(*ways_to_take));
	tcase_add_loop_test(tc, a_block_freed_while_memory_is_full_can_be_reused_at_once, 0,
		sizeof(shortages) / sizeof(*shortages));
	tcase_add_test(tc, a_failed_large_request_does_not_stop_the_caching_of_small_blocks);
	tcase_add_test(tc, a_thread_cache_does_not_keep_a_block_that_an_allocation_waits_for);
	tcase_add_test(tc, a_failed_record_at_a_cached_free_loses_no_block);
	tcase_add_test(tc, the_end_of_a_thread_flushes_its_cache_into_the_pool);
	tcase_add_test(tc, a_gpu_wait_is_not_enough_for_a_thread_cache_if_completion_is_required);
	tcase_add_loop_test(
		tc, a_pool_whose_options_leave_no_room_has_no_thread_caches, 0, sizeof(refusals) / sizeof(*refusals));
	if (kind != GP_KIND_SPLIT)
		return tc;
	tcase_add_test(tc, thread_caches_share_their_fences);
	tcase_add_test(tc, blocks_of_many_sizes_in_a_thread_cache_share_fences);
	tcase_add_test(tc, the_pool_flushes_thread_caches_before_it_grows);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("tcache");
	TCase *none = fixture_case(GP_KIND_NONE);

	tcase_add_test(none, the_kind_none_has_no_thread_caches);
	suite_add_tcase(suite, none);
	for (enum gp_kind kind = GP_KIND_SIMPLE; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of(kind));
	return suite_run(suite);
}
