/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Undersized blocks: the request fits into the memory that is left, but its size class does not. */

#include <errno.h>

#include "pool/tcache.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define LIMIT (233 * GP_MIB)

/*
 * Requests whose size class is larger than the memory that the device, or the limit, has left, or would have
 * left if other contexts or processes released some. The driver alone would serve them. The classes of simple
 * are multiples of 2 MiB, those of binned here of 16 MiB.
 */
static const struct {
	enum gp_kind kind;
	uint64_t bytes, outside, contexts_yield, processes_yield, limit;
} shortages[] = {
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 23 * GP_MIB, 0, 0, GP_NO_LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 0, 0, 0, LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 100 * GP_MIB, 100 * GP_MIB, 0, LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 100 * GP_MIB, 0, 100 * GP_MIB, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 23 * GP_MIB, 0, 0, GP_NO_LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 0, 0, 0, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 100 * GP_MIB, 100 * GP_MIB, 0, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 100 * GP_MIB, 0, 100 * GP_MIB, LIMIT},
};

enum { N_SHORTAGES = sizeof(shortages) / sizeof(*shortages) };

static void set_up(int nth)
{
	fixture_setup(shortages[nth].kind);
	(void)fixture_pool();
	px.fake.outside = shortages[nth].outside;
	px.fake.contexts_yield = shortages[nth].contexts_yield;
	px.fake.processes_yield = shortages[nth].processes_yield;
	atomic_store(&px.budget.limit_bytes, shortages[nth].limit);
}

START_TEST(a_request_that_fits_succeeds_even_if_its_size_class_does_not_fit)
{
	uint64_t bytes = shortages[_i].bytes, addr;

	set_up(_i);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fixture_try(bytes, &addr), 0);
		ck_assert_uint_ge(fixture_info(addr).rounded, bytes);
		fixture_free(addr);
	}
	ck_assert_int_eq(fixture_try(LIMIT + GP_MIB, &addr), -ENOMEM);
	fixture_teardown();
}
END_TEST

static unsigned n_driver_calls(void)
{
	return fake_calls(&px.fake, FAKE_RESERVE) + fake_calls(&px.fake, FAKE_RELEASE) +
	       fake_calls(&px.fake, FAKE_RELEASE_BEGIN) + fake_calls(&px.fake, FAKE_ASK_CONTEXTS) +
	       fake_calls(&px.fake, FAKE_ASK_PROCESSES) + fake_calls(&px.fake, FAKE_TRIM);
}

START_TEST(undersized_block_is_cached_and_reused_like_any_other)
{
	uint64_t bytes = shortages[_i].bytes, addr;

	set_up(_i);
	addr = fixture_alloc(bytes);
	ck_assert_uint_gt(n_driver_calls(), 0);
	for (int i = 0; i < 10; i++) {
		fixture_free(addr);
		ck_assert_uint_eq(fixture_alloc(bytes), addr);
	}
	ck_assert_uint_eq(n_driver_calls(), 0);
	ck_assert_uint_eq(fixture_stats().hits, 10);
	fixture_teardown();
}
END_TEST

/*
 * Reuses an undersized block while the GPU still uses it. It is too large to stay pending, so the pool makes
 * a GPU wait or waits.
 */
static void reuse_pending(bool must_complete)
{
	uint64_t bytes = shortages[0].bytes, addr;

	set_up(0);
	px.fake.has_one_stream = true;
	px.options.completion_only = must_complete;
	gp_pool_set_overlap(fixture_pool(), true);
	if (must_complete)
		ck_assert_int_eq(gp_pool_require_completion(fixture_pool()), 0);
	addr = fixture_alloc(bytes);
	ck_assert_uint_gt(n_driver_calls(), 0);
	for (int i = 0; i < 10; i++) {
		fixture_work();
		fixture_free(addr);
		ck_assert_uint_eq(fixture_alloc(bytes), addr);
	}
	ck_assert_uint_eq(n_driver_calls(), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_GPU_WAIT), must_complete ? 0 : 10);
	fixture_teardown();
}

START_TEST(undersized_block_is_reused_after_a_gpu_wait)
{
	reuse_pending(false);
}
END_TEST

START_TEST(undersized_block_is_reused_after_a_host_wait_if_completion_is_required)
{
	reuse_pending(true);
}
END_TEST

/*
 * Requests that an undersized block of the rows above serves, or not. It is 512 bytes larger than a whole
 * number of MiB.
 */
static const struct {
	int shortage;
	uint64_t bytes;
	bool is_served;
} others[] = {
	{0, 229 * GP_MIB + 512, true},
	{0, 229 * GP_MIB + 513, false},
	{0, 224 * GP_MIB + 1, true},
	{0, 224 * GP_MIB, false}, /* one class below */
	{4, 232 * GP_MIB + 512, true},
	{4, 232 * GP_MIB + 513, false},
	{4, 210 * GP_MIB, true},
	{4, 200 * GP_MIB, false},
};

START_TEST(undersized_block_serves_requests_of_its_class_that_fit_into_it)
{
	uint64_t addr, other;

	set_up(others[_i].shortage);
	addr = fixture_alloc(shortages[others[_i].shortage].bytes);
	fixture_free(addr);
	(void)n_driver_calls();
	other = fixture_alloc(others[_i].bytes);
	ck_assert_uint_ge(fixture_info(other).rounded, others[_i].bytes);
	ck_assert_int_eq(n_driver_calls() == 0, others[_i].is_served);
	fixture_teardown();
}
END_TEST

START_TEST(undersized_block_can_be_replaced_by_one_of_the_full_class_size)
{
	uint64_t undersized, whole, bytes = shortages[0].bytes;

	set_up(0);
	undersized = fixture_alloc(bytes);
	px.fake.outside = 0;
	gp_pool_reclaim(fixture_pool());
	fixture_free(undersized);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), fixture_stats().peak_total_bytes);
	whole = fixture_alloc(bytes);
	ck_assert_uint_eq(fixture_info(whole).rounded, 240 * GP_MIB);
	fixture_free(whole);
	ck_assert_uint_eq(fixture_alloc(240 * GP_MIB), whole);
	fixture_teardown();
}
END_TEST

START_TEST(undersized_block_is_never_reused_after_it_was_exported)
{
	uint64_t bytes = shortages[0].bytes, addr;

	set_up(0);
	addr = fixture_alloc(bytes);
	fixture_free(addr);
	ck_assert_uint_eq(fixture_alloc(bytes), addr);
	ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	fixture_note_export(addr);
	fixture_free(addr);
	(void)n_driver_calls();
	(void)fixture_alloc(bytes);
	ck_assert_uint_gt(n_driver_calls(), 0);
	fixture_teardown();
}
END_TEST

/*
 * A small request, and the memory that is left for it: enough for the request, but less than its size class of 640 KiB.
 */
#define SMALL UINT64_C(600000)
#define LEFT  (608 * GP_KIB)

/* LEFT bytes remain of the limit, or of the device. */
static const struct {
	uint64_t limit, outside;
} small_shortages[] = {
	{LEFT, 0},
	{GP_NO_LIMIT, FIXTURE_CAPACITY - LEFT},
};

START_TEST(undersized_block_in_a_thread_cache_needs_no_driver_call_in_a_loop)
{
	struct gp_tcache *tc;
	uint64_t addr;
	int r;

	fixture_setup(GP_KIND_BINNED);
	px.options.thread_cache_bytes = 16 * GP_MIB;
	tc = gp_tcache_new(fixture_pool());
	px.fake.outside = small_shortages[_i].outside;
	atomic_store(&px.budget.limit_bytes, small_shortages[_i].limit);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(gp_tcache_alloc(tc, SMALL, 0, &addr), 0);
		ck_assert_int_eq(n_driver_calls() == 0, i > 0);
		fake_note_free(&px.fake, addr, SMALL, FAKE_FREED);
		r = gp_tcache_put(tc, addr);
		ck_assert_int_eq(r == -ENOENT ? gp_pool_free(&px.map, addr, GP_FREE_NORMAL) : r, 0);
		fixture_check();
	}
	gp_tcache_free(tc);
	fixture_teardown();
}
END_TEST

/*
 * Too little is left for a slab, so the segment is as large as its first block. The next one is a page. Behind a guard
 * of a page the segment has no room for it.
 */
START_TEST(a_segment_without_room_for_a_guard_is_handed_out_whole)
{
	uint64_t bytes = FIXTURE_PAGE + GP_ALIGN, addr;

	fixture_setup(GP_KIND_SPLIT);
	(void)fixture_pool();
	px.fake.outside = FIXTURE_CAPACITY - bytes;
	addr = fixture_alloc(bytes);
	ck_assert_uint_eq(fixture_stats().total_bytes, bytes);
	fixture_free(addr);
	ck_assert_uint_eq(fixture_alloc(FIXTURE_PAGE), addr);
	ck_assert_uint_eq(fixture_info(addr).rounded, bytes);
	fixture_free(addr);
	ck_assert_uint_eq(fixture_alloc(bytes), addr);
	fixture_teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shortage");
	TCase *tc = tcase_create("shortage");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, a_request_that_fits_succeeds_even_if_its_size_class_does_not_fit, 0, N_SHORTAGES);
	tcase_add_loop_test(tc, undersized_block_is_cached_and_reused_like_any_other, 0, N_SHORTAGES);
	tcase_add_test(tc, undersized_block_is_reused_after_a_gpu_wait);
	tcase_add_test(tc, undersized_block_is_reused_after_a_host_wait_if_completion_is_required);
	tcase_add_loop_test(tc, undersized_block_serves_requests_of_its_class_that_fit_into_it, 0,
		sizeof(others) / sizeof(*others));
	tcase_add_test(tc, undersized_block_can_be_replaced_by_one_of_the_full_class_size);
	tcase_add_test(tc, undersized_block_is_never_reused_after_it_was_exported);
	tcase_add_loop_test(tc, undersized_block_in_a_thread_cache_needs_no_driver_call_in_a_loop, 0,
		sizeof(small_shortages) / sizeof(*small_shortages));
	tcase_add_test(tc, a_segment_without_room_for_a_guard_is_handed_out_whole);
	return suite_run(suite);
}
