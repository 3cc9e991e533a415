/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Caches of threads: what they save, what they keep to themselves, and when they give it back. */

#include <stdlib.h>

#include "pool/ownlock.h"
#include "pool/pool_control.h"
#include "tcache_fixture.h"
#include "tests/suite.h"

/* Where each block is an allocation of its own it takes a while until there are enough of them. */
START_TEST(a_loop_needs_one_record_and_one_query_for_many_rounds)
{
	unsigned n = px.options.kind == GP_KIND_SPLIT || px.options.kind == GP_KIND_VMM ? 1 : 8;

	start();
	for (unsigned i = 0; i < n; i++)
		warm_up(SMALL);
	for (unsigned i = 0; i < ROUNDS; i++)
		put(take(SMALL));
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), ROUNDS / DEPTH + 1);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_QUERY), ROUNDS / DEPTH + 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ORDER), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RESERVE), 0);
	end();
}
END_TEST

/* For blocks that are little beside what other kinds grow by. */
START_TEST(a_loop_makes_the_pool_no_larger_than_it_is_worth)
{
	enum { N = 5 };

	start();
	for (int i = 0; i < N; i++)
		warm_up(GP_MIB);
	ck_assert_uint_le(fixture_stats().total_bytes, px.options.thread_cache_bytes);
	end();
}
END_TEST

/* Far more than a cache holds: what is too much goes to the pool with the fence that covers it. */
START_TEST(a_batch_of_frees_needs_one_record_for_many)
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

START_TEST(a_batch_of_frees_does_not_get_past_the_limit_of_the_queue)
{
	enum { BATCH = 16 * DEPTH };
	uint64_t addrs[BATCH];

	px.options.pending_bytes_max = px.options.thread_cache_bytes = GP_MIB;
	mine = gp_tcache_new(fixture_pool());
	for (unsigned i = 0; i < BATCH; i++)
		addrs[i] = take(16 * GP_KIB);
	for (unsigned i = 0; i < BATCH; i++) {
		put(addrs[i]);
		ck_assert_uint_le(fixture_stats().pending_bytes, 2 * GP_MIB);
	}
	end();
}
END_TEST

START_TEST(what_lies_in_a_cache_is_free_memory_to_all_who_ask)
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
	ck_assert_uint_ge(stats.free_bytes, SMALL);
	ck_assert_uint_eq(stats.total_bytes, stats.cached_bytes + stats.pending_bytes);
	ck_assert(!fixture_info(addr).is_used);
	end();
}
END_TEST

START_TEST(a_second_free_is_refused_whoever_makes_it)
{
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(addr));
	ck_assert_int_eq(gp_tcache_put(mine, addr), -ENOENT);
	ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_NOT_USED);
	ck_assert_uint_eq(fixture_stats().double_frees, 1);
	end();
}
END_TEST

START_TEST(nothing_lies_at_no_address_and_nothing_serves_no_bytes)
{
	start();
	ck_assert(put(take(SMALL)));
	ck_assert_int_eq(gp_tcache_put(mine, 0), -ENOENT);
	ck_assert_uint_eq(gp_tcache_take(mine, 0, 0), 0);
	end();
}
END_TEST

/* Or the others would wait for him. */
START_TEST(who_finds_the_lock_closed_is_not_inside)
{
	struct gp_ownlock l = {.is_light = _i};

	gp_ownlock_close(&l);
	ck_assert(!gp_ownlock_enter_at_once(&l));
	gp_ownlock_await(&l);
	gp_ownlock_open(&l);
	ck_assert(gp_ownlock_enter_at_once(&l));
	gp_ownlock_leave(&l);
	gp_ownlock_await(&l);
}
END_TEST

static unsigned n_barriers;

static void count_barrier(void)
{
	n_barriers++;
}

/* One entry pays for both sides; the others make a barrier for every look after that. */
START_TEST(a_lock_is_light_from_the_first_entry_that_finds_a_barrier)
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

/* The cache remembers the address, but the block is another's by now. */
START_TEST(what_another_thread_freed_and_has_again_is_not_the_caches)
{
	uint64_t addr, again = 0;

	start();
	addr = take(SMALL);
	fixture_free(addr);
	fake_complete_all(&px.fake);
	while (again != addr)
		again = fixture_alloc(SMALL);
	ck_assert_int_eq(gp_tcache_put(mine, addr), -ENOENT);
	ck_assert(fixture_info(addr).is_used);
	end();
}
END_TEST

START_TEST(nothing_is_kept_while_the_gpu_lags)
{
	uint64_t addr;

	start();
	addr = take(SMALL);
	ck_assert(put(take(GP_MIB)));
	fixture_work();
	fixture_free(fixture_alloc(SMALL));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gp_fence_settle(fixture_pool()->fence), -EAGAIN);
		atomic_fetch_add(&px.fake.now_ns, GP_LAG_NS);
	}
	ck_assert_int_eq(gp_fence_settle(fixture_pool()->fence), -EAGAIN);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 2);
	(void)fake_calls(&px.fake, FAKE_RECORD);
	ck_assert(!put(addr));
	/* This free covers what lay there as well: no fence that comes later does. */
	ck_assert_uint_ge(fake_calls(&px.fake, FAKE_RECORD), 1);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 3);
	ck_assert_int_eq(gp_fence_order(fixture_pool()->fence), 0);
	end();
}
END_TEST

/* Two threads, one after the other: what one of them records covers what the other has freed, and is asked for once. */
START_TEST(threads_share_their_fences)
{
	struct gp_tcache *both[2];
	uint64_t addrs[2];

	start();
	both[0] = mine;
	both[1] = gp_tcache_new(fixture_pool());
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		if (i == 2 * ROUNDS) {
			(void)fake_calls(&px.fake, FAKE_RECORD);
			(void)fake_calls(&px.fake, FAKE_QUERY);
		}
		mine = both[i % 2];
		addrs[i % 2] = take(SMALL);
		ck_assert(put(addrs[i % 2]));
	}
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RECORD), ROUNDS / DEPTH + 1);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_QUERY), ROUNDS / DEPTH + 1);
	gp_tcache_free(both[1]);
	mine = both[0];
	end();
}
END_TEST

/* As it is with many threads: the newest fence is somebody's who recorded it just now. */
START_TEST(a_cache_goes_on_while_a_fence_of_just_now_is_on_its_way)
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

/* As many as a slab has room for. */
START_TEST(the_pool_takes_back_what_threads_keep_before_it_grows)
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

/* Sizes that come and go, each of them seldom. */
START_TEST(sizes_of_every_kind_share_the_fences)
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

/* What lies there from an earlier phase of the program would keep out what it needs now. */
START_TEST(a_cache_full_of_sizes_that_nobody_wants_makes_room)
{
	uint64_t addrs[DEPTH];
	unsigned n_kept = 0;

	px.options.thread_cache_bytes = GP_MIB;
	mine = gp_tcache_new(fixture_pool());
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

START_TEST(memory_that_runs_out_is_taken_from_the_caches)
{
	uint64_t addr;

	start();
	for (unsigned i = 0; i < 8; i++)
		ck_assert(put(take(SMALL)));
	ck_assert_int_eq(fixture_try(FIXTURE_CAPACITY - 2 * GP_MIB, &addr), 0);
	end();
}
END_TEST

/* A block of the thread's own, in a device that is full; all else is in use. */
static uint64_t take_last(void)
{
	uint64_t addr = take(SMALL);

	unsigned n_others = 2 * GP_MIB / SMALL - (px.options.kind == GP_KIND_VMM ? 1 : 2); /* or a guard */

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

/* The GPU is done after so many pauses. */
static void complete_later(struct fake *fake, enum fake_call call)
{
	unsigned *n_pauses = fake->hook_arg;

	if (call == FAKE_PAUSE && *n_pauses && --*n_pauses == 0)
		fake_complete_all(fake);
}

/* No fence was recorded at the free, so only one of now tells, which a kernel launched since may hold up. */
START_TEST(what_was_in_a_cache_is_waited_for_rather_than_refused)
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

/* The driver would give it to whoever asks next, whatever the GPU does by then. */
START_TEST(what_is_freed_where_there_is_no_more_can_be_had_at_once)
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

START_TEST(a_large_request_that_fails_says_nothing_of_small_ones)
{
	uint64_t addr, unused;

	start();
	addr = take(SMALL);
	ck_assert_int_eq(fixture_try(px.fake.capacity - SMALL / 2, &unused), -ENOMEM);
	ck_assert(put(addr));
	end();
}
END_TEST

/* Another thread frees while the allocation waits. */
static void put_during_pause(struct fake *fake, enum fake_call call)
{
	uint64_t addr = *(uint64_t *)fake->hook_arg;

	if (call != FAKE_PAUSE || !addr)
		return;
	*(uint64_t *)fake->hook_arg = 0;
	(void)put(addr);
}

START_TEST(a_cache_takes_nothing_that_somebody_is_waiting_for)
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

/* As with the pool: the program is told, and what it freed is free. */
START_TEST(an_error_of_a_fence_loses_no_block)
{
	enum { ERROR = 700 };
	uint64_t addrs[DEPTH];
	unsigned n_errors = 0;

	start();
	for (unsigned i = 0; i < DEPTH; i++)
		addrs[i] = take(SMALL);
	fake_plan(&px.fake, (struct fake_plan){.call = FAKE_RECORD, .nth = 1, .count = 1, .error = ERROR});
	for (unsigned i = 0; i < DEPTH; i++) {
		int r = gp_tcache_put(mine, addrs[i]);

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

START_TEST(a_thread_that_ends_leaves_all_to_the_pool)
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

/* Frees a block to the cache, and has later work ordered behind that; then whether the next one has it. */
static bool is_had_on_order(void)
{
	uint64_t addr = take(SMALL), other = fixture_alloc(SMALL);

	fixture_work();
	ck_assert(put(addr));
	fixture_free(other);
	ck_assert_int_eq(gp_fence_order(fixture_pool()->fence), 0);
	return take(SMALL) == addr;
}

START_TEST(where_completion_is_needed_order_is_not_enough_for_a_cache_either)
{
	start();
	ck_assert(is_had_on_order());
	fake_complete_all(&px.fake);
	ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	(void)gp_fence_settle(fixture_pool()->fence); /* sees that the GPU keeps up */
	ck_assert(!is_had_on_order());
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

START_TEST(where_the_options_leave_no_room_there_is_no_cache)
{
	px.options.thread_cache_bytes = refusals[_i].thread_cache_bytes;
	px.options.pending_count_max = refusals[_i].pending_count_max;
	px.options.pending_bytes_max = refusals[_i].pending_bytes_max;
	ck_assert_ptr_null(gp_tcache_new(fixture_pool()));
}
END_TEST

START_TEST(a_pool_that_returns_all_at_once_has_no_caches)
{
	px.options.thread_cache_bytes = 16 * GP_MIB;
	ck_assert_ptr_null(gp_tcache_new(fixture_pool()));
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, a_loop_needs_one_record_and_one_query_for_many_rounds);
	tcase_add_test(tc, a_loop_makes_the_pool_no_larger_than_it_is_worth);
	tcase_add_test(tc, a_batch_of_frees_needs_one_record_for_many);
	tcase_add_test(tc, a_batch_of_frees_does_not_get_past_the_limit_of_the_queue);
	tcase_add_test(tc, what_lies_in_a_cache_is_free_memory_to_all_who_ask);
	tcase_add_test(tc, a_second_free_is_refused_whoever_makes_it);
	tcase_add_test(tc, nothing_lies_at_no_address_and_nothing_serves_no_bytes);
	tcase_add_loop_test(tc, who_finds_the_lock_closed_is_not_inside, 0, 2);
	tcase_add_test(tc, a_lock_is_light_from_the_first_entry_that_finds_a_barrier);
	tcase_add_test(tc, what_another_thread_freed_and_has_again_is_not_the_caches);
	tcase_add_test(tc, nothing_is_kept_while_the_gpu_lags);
	tcase_add_test(tc, a_cache_goes_on_while_a_fence_of_just_now_is_on_its_way);
	tcase_add_test(tc, a_cache_full_of_sizes_that_nobody_wants_makes_room);
	tcase_add_test(tc, memory_that_runs_out_is_taken_from_the_caches);
	tcase_add_loop_test(tc, what_was_in_a_cache_is_waited_for_rather_than_refused, 0,
		sizeof(ways_to_take) / sizeof(*ways_to_take));
	tcase_add_loop_test(tc, what_is_freed_where_there_is_no_more_can_be_had_at_once, 0,
		sizeof(shortages) / sizeof(*shortages));
	tcase_add_test(tc, a_large_request_that_fails_says_nothing_of_small_ones);
	tcase_add_test(tc, a_cache_takes_nothing_that_somebody_is_waiting_for);
	tcase_add_test(tc, an_error_of_a_fence_loses_no_block);
	tcase_add_test(tc, a_thread_that_ends_leaves_all_to_the_pool);
	tcase_add_test(tc, where_completion_is_needed_order_is_not_enough_for_a_cache_either);
	tcase_add_loop_test(tc, where_the_options_leave_no_room_there_is_no_cache, 0,
		sizeof(refusals) / sizeof(*refusals));
	if (kind != GP_KIND_SPLIT)
		return tc;
	tcase_add_test(tc, threads_share_their_fences);
	tcase_add_test(tc, sizes_of_every_kind_share_the_fences);
	tcase_add_test(tc, the_pool_takes_back_what_threads_keep_before_it_grows);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("tcache");
	TCase *none = fixture_case(GP_KIND_NONE);

	tcase_add_test(none, a_pool_that_returns_all_at_once_has_no_caches);
	suite_add_tcase(suite, none);
	for (enum gp_kind kind = GP_KIND_SIMPLE; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of(kind));
	return suite_run(suite);
}
