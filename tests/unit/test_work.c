/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Whether a fence covers what is freed now: only while nothing was submitted since. */

#include <check.h>
#include <pthread.h>
#include <sched.h>

#include "fence_fixture.h"
#include "pool/work.h"
#include "tests/suite.h"

START_TEST(who_submits_ends_what_was_looked_at_and_no_more)
{
	struct gp_work work = GP_WORK_INIT;
	uint64_t first = gp_work_look(&work), second;

	ck_assert_uint_ne(first, GP_WORK_NO_EPOCH);
	ck_assert_uint_eq(gp_work_epoch(&work), first);
	ck_assert_uint_eq(gp_work_look(&work), first);
	gp_work_note(&work);
	second = gp_work_epoch(&work);
	ck_assert_uint_ne(second, first);
	/* Nobody has looked since. */
	for (unsigned i = 0; i < 3; i++)
		gp_work_note(&work);
	ck_assert_uint_eq(gp_work_epoch(&work), second);
	ck_assert_uint_eq(gp_work_look(&work), second);
	gp_work_note(&work);
	ck_assert_uint_ne(gp_work_epoch(&work), second);
}
END_TEST

START_TEST(what_is_lost_is_lost_for_good)
{
	struct gp_work work = GP_WORK_INIT;
	uint64_t epoch = gp_work_look(&work);

	gp_work_lose(&work);
	ck_assert_uint_ne(gp_work_epoch(&work), epoch);
	ck_assert_uint_eq(gp_work_look(&work), GP_WORK_NO_EPOCH);
	gp_work_note(&work);
	ck_assert_uint_eq(gp_work_look(&work), GP_WORK_NO_EPOCH);
	ck_assert_uint_ne(gp_work_epoch(&work), GP_WORK_NO_EPOCH);
}
END_TEST

enum { SOME_ERROR = 700 };

static void setup_seen(void)
{
	setup();
	fake.says_work = true;
}

START_TEST(a_free_with_nothing_in_front_of_it_is_done_with_the_fence_before_it)
{
	uint64_t stamp;

	free_something();
	stamp = gp_fence_stamp(&f);
	ck_assert_uint_lt(stamp, gp_fence_started(&f));
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
	ck_assert_uint_ge(stamp, gp_fence_completed(&f));
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert_uint_lt(stamp, gp_fence_completed(&f));
	/* And so is one that comes only now. */
	ck_assert_uint_lt(gp_fence_stamp(&f), gp_fence_completed(&f));
}
END_TEST

START_TEST(a_free_after_work_needs_a_fence_of_its_own)
{
	free_something();
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	fake_submit(&fake, 1);
	ck_assert_uint_eq(gp_fence_stamp(&f), gp_fence_started(&f));
	free_something();
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 2);
}
END_TEST

/* Then what it would cover is not known to be done. */
START_TEST(a_record_that_failed_covers_nothing)
{
	free_something();
	fake_submit(&fake, 1);
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_stamp(&f), true), SOME_ERROR);
	ck_assert_uint_eq(gp_fence_stamp(&f), gp_fence_started(&f));
}
END_TEST

START_TEST(before_the_first_fence_and_where_nobody_says_each_free_needs_one)
{
	ck_assert_uint_eq(gp_fence_stamp(&f), gp_fence_started(&f));
	fake.says_work = false;
	free_something();
	ck_assert_uint_eq(gp_fence_stamp(&f), gp_fence_started(&f));
}
END_TEST

/*
 * Threads submit and free at the same time. Each frees what the GPU was just seen to run, whoever submitted it: the
 * fence that the free relies on must cover that. The GPU has the work for as long as the submitting call goes on after
 * it, as in a driver. A lock keeps records and submissions apart, as in a driver.
 */
enum { N_WORKERS = 4, N_STEPS = 40000 };

static struct gp_work shared;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t n_submitted;
static _Atomic uint64_t clean_epoch; /* of the last record, which covers: */
static _Atomic uint64_t clean;

/* Other threads run between the parts of some submissions. */
static void submit(struct gp_work_lane *lane, unsigned nth)
{
	gp_work_enter(&shared, lane);
	if (nth % 2)
		sched_yield();
	pthread_mutex_lock(&driver);
	atomic_fetch_add(&n_submitted, 1);
	pthread_mutex_unlock(&driver);
	if (nth % 3)
		sched_yield();
	gp_work_leave(lane);
}

/* As fence.c does it, where the pool's lock orders the records. */
static void record(void)
{
	static pthread_mutex_t fence = PTHREAD_MUTEX_INITIALIZER;
	uint64_t epoch;

	pthread_mutex_lock(&fence);
	epoch = gp_work_look(&shared);
	pthread_mutex_lock(&driver);
	atomic_store_explicit(&clean, atomic_load(&n_submitted), memory_order_relaxed);
	pthread_mutex_unlock(&driver);
	atomic_store_explicit(&clean_epoch, epoch, memory_order_release);
	pthread_mutex_unlock(&fence);
}

struct worker {
	unsigned steps_per_submission;
	unsigned n_wrong, n_covered;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct gp_work_lane *lane = gp_work_lane(&shared);

	for (unsigned i = 1; i <= N_STEPS; i++) {
		uint64_t seen, epoch, covered;

		if (i % worker->steps_per_submission == 0)
			submit(lane, i / worker->steps_per_submission);
		seen = atomic_load(&n_submitted);
		epoch = atomic_load_explicit(&clean_epoch, memory_order_acquire);
		covered = atomic_load_explicit(&clean, memory_order_relaxed);
		if (epoch && gp_work_epoch(&shared) == epoch) {
			worker->n_wrong += covered < seen;
			worker->n_covered++;
		} else if (i % 3 == 0) {
			record();
		}
	}
	return NULL;
}

START_TEST(what_the_gpu_was_seen_to_run_is_covered_by_the_fence_that_a_free_relies_on)
{
	struct worker workers[N_WORKERS] = {{23}, {31}, {47}, {101}};
	pthread_t threads[N_WORKERS];
	unsigned n_covered = 0;

	shared = GP_WORK_INIT;
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_uint_eq(workers[i].n_wrong, 0);
		n_covered += workers[i].n_covered;
	}
	ck_assert_uint_gt(n_covered, N_STEPS / 100);
}
END_TEST

START_TEST(a_record_beside_a_submission_is_good_for_no_epoch)
{
	struct gp_work work = GP_WORK_INIT;
	struct gp_work_lane *first = gp_work_lane(&work), *second = gp_work_lane(&work);

	ck_assert_ptr_ne(first, second);
	gp_work_enter(&work, second);
	ck_assert_uint_eq(gp_work_look(&work), GP_WORK_NO_EPOCH);
	gp_work_enter(&work, second); /* a callback of the driver's that submits */
	gp_work_leave(second);
	ck_assert_uint_eq(gp_work_look(&work), GP_WORK_NO_EPOCH);
	gp_work_leave(second);
	ck_assert_uint_ne(gp_work_look(&work), GP_WORK_NO_EPOCH);
}
END_TEST

START_TEST(threads_beyond_the_number_of_lanes_share_them)
{
	struct gp_work work = GP_WORK_INIT;
	struct gp_work_lane *lanes[2 * GP_WORK_LANES];

	for (unsigned i = 0; i < 2 * GP_WORK_LANES; i++)
		gp_work_enter(&work, lanes[i] = gp_work_lane(&work));
	ck_assert_ptr_eq(lanes[0], lanes[GP_WORK_LANES]);
	for (unsigned i = 0; i < 2 * GP_WORK_LANES; i++) {
		ck_assert_uint_eq(gp_work_look(&work), GP_WORK_NO_EPOCH);
		gp_work_leave(lanes[i]);
	}
	ck_assert_uint_ne(gp_work_look(&work), GP_WORK_NO_EPOCH);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("work");
	TCase *tc = tcase_create("epochs"), *fences = tcase_create("fences");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, who_submits_ends_what_was_looked_at_and_no_more);
	tcase_add_test(tc, what_is_lost_is_lost_for_good);
	tcase_add_test(tc, a_record_beside_a_submission_is_good_for_no_epoch);
	tcase_add_test(tc, threads_beyond_the_number_of_lanes_share_them);
	tcase_add_test(tc, what_the_gpu_was_seen_to_run_is_covered_by_the_fence_that_a_free_relies_on);
	suite_add_tcase(suite, fences);
	tcase_add_checked_fixture(fences, setup_seen, teardown);
	tcase_add_test(fences, a_free_with_nothing_in_front_of_it_is_done_with_the_fence_before_it);
	tcase_add_test(fences, a_free_after_work_needs_a_fence_of_its_own);
	tcase_add_test(fences, a_record_that_failed_covers_nothing);
	tcase_add_test(fences, before_the_first_fence_and_where_nobody_says_each_free_needs_one);
	return suite_run(suite);
}
