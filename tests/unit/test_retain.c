/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that is allocated or freed during captures, and what retains it (pool/retain.h), in every kind. */

#include <check.h>

#include "pool/pool.h"
#include "pool/retainer.h"
#include "pool/tcache.h"
#include "pool/tcache_pool.h"
#include "pool_fixture.h"
#include "tests/suite.h"

static struct gp_retainers retainers = GP_RETAINERS_INIT(retainers);
static struct gp_retainer *capture;

static void setup(int kind)
{
	fixture_setup((enum gp_kind)kind);
	capture = gp_retainer_new(&retainers);
	gp_retainer_add_owner(capture);
}

static uint64_t alloc_in(uint64_t bytes, struct gp_retainer *retainer, unsigned n_captured, bool may_reuse)
{
	struct gp_capture_alloc how = {.retainer = retainer, .n_captured = n_captured, .may_reuse = may_reuse};
	struct gp_alloc_options options = {.capture = &how};
	uint64_t addr = 0;

	ck_assert_int_eq(gp_pool_alloc_with(fixture_pool(), bytes, &options, &addr), 0);
	return addr;
}

static void free_in(uint64_t addr, const struct gp_capture_free *how)
{
	ck_assert_int_eq(gp_pool_free_captured(&px.map, addr, GP_FREE_NORMAL, false, how), 0);
	fixture_check();
}

/* Frees a block that the running capture may have captured. */
static void free_captured(uint64_t addr)
{
	free_in(addr, &(struct gp_capture_free){.retainer = capture, .n_captured = 1, .may_reuse = true});
}

/* Ends the capture. Completes all work, so that only the graph may still use memory. */
static void end(unsigned n_graphs)
{
	for (unsigned i = 0; i < n_graphs; i++)
		gp_retainer_add_owner(capture);
	gp_retainer_drop_owner(capture);
	fake_complete_all(&px.fake);
}

/* Allocates blocks of the size; returns true if one of them is at the address. */
static bool comes_back(uint64_t addr, uint64_t bytes)
{
	bool is_back = false;

	for (unsigned i = 0; i < 20; i++)
		is_back |= fixture_alloc(bytes) == addr;
	return is_back;
}

static uint64_t retained(void)
{
	return fixture_stats().retained_bytes;
}

START_TEST(a_block_freed_during_a_capture_is_reused_once_its_last_graph_is_gone)
{
	uint64_t addr;

	setup(_i);
	addr = fixture_alloc(4 * GP_MIB);
	free_captured(addr);
	ck_assert_uint_eq(retained(), fixture_stats().pending_bytes);
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	end(2);
	gp_retainer_drop_owner(capture);
	ck_assert(!comes_back(addr, 4 * GP_MIB));
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	ck_assert_uint_ge(fixture_stats().peak_retained_bytes, 4 * GP_MIB);
	if (_i != GP_KIND_NONE)
		ck_assert(comes_back(addr, 4 * GP_MIB));
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_block_allocated_during_a_capture_and_freed_after_it_waits_for_the_graph)
{
	uint64_t addr;

	setup(_i);
	addr = alloc_in(4 * GP_MIB, capture, 0, true);
	end(1);
	fixture_free(addr);
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	ck_assert(!comes_back(addr, 4 * GP_MIB));
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_capture_that_ends_without_a_graph_retains_nothing)
{
	uint64_t addr[2];

	setup(_i);
	addr[0] = alloc_in(4 * GP_MIB, capture, 0, true);
	addr[1] = alloc_in(4 * GP_MIB, capture, 0, true);
	free_captured(addr[0]);
	end(0);
	fixture_free(addr[1]);
	ck_assert_uint_eq(retained(), 0);
	ck_assert_uint_eq(fixture_stats().used_bytes, 0);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_released_block_waits_for_the_work_that_was_submitted_until_then)
{
	uint64_t addr;

	setup(_i);
	addr = fixture_alloc(4 * GP_MIB);
	free_captured(addr);
	end(1);
	/* A launch of the graph is under way when the graph is destroyed. */
	fixture_work();
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	ck_assert_uint_ge(fixture_stats().pending_bytes, 4 * GP_MIB);
	ck_assert_uint_ne(fixture_alloc(4 * GP_MIB), addr);
	ck_assert_uint_ge(fixture_stats().pending_bytes, 4 * GP_MIB);
	fake_complete_all(&px.fake);
	(void)gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().pending_bytes, 0);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(memory_of_a_capture_is_used_again_only_by_requests_of_nearly_its_size)
{
	static const struct {
		uint64_t bytes;
		bool may_reuse, is_same;
	} rows[] = {
		{8 * GP_MIB, true, true},
		{8 * GP_MIB, false, false},
		{15 * GP_MIB / 2, true, true},
		{4 * GP_MIB, true, false},
		{9 * GP_MIB, true, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t addr, again;

		setup(_i);
		addr = alloc_in(8 * GP_MIB, capture, 0, true);
		free_captured(addr);
		again = alloc_in(rows[i].bytes, capture, 1, rows[i].may_reuse);
		ck_assert_int_eq(again == addr, rows[i].is_same && _i != GP_KIND_NONE);
		end(0);
		gp_retainer_put(capture);
		fixture_teardown();
	}
}
END_TEST

START_TEST(a_capture_finds_its_memory_behind_that_of_at_most_63_blocks_of_others)
{
	static const struct {
		unsigned n_before, n_behind; /* blocks of the other capture, freed before and after that of this one */
		bool is_same;
	} rows[] = {{0, 0, true}, {80, 0, true}, {0, 63, true}, {80, 63, true}, {0, 64, false}, {80, 64, false}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct gp_retainer *second;
		uint64_t addr, others[144];
		unsigned n = rows[i].n_before + rows[i].n_behind;

		setup(_i);
		second = gp_retainer_new(&retainers);
		gp_retainer_add_owner(second);
		for (unsigned k = 0; k < n; k++)
			others[k] = alloc_in(GP_MIB, second, 0, true);
		addr = alloc_in(GP_MIB, capture, 0, true);
		for (unsigned k = 0; k < n; k++) {
			if (k == rows[i].n_before)
				free_captured(addr);
			free_in(others[k], &(struct gp_capture_free){second, .n_captured = 1, .may_reuse = true});
		}
		if (!rows[i].n_behind)
			free_captured(addr);
		/* A block that may not be used again is not in the way. */
		free_captured(fixture_alloc(GP_MIB));
		ck_assert_int_eq(alloc_in(GP_MIB, capture, 1, true) == addr, rows[i].is_same && _i != GP_KIND_NONE);
		end(0);
		gp_retainer_drop_owner(second);
		ck_assert_uint_eq(retained(), 0);
		gp_retainer_put(second);
		gp_retainer_put(capture);
		fixture_teardown();
	}
}
END_TEST

START_TEST(memory_of_a_capture_is_not_used_again_in_another_one)
{
	struct gp_retainer *second;
	uint64_t addr;

	setup(_i);
	second = gp_retainer_new(&retainers);
	gp_retainer_add_owner(second);
	addr = alloc_in(8 * GP_MIB, capture, 0, true);
	free_captured(addr);
	ck_assert_uint_ne(alloc_in(8 * GP_MIB, second, 0, true), addr);
	end(0);
	gp_retainer_drop_owner(second);
	gp_retainer_put(second);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(memory_that_other_work_may_have_used_is_not_used_again_in_the_capture)
{
	uint64_t addr;

	setup(_i);
	addr = alloc_in(4 * GP_MIB, capture, 0, true);
	free_in(addr,
		&(struct gp_capture_free){.retainer = capture, .n_elsewhere = 1, .n_captured = 1, .may_reuse = true});
	ck_assert_uint_ne(alloc_in(4 * GP_MIB, capture, 1, true), addr);
	/* Memory from before the capture is not used again either. */
	addr = fixture_alloc(8 * GP_MIB);
	free_captured(addr);
	ck_assert_uint_ne(alloc_in(8 * GP_MIB, capture, 1, true), addr);
	end(0);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(memory_is_not_retained_if_nothing_was_captured_while_it_was_allocated)
{
	uint64_t addr;

	setup(_i);
	addr = alloc_in(4 * GP_MIB, capture, 7, true);
	free_in(addr, &(struct gp_capture_free){.retainer = capture, .n_captured = 7});
	ck_assert_uint_eq(retained(), 0);
	end(1);
	gp_retainer_drop_owner(capture);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(memory_is_retained_if_more_may_have_been_captured_than_is_counted)
{
	uint64_t addr;

	setup(_i);
	addr = alloc_in(4 * GP_MIB, capture, GP_CAPTURED_UNKNOWN, false);
	free_in(addr, &(struct gp_capture_free){.retainer = capture, .n_captured = GP_CAPTURED_UNKNOWN});
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	end(1);
	gp_retainer_drop_owner(capture);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

/* A thread is about to free a block as the capture ends, and the pool looks for what that end releases before. */
START_TEST(a_free_that_comes_after_the_end_of_its_capture_is_not_retained)
{
	uint64_t addr[2];

	setup(_i);
	for (unsigned i = 0; i < 2; i++)
		addr[i] = alloc_in(4 * GP_MIB, capture, 0, true);
	free_in(addr[0], &(struct gp_capture_free){.retainer = capture, .n_captured = 1});
	end(0);
	ck_assert_uint_eq(retained(), 0);
	free_in(addr[1], &(struct gp_capture_free){.retainer = capture, .n_captured = 1});
	ck_assert_uint_eq(retained(), 0);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(memory_of_a_thread_outside_the_capture_is_retained_only_if_it_joins)
{
	struct gp_retainer *thread;
	uint64_t addr[3];

	setup(_i);
	thread = gp_retainer_new(&retainers);
	for (unsigned i = 0; i < 3; i++)
		addr[i] = alloc_in(4 * GP_MIB, thread, 0, false);
	free_in(addr[0], &(struct gp_capture_free){.retainer = capture, .exempt = thread, .n_captured = 1});
	ck_assert_uint_eq(retained(), 0);
	/* Another thread frees it. */
	free_in(addr[1], &(struct gp_capture_free){.retainer = capture, .n_captured = 1});
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	gp_retainer_join(thread, capture);
	free_in(addr[2], &(struct gp_capture_free){.retainer = capture, .exempt = thread, .n_captured = 1});
	ck_assert_uint_ge(retained(), 8 * GP_MIB);
	end(1);
	ck_assert_uint_ge(retained(), 8 * GP_MIB);
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	gp_retainer_put(thread);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_block_that_two_captures_may_use_waits_for_both)
{
	struct gp_retainer *second;
	uint64_t addr;

	setup(_i);
	second = gp_retainer_new(&retainers);
	gp_retainer_add_owner(second);
	addr = alloc_in(4 * GP_MIB, capture, 0, true);
	free_in(addr, &(struct gp_capture_free){.retainer = second, .n_captured = 1});
	end(0);
	ck_assert_uint_ge(retained(), 4 * GP_MIB);
	gp_retainer_drop_owner(second);
	ck_assert_uint_eq(retained(), 0);
	gp_retainer_put(second);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_graph_releases_its_memory_although_a_later_capture_has_freed_other_memory_of_it)
{
	struct gp_retainer *second;
	uint64_t addr, both;

	setup(_i);
	second = gp_retainer_new(&retainers);
	gp_retainer_add_owner(second);
	addr = alloc_in(4 * GP_MIB, capture, 0, false);
	both = alloc_in(8 * GP_MIB, capture, 0, false);
	free_captured(addr);
	free_in(both, &(struct gp_capture_free){.retainer = second, .n_captured = 1});
	ck_assert_uint_ge(retained(), 12 * GP_MIB);
	end(1);
	ck_assert_uint_ge(retained(), 12 * GP_MIB);
	gp_retainer_drop_owner(capture);
	ck_assert_uint_ge(retained(), 8 * GP_MIB);
	ck_assert_uint_lt(retained(), 12 * GP_MIB);
	gp_retainer_drop_owner(second);
	ck_assert_uint_eq(retained(), 0);
	gp_retainer_put(second);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(the_end_of_a_pool_drops_the_retainers_of_its_blocks)
{
	struct gp_retainer *second;
	uint64_t addr;

	setup(_i);
	second = gp_retainer_new(&retainers);
	gp_retainer_add_owner(second);
	addr = alloc_in(4 * GP_MIB, capture, 0, false);
	free_in(addr, &(struct gp_capture_free){.retainer = second, .n_captured = 1});
	ck_assert(!gp_retainer_is_unused(capture));
	ck_assert(!gp_retainer_is_unused(second));
	fixture_teardown();
	ck_assert(gp_retainer_is_unused(capture));
	ck_assert(gp_retainer_is_unused(second));
	gp_retainer_drop_owner(second);
	gp_retainer_drop_owner(capture);
	gp_retainer_put(second);
	gp_retainer_put(capture);
}
END_TEST

START_TEST(a_captured_block_does_not_enter_a_thread_cache)
{
	struct gp_tcache *tcache;
	uint64_t addr;

	setup(_i);
	px.options.thread_cache_bytes = 4 * GP_MIB;
	tcache = gp_tcache_new(fixture_pool());
	ck_assert_ptr_nonnull(tcache);
	addr = alloc_in(4096, capture, 0, true);
	end(1);
	ck_assert_int_eq(gp_tcache_free_by(&px.map, addr, tcache), 0);
	ck_assert_uint_ge(retained(), 4096);
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	gp_tcache_free(tcache);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(an_uncached_free_goes_back_to_the_driver_once_the_graph_is_gone)
{
	struct gp_capture_free how;
	uint64_t addr;

	setup(_i);
	how = (struct gp_capture_free){.retainer = capture, .n_captured = 1};
	addr = fixture_alloc(32 * GP_MIB);
	ck_assert_int_eq(gp_pool_free_captured(&px.map, addr, GP_FREE_NORMAL, true, &how), 0);
	end(1);
	ck_assert_uint_ge(fixture_stats().total_bytes, 32 * GP_MIB);
	gp_retainer_drop_owner(capture);
	ck_assert_uint_eq(retained(), 0);
	for (unsigned i = 0; i < 3; i++) {
		gp_pool_flush(fixture_pool(), true);
		fake_complete_all(&px.fake);
	}
	(void)gp_pool_trim(fixture_pool(), 0);
	ck_assert_uint_lt(fixture_stats().total_bytes, 32 * GP_MIB);
	gp_retainer_put(capture);
	fixture_teardown();
}
END_TEST

START_TEST(a_pool_that_ends_lets_go_of_all_retainers)
{
	uint64_t addr;

	setup(_i);
	addr = alloc_in(4 * GP_MIB, capture, 0, true);
	(void)alloc_in(4 * GP_MIB, capture, 0, true);
	free_captured(addr);
	ck_assert(!gp_retainer_is_unused(capture));
	gp_pool_drop(fixture_pool());
	ck_assert(gp_retainer_is_unused(capture));
	end(0);
	gp_retainer_put(capture);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("retain");
	TCase *tc = tcase_create("every kind");

	tcase_add_loop_test(tc, a_block_freed_during_a_capture_is_reused_once_its_last_graph_is_gone, 0, GP_N_KINDS);
	tcase_add_loop_test(
		tc, a_block_allocated_during_a_capture_and_freed_after_it_waits_for_the_graph, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_capture_that_ends_without_a_graph_retains_nothing, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_released_block_waits_for_the_work_that_was_submitted_until_then, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_of_a_capture_is_used_again_only_by_requests_of_nearly_its_size, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_capture_finds_its_memory_behind_that_of_at_most_63_blocks_of_others, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_of_a_capture_is_not_used_again_in_another_one, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_that_other_work_may_have_used_is_not_used_again_in_the_capture, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_is_not_retained_if_nothing_was_captured_while_it_was_allocated, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_is_retained_if_more_may_have_been_captured_than_is_counted, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_free_that_comes_after_the_end_of_its_capture_is_not_retained, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, memory_of_a_thread_outside_the_capture_is_retained_only_if_it_joins, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_block_that_two_captures_may_use_waits_for_both, 0, GP_N_KINDS);
	tcase_add_loop_test(
		tc, a_graph_releases_its_memory_although_a_later_capture_has_freed_other_memory_of_it, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, the_end_of_a_pool_drops_the_retainers_of_its_blocks, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_captured_block_does_not_enter_a_thread_cache, GP_KIND_SIMPLE, GP_N_KINDS);
	tcase_add_loop_test(tc, an_uncached_free_goes_back_to_the_driver_once_the_graph_is_gone, 0, GP_N_KINDS);
	tcase_add_loop_test(tc, a_pool_that_ends_lets_go_of_all_retainers, 0, GP_N_KINDS);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
