/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Thread caches: serial mode, and blocks that other threads allocated. */

#include <pthread.h>
#include <sched.h>

#include "pool/pool_control.h"
#include "tcache_fixture.h"
#include "tests/suite.h"

START_TEST(frees_of_blocks_of_other_threads_need_one_record_for_many)
{
	enum { N = 4 * DEPTH };
	uint64_t addrs[N];

	start();
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++)
			addrs[i] = fixture_alloc(SMALL);
		fixture_work();
		clear_calls();
		for (unsigned i = 0; i < N; i++) {
			fake_note_free(&px.fake, addrs[i], SMALL, FAKE_FREED);
			ck_assert_int_eq(gp_tcache_free_by(&px.map, addrs[i], own_cache), 0);
			ck_assert_int_eq(gp_tcache_free_by(&px.map, addrs[i], own_cache), GP_E_NOT_USED);
			fixture_check();
		}
		ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), N / DEPTH + 1);
		ck_assert_uint_eq(fixture_stats().used_bytes, 0);
		fake_complete_all(&px.fake);
	}
	/* The thread that freed the blocks can allocate them. */
	(void)take(SMALL);
	end();
}
END_TEST

static void free_others(const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(gp_tcache_free_by(&px.map, addrs[i], own_cache), 0);
}

START_TEST(blocks_of_other_threads_do_not_fill_a_thread_cache_for_good)
{
	enum { N = 8 * DEPTH };
	uint64_t large[8], medium[16], addrs[N];

	start();
	for (unsigned i = 0; i < 8; i++)
		large[i] = fixture_alloc(GP_MIB);
	for (unsigned i = 0; i < 16; i++)
		medium[i] = fixture_alloc(GP_MIB / 2);
	for (unsigned i = 0; i < N; i++)
		addrs[i] = fixture_alloc(SMALL);
	free_others(large, 8);
	free_others(medium, 16);
	ck_assert_uint_eq(own_cache->cache.bytes, 16 * GP_MIB);
	clear_calls();
	free_others(addrs, N);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), DEPTH + N / DEPTH + 1);
	end();
}
END_TEST

START_TEST(blocks_of_other_threads_leave_a_thread_cache_if_memory_is_short)
{
	uint64_t addrs[3];

	start();
	for (unsigned i = 0; i < 3; i++)
		addrs[i] = fixture_alloc(SMALL);
	free_others(addrs, 2);
	ck_assert_uint_eq(own_cache->cache.bytes, 2 * fixture_info(addrs[0]).rounded);
	atomic_store(&px.budget.limit_bytes, fixture_stats().total_bytes);
	free_others(addrs + 2, 1);
	ck_assert_uint_eq(own_cache->cache.bytes, 0);
	end();
}
END_TEST

/* A block that a cache may not keep is freed to the pool as usual. */
START_TEST(large_uncached_and_exported_blocks_do_not_enter_a_thread_cache)
{
	uint64_t large, exported, uncached = 0;

	start();
	large = fixture_alloc(8 * GP_MIB);
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), SMALL, &(struct gp_alloc_options){0}, &uncached), 0);
	exported = fixture_alloc(GP_MIB);
	if (px.options.kind != GP_KIND_SPLIT) {
		fixture_note_export(exported);
		ck_assert_int_eq(gp_pool_export(&px.map, exported), 0);
	}
	clear_calls();
	ck_assert_int_eq(gp_tcache_free_by(&px.map, large, own_cache), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 1);
	ck_assert_int_eq(gp_tcache_free_by(&px.map, uncached, own_cache), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 1);
	ck_assert_int_eq(gp_tcache_free_by(&px.map, exported, own_cache), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), px.options.kind != GP_KIND_SPLIT);
	fixture_check();
	end();
}
END_TEST

/* Retires all memory of the pool, once. */
static void invalidate_during_release(struct fake *fake, enum fake_call call)
{
	struct gp_invalidated ignored;

	if (call != FAKE_RELEASE_BEGIN && call != FAKE_RELEASE)
		return;
	fake->hook = NULL;
	gp_pool_invalidate(fixture_pool(), &ignored);
}

/*
 * The invalidation happens after the claim of a block and before it enters its bin, while the bin makes room.
 */
START_TEST(a_block_retired_during_its_free_does_not_stay_in_a_thread_cache)
{
	enum { N = GP_TCACHE_DEPTH };
	uint64_t addrs[N + 1], uncached = 0;

	start();
	ck_assert_int_eq(gp_pool_alloc_uncached(fixture_pool(), GP_MIB, &(struct gp_alloc_options){0}, &uncached), 0);
	for (unsigned i = 0; i <= N; i++)
		addrs[i] = fixture_alloc(SMALL);
	fixture_free_as(uncached, GP_FREE_UNFENCED);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(gp_tcache_free_by(&px.map, addrs[i], own_cache), 0);
	gp_pool_set_pending_max(fixture_pool(), 0);
	px.fake.hook = invalidate_during_release;
	ck_assert_int_eq(gp_tcache_free_by(&px.map, addrs[N], own_cache), 0);
	ck_assert_ptr_null(px.fake.hook);
	fixture_check();
	for (unsigned i = 0; i < N; i++)
		ck_assert(!fixture_info(take(SMALL)).is_retired);
	end();
}
END_TEST

/* Sizes too large for a bin, in serial mode. */
static const uint64_t large[] = {2 * GP_MIB, 8 * GP_MIB, 32 * GP_MIB};

enum { N_LARGE = sizeof(large) / sizeof(*large) };

static void start_serial(uint64_t cache_bytes)
{
	start_with(cache_bytes);
	atomic_store(&px.fake.is_serial, true);
	gp_pool_set_serial(fixture_pool(), true);
}

START_TEST(in_serial_mode_a_loop_reuses_its_large_blocks_from_the_thread_cache)
{
	uint64_t addrs[N_LARGE];

	start_serial(16 * GP_MIB);
	for (int i = 0; i < N_LARGE; i++)
		addrs[i] = take(large[i]);
	clear_calls();
	for (int round = 0; round < 20; round++) {
		uint64_t before = fixture_stats().cached_bytes, cached = 0;

		for (int i = 0; i < N_LARGE; i++) {
			fixture_work();
			ck_assert(put(addrs[i]));
			cached += fixture_info(addrs[i]).size;
			ck_assert_uint_eq(fixture_stats().cached_bytes, before + cached);
		}
		ck_assert_uint_eq(fixture_stats().used_bytes, 0);
		for (int i = 0; i < N_LARGE; i++)
			ck_assert_uint_eq(take(large[i]), addrs[i]);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), N_LARGE);
		fake_complete_all(&px.fake);
	}
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 0);
	end();
}
END_TEST

/* The pool has no block to spare. The first round finds that out by a query, later rounds know it. */
START_TEST(in_serial_mode_cached_blocks_have_a_fence_before_they_are_needed_again)
{
	enum { N = 3 };
	uint64_t addrs[N];

	start_serial(64 * GP_MIB);
	for (int i = 0; i < N; i++)
		addrs[i] = take(GP_MIB);
	for (int round = 0; round < 10; round++) {
		clear_calls();
		for (int i = 0; i < N; i++)
			ck_assert(put(addrs[i]));
		if (round)
			fixture_work(); /* takes long */
		for (int i = 0; i < N; i++)
			addrs[i] = take(GP_MIB);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RECORD), 1);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_QUERY), round == 0);
		ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	}
	fake_complete_all(&px.fake);
	end();
}
END_TEST

/* The thread caches each block in its turn, and has to make room many times. */
START_TEST(large_blocks_beyond_the_thread_cache_go_to_the_pool)
{
	enum { N = 3 * GP_TCACHE_LARGE };
	uint64_t addrs[N];

	start_serial(16 * GP_MIB);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++)
			addrs[i] = take((2 + (uint64_t)i % 2) * GP_MIB);
		if (round)
			ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
		for (int i = 0; i < N; i++)
			ck_assert(put(addrs[i]));
		ck_assert_uint_eq(fixture_stats().used_bytes, 0);
		clear_calls();
	}
	end();
}
END_TEST

START_TEST(a_large_request_of_another_size_can_use_the_cached_large_blocks)
{
	start_serial(16 * GP_MIB);
	ck_assert(put(take(64 * GP_MIB)));
	clear_calls();
	ck_assert(put(take(40 * GP_MIB)));
	ck_assert(put(take(48 * GP_MIB)));
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	end();
}
END_TEST

START_TEST(after_serial_mode_large_blocks_go_to_the_pool)
{
	uint64_t addr;

	start_serial(16 * GP_MIB);
	addr = take(large[1]);
	fixture_work();
	ck_assert(put(addr));
	gp_pool_set_serial(fixture_pool(), false);
	atomic_store(&px.fake.is_serial, false);
	/* The block was freed in serial mode, so a GPU wait makes it reusable. */
	ck_assert_uint_eq(take(large[1]), addr);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), 1);
	ck_assert(!put(addr));
	fake_complete_all(&px.fake);
	end();
}
END_TEST

START_TEST(large_blocks_leave_a_thread_cache_when_serial_mode_ends_or_memory_is_short)
{
	uint64_t kept, other;

	for (int is_short = 0; is_short < 2; is_short++) {
		start_serial(16 * GP_MIB);
		kept = take(large[0]);
		other = take(large[1]);
		ck_assert(put(kept));
		ck_assert_uint_eq(own_cache->n_large, 1);
		if (is_short)
			atomic_store(&px.budget.limit_bytes, fixture_stats().total_bytes);
		else
			gp_pool_set_serial(fixture_pool(), false);
		ck_assert(!put(other));
		ck_assert_uint_eq(own_cache->n_large, 0);
		end();
	}
}
END_TEST

START_TEST(a_large_block_whose_record_failed_is_not_reused_at_once)
{
	uint64_t addr;

	start_serial(16 * GP_MIB);
	addr = take(large[0]);
	fixture_work();
	fake_note_free(&px.fake, addr, large[0], FAKE_FREED);
	fake_plan(&px.fake, (struct fake_plan){.call = FAKE_RECORD, .nth = 1, .count = 1, .error = 719});
	ck_assert_int_eq(gp_tcache_put(own_cache, addr), 719);
	(void)take(large[0]);
	ck_assert_uint_eq(fixture_stats().n_used_blocks, 1);
	fake_complete_all(&px.fake);
	end();
}
END_TEST

START_TEST(a_lowered_limit_flushes_large_blocks_from_thread_caches)
{
	start_serial(16 * GP_MIB);
	ck_assert(put(take(64 * GP_MIB)));
	fake_complete_all(&px.fake);
	ck_assert_uint_ge(fixture_stats().total_bytes, 64 * GP_MIB);
	atomic_store(&px.budget.limit_bytes, 32 * GP_MIB);
	gp_pool_flush(fixture_pool(), true);
	gp_pool_await_returning(fixture_pool(), UINT64_MAX);
	ck_assert_uint_le(fixture_stats().total_bytes, 32 * GP_MIB);
	end();
}
END_TEST

/* Only an undersized block was possible at first. Then more memory became available. */
START_TEST(an_undersized_large_block_does_not_serve_a_larger_request)
{
	uint64_t addr;

	start_serial(16 * GP_MIB);
	px.fake.outside = FIXTURE_CAPACITY - 233 * GP_MIB;
	addr = take(232 * GP_MIB + 1);
	ck_assert_uint_eq(fixture_info(addr).rounded, 232 * GP_MIB + GP_ALIGN);
	px.fake.outside = 0;
	put(addr);
	addr = take(233 * GP_MIB);
	ck_assert_uint_ge(fixture_info(addr).rounded, 233 * GP_MIB);
	end();
}
END_TEST

static _Atomic bool is_held, is_served;

/* Holds the pool's lock until another thread sleeps on it, or is served without it. */
static void *hold(void *arg)
{
	struct gp_pool *pool = arg;

	gp_mutex_lock(&pool->lock);
	atomic_store(&is_held, true);
	while (!atomic_load(&is_served) && atomic_load(&pool->lock.state) != GP_MUTEX_AWAITED)
		sched_yield();
	gp_mutex_unlock(&pool->lock);
	return NULL;
}

static uint64_t take_beside_others(uint64_t bytes)
{
	pthread_t thread;
	uint64_t addr = 0;

	atomic_store(&is_held, false);
	atomic_store(&is_served, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold, fixture_pool()), 0);
	while (!atomic_load(&is_held))
		sched_yield();
	ck_assert_int_eq(gp_tcache_alloc(own_cache, bytes, 0, &addr), 0);
	atomic_store(&is_served, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	fixture_check();
	return addr;
}

/*
 * If a block went to the bin of the smaller request that it served, it would serve ever smaller requests at
 * its full size.
 */
START_TEST(a_cached_block_does_not_serve_ever_smaller_requests)
{
	uint64_t addr;

	start();
	addr = take(GP_MIB / 4);
	for (uint64_t bytes = 224 * GP_KIB; bytes >= 32 * GP_KIB; bytes -= 16 * GP_KIB) {
		put(addr);
		ck_assert_int_eq(gp_pool_synchronize(fixture_pool()), 0);
		addr = take_beside_others(bytes);
		ck_assert_uint_le(fixture_info(addr).rounded, bytes + bytes / 4);
	}
	end();
}
END_TEST

/* Sizes that differ by less than an eighth, as in programs that compute their sizes. */
START_TEST(a_block_cut_for_one_size_serves_other_sizes_of_its_bin)
{
	uint64_t addr, last = 0;

	start();
	for (uint64_t bytes = 8 * GP_KIB + 1; bytes <= 9 * GP_KIB; bytes += 100) {
		addr = take(bytes);
		ck_assert(!last || addr == last);
		ck_assert_uint_eq(fixture_info(addr).rounded, 9 * GP_KIB);
		ck_assert_uint_eq(fixture_stats().requested_bytes, bytes);
		ck_assert(put(addr));
		ck_assert_int_eq(gp_pool_synchronize(fixture_pool()), 0);
		last = addr;
	}
	end();
}
END_TEST

START_TEST(a_block_is_not_enlarged_to_its_bin_size_if_memory_is_short)
{
	uint64_t addr;

	start();
	(void)take(SMALL);
	atomic_store(&px.budget.limit_bytes, fixture_stats().total_bytes);
	addr = take(GP_MIB / 2 + GP_ALIGN);
	ck_assert_uint_eq(fixture_info(addr).rounded, GP_MIB / 2 + GP_ALIGN);
	end();
}
END_TEST

/* Takes all the memory that is left: less than the largest size of its bin. */
static void take_last(uint64_t bytes)
{
	struct gp_block_info info;

	ck_assert_uint_lt(bytes, gp_bin_size_max(gp_bin_index(bytes)));
	info = fixture_info(take(bytes));
	ck_assert_uint_eq(info.rounded, bytes);
	ck_assert_uint_le(info.addr + info.rounded, info.segment_base + info.segment_size);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
	ck_assert(gp_flag_is_set(&fixture_pool()->is_full));
}

START_TEST(a_request_for_all_memory_left_in_the_driver_is_served)
{
	start();
	px.fake.outside = FIXTURE_CAPACITY - 482 * GP_KIB;
	take_last(482 * GP_KIB);
	end();
}
END_TEST

START_TEST(a_request_for_all_memory_left_in_the_pool_is_served)
{
	uint64_t last = 482 * GP_KIB, guard = px.options.kind == GP_KIND_SPLIT ? FIXTURE_PAGE : 0, left = GP_MIB;

	start();
	for (; left; left = fixture_stats().cached_bytes - last - guard)
		(void)fixture_alloc(gp_min(left, GP_MIB));
	px.fake.outside = FIXTURE_CAPACITY - fixture_stats().total_bytes;
	take_last(last);
	ck_assert_uint_eq(fixture_stats().cached_bytes, guard);
	end();
}
END_TEST

/*
 * Allocates blocks of two sizes in turn, each time most of a slab, so that each size needs the memory in the bin of the
 * other again and again. Returns the percentage of cache hits in the last hundred rounds.
 */
static unsigned take_turns(uint64_t cache_bytes)
{
	enum { N = 24, WARM = 200, ROUNDS_AFTER = 100 };
	static const uint64_t sizes[] = {64 * GP_KIB, 80 * GP_KIB};
	uint64_t addrs[N], hits = 0;

	start_with(cache_bytes);
	for (unsigned i = 0; i < WARM + ROUNDS_AFTER; i++) {
		if (i == WARM)
			hits = gp_serials_used(&own_cache->serials);
		for (unsigned k = 0; k < N; k++)
			addrs[k] = take(sizes[i % 2]);
		for (unsigned k = 0; k < N; k++)
			put(addrs[k]);
		fake_complete_all(&px.fake);
		ck_assert_int_eq(gp_pool_synchronize(fixture_pool()), 0);
	}
	hits = gp_serials_used(&own_cache->serials) - hits;
	end();
	return (unsigned)(hits * 100 / (N * ROUNDS_AFTER));
}

START_TEST(a_small_pool_grows_rather_than_exchange_memory_between_two_bins)
{
	ck_assert_uint_ge(take_turns(16 * GP_MIB), 99);
	ck_assert_uint_le(fixture_stats().total_bytes, 8 * GP_MIB);
}
END_TEST

/* Growth ends the exchange after a few flushes, of which each moves a whole cache through the pool. */
START_TEST(a_small_pool_of_one_thread_grows_after_few_flushes)
{
	uint64_t growths;

	(void)take_turns(16 * GP_MIB);
	growths = fixture_stats().misses;
	ck_assert_uint_le(fixture_stats().steps[GP_STEP_flush].count, 4 * growths);
	ck_assert_uint_ge(fixture_stats().steps[GP_STEP_flush].count, 1);
}
END_TEST

START_TEST(a_small_pool_does_not_grow_beyond_the_thread_cache_limit)
{
	(void)take_turns(2 * GP_MIB);
	ck_assert_uint_le(fixture_stats().total_bytes, 4 * GP_MIB);
}
END_TEST

enum { MANY = 8 };

/* Passes one block n times between two threads, by way of the pool. */
static void pass(struct gp_tcache *other, unsigned n, uint64_t step_ns)
{
	uint64_t addr;

	for (unsigned i = 0; i < n; i++) {
		struct gp_tcache *tc = i % 2 ? own_cache : other;

		atomic_fetch_add(&px.fake.now_ns, step_ns);
		ck_assert_int_eq(gp_tcache_alloc(tc, GP_MIB, 0, &addr), 0);
		fake_note_free(&px.fake, addr, GP_MIB, FAKE_FREED);
		ck_assert_int_eq(gp_tcache_put(tc, addr), 0);
		fixture_check();
	}
}

/* Passes one block between two of n_caches threads. Returns the number of driver allocations. */
static uint64_t pass_around(unsigned n_caches, uint64_t step_ns)
{
	struct gp_tcache *others[MANY];
	uint64_t grown;

	start();
	for (unsigned i = 0; i < n_caches - 1; i++)
		others[i] = gp_tcache_new(fixture_pool());
	ck_assert(put(take(GP_MIB)));
	clear_calls();
	pass(others[0], 100, step_ns);
	grown = fake_calls(&px.fake, FAKE_RESERVE);
	for (unsigned i = 0; i < n_caches - 1; i++)
		gp_tcache_free(others[i]);
	end();
	return grown;
}

static uint64_t flushes(void)
{
	return fixture_stats().steps[GP_STEP_flush].count;
}

START_TEST(the_pool_grows_if_many_threads_often_flush_each_others_caches)
{
	uint64_t grown = pass_around(8, 1000);

	ck_assert_uint_gt(grown, 0);
	ck_assert_uint_le(grown, 4);
	ck_assert_uint_ge(flushes(), 16);
}
END_TEST

/* More flushes have been counted than few threads may make when the others end. */
START_TEST(a_small_pool_grows_at_once_when_few_of_many_threads_are_left)
{
	struct gp_tcache *others[MANY];
	uint64_t growths;

	start();
	for (unsigned i = 0; i < MANY; i++)
		others[i] = gp_tcache_new(fixture_pool());
	(void)fixture_alloc(GP_MIB);
	ck_assert(put(take(GP_MIB)));
	growths = fixture_stats().misses;
	pass(others[0], 10, 1000);
	ck_assert_uint_eq(flushes(), 10);
	for (unsigned i = 1; i < MANY; i++)
		gp_tcache_free(others[i]);
	pass(others[0], 1, 1000);
	ck_assert_uint_eq(fixture_stats().misses, growths + 1);
	gp_tcache_free(others[0]);
	end();
}
END_TEST

START_TEST(the_pool_does_not_grow_if_threads_rarely_flush_each_others_caches)
{
	ck_assert_uint_eq(pass_around(8, 10 * 1000000), 0);
}
END_TEST

START_TEST(the_pool_does_not_grow_if_few_threads_flush_each_others_caches)
{
	ck_assert_uint_eq(pass_around(4, 1000), 0);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, frees_of_blocks_of_other_threads_need_one_record_for_many);
	tcase_add_test(tc, blocks_of_other_threads_do_not_fill_a_thread_cache_for_good);
	tcase_add_test(tc, blocks_of_other_threads_leave_a_thread_cache_if_memory_is_short);
	tcase_add_test(tc, large_uncached_and_exported_blocks_do_not_enter_a_thread_cache);
	if (kind != GP_KIND_VMM)
		tcase_add_test(tc, a_block_retired_during_its_free_does_not_stay_in_a_thread_cache);
	tcase_add_test(tc, in_serial_mode_a_loop_reuses_its_large_blocks_from_the_thread_cache);
	tcase_add_test(tc, large_blocks_beyond_the_thread_cache_go_to_the_pool);
	tcase_add_test(tc, after_serial_mode_large_blocks_go_to_the_pool);
	tcase_add_test(tc, a_lowered_limit_flushes_large_blocks_from_thread_caches);
	tcase_add_test(tc, large_blocks_leave_a_thread_cache_when_serial_mode_ends_or_memory_is_short);
	tcase_add_test(tc, a_large_block_whose_record_failed_is_not_reused_at_once);
	if (kind == GP_KIND_SPLIT || kind == GP_KIND_VMM) {
		tcase_add_test(tc, a_large_request_of_another_size_can_use_the_cached_large_blocks);
		tcase_add_test(tc, a_cached_block_does_not_serve_ever_smaller_requests);
		tcase_add_test(tc, a_block_cut_for_one_size_serves_other_sizes_of_its_bin);
		tcase_add_test(tc, a_block_is_not_enlarged_to_its_bin_size_if_memory_is_short);
		tcase_add_test(tc, a_request_for_all_memory_left_in_the_pool_is_served);
		tcase_add_test(tc, a_small_pool_grows_rather_than_exchange_memory_between_two_bins);
		tcase_add_test(tc, a_small_pool_of_one_thread_grows_after_few_flushes);
		tcase_add_test(tc, a_small_pool_does_not_grow_beyond_the_thread_cache_limit);
	} else {
		tcase_add_test(tc, in_serial_mode_cached_blocks_have_a_fence_before_they_are_needed_again);
	}
	if (kind == GP_KIND_VMM) /* its chunk holds two such blocks */
		tcase_add_test(tc, a_small_pool_grows_at_once_when_few_of_many_threads_are_left);
	if (kind == GP_KIND_SPLIT) /* vmm takes memory in chunks */
		tcase_add_test(tc, a_request_for_all_memory_left_in_the_driver_is_served);
	if (kind == GP_KIND_SIMPLE || kind == GP_KIND_BINNED)
		tcase_add_test(tc, an_undersized_large_block_does_not_serve_a_larger_request);
	if (kind != GP_KIND_SIMPLE)
		return tc;
	tcase_add_test(tc, the_pool_grows_if_many_threads_often_flush_each_others_caches);
	tcase_add_test(tc, the_pool_does_not_grow_if_threads_rarely_flush_each_others_caches);
	tcase_add_test(tc, the_pool_does_not_grow_if_few_threads_flush_each_others_caches);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("tcache_order");

	for (enum gp_kind kind = GP_KIND_SIMPLE; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of(kind));
	return suite_run(suite);
}
