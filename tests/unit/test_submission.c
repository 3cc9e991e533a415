/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A fence covers a later free only if nothing was submitted in between. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "fence_fixture.h"
#include "pool/submission.h"
#include "tests/suite.h"

START_TEST(submissions_change_the_epoch_once_after_each_read)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	uint64_t first = gp_submission_look(&work), second;

	ck_assert_uint_ne(first, GP_SUBMISSION_NO_EPOCH);
	ck_assert_uint_eq(gp_submission_epoch(&work), first);
	ck_assert_uint_eq(gp_submission_look(&work), first);
	gp_submission_note(&work);
	second = gp_submission_epoch(&work);
	ck_assert_uint_ne(second, first);
	/* No thread has read the epoch since. */
	for (unsigned i = 0; i < 3; i++)
		gp_submission_note(&work);
	ck_assert_uint_eq(gp_submission_epoch(&work), second);
	ck_assert_uint_eq(gp_submission_look(&work), second);
	gp_submission_note(&work);
	ck_assert_uint_ne(gp_submission_epoch(&work), second);
}
END_TEST

START_TEST(once_submissions_may_be_unseen_no_epoch_is_valid_again)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	uint64_t epoch = gp_submission_look(&work);

	gp_submission_lose_sight(&work);
	ck_assert_uint_ne(gp_submission_epoch(&work), epoch);
	ck_assert_uint_eq(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
	gp_submission_note(&work);
	ck_assert_uint_eq(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
	ck_assert_uint_ne(gp_submission_epoch(&work), GP_SUBMISSION_NO_EPOCH);
}
END_TEST

START_TEST(there_is_no_submission_until_a_thread_enters_its_lane_and_then_there_has_been_one)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	struct gp_submission_lane *lane;

	(void)gp_submission_look(&work);
	ck_assert(gp_submission_is_none(&work));
	lane = gp_submission_lane(&work);
	ck_assert(gp_submission_enter(&work, lane));
	ck_assert(!gp_submission_is_none(&work));
	gp_submission_leave(lane);
	ck_assert(!gp_submission_is_none(&work));
}
END_TEST

enum { SOME_ERROR = 700 };

static void setup_seen(void)
{
	setup();
	fake.reports_submissions = true;
}

START_TEST(a_free_without_new_work_is_covered_by_the_fence_before_it)
{
	uint64_t seq;

	free_block();
	seq = gp_fence_seq(&f);
	ck_assert_uint_lt(seq, gp_fence_started(&f));
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
	ck_assert_uint_ge(seq, gp_fence_completed(&f));
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert_uint_lt(seq, gp_fence_completed(&f));
	/* The fence also covers a free that comes after its completion. */
	ck_assert_uint_lt(gp_fence_seq(&f), gp_fence_completed(&f));
}
END_TEST

START_TEST(a_free_after_new_work_needs_a_new_fence)
{
	free_block();
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	fake_submit(&fake, 1);
	ck_assert_uint_eq(gp_fence_seq(&f), gp_fence_started(&f));
	free_block();
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 2);
}
END_TEST

/* The work that the failed record should have covered may still run. */
START_TEST(a_failed_record_covers_no_free_that_comes_after_it)
{
	free_block();
	fake_submit(&fake, 1);
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_seq(&f), true), SOME_ERROR);
	ck_assert_uint_eq(gp_fence_seq(&f), gp_fence_started(&f));
}
END_TEST

START_TEST(each_free_needs_a_fence_if_none_exists_or_submissions_are_not_reported)
{
	ck_assert_uint_eq(gp_fence_seq(&f), gp_fence_started(&f));
	fake.reports_submissions = false;
	free_block();
	ck_assert_uint_eq(gp_fence_seq(&f), gp_fence_started(&f));
}
END_TEST

/*
 * Threads submit and free at the same time. A free relies on a fence, which must cover all work that the GPU
 * was seen to have, whichever thread submitted it. As in a driver, the GPU has the work before the submitting
 * call returns, and a lock keeps records and submissions apart.
 */
enum { N_WORKERS = 4, N_STEPS = 40000 };

static struct gp_submissions shared;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t n_submitted;
static _Atomic uint64_t clean_epoch; /* of the last record */
static _Atomic uint64_t clean;       /* submissions that it covers */

/* Submits work. Yields in the middle of some submissions, so that other threads run there. */
static void submit(struct gp_submission_lane *lane, unsigned nth)
{
	gp_submission_enter(&shared, lane);
	if (nth % 2)
		sched_yield();
	pthread_mutex_lock(&driver);
	atomic_fetch_add(&n_submitted, 1);
	pthread_mutex_unlock(&driver);
	if (nth % 3)
		sched_yield();
	gp_submission_leave(lane);
}

/* Records in the steps of fence.c, under a lock that orders the records. */
static void record(void)
{
	static pthread_mutex_t fence = PTHREAD_MUTEX_INITIALIZER;
	uint64_t epoch;

	pthread_mutex_lock(&fence);
	epoch = gp_submission_look(&shared);
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
	struct gp_submission_lane *lane = gp_submission_lane(&shared);

	for (unsigned i = 1; i <= N_STEPS; i++) {
		uint64_t seen, epoch, covered;

		if (i % worker->steps_per_submission == 0)
			submit(lane, i / worker->steps_per_submission);
		seen = atomic_load(&n_submitted);
		epoch = atomic_load_explicit(&clean_epoch, memory_order_acquire);
		covered = atomic_load_explicit(&clean, memory_order_relaxed);
		if (epoch && gp_submission_epoch(&shared) == epoch) {
			worker->n_wrong += covered < seen;
			worker->n_covered++;
		} else if (i % 3 == 0) {
			record();
		}
	}
	return NULL;
}

START_TEST(the_fence_that_a_free_relies_on_covers_all_work_the_gpu_was_seen_to_have)
{
	struct worker workers[N_WORKERS] = {{23}, {31}, {47}, {101}};
	pthread_t threads[N_WORKERS];
	unsigned n_covered = 0;

	shared = GP_SUBMISSION_INIT;
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

START_TEST(a_record_during_a_submission_gets_no_epoch)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	struct gp_submission_lane *first = gp_submission_lane(&work), *second = gp_submission_lane(&work);

	ck_assert_ptr_ne(first, second);
	gp_submission_enter(&work, second);
	ck_assert_uint_eq(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
	gp_submission_enter(&work, second); /* a driver callback that submits */
	gp_submission_leave(second);
	ck_assert_uint_eq(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
	gp_submission_leave(second);
	ck_assert_uint_ne(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
}
END_TEST

START_TEST(threads_beyond_the_number_of_submission_lanes_share_lanes)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	struct gp_submission_lane *lanes[2 * GP_SUBMISSION_LANES];

	for (unsigned i = 0; i < 2 * GP_SUBMISSION_LANES; i++)
		gp_submission_enter(&work, lanes[i] = gp_submission_lane(&work));
	ck_assert_ptr_eq(lanes[0], lanes[GP_SUBMISSION_LANES]);
	for (unsigned i = 0; i < 2 * GP_SUBMISSION_LANES; i++) {
		ck_assert_uint_eq(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
		gp_submission_leave(lanes[i]);
	}
	ck_assert_uint_ne(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
}
END_TEST

START_TEST(a_closed_gate_keeps_submissions_and_visits_out_and_a_submission_under_way_is_seen)
{
	struct gp_submissions work = GP_SUBMISSION_INIT;
	struct gp_submission_lane *lane = gp_submission_lane(&work);

	ck_assert(gp_submission_enter(&work, lane));
	ck_assert(gp_submission_visit(&work));
	gp_submission_close(&work);
	ck_assert(!gp_submission_is_quiet(&work));
	gp_submission_leave(lane);
	ck_assert(!gp_submission_is_quiet(&work));
	gp_submission_end_visit(&work);
	ck_assert(gp_submission_is_quiet(&work));
	/* A fence that is recorded meanwhile does not open it. */
	ck_assert_uint_ne(gp_submission_look(&work), GP_SUBMISSION_NO_EPOCH);
	ck_assert(!gp_submission_enter(&work, lane));
	gp_submission_leave(lane);
	ck_assert(!gp_submission_visit(&work));
	ck_assert(gp_submission_is_quiet(&work));
	gp_submission_open(&work);
	ck_assert(gp_submission_enter(&work, lane));
	gp_submission_leave(lane);
	gp_submission_close(&work);
	gp_submission_lose_sight(&work);
	ck_assert(!gp_submission_is_quiet(&work));
}
END_TEST

static _Atomic bool is_gate_closed, is_over;
static _Atomic unsigned n_passed, n_held;

/* Submits all the time. A submission that runs while the gate is closed and quiet is an error. */
static void *submit_at_gate(void *unused)
{
	struct gp_submission_lane *lane = gp_submission_lane(&shared);

	while (!atomic_load(&is_over)) {
		bool is_in = gp_submission_enter(&shared, lane);

		if (is_in)
			atomic_fetch_add(&n_passed, atomic_load(&is_gate_closed));
		else
			atomic_fetch_add(&n_held, 1);
		gp_submission_leave(lane);
		/* A hook that finds the gate closed waits, so that its lane stays empty. */
		if (!is_in)
			usleep(100);
	}
	return NULL;
}

static void *record_at_gate(void *unused)
{
	while (!atomic_load(&is_over)) {
		(void)gp_submission_look(&shared);
		sched_yield();
	}
	return NULL;
}

/* Before it opens the gate, the closing thread takes its flag back. The gate must hold some submissions up. */
START_TEST(no_submission_passes_a_gate_that_was_found_quiet)
{
	pthread_t threads[N_WORKERS + 1];

	shared = GP_SUBMISSION_INIT;
	for (unsigned i = 0; i <= N_WORKERS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, i < N_WORKERS ? submit_at_gate : record_at_gate, NULL), 0);
	for (unsigned i = 0; i < 100 || !atomic_load(&n_held); i++) {
		gp_submission_close(&shared);
		for (unsigned k = 0; !gp_submission_is_quiet(&shared); k++)
			gp_yield(k);
		atomic_store(&is_gate_closed, true);
		sched_yield();
		atomic_store(&is_gate_closed, false);
		gp_submission_open(&shared);
		sched_yield();
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i <= N_WORKERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(atomic_load(&n_passed), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("submission");
	TCase *tc = tcase_create("epochs"), *fences = tcase_create("fences");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, submissions_change_the_epoch_once_after_each_read);
	tcase_add_test(tc, once_submissions_may_be_unseen_no_epoch_is_valid_again);
	tcase_add_test(tc, there_is_no_submission_until_a_thread_enters_its_lane_and_then_there_has_been_one);
	tcase_add_test(tc, a_record_during_a_submission_gets_no_epoch);
	tcase_add_test(tc, threads_beyond_the_number_of_submission_lanes_share_lanes);
	tcase_add_test(tc, the_fence_that_a_free_relies_on_covers_all_work_the_gpu_was_seen_to_have);
	tcase_add_test(tc, a_closed_gate_keeps_submissions_and_visits_out_and_a_submission_under_way_is_seen);
	tcase_add_test(tc, no_submission_passes_a_gate_that_was_found_quiet);
	suite_add_tcase(suite, fences);
	tcase_add_checked_fixture(fences, setup_seen, teardown);
	tcase_add_test(fences, a_free_without_new_work_is_covered_by_the_fence_before_it);
	tcase_add_test(fences, a_free_after_new_work_needs_a_new_fence);
	tcase_add_test(fences, a_failed_record_covers_no_free_that_comes_after_it);
	tcase_add_test(fences, each_free_needs_a_fence_if_none_exists_or_submissions_are_not_reported);
	return suite_run(suite);
}
