/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocations and frees in stream order: who gets a freed block, when, and what is counted. */

#include <errno.h>

#include "pool/tcache.h"
#include "pool_fixture.h"
#include "pool/tuning.h"
#include "tests/suite.h"

enum { S = 1, T = 2 }; /* streams */

#define BYTES (4 * GP_MIB)

START_TEST(the_stream_of_a_free_gets_the_block_before_its_work_has_ended)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);
	struct gp_stats stats;

	fixture_work();
	fixture_free_on(addr, S);
	ck_assert_uint_eq(fixture_alloc_on(BYTES, S), addr);
	stats = fixture_stats();
	ck_assert_uint_eq(stats.steps[GP_STEP_stream].count, 1);
	ck_assert_uint_eq(stats.fence_records, 0);
	ck_assert_uint_eq(stats.hits, 1);
	ck_assert_uint_eq(stats.pending_bytes, 0);
}
END_TEST

START_TEST(another_stream_gets_the_block_only_when_its_work_has_ended)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free_on(addr, S);
	ck_assert_uint_ne(fixture_alloc_on(BYTES, T), addr);
	ck_assert_uint_eq(fixture_stats().fence_orders, 0);
	fake_complete_all(&px.fake);
	ck_assert_uint_eq(fixture_alloc_on(BYTES, T), addr);
}
END_TEST

START_TEST(a_request_without_a_stream_gets_the_block_only_when_its_work_has_ended)
{
	uint64_t addr = fixture_alloc(BYTES);

	px.fake.has_one_stream = true;
	fixture_work();
	fixture_free_on(addr, S);
	ck_assert_uint_ne(fixture_alloc(BYTES), addr);
	fake_complete_all(&px.fake);
	ck_assert_uint_eq(fixture_alloc(BYTES), addr);
}
END_TEST

/* Two numbers that share a queue of pending blocks are different streams nevertheless. */
START_TEST(many_streams_keep_their_blocks_apart)
{
	uint64_t addrs[20];

	for (unsigned i = 0; i < 20; i++)
		addrs[i] = fixture_alloc_on(64 * GP_KIB, i + 1);
	fixture_work();
	for (unsigned i = 0; i < 20; i++)
		fixture_free_on(addrs[i], i + 1);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_uint_eq(fixture_alloc_on(64 * GP_KIB, i + 1), addrs[i]);
}
END_TEST

static bool divides_blocks(void)
{
	return px.options.kind == GP_KIND_SPLIT || px.options.kind == GP_KIND_VMM;
}

START_TEST(a_stream_gets_parts_of_a_larger_block_that_was_freed_on_it)
{
	static const uint64_t sizes[] = {2 * BYTES, 64 * GP_MIB, 512 * GP_KIB};
	uint64_t bytes = sizes[_i], addr = fixture_alloc_on(bytes, S), total, part[3];
	struct gp_block_info info = fixture_info(addr);

	if (!divides_blocks())
		return;
	total = fixture_stats().total_bytes;
	/* Nothing else is free for the requests. */
	px.fake.outside = FIXTURE_CAPACITY - px.fake.reserved_bytes;
	while (fixture_try(bytes <= GP_MIB ? 64 * GP_KIB : bytes / 4, &part[0]) == 0)
		;
	total = fixture_stats().total_bytes;
	fixture_work();
	fixture_free_on(addr, S);
	for (int i = 0; i < 3; i++) {
		part[i] = fixture_alloc_on(bytes / 4, S);
		ck_assert_uint_ge(part[i], addr);
		ck_assert_uint_le(part[i] + bytes / 4, info.addr + info.rounded);
	}
	ck_assert_uint_eq(fixture_stats().steps[GP_STEP_part].count + fixture_stats().steps[GP_STEP_stream].count, 3);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
	/* The rest is still in use, so that no other stream gets it. */
	ck_assert_int_eq(fixture_try(bytes / 8, &part[0]), -ENOMEM);
}
END_TEST

/* Fills what is free, so that only what is freed on a stream can serve the next request. */
static void use_up(uint64_t bytes)
{
	uint64_t addr;

	px.fake.outside = FIXTURE_CAPACITY - px.fake.reserved_bytes;
	while (fixture_try(bytes, &addr) == 0)
		;
}

/* No work of the stream has ended, but the request that follows on it may use the memory of all its frees. */
START_TEST(neighbours_that_were_freed_on_a_stream_serve_a_larger_request_on_it)
{
	uint64_t bytes = 64 * GP_MIB, addr = fixture_alloc_on(bytes, S), total, part[4];

	if (!divides_blocks())
		return;
	use_up(2 * GP_MIB);
	total = fixture_stats().total_bytes;
	fixture_free_on(addr, S);
	fixture_work();
	for (int i = 0; i < 3; i++)
		part[i] = fixture_alloc_on(bytes / 4, S);
	fixture_work();
	for (int i = 0; i < 3; i++)
		fixture_free_on(part[(i + _i) % 3], S);
	/* Another stream must wait for the end of the work. */
	ck_assert_int_eq(fixture_try(bytes / 2, &part[3]), -ENOMEM);
	part[3] = fixture_alloc_on(bytes / 2, S);
	ck_assert_uint_ge(part[3], addr);
	ck_assert_uint_le(part[3] + bytes / 2, addr + bytes + 2 * GP_MIB);
	fixture_work();
	fixture_free_on(part[3], S);
	fixture_check();
	/* The whole block again, where that leaves nothing to divide. */
	if (px.options.kind == GP_KIND_VMM)
		ck_assert_uint_eq(fixture_alloc_on(bytes, S), addr);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
}
END_TEST

/* The middle block belongs to another stream, whose work has not ended. */
START_TEST(neighbours_of_another_stream_do_not_serve_it)
{
	uint64_t bytes = 64 * GP_MIB, addr = fixture_alloc_on(bytes, S), part[3];

	if (!divides_blocks())
		return;
	use_up(2 * GP_MIB);
	fixture_free_on(addr, S);
	for (int i = 0; i < 3; i++)
		part[i] = fixture_alloc_on(20 * GP_MIB, S);
	fixture_work();
	for (int i = 0; i < 3; i++)
		fixture_free_on(part[i], i == 1 ? T : S);
	ck_assert_int_ne(gp_pool_alloc_with(px.pool, 36 * GP_MIB, &(struct gp_alloc_options){.stream = S}, &addr), 0);
	fixture_check();
}
END_TEST

/* Completed blocks are cached, and join with those of the stream that have not completed. */
START_TEST(cached_neighbours_join_those_freed_on_the_stream)
{
	uint64_t bytes = 64 * GP_MIB, addr = fixture_alloc_on(bytes, S), part[2], total;

	if (!divides_blocks())
		return;
	use_up(2 * GP_MIB);
	total = fixture_stats().total_bytes;
	fixture_free_on(addr, S);
	fake_complete_all(&px.fake);
	part[0] = fixture_alloc_on(36 * GP_MIB, S);
	fixture_work();
	fixture_free_on(part[0], S);
	part[1] = fixture_alloc_on(52 * GP_MIB, S);
	ck_assert_uint_ge(part[1], addr);
	ck_assert_uint_le(part[1], addr + 2 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
	fixture_check();
}
END_TEST

START_TEST(a_block_is_handed_out_whole_to_a_request_of_nearly_its_size)
{
	uint64_t addr = fixture_alloc_on(BYTES, S), rounded = fixture_info(addr).rounded;

	fixture_work();
	fixture_free_on(addr, S);
	if (px.options.kind != GP_KIND_BINNED)
		ck_assert_uint_eq(fixture_alloc_on(BYTES - BYTES / 16, S), addr);
	else
		ck_assert_uint_eq(fixture_alloc_on(BYTES, S), addr);
	ck_assert_uint_eq(fixture_info(addr).rounded, rounded);
}
END_TEST

START_TEST(completed_blocks_of_streams_merge_and_serve_larger_requests)
{
	uint64_t addrs[4], largest = 0, total;

	if (!divides_blocks())
		return;
	for (unsigned i = 0; i < 4; i++)
		addrs[i] = fixture_alloc_on(BYTES, i % 2 ? S : T);
	fixture_work();
	for (unsigned i = 0; i < 4; i++)
		fixture_free_on(addrs[i], i % 2 ? S : T);
	total = fixture_stats().total_bytes;
	fake_complete_all(&px.fake);
	largest = fixture_alloc(4 * BYTES);
	ck_assert_uint_ne(largest, 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, total);
}
END_TEST

/* Blocks of a stream that is never used again are found by every other request in the end. */
START_TEST(a_stream_that_ends_keeps_no_memory)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < 32; i++) {
		uint64_t addr = fixture_alloc_on(BYTES, 1 + i);

		fixture_work();
		fixture_free_on(addr, 1 + i);
		fake_complete_all(&px.fake);
		total = total ? total : fixture_stats().total_bytes;
	}
	ck_assert_uint_le(fixture_stats().total_bytes, 2 * total);
}
END_TEST

START_TEST(memory_freed_on_a_stream_is_used_before_a_request_fails)
{
	uint64_t addr, bytes = FIXTURE_CAPACITY / 2, other = 0;

	addr = fixture_alloc_on(bytes, S);
	fixture_work();
	fixture_free_on(addr, S);
	fake_complete_all(&px.fake);
	ck_assert_int_eq(fixture_try(bytes + bytes / 2, &other), 0);
}
END_TEST

START_TEST(a_small_pool_grows_before_a_request_on_a_stream_makes_the_host_wait)
{
	uint64_t addr;

	px.options.completion_only = true;
	for (unsigned i = 0; i < 6; i++) {
		addr = fixture_alloc_on((i + 1) * GP_MIB + BYTES, 1 + i % 3);
		fixture_work();
		fixture_free_on(addr, 1 + i % 3);
	}
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

START_TEST(a_request_on_a_stream_waits_for_freed_memory_before_the_pool_exceeds_its_peak)
{
	uint64_t addr;

	px.options.completion_only = true;
	addr = fixture_alloc_on(MUCH, S);
	fixture_work();
	fixture_free_on(addr, S);
	px.fake.hook = complete_in_pause;
	ck_assert_uint_eq(fixture_alloc_on(MUCH, T), addr);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
}
END_TEST

/* Memory that only a GPU wait made usable can neither move nor go back: that takes its completion. */
START_TEST(a_request_on_a_stream_waits_for_memory_that_a_gpu_wait_made_usable)
{
	uint64_t addr[2];

	px.fake.has_one_stream = true;
	addr[0] = fixture_alloc_on(60 * GP_MIB, S);
	addr[1] = fixture_alloc_on(60 * GP_MIB, S);
	fixture_work();
	fixture_free(addr[0]);
	fixture_free(addr[1]);
	(void)fixture_alloc_on(30 * GP_MIB, T);
	ck_assert_uint_eq(fixture_stats().n_pending_blocks, 0);
	ck_assert_uint_eq(fixture_stats().fence_waits, 0);
	px.fake.hook = complete_in_pause;
	(void)fixture_alloc_on(MUCH, T);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
	ck_assert_uint_lt(fixture_stats().total_bytes, 2 * 60 * GP_MIB + MUCH);
}
END_TEST

/* The last free is in stream order, and its block is in use again. So no fence follows that of the free before. */
START_TEST(a_request_on_a_stream_waits_for_the_last_fence_there_is)
{
	uint64_t addr[2];

	px.options.completion_only = true;
	addr[0] = fixture_alloc(MUCH);
	addr[1] = fixture_alloc_on(BYTES, S);
	fixture_work();
	fixture_free(addr[0]);
	fixture_free_on(addr[1], S);
	ck_assert_uint_eq(fixture_alloc_on(BYTES, S), addr[1]);
	px.fake.hook = complete_in_pause;
	ck_assert_uint_eq(fixture_alloc_on(MUCH, T), addr[0]);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
}
END_TEST

START_TEST(a_request_on_a_stream_does_not_wait_for_little_memory)
{
	uint64_t addr;

	px.options.completion_only = true;
	(void)fixture_alloc_on(MUCH, S);
	addr = fixture_alloc_on(BYTES, S);
	fixture_work();
	fixture_free_on(addr, S);
	(void)fixture_alloc_on(MUCH, T);
	ck_assert_uint_eq(fixture_stats().fence_waits, 0);
}
END_TEST

/* The limit holds although this thread has made a free that waits without gpupool: its work may wait for the thread. */
START_TEST(a_request_on_a_stream_waits_for_a_limited_time)
{
	uint64_t addr, start_ns, waited_ns;

	px.options.completion_only = true;
	addr = fixture_alloc_on(MUCH, S);
	fixture_work();
	fixture_free_on(addr, S);
	fixture_free(fixture_alloc(BYTES));
	atomic_store(&px.fake.waitable, 0);
	start_ns = atomic_load(&px.fake.now_ns);
	ck_assert_uint_ne(fixture_alloc_on(MUCH, T), addr);
	waited_ns = atomic_load(&px.fake.now_ns) - start_ns;
	ck_assert_uint_ge(waited_ns, GP_PEAK_WAIT_NS);
	ck_assert_uint_lt(waited_ns, 2 * GP_PEAK_WAIT_NS);
	ck_assert_uint_ge(fixture_stats().total_bytes, 2 * MUCH);
}
END_TEST

static struct gp_accounts accounts;

static uint64_t alloc_for(unsigned account, unsigned stream)
{
	const struct gp_alloc_options options = {.stream = stream, .account = account};
	uint64_t addr = 0;

	ck_assert_int_eq(gp_pool_alloc_with(fixture_pool(), BYTES, &options, &addr), 0);
	ck_assert_uint_eq(fixture_info(addr).account, account);
	fixture_check();
	return addr;
}

static uint64_t used_by(unsigned account)
{
	return atomic_load(&gp_account(&accounts, account)->used_bytes);
}

static uint64_t high_of(unsigned account)
{
	return atomic_load(&gp_account(&accounts, account)->high_bytes);
}

START_TEST(memory_counts_for_the_account_of_its_request_until_any_kind_of_free)
{
	uint64_t ones[4], two, each;

	px.options.accounts = &accounts;
	for (unsigned i = 0; i < 4; i++)
		ones[i] = alloc_for(1, S);
	two = alloc_for(2, T);
	each = fixture_info(two).rounded;
	ck_assert_uint_eq(used_by(1), 4 * each);
	ck_assert_uint_eq(used_by(2), each);
	ck_assert_uint_eq(fixture_stats().stream_bytes, 5 * each);
	fixture_free(ones[0]);
	fixture_free_on(ones[1], S);
	fixture_free_on(ones[2], T);
	ck_assert_uint_eq(used_by(1), each);
	ck_assert_uint_eq(high_of(1), 4 * each);
	ck_assert_uint_eq(used_by(2), each);
	gp_pool_drop(fixture_pool());
	ck_assert_uint_eq(used_by(1) + used_by(2), 0);
}
END_TEST

START_TEST(memory_without_an_account_has_a_mark_of_its_own)
{
	struct gp_stream_usage usage;
	uint64_t one, none, each;

	px.options.accounts = &accounts;
	one = alloc_for(1, S);
	each = fixture_info(one).rounded;
	usage = gp_pool_stream_usage(fixture_pool());
	ck_assert(!usage.is_any_served);
	ck_assert_uint_eq(usage.used_bytes, 0);
	ck_assert_uint_eq(usage.used_high_bytes, 0);
	gp_account_charge(gp_account(&accounts, 2), GP_GIB); /* by another pool of the device */
	none = alloc_for(GP_ACCOUNT_NONE, S);
	fixture_free_on(none, S);
	usage = gp_pool_stream_usage(fixture_pool());
	ck_assert(usage.is_any_served);
	ck_assert_uint_eq(usage.used_bytes, 0);
	ck_assert_uint_eq(usage.used_high_bytes, each);
	gp_pool_restart_highs(fixture_pool(), true, false);
	ck_assert_uint_eq(gp_pool_stream_usage(fixture_pool()).used_high_bytes, 0);
	ck_assert_uint_eq(high_of(1), each);
	fixture_free_on(one, S);
}
END_TEST

START_TEST(memory_in_stream_order_is_counted_until_any_kind_of_free)
{
	uint64_t a = fixture_alloc_on(BYTES, S), b = fixture_alloc_on(BYTES, T), c = fixture_alloc(BYTES);
	uint64_t each = fixture_info(a).rounded;

	ck_assert_uint_eq(fixture_stats().stream_bytes, 2 * each);
	ck_assert(fixture_info(a).is_of_stream);
	ck_assert(!fixture_info(c).is_of_stream);
	fixture_free(a);
	ck_assert_uint_eq(fixture_stats().stream_bytes, each);
	fixture_free_on(c, S);
	ck_assert_uint_eq(fixture_stats().stream_bytes, each);
	fixture_free_on(b, T);
	ck_assert_uint_eq(fixture_stats().stream_bytes, 0);
	ck_assert_uint_eq(gp_pool_stream_usage(px.pool).used_high_bytes, 2 * each);
	gp_pool_restart_highs(px.pool, true, false);
	ck_assert_uint_eq(gp_pool_stream_usage(px.pool).used_high_bytes, 0);
	ck_assert_uint_ge(gp_pool_stream_usage(px.pool).total_high_bytes, 3 * each);
}
END_TEST

/* The same memory is ordinary again once it was handed out to an ordinary request. */
START_TEST(a_block_of_a_stream_is_ordinary_after_its_next_hand_out)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);

	fixture_free_on(addr, S);
	fake_complete_all(&px.fake);
	addr = fixture_alloc(BYTES);
	ck_assert(!fixture_info(addr).is_of_stream);
	fixture_work();
	fixture_free(addr);
	ck_assert_uint_eq(fixture_stats().steps[GP_STEP_stream].count, 0);
}
END_TEST

/* The cache hands its blocks out to any stream, and a fence of the cache's frees covers them. */
START_TEST(a_thread_cache_does_not_keep_a_block_allocated_in_stream_order)
{
	struct gp_tcache *tcache;
	uint64_t addr;

	px.options.thread_cache_bytes = 16 * GP_MIB;
	tcache = gp_tcache_new(fixture_pool());
	if (!tcache)
		return;
	addr = fixture_alloc_on(64 * GP_KIB, S);
	fixture_work();
	fake_note_free(&px.fake, addr, 64 * GP_KIB, FAKE_FREED);
	ck_assert_int_eq(gp_tcache_put(tcache, addr), -ENOENT);
	ck_assert_int_eq(gp_tcache_free_by(&px.map, addr, tcache), 0);
	ck_assert_uint_eq(fixture_stats().stream_bytes, 0);
	fixture_check();
	gp_tcache_free(tcache);
}
END_TEST

START_TEST(an_exported_block_goes_to_no_stream)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);

	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_note_export(addr);
	fixture_work();
	fixture_free_on(addr, S);
	ck_assert_uint_ne(fixture_alloc_on(BYTES, S), addr);
}
END_TEST

START_TEST(a_free_in_two_steps_hides_the_block_until_the_second)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);
	struct gp_claimed claimed;

	fixture_pool();
	ck_assert_uint_eq(fixture_stats().requested_bytes, BYTES);
	ck_assert_int_eq(gp_pool_free_begin(&px.map, addr, &claimed), 0);
	ck_assert_uint_eq(fixture_stats().requested_bytes, 0);
	ck_assert_uint_ge(fixture_stats().used_bytes, BYTES);
	ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), GP_E_NOT_USED);
	ck_assert_int_eq(gp_pool_free_begin(&px.map, addr + 512, &(struct gp_claimed){NULL}), GP_E_INTERIOR);
	fake_note_free(&px.fake, addr, BYTES, FAKE_FREED_UNFENCED);
	gp_pool_free_end(&claimed, false, NULL);
	fixture_check();
	ck_assert_uint_eq(fixture_stats().requested_bytes, 0);
	ck_assert_uint_eq(fixture_stats().used_bytes, 0);
	ck_assert_int_eq(gp_pool_free_begin(&px.map, 4096, &claimed), GP_E_FOREIGN);
}
END_TEST

START_TEST(a_pool_that_ends_between_the_two_steps_of_a_free_forgets_the_block)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);
	struct gp_claimed claimed;

	ck_assert_int_eq(gp_pool_free_begin(&px.map, addr, &claimed), 0);
	gp_pool_drop(px.pool);
	gp_pool_free_end(&claimed, false, NULL);
}
END_TEST

START_TEST(a_kind_that_keeps_nothing_gives_no_stream_its_block_back)
{
	uint64_t addr = fixture_alloc_on(BYTES, S);

	fixture_work();
	fixture_free_on(addr, S);
	ck_assert_uint_ne(fixture_alloc_on(BYTES, S), addr);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	if (kind == GP_KIND_NONE) {
		tcase_add_test(tc, a_kind_that_keeps_nothing_gives_no_stream_its_block_back);
		tcase_add_test(tc, memory_counts_for_the_account_of_its_request_until_any_kind_of_free);
		tcase_add_test(tc, memory_without_an_account_has_a_mark_of_its_own);
		tcase_add_test(tc, memory_in_stream_order_is_counted_until_any_kind_of_free);
		tcase_add_test(tc, a_free_in_two_steps_hides_the_block_until_the_second);
		return tc;
	}
	tcase_add_test(tc, the_stream_of_a_free_gets_the_block_before_its_work_has_ended);
	tcase_add_test(tc, another_stream_gets_the_block_only_when_its_work_has_ended);
	tcase_add_test(tc, a_request_without_a_stream_gets_the_block_only_when_its_work_has_ended);
	tcase_add_test(tc, many_streams_keep_their_blocks_apart);
	tcase_add_loop_test(tc, a_stream_gets_parts_of_a_larger_block_that_was_freed_on_it, 0, 3);
	tcase_add_loop_test(tc, neighbours_that_were_freed_on_a_stream_serve_a_larger_request_on_it, 0, 3);
	tcase_add_test(tc, neighbours_of_another_stream_do_not_serve_it);
	tcase_add_test(tc, cached_neighbours_join_those_freed_on_the_stream);
	tcase_add_test(tc, a_block_is_handed_out_whole_to_a_request_of_nearly_its_size);
	tcase_add_test(tc, completed_blocks_of_streams_merge_and_serve_larger_requests);
	tcase_add_test(tc, a_stream_that_ends_keeps_no_memory);
	tcase_add_test(tc, memory_freed_on_a_stream_is_used_before_a_request_fails);
	tcase_add_test(tc, a_small_pool_grows_before_a_request_on_a_stream_makes_the_host_wait);
	if (kind == GP_KIND_SPLIT || kind == GP_KIND_VMM) {
		tcase_add_test(tc, a_request_on_a_stream_waits_for_freed_memory_before_the_pool_exceeds_its_peak);
		tcase_add_test(tc, a_request_on_a_stream_waits_for_memory_that_a_gpu_wait_made_usable);
		tcase_add_test(tc, a_request_on_a_stream_waits_for_the_last_fence_there_is);
		tcase_add_test(tc, a_request_on_a_stream_does_not_wait_for_little_memory);
		tcase_add_test(tc, a_request_on_a_stream_waits_for_a_limited_time);
	}
	tcase_add_test(tc, memory_in_stream_order_is_counted_until_any_kind_of_free);
	tcase_add_test(tc, a_block_of_a_stream_is_ordinary_after_its_next_hand_out);
	tcase_add_test(tc, a_thread_cache_does_not_keep_a_block_allocated_in_stream_order);
	tcase_add_test(tc, an_exported_block_goes_to_no_stream);
	tcase_add_test(tc, a_free_in_two_steps_hides_the_block_until_the_second);
	tcase_add_test(tc, a_pool_that_ends_between_the_two_steps_of_a_free_forgets_the_block);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("stream_order");

	for (int kind = 0; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of((enum gp_kind)kind));
	return suite_run(suite);
}
