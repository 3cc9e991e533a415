/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Threads free blocks that other threads allocated, and often blocks that were just freed. All threads share
 * a table of slots. A thread reads an address from a slot and frees it. The address stays in the slot until a
 * free of it has succeeded.
 *
 * Each successful free ends exactly one hand-out. So at the end every address has as many frees as hand-outs, or one
 * less if its block is in use. A free that claims a descriptor after it was reused for another address makes the counts
 * of both addresses wrong.
 *
 * Meanwhile other pools of the same map are created with many blocks, which makes the map's tables grow, and dropped.
 */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "pool/pool.h"
#include "pool/tcache.h"
#include "pool_fixture.h"
#include "shim/base/barrier.h"
#include "tests/suite.h"

#ifdef __SANITIZE_THREAD__
#define STEPS 8000 /* a race detector makes steps slow, but needs no rare interleavings */
#else
#define STEPS 20000
#endif

enum { N_WORKERS = 4, N_STEPS = STEPS, N_SLOTS = 8, N_UNITS = 1 << 23 };
enum { N_SIBLINGS = 8, SIBLINGS_BLOCKS = 1500 }; /* the nth sibling has n times as many blocks */

static struct worker {
	pthread_t thread;
	uint64_t random;
	struct gp_tcache *tcache;
	unsigned n_errors, n_freed, n_refused;
} workers[N_WORKERS];

static _Atomic uint32_t n_steps; /* of all workers */
static _Atomic bool is_over;     /* the other activity of the test has ended */

static _Atomic uint64_t slots[N_SLOTS]; /* an address or 0; some belong to a sibling */

/* Counts for an address, modulo N_UNITS. */
static struct counts {
	_Atomic uint32_t handed_out, freed;
	_Atomic uint32_t kept; /* hand-outs that need no free: still used, or dropped with their pool */
} * all_counts;

/*
 * Relaxed, so that only the pool orders the accesses of threads, and a race detector finds accesses that it leaves
 * unordered.
 */
static void add(_Atomic uint32_t *count)
{
	atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

static struct counts *counts_of(uint64_t addr)
{
	return &all_counts[addr / GP_ALIGN % N_UNITS];
}

static uint64_t below(struct worker *w, uint64_t n)
{
	w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (w->random >> 33) % n;
}

/* Returns the address of a new block, or 0 if the pool was dropped. */
static uint64_t get(struct worker *w)
{
	uint64_t addr = 0;
	int r = gp_tcache_alloc(w->tcache, GP_ALIGN << below(w, 6), 0, &addr);

	w->n_errors += r && r != GP_E_DEAD;
	if (r)
		return 0;
	add(&counts_of(addr)->handed_out);
	return addr;
}

/*
 * Frees the block; returns true if this free succeeded. An address freed before may lie inside another block
 * by now, or nowhere.
 */
static bool put(struct worker *w, uint64_t addr)
{
	bool is_by_cache = below(w, 8) != 0;
	int r = is_by_cache ? gp_tcache_free_by(&px.map, addr, w->tcache) : gp_pool_free(&px.map, addr, GP_FREE_NORMAL);

	if (!r)
		add(&counts_of(addr)->freed);
	w->n_errors += r && r != GP_E_NOT_USED && r != GP_E_INTERIOR && r != GP_E_FOREIGN && r != GP_E_DEAD;
	w->n_freed += r == 0;
	w->n_refused += r != 0;
	return !r;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int step = 0; step < N_STEPS || !atomic_load_explicit(&is_over, memory_order_relaxed); step++) {
		_Atomic uint64_t *slot = &slots[below(w, N_SLOTS)];
		uint64_t addr = atomic_load_explicit(slot, memory_order_relaxed), other;

		add(&n_steps);
		if (addr && !put(w, addr) && atomic_load_explicit(slot, memory_order_relaxed) != addr)
			continue;
		/* Two threads may get here for one slot, each with a block: one of these is freed. */
		other = atomic_exchange_explicit(slot, get(w), memory_order_relaxed);
		if (other && other != addr)
			(void)put(w, other);
		if (step % 64 == 0)
			gp_pool_reclaim(px.pool);
	}
	gp_tcache_free(w->tcache);
	return NULL;
}

static void end_pool(struct gp_pool *pool)
{
	gp_pool_drop(pool);
	gp_pool_unmap(pool);
	gp_pool_put(pool);
}

/* Makes a pool with n blocks, and ends it while other threads free those in the slots. */
static void make_and_drop_pool(unsigned n)
{
	struct gp_pool_options options = px.options;
	struct gp_pool *pool = NULL;
	uint64_t addr = 0;

	options.kind = GP_KIND_SPLIT;
	options.sibling = px.pool;
	ck_assert_int_eq(gp_pool_new(&options, &pool), 0);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_int_eq(gp_pool_alloc(pool, GP_ALIGN, 0, &addr), 0);
		add(&counts_of(addr)->handed_out);
		add(&counts_of(addr)->kept);
		if (i % 64 == 0 || i >= n - N_SLOTS / 2)
			atomic_store_explicit(&slots[i % N_SLOTS], addr, memory_order_relaxed);
	}
	end_pool(pool);
}

static void make_and_drop_siblings(void)
{
	for (unsigned i = 1; i <= N_SIBLINGS; i++)
		make_and_drop_pool(i * SIBLINGS_BLOCKS);
}

static void drop_the_pool(void)
{
	make_and_drop_pool(SIBLINGS_BLOCKS);
	while (atomic_load_explicit(&n_steps, memory_order_relaxed) < N_STEPS)
		sched_yield();
	atomic_store(&px.fake.has_ended, true);
	gp_pool_drop(px.pool);
	gp_pool_unmap(px.pool);
}

static void setup(int has_barrier)
{
	atomic_store(&px.fake.waitable, UINT64_MAX);
	px.options.thread_cache_bytes = GP_MIB;
	gp_barrier_register();
	px.options.barrier = has_barrier ? &gp_barrier : NULL;
	(void)fixture_pool();
	all_counts = calloc(N_UNITS, sizeof(*all_counts));
	ck_assert_ptr_nonnull(all_counts);
}

static void run(void (*other)(void))
{
	unsigned n_freed = 0, n_refused = 0;

	for (unsigned i = 0; i < N_WORKERS; i++) {
		workers[i] = (struct worker){.random = i, .tcache = gp_tcache_new(px.pool)};
		ck_assert_ptr_nonnull(workers[i].tcache);
	}
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	other();
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		ck_assert_uint_eq(workers[i].n_errors, 0);
		n_freed += workers[i].n_freed;
		n_refused += workers[i].n_refused;
	}
	ck_assert_uint_gt(n_freed, 0);
	ck_assert_uint_gt(n_refused, 0);
}

static bool note_used(void *arg, const struct gp_block_info *info)
{
	add(&counts_of(info->addr)->kept);
	return true;
}

static UNWATCHED void count_wrong(uint64_t *n_twice, uint64_t *n_never)
{
	for (unsigned i = 0; i < N_UNITS; i++) {
		struct counts *t = &all_counts[i];
		uint32_t handed_out = atomic_load_explicit(&t->handed_out, memory_order_relaxed);
		uint32_t freed = atomic_load_explicit(&t->freed, memory_order_relaxed);

		*n_twice += freed > handed_out;
		*n_never += freed + atomic_load_explicit(&t->kept, memory_order_relaxed) < handed_out;
	}
}

/* Checks that each address was freed as often as it was handed out, except for hand-outs that need no free. */
static void check_counts(bool is_pool_gone)
{
	uint64_t n_twice = 0, n_never = 0;

	gp_pool_each_used(px.pool, note_used, NULL);
	count_wrong(&n_twice, &n_never);
	free(all_counts);
	ck_assert_uint_eq(n_twice, 0);
	ck_assert(is_pool_gone || n_never == 0);
}

START_TEST(each_block_is_freed_exactly_once_while_other_pools_are_created_and_dropped)
{
	setup(_i);
	run(make_and_drop_siblings);
	check_counts(false);
	ck_assert_uint_gt(fixture_stats().double_frees, 0);
}
END_TEST

START_TEST(no_block_is_freed_twice_while_its_pool_is_dropped)
{
	setup(_i);
	run(drop_the_pool);
	check_counts(true);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}
END_TEST

static void drop_pool(void)
{
	gp_pool_drop(px.pool);
}

/* By then the address may belong to another pool, so the free answers as if the pool had never had it. */
START_TEST(a_free_that_races_with_the_drop_of_its_pool_is_reported_as_foreign)
{
	struct gp_tcache *tc;
	uint64_t addr = 0;

	setup(_i);
	tc = gp_tcache_new(px.pool);
	ck_assert_int_eq(gp_tcache_alloc(tc, GP_ALIGN, 0, &addr), 0);
	gp_addrmap_before_claim = drop_pool;
	ck_assert_int_eq(gp_tcache_free_by(&px.map, addr, tc), GP_E_FOREIGN);
	gp_addrmap_before_claim = NULL;
	ck_assert_int_eq(gp_tcache_free_by(&px.map, addr, tc), GP_E_FOREIGN);
	gp_tcache_free(tc);
	free(all_counts);
}
END_TEST

int main(void)
{
	static const enum gp_kind kinds[] = {GP_KIND_BINNED, GP_KIND_SPLIT, GP_KIND_VMM};
	Suite *suite = suite_create("claim");

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		TCase *tc = fixture_case(kinds[i]);

		tcase_set_timeout(tc, 120);
		tcase_add_loop_test(
			tc, each_block_is_freed_exactly_once_while_other_pools_are_created_and_dropped, 0, 2);
		tcase_add_loop_test(tc, no_block_is_freed_twice_while_its_pool_is_dropped, 0, 2);
		tcase_add_loop_test(tc, a_free_that_races_with_the_drop_of_its_pool_is_reported_as_foreign, 0, 2);
		suite_add_tcase(suite, tc);
	}
	return suite_run(suite);
}
