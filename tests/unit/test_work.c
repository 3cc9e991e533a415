/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Whether a fence covers what is freed now: only while nothing was submitted since. */

#include <check.h>
#include <pthread.h>

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
 * Threads submit and free at the same time, each what it submitted itself: that must be covered by whatever fence the
 * free relies on. What the GPU has is behind a lock, as in a driver.
 */
enum { N_WORKERS = 4, N_STEPS = 40000 };

static struct gp_work shared;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_submitted;
static _Atomic uint64_t clean_epoch; /* of the last record, which covers: */
static _Atomic uint64_t clean;

static uint64_t submit(void)
{
	uint64_t n;

	pthread_mutex_lock(&driver);
	n = ++n_submitted;
	pthread_mutex_unlock(&driver);
	gp_work_note(&shared);
	return n;
}

/* As fence.c does it, where the pool's lock orders the records. */
static void record(void)
{
	static pthread_mutex_t fence = PTHREAD_MUTEX_INITIALIZER;
	uint64_t epoch;

	pthread_mutex_lock(&fence);
	epoch = gp_work_look(&shared);
	pthread_mutex_lock(&driver);
	atomic_store_explicit(&clean, n_submitted, memory_order_relaxed);
	pthread_mutex_unlock(&driver);
	atomic_store_explicit(&clean_epoch, epoch, memory_order_release);
	pthread_mutex_unlock(&fence);
}

static void *work(void *arg)
{
	unsigned *n_wrong = arg, step = *n_wrong;
	uint64_t last = 0;

	*n_wrong = 0;
	for (unsigned i = 0; i < N_STEPS; i++) {
		uint64_t epoch, covered;

		if (i * 7 % 11 < step)
			last = submit();
		epoch = atomic_load_explicit(&clean_epoch, memory_order_acquire);
		covered = atomic_load_explicit(&clean, memory_order_relaxed);
		if (epoch && gp_work_epoch(&shared) == epoch)
			*n_wrong += covered < last;
		else if (i % 3 == 0)
			record();
	}
	return NULL;
}

START_TEST(what_a_thread_submitted_is_covered_by_what_its_free_relies_on)
{
	unsigned n_wrong[N_WORKERS] = {1, 2, 5, 9}; /* how often of eleven times each submits; then what went wrong */
	pthread_t threads[N_WORKERS];

	shared = GP_WORK_INIT;
	for (unsigned i = 0; i < N_WORKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &n_wrong[i]), 0);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_uint_eq(n_wrong[i], 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("work");
	TCase *tc = tcase_create("epochs"), *fences = tcase_create("fences");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, who_submits_ends_what_was_looked_at_and_no_more);
	tcase_add_test(tc, what_is_lost_is_lost_for_good);
	tcase_add_test(tc, what_a_thread_submitted_is_covered_by_what_its_free_relies_on);
	suite_add_tcase(suite, fences);
	tcase_add_checked_fixture(fences, setup_seen, teardown);
	tcase_add_test(fences, a_free_with_nothing_in_front_of_it_is_done_with_the_fence_before_it);
	tcase_add_test(fences, a_free_after_work_needs_a_fence_of_its_own);
	tcase_add_test(fences, a_record_that_failed_covers_nothing);
	tcase_add_test(fences, before_the_first_fence_and_where_nobody_says_each_free_needs_one);
	return suite_run(suite);
}
