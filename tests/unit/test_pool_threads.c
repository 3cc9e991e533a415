/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Real threads on one pool, for every kind: no byte ever has two owners, no block is handed out before the
 * GPU is done with it, and the counters are right at the end. The number of steps is bounded. A race detector
 * finds more in this test than the checks do.
 */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "pool/tcache.h"
#include "pool/pool.h"
#include "pool_fixture.h"
#include "shim/base/barrier.h"
#include "tests/suite.h"

#ifdef __SANITIZE_THREAD__
#define STEPS 1200 /* each takes some ten times as long */
#else
#define STEPS 3000
#endif

enum { N_WORKERS = 4, N_STEPS = STEPS, N_HELD = 12, N_SLOTS = 8, N_UNITS = 8 * FIXTURE_CAPACITY / GP_ALIGN };
enum { IN_SLOT = 255 }; /* the owner of a block in a slot */

struct held {
	uint64_t addr, bytes;
};

static struct worker {
	pthread_t thread;
	unsigned id; /* from 1 */
	uint64_t random;
	struct gp_tcache *tcache; /* NULL: no cache */
	struct held held[N_HELD];
	unsigned n_foreign; /* blocks that had another owner, or were reused too early */
	unsigned n_errors;
} workers[N_WORKERS];

static _Atomic uint8_t *owners; /* the owner of every unit; 0: none */
static uint64_t lowest;         /* address of the first unit */
static _Atomic bool is_over;

/* Blocks on their way from one thread to another. */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held slots[N_SLOTS];

static uint64_t below(struct worker *w, uint64_t n)
{
	w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (w->random >> 33) % n;
}

/* Returns false if any of the block had another owner than `from`. */
static UNWATCHED bool change_owner(const struct held *b, uint8_t from, uint8_t to)
{
	uint64_t first = (b->addr - lowest) / GP_ALIGN, n = (b->bytes + GP_ALIGN - 1) / GP_ALIGN;
	bool was_right = true;

	for (uint64_t i = first; i < first + n; i++)
		was_right &= atomic_exchange_explicit(&owners[i], to, memory_order_relaxed) == from;
	return was_right;
}

static void get(struct worker *w, struct held *b)
{
	uint64_t bytes = UINT64_C(1) << (9 + below(w, 14));
	int r = w->tcache ? gp_tcache_alloc(w->tcache, bytes, 0, &b->addr) : gp_pool_alloc(px.pool, bytes, 0, &b->addr);

	if (r == -ENOMEM)
		return;
	w->n_errors += r != 0;
	if (r)
		return;
	b->bytes = bytes;
	w->n_foreign += fake_check_hand_out(&px.fake, b->addr, bytes, true) != NULL;
	w->n_foreign += !change_owner(b, 0, (uint8_t)w->id);
}

static void put(struct worker *w, struct held *b)
{
	enum gp_free_mode mode = below(w, 8) ? GP_FREE_NORMAL : GP_FREE_UNFENCED;
	enum fake_use use = mode == GP_FREE_UNFENCED ? FAKE_FREED_UNFENCED : FAKE_FREED;
	int r = 0;

	w->n_foreign += !change_owner(b, (uint8_t)w->id, 0);
	fake_submit(&px.fake, 1);
	fake_note_free(&px.fake, b->addr, b->bytes, use);
	if (mode != GP_FREE_NORMAL || !w->tcache)
		r = gp_pool_free(&px.map, b->addr, mode);
	else if ((r = gp_tcache_put(w->tcache, b->addr)) == -ENOENT)
		r = gp_tcache_free_by(&px.map, b->addr, w->tcache);
	w->n_errors += r != 0;
	b->bytes = 0;
}

/*
 * Exchanges a block through a slot, so that a thread also frees blocks that came from the caches of other threads.
 */
static void swap(struct worker *w, struct held *b, struct held *slot)
{
	struct held other;

	if (b->bytes)
		w->n_foreign += !change_owner(b, (uint8_t)w->id, IN_SLOT);
	pthread_mutex_lock(&slots_lock);
	other = *slot;
	*slot = *b;
	pthread_mutex_unlock(&slots_lock);
	*b = other;
	if (b->bytes)
		w->n_foreign += !change_owner(b, IN_SLOT, (uint8_t)w->id);
}

static gp_barrier_source barrier_from_half_time;
static const gp_barrier_source *const barriers[] = {NULL, &gp_barrier, &barrier_from_half_time, NULL};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->tcache = gp_tcache_new(px.pool);
	for (int step = 0; step < N_STEPS; step++) {
		struct held *b = &w->held[below(w, N_HELD)];

		if (step == N_STEPS / 2)
			atomic_store(&barrier_from_half_time, atomic_load(&gp_barrier));
		if (below(w, 8) == 0)
			swap(w, b, &slots[below(w, N_SLOTS)]);
		else if (b->bytes)
			put(w, b);
		else
			get(w, b);
		if (below(w, 3) == 0)
			fake_complete(&px.fake, atomic_load(&px.fake.completed) + below(w, 8));
	}
	for (int i = 0; i < N_HELD; i++)
		if (w->held[i].bytes)
			put(w, &w->held[i]);
	if (w->tcache)
		gp_tcache_free(w->tcache);
	w->tcache = NULL;
	return NULL;
}

static bool count_block(void *arg, const struct gp_block_info *info)
{
	*(uint64_t *)arg += info->size;
	return true;
}

/* Plays the control socket: makes the changes that requests may make while threads allocate. */
static void *change_settings(void *unused)
{
	for (unsigned i = 0; !atomic_load(&is_over); i++) {
		struct gp_block_info info;
		struct gp_stats stats;
		uint64_t bytes = 0;

		gp_pool_stats(px.pool, &stats);
		gp_pool_each_used(px.pool, count_block, &bytes);
		(void)gp_pool_info(&px.map, lowest + GP_ALIGN * i % FIXTURE_CAPACITY, &info);
		(void)gp_pool_free(&px.map, lowest + 1, GP_FREE_NORMAL);
		if (i % 16 == 0)
			gp_pool_reclaim(px.pool);
		gp_pool_set_overlap(px.pool, i % 2);
		atomic_store(&px.budget.limit_bytes, i % 3 ? GP_NO_LIMIT : 64 * GP_MIB);
	}
	return NULL;
}

static void run(void *(*other)(void *))
{
	pthread_t thread;

	owners = calloc(N_UNITS, sizeof(*owners));
	ck_assert_ptr_nonnull((void *)owners);
	atomic_store(&is_over, false);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		workers[i] = (struct worker){.id = i + 1, .random = i};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, other, NULL), 0);
	for (unsigned i = 0; i < N_WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < N_SLOTS; i++) {
		swap(&workers[0], &workers[0].held[0], &slots[i]);
		if (workers[0].held[0].bytes)
			put(&workers[0], &workers[0].held[0]);
	}
	free((void *)owners);
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_uint_eq(workers[i].n_foreign, 0);
}

/*
 * The caches of the threads: none; with light locks; with locks that become light half-way, when the barrier
 * becomes available; on a kernel that has no barrier.
 */
enum { NO_CACHES, CACHES, TURNING_CACHES, HEAVY_CACHES, N_WAYS };

static void start(int caches)
{
	bool with_caches = caches != NO_CACHES;
	uint64_t addr;

	/* The model test checks which waits are allowed. */
	atomic_store(&px.fake.waitable, UINT64_MAX);
	px.options.thread_cache_bytes = with_caches ? 16 * GP_MIB : 0;
	gp_barrier_register();
	atomic_store(&barrier_from_half_time, NULL);
	px.options.barrier = barriers[caches];
	if (!with_caches)
		px.options.pending_count_max = 100;
	addr = fixture_alloc(GP_ALIGN);
	lowest = fixture_info(addr).segment_base;
	fixture_free(addr);
}

static void check_end(void)
{
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_uint_eq(workers[i].n_errors, 0);
	atomic_store(&px.fake.is_capturing, false);
	fake_complete_all(&px.fake);
	gp_pool_reclaim(px.pool);
	gp_pool_reclaim(px.pool);
	fixture_check();
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	ck_assert_uint_eq(fixture_stats().n_used_blocks, 0);
}

START_TEST(concurrent_threads_never_share_a_byte_and_the_counters_end_right)
{
	start(_i);
	run(change_settings);
	check_end();
}
END_TEST

static void *capture_now_and_then(void *unused)
{
	for (unsigned i = 0; !atomic_load(&is_over); i++)
		atomic_store(&px.fake.is_capturing, i % 4096 < 64);
	return NULL;
}

START_TEST(captures_that_begin_and_end_let_no_thread_get_a_block_too_early)
{
	start(_i);
	run(capture_now_and_then);
	check_end();
}
END_TEST

START_TEST(threads_that_run_out_of_memory_together_leave_the_counters_right)
{
	start(_i);
	px.fake.outside = FIXTURE_CAPACITY - 40 * GP_MIB;
	run(change_settings);
	px.fake.outside = 0;
	check_end();
}
END_TEST

static void wait_for_steps(uint64_t n)
{
	while (atomic_load(&px.fake.submitted) < n && !atomic_load(&is_over))
		sched_yield();
}

/*
 * Makes completion required, and later makes each new block a whole segment, so that it can be exported.
 */
static void *change_the_rules(void *unused)
{
	wait_for_steps(N_STEPS / 4);
	ck_assert_int_eq(gp_pool_require_completion(px.pool), 0);
	wait_for_steps(N_STEPS);
	gp_pool_set_whole(px.pool);
	return NULL;
}

START_TEST(threads_keep_working_when_completion_and_whole_segments_become_required)
{
	start(_i);
	run(change_the_rules);
	check_end();
}
END_TEST

static void *drop_soon(void *unused)
{
	wait_for_steps(N_STEPS / 2);
	atomic_store(&px.fake.has_ended, true);
	gp_pool_drop(px.pool);
	gp_pool_unmap(px.pool);
	return NULL;
}

START_TEST(a_context_can_end_while_threads_allocate_and_free)
{
	start(_i);
	run(drop_soon);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}
END_TEST

/* Each thread frees a block before it requests one of the same size. Together the threads hold all memory. */
enum { N_TRADES = 500, TRADED = 4 * GP_MIB };

static void *trade(void *arg)
{
	struct worker *w = arg;

	w->tcache = gp_tcache_new(px.pool);
	for (int i = 0; i < N_TRADES; i++) {
		struct held *b = &w->held[below(w, N_HELD)];

		fake_submit(&px.fake, 1);
		w->n_errors += gp_pool_free(&px.map, b->addr, GP_FREE_NORMAL) != 0;
		w->n_errors += gp_tcache_alloc(w->tcache, TRADED, 0, &b->addr) != 0;
	}
	gp_tcache_free(w->tcache);
	w->tcache = NULL;
	return NULL;
}

static void *complete_a_little_late(void *unused)
{
	while (!atomic_load(&is_over)) {
		uint64_t submitted = atomic_load(&px.fake.submitted);

		sched_yield();
		fake_complete(&px.fake, submitted);
	}
	return NULL;
}

/* Makes records slow. Meanwhile the block that is being freed is available to no thread. */
static void slow_down_records(struct fake *fake, enum fake_call call)
{
	for (int i = 0; i < (call == FAKE_RECORD ? 20 : 1); i++)
		sched_yield();
}

START_TEST(a_thread_that_frees_before_it_allocates_never_runs_out_of_memory)
{
	pthread_t thread;
	uint64_t addr;

	start(CACHES);
	ck_assert_int_eq(gp_pool_require_completion(px.pool), 0);
	for (unsigned i = 0; i < N_WORKERS * N_HELD; i++)
		workers[i % N_WORKERS].held[i / N_WORKERS].addr = fixture_alloc(TRADED);
	atomic_store(&px.budget.limit_bytes, fixture_stats().total_bytes);
	while (fixture_try(TRADED, &addr) == 0)
		;
	px.fake.hook = slow_down_records;
	atomic_store(&is_over, false);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		workers[i].id = i + 1;
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, trade, &workers[i]), 0);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, complete_a_little_late, NULL), 0);
	for (unsigned i = 0; i < N_WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_uint_eq(workers[i].n_errors, 0);
}
END_TEST

static struct {
	uint64_t addr;
	_Atomic bool has_begun, is_released, is_back;
	unsigned n_unknown, n_too_early;
} double_free;

static void *free_again(void *unused)
{
	double_free.has_begun = true;
	if (gp_pool_free(&px.map, double_free.addr, GP_FREE_NORMAL) == GP_E_FOREIGN) {
		double_free.n_unknown++;
		double_free.n_too_early += !double_free.is_released;
	}
	double_free.is_back = true;
	return NULL;
}

/*
 * Just before the driver gets the release, another thread frees the block again, and has ample time to
 * finish.
 */
static void let_free_again(struct fake *fake, enum fake_call call)
{
	pthread_t thread;

	if (call != (fake->cannot_release_behind ? FAKE_RELEASE : FAKE_RELEASE_BEGIN))
		return;
	double_free.has_begun = double_free.is_released = double_free.is_back = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, free_again, NULL), 0);
	pthread_detach(thread);
	while (!double_free.has_begun)
		sched_yield();
	for (int i = 0; i < 100000 && !double_free.is_back; i++)
		sched_yield();
	double_free.is_released = true;
}

START_TEST(a_double_free_never_reaches_the_driver_before_the_release_of_the_block)
{
	px.fake.cannot_release_behind = _i;
	double_free.addr = fixture_alloc(8 * GP_MIB);
	ck_assert_int_eq(gp_pool_free(&px.map, double_free.addr, GP_FREE_NORMAL), 0);
	fake_complete(&px.fake, px.fake.submitted);
	px.fake.hook = let_free_again;
	(void)gp_pool_reclaim(px.pool);
	px.fake.hook = NULL;
	while (!double_free.is_back)
		sched_yield();
	ck_assert_uint_eq(double_free.n_unknown, 1);
	ck_assert_uint_eq(double_free.n_too_early, 0);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, concurrent_threads_never_share_a_byte_and_the_counters_end_right, 0, HEAVY_CACHES);
	tcase_add_loop_test(tc, captures_that_begin_and_end_let_no_thread_get_a_block_too_early, 0, HEAVY_CACHES);
	tcase_add_loop_test(tc, threads_that_run_out_of_memory_together_leave_the_counters_right, 0, HEAVY_CACHES);
	tcase_add_loop_test(tc, threads_keep_working_when_completion_and_whole_segments_become_required, 0, N_WAYS);
	if (kind != GP_KIND_NONE) /* the kind none keeps no memory for other threads */
		tcase_add_test(tc, a_thread_that_frees_before_it_allocates_never_runs_out_of_memory);
	if (kind != GP_KIND_VMM) /* vmm keeps its addresses */
		tcase_add_loop_test(tc, a_double_free_never_reaches_the_driver_before_the_release_of_the_block, 0, 2);
	tcase_add_loop_test(tc, a_context_can_end_while_threads_allocate_and_free, 0, HEAVY_CACHES);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("pool_threads");

	for (int kind = 0; kind < GP_N_KINDS; kind++)
		suite_add_tcase(suite, case_of((enum gp_kind)kind));
	return suite_run(suite);
}
