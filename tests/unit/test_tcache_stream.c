/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Blocks that a thread frees in stream order and keeps in its cache: who gets them, when they leave, and the counts. */

#include "pool/caches.h"
#include "pool/tcache_stream.h"
#include "tcache_fixture.h"
#include "tests/suite.h"

enum { S = 3, T = 5 }; /* streams */

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))
#define BYTES         (4 * GP_MIB)

/* As the hooks do: from the cache, then from the pool. */
static uint64_t take_on(uint64_t bytes, unsigned stream)
{
	uint64_t addr = gp_tcache_alloc_on(own_cache, bytes, stream, 0, 0);
	const char *breach;

	if (!addr)
		return fixture_alloc_on(bytes, stream);
	fixture_check();
	breach = fake_check_hand_out_on(&px.fake, addr, bytes, true, stream);
	ck_assert_msg(!breach, "%s", breach);
	return addr;
}

/* Frees with work of the stream still to come. */
static void put_on(uint64_t addr, unsigned stream)
{
	fixture_work();
	fake_note_free_on(&px.fake, addr, fixture_info(addr).rounded, stream);
	if (!gp_tcache_put_on(own_cache, addr, stream))
		ck_assert_int_eq(gp_tcache_free_on(&px.map, addr, stream, own_cache), 0);
	fixture_check();
}

/* True if the segment of a block of BYTES has free memory for another one, which the pool uses first. */
static bool has_more_free(void)
{
	return px.options.kind == GP_KIND_SPLIT;
}

static uint64_t n_of_pool(void)
{
	return fixture_stats().hits - fixture_stats().steps[GP_STEP_cache].count;
}

START_TEST(pairs_of_any_size_are_served_by_the_cache_without_a_fence)
{
	static const uint64_t sizes[] = {1, SMALL, GP_MIB, BYTES, 40 * GP_MIB};
	uint64_t addrs[LENGTH(sizes)], n;

	start();
	for (unsigned i = 0; i < LENGTH(sizes); i++)
		addrs[i] = take_on(sizes[i], S);
	for (unsigned i = 0; i < LENGTH(sizes); i++)
		put_on(addrs[i], S);
	n = n_of_pool();
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < LENGTH(sizes); i++)
			ck_assert_uint_eq(take_on(sizes[i], S), addrs[i]);
		for (unsigned i = 0; i < LENGTH(sizes); i++)
			put_on(addrs[i], S);
	}
	ck_assert_uint_eq(n_of_pool(), n);
	ck_assert_uint_eq(fixture_stats().fence_records, 0);
	end();
}
END_TEST

START_TEST(cached_blocks_of_streams_count_as_pending)
{
	struct gp_stats stats;
	uint64_t addr, rounded;

	start();
	addr = take_on(BYTES, S);
	rounded = fixture_info(addr).rounded;
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(fixture_stats().stream_bytes, rounded);
		ck_assert_uint_eq(fixture_stats().used_bytes, rounded);
		put_on(addr, S);
		stats = fixture_stats();
		ck_assert_uint_eq(stats.stream_bytes, 0);
		ck_assert_uint_eq(stats.used_bytes, 0);
		ck_assert_uint_eq(stats.requested_bytes, 0);
		ck_assert_uint_eq(stats.pending_bytes, rounded);
		ck_assert_uint_eq(stats.n_pending_blocks, 1);
		gp_pool_restart_highs(fixture_pool(), true, false);
		ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, 0);
		ck_assert_uint_eq(take_on(BYTES, S), addr);
	}
	end();
}
END_TEST

static unsigned n_barriers;

static void count_barrier(void)
{
	n_barriers++;
}

static gp_barrier_source counted_barrier = count_barrier;

/* CuPy asks for both before each of its allocations. */
START_TEST(the_usage_in_stream_order_is_exact_and_closes_no_cache)
{
	struct gp_stream_usage usage;
	uint64_t addr, rounded;

	px.options.barrier = &counted_barrier;
	start();
	ck_assert(!gp_pool_stream_usage(fixture_pool()).is_any_served);
	addr = take_on(BYTES, S);
	rounded = fixture_info(addr).rounded;
	for (unsigned i = 0; i < 3; i++) {
		usage = gp_pool_stream_usage(fixture_pool());
		ck_assert(usage.is_any_served);
		ck_assert_uint_eq(usage.used_bytes, rounded);
		put_on(addr, S);
		n_barriers = 0;
		usage = gp_pool_stream_usage(fixture_pool());
		ck_assert_uint_eq(n_barriers, 0);
		ck_assert_uint_eq(usage.used_bytes, 0);
		ck_assert_uint_eq(usage.used_high_bytes, rounded);
		ck_assert_uint_eq(usage.total_bytes, fixture_stats().total_bytes);
		ck_assert_uint_gt(n_barriers, 0); /* the statistics close the caches */
		ck_assert_uint_eq(take_on(BYTES, S), addr);
	}
	end();
}
END_TEST

/* Starts with one block in the cache. Returns its address. */
static uint64_t start_with_cached(uint64_t *ret_rounded)
{
	uint64_t addr;

	start();
	addr = take_on(BYTES, S);
	*ret_rounded = fixture_info(addr).rounded;
	put_on(addr, S);
	return addr;
}

START_TEST(the_mark_of_usage_in_stream_order_is_never_below_the_usage)
{
	uint64_t rounded, addr = start_with_cached(&rounded);

	gp_pool_restart_highs(fixture_pool(), true, false);
	ck_assert_uint_eq(take_on(BYTES, S), addr);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, rounded);
	end();
}
END_TEST

START_TEST(a_restarted_mark_of_usage_in_stream_order_contains_blocks_that_a_cache_hands_out)
{
	uint64_t rounded, addr = start_with_cached(&rounded);

	gp_pool_restart_highs(fixture_pool(), true, false);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(take_on(BYTES, S), addr);
		put_on(addr, S);
	}
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_bytes, 0);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, rounded);
	end();
}
END_TEST

/* A block can move from one cache to another while the caches are added up. */
START_TEST(the_usage_in_stream_order_does_not_wrap_around_if_a_block_is_found_in_two_caches)
{
	uint64_t rounded;

	(void)start_with_cached(&rounded);
	atomic_fetch_add(&own_cache->cache.stream_bytes, rounded);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_bytes, 0);
	atomic_fetch_sub(&own_cache->cache.stream_bytes, rounded);
	end();
}
END_TEST

START_TEST(a_cached_block_counts_for_no_account_and_serves_the_one_for_which_it_counted)
{
	static struct gp_accounts accounts;
	const struct gp_alloc_options options = {.stream = S, .account = 1};
	const struct gp_account *one = gp_account(&accounts, 1);
	uint64_t addr = 0, rounded;

	px.options.accounts = &accounts;
	start();
	ck_assert_int_eq(gp_pool_alloc_with(fixture_pool(), BYTES, &options, &addr), 0);
	rounded = fixture_info(addr).rounded;
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(atomic_load(&one->used_bytes), rounded);
		put_on(addr, S);
		ck_assert_uint_eq(atomic_load(&one->used_bytes), 0);
		ck_assert_uint_eq(gp_tcache_take_on(own_cache, BYTES, S, 0, 2), 0);
		ck_assert_uint_eq(gp_tcache_take_on(own_cache, BYTES, S, 0, GP_ACCOUNT_NONE), 0);
		ck_assert_uint_eq(gp_tcache_take_on(own_cache, BYTES, S, 0, 1), addr);
		ck_assert_uint_eq(fixture_info(addr).account, 1);
	}
	ck_assert_uint_eq(atomic_load(&one->high_bytes), rounded);
	fixture_free(addr);
	ck_assert_uint_eq(atomic_load(&one->used_bytes), 0);
	end();
}
END_TEST

START_TEST(a_cached_block_counts_for_no_account_when_the_pool_is_dropped)
{
	static struct gp_accounts accounts;
	const struct gp_alloc_options options = {.stream = S, .account = 1};
	uint64_t addrs[2] = {0};

	px.options.accounts = &accounts;
	start();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gp_pool_alloc_with(fixture_pool(), BYTES, &options, &addrs[i]), 0);
	put_on(addrs[0], S);
	gp_pool_drop(fixture_pool());
	ck_assert_uint_eq(atomic_load(&gp_account(&accounts, 1)->used_bytes), 0);
	end();
}
END_TEST

/* Cached memory of an account is not part of the mark of memory without one. */
START_TEST(a_cached_block_of_an_account_raises_no_other_mark)
{
	static struct gp_accounts accounts;
	const struct gp_alloc_options options = {.stream = S, .account = 1};
	uint64_t addr = 0, other, rounded;
	bool is_any_unfenced;

	px.options.accounts = &accounts;
	start();
	other = fixture_alloc_on(GP_MIB, T);
	rounded = fixture_info(other).rounded;
	ck_assert_int_eq(gp_pool_alloc_with(fixture_pool(), BYTES, &options, &addr), 0);
	fixture_free(other);
	fake_complete_all(&px.fake);
	gp_pool_restart_highs(fixture_pool(), true, false);
	put_on(addr, S);
	other = fixture_alloc_on(GP_MIB, T); /* does not grow the pool, which would empty the cache */
	ck_assert_uint_ge(atomic_load(&own_cache->cache.account_bytes), BYTES);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, rounded);
	ck_assert_uint_eq(gp_caches_flush(fixture_pool(), &is_any_unfenced), 1);
	ck_assert_uint_eq(atomic_load(&own_cache->cache.account_bytes), 0);
	fixture_free(other);
	end();
}
END_TEST

START_TEST(another_stream_gets_a_cached_block_only_when_its_work_has_ended)
{
	uint64_t addr, other;

	px.fake.has_one_stream = true;
	start();
	addr = take_on(BYTES, S);
	put_on(addr, S);
	other = take_on(BYTES, T);
	ck_assert_uint_ne(other, addr);
	fake_complete_all(&px.fake);
	other = take_on(BYTES, T);
	if (!has_more_free())
		ck_assert_uint_eq(other, addr);
	end();
}
END_TEST

START_TEST(a_request_of_another_size_can_use_a_block_of_the_stream_in_the_cache)
{
	uint64_t addr, part, total;

	start();
	addr = take_on(BYTES, S);
	put_on(addr, S);
	total = fixture_stats().total_bytes;
	part = take_on(BYTES - BYTES / 16, S);
	if (!has_more_free())
		ck_assert_uint_eq(part, addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
	end();
}
END_TEST

/*
 * The pool has a block that is far too large for the request, and the cache has one of nearly its size. The request
 * gets the one of the cache, where the small block stays.
 */
START_TEST(large_blocks_leave_the_cache_for_a_large_request_of_another_size)
{
	uint64_t much = 4 * BYTES, fit, larger, small, n;
	bool is_any_unfenced;

	start();
	fit = take_on(2 * BYTES, S);
	larger = take_on(much, S);
	small = take_on(SMALL, S);
	put_on(larger, S);
	ck_assert_uint_eq(gp_caches_flush(fixture_pool(), &is_any_unfenced), 1);
	put_on(small, S);
	put_on(fit, S);
	ck_assert_uint_eq(take_on(2 * BYTES - BYTES / 8, S), fit);
	n = n_of_pool();
	ck_assert_uint_eq(take_on(SMALL, S), small);
	ck_assert_uint_eq(n_of_pool(), n);
	end();
}
END_TEST

START_TEST(blocks_beyond_the_cache_go_to_the_pool)
{
	enum { N = GP_TCACHE_STREAMED + 8 };
	uint64_t addrs[N], total;

	start();
	for (unsigned i = 0; i < N; i++)
		addrs[i] = take_on(SMALL, S);
	total = fixture_stats().total_bytes;
	for (unsigned i = 0; i < N; i++)
		put_on(addrs[i], S);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, N);
	for (unsigned i = 0; i < N; i++)
		(void)take_on(SMALL, S);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
	end();
}
END_TEST

/* A program may use a new stream for each piece of work. */
START_TEST(blocks_of_streams_that_are_no_longer_used_make_room_in_the_cache)
{
	uint64_t addrs[2 * GP_TCACHE_STREAMED], n;

	start();
	for (unsigned i = 0; i < LENGTH(addrs); i++)
		addrs[i] = fixture_alloc(SMALL);
	for (unsigned i = 0; i < LENGTH(addrs); i++)
		fixture_free(addrs[i]);
	fake_complete_all(&px.fake);
	for (unsigned i = 0; i < GP_TCACHE_STREAMED; i++)
		put_on(take_on(SMALL, 101 + 2 * i), 101 + 2 * i);
	put_on(take_on(SMALL, S), S);
	n = n_of_pool();
	for (unsigned i = 0; i < GP_TCACHE_STREAMED; i++)
		put_on(take_on(SMALL, S), S);
	ck_assert_uint_eq(n_of_pool(), n);
	end();
}
END_TEST

/* Another thread flushes all caches, and the stream finds its block in the pool. */
START_TEST(flushed_blocks_stay_those_of_their_stream)
{
	bool is_any_unfenced = false;
	uint64_t addr;

	px.fake.has_one_stream = true;
	start();
	addr = take_on(BYTES, S);
	put_on(addr, S);
	ck_assert_uint_eq(gp_caches_flush(fixture_pool(), &is_any_unfenced), 1);
	ck_assert(is_any_unfenced);
	fixture_check();
	ck_assert_uint_ne(take_on(BYTES, T), addr);
	ck_assert_uint_eq(take_on(BYTES, S), addr);
	end();
}
END_TEST

/* A request on a stream takes what other threads have freed on it, before the pool grows. */
START_TEST(the_pool_does_not_grow_while_another_cache_has_a_block_of_the_stream)
{
	uint64_t addr, total;

	start();
	addr = take_on(BYTES, S);
	total = fixture_stats().total_bytes;
	put_on(addr, S);
	if (!has_more_free())
		ck_assert_uint_eq(fixture_alloc_on(BYTES, S), addr);
	else
		(void)fixture_alloc_on(BYTES, S);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
	end();
}
END_TEST

static void complete_in_pause(struct fake *fake, enum fake_call call)
{
	if (call == FAKE_PAUSE)
		fake_complete_all(fake);
}

START_TEST(another_stream_waits_for_a_large_block_in_the_cache_before_the_pool_grows)
{
	uint64_t much = 100 * GP_MIB, addr;

	px.options.completion_only = true;
	start();
	addr = take_on(much, S);
	put_on(addr, S);
	px.fake.hook = complete_in_pause;
	ck_assert_uint_eq(fixture_alloc_on(much, T), addr);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
	end();
}
END_TEST

START_TEST(other_frees_of_a_cached_hand_out_go_to_the_pool)
{
	uint64_t addr;

	start();
	addr = take_on(SMALL, S);
	put_on(addr, S);
	ck_assert_uint_eq(take_on(SMALL, S), addr);
	ck_assert(!put(addr)); /* cudaFree */
	ck_assert_uint_eq(fixture_stats().stream_bytes, 0);
	/* A second free in stream order finds no block. */
	ck_assert(!gp_tcache_put_on(own_cache, addr, S));
	ck_assert_int_eq(gp_tcache_free_on(&px.map, addr, S, own_cache), -ENOENT);
	/* Memory of cudaMalloc does not enter the cache in stream order. */
	addr = take(SMALL);
	ck_assert(!gp_tcache_put_on(own_cache, addr, S));
	put_on(addr, S);
	ck_assert_uint_eq(gp_tcache_take_on(own_cache, SMALL, S, 0, 0), 0);
	end();
}
END_TEST

START_TEST(the_limit_of_pending_bytes_holds_for_the_cache)
{
	uint64_t addrs[4];

	px.options.pending_bytes_max = 2 * BYTES;
	start_with(GP_MIB);
	for (unsigned i = 0; i < LENGTH(addrs); i++)
		addrs[i] = take_on(BYTES, S);
	for (unsigned i = 0; i < LENGTH(addrs); i++)
		put_on(addrs[i], S);
	ck_assert_uint_le(atomic_load(&own_cache->cache.stream_bytes), 2 * BYTES);
	end();
}
END_TEST

START_TEST(nothing_stays_in_the_cache_when_memory_is_short_or_the_pool_ends)
{
	uint64_t addr, more;

	start();
	addr = take_on(BYTES, S);
	atomic_store(&fixture_pool()->is_full, true);
	put_on(addr, S);
	ck_assert_uint_eq(gp_tcache_take_on(own_cache, BYTES, S, 0, 0), 0);
	atomic_store(&fixture_pool()->is_full, false);
	more = take_on(BYTES, S);
	ck_assert_uint_eq(more, addr);
	put_on(more, S);
	gp_pool_drop(fixture_pool());
	ck_assert_uint_eq(gp_tcache_take_on(own_cache, BYTES, S, 0, 0), 0);
	ck_assert(gp_tcache_is_dead(own_cache));
	end();
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_add_test(tc, pairs_of_any_size_are_served_by_the_cache_without_a_fence);
	tcase_add_test(tc, cached_blocks_of_streams_count_as_pending);
	tcase_add_test(tc, the_usage_in_stream_order_is_exact_and_closes_no_cache);
	tcase_add_test(tc, the_mark_of_usage_in_stream_order_is_never_below_the_usage);
	tcase_add_test(tc, a_restarted_mark_of_usage_in_stream_order_contains_blocks_that_a_cache_hands_out);
	tcase_add_test(tc, the_usage_in_stream_order_does_not_wrap_around_if_a_block_is_found_in_two_caches);
	tcase_add_test(tc, a_cached_block_counts_for_no_account_and_serves_the_one_for_which_it_counted);
	tcase_add_test(tc, a_cached_block_counts_for_no_account_when_the_pool_is_dropped);
	tcase_add_test(tc, a_cached_block_of_an_account_raises_no_other_mark);
	tcase_add_test(tc, another_stream_gets_a_cached_block_only_when_its_work_has_ended);
	tcase_add_test(tc, a_request_of_another_size_can_use_a_block_of_the_stream_in_the_cache);
	tcase_add_test(tc, large_blocks_leave_the_cache_for_a_large_request_of_another_size);
	tcase_add_test(tc, blocks_beyond_the_cache_go_to_the_pool);
	tcase_add_test(tc, blocks_of_streams_that_are_no_longer_used_make_room_in_the_cache);
	tcase_add_test(tc, flushed_blocks_stay_those_of_their_stream);
	tcase_add_test(tc, the_pool_does_not_grow_while_another_cache_has_a_block_of_the_stream);
	if (kind == GP_KIND_SPLIT || kind == GP_KIND_VMM)
		tcase_add_test(tc, another_stream_waits_for_a_large_block_in_the_cache_before_the_pool_grows);
	tcase_add_test(tc, other_frees_of_a_cached_hand_out_go_to_the_pool);
	tcase_add_test(tc, the_limit_of_pending_bytes_holds_for_the_cache);
	tcase_add_test(tc, nothing_stays_in_the_cache_when_memory_is_short_or_the_pool_ends);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("tcache_stream");

	for (enum gp_kind kind = GP_KIND_SIMPLE; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of(kind));
	return suite_run(suite);
}
