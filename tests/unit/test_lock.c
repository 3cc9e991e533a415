/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The mutex, and the event on which threads wait without a lock. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "pool/lock.h"
#include "tests/suite.h"

enum { THREADS = 4, ROUNDS = 20000 };

static struct gp_mutex mutex = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_event event;
static unsigned long n_entered; /* guarded by mutex */
static bool has_turn;           /* guarded by mutex */

static void start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	ck_assert_int_eq(pthread_create(thread, NULL, fn, arg), 0);
}

/* Yields while it holds the mutex now and then, so that other threads find the mutex held, and sleep on it. */
static void *enter_often(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		gp_mutex_lock(&mutex);
		if (i % 64 == 0)
			sched_yield();
		n_entered++;
		gp_mutex_unlock(&mutex);
	}
	return NULL;
}

START_TEST(one_thread_at_a_time_holds_a_mutex)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		start(&threads[i], enter_often, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(n_entered, THREADS * ROUNDS);
	ck_assert(!gp_mutex_is_busy(&mutex));
}
END_TEST

static void *lock_and_report(void *ret_errno)
{
	errno = 77;
	gp_mutex_lock(&mutex);
	*(int *)ret_errno = errno;
	gp_mutex_unlock(&mutex);
	return NULL;
}

/* The threads that sleep are woken one by one: each unlock wakes the next. */
START_TEST(threads_that_sleep_on_a_mutex_are_woken_and_keep_errno)
{
	int errors[THREADS] = {0};
	pthread_t threads[THREADS];

	gp_mutex_lock(&mutex);
	for (int i = 0; i < THREADS; i++)
		start(&threads[i], lock_and_report, &errors[i]);
	while (atomic_load(&mutex.state) != GP_MUTEX_AWAITED)
		sched_yield();
	gp_mutex_unlock(&mutex);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(errors[i], 77);
	}
	ck_assert(!gp_mutex_is_busy(&mutex));
}
END_TEST

static void *try_once(void *ret_is_taken)
{
	*(bool *)ret_is_taken = gp_mutex_try(&mutex);
	return NULL;
}

START_TEST(a_mutex_that_is_held_is_busy_and_a_try_fails_at_once)
{
	bool is_taken = true;
	pthread_t thread;

	ck_assert(gp_mutex_try(&mutex));
	ck_assert(gp_mutex_is_busy(&mutex));
	start(&thread, try_once, &is_taken);
	pthread_join(thread, NULL);
	ck_assert(!is_taken);
	ck_assert_uint_eq(atomic_load(&mutex.state), GP_MUTEX_HELD);
	gp_mutex_unlock(&mutex);
	ck_assert(!gp_mutex_is_busy(&mutex));
}
END_TEST

START_TEST(an_event_that_has_happened_keeps_no_thread_waiting)
{
	errno = 77;
	gp_event_happen(&event);
	gp_event_wait(&event, 0);
	ck_assert_int_eq(errno, 77);
	ck_assert_uint_eq(atomic_load(&event.count), 1);
}
END_TEST

/* Takes turns as the retry rounds do. */
static void *take_turns(void *unused)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		bool is_mine = false;

		while (!is_mine) {
			uint32_t seen = atomic_load(&event.count);

			gp_mutex_lock(&mutex);
			is_mine = !has_turn;
			has_turn = true;
			gp_mutex_unlock(&mutex);
			if (!is_mine)
				gp_event_wait(&event, seen);
		}
		n_entered++;
		gp_mutex_lock(&mutex);
		has_turn = false;
		gp_mutex_unlock(&mutex);
		gp_event_happen(&event);
	}
	return NULL;
}

START_TEST(threads_that_wait_for_an_event_all_get_their_turn)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		start(&threads[i], take_turns, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(n_entered, THREADS * (ROUNDS / 10));
}
END_TEST

static void reset(void)
{
	gp_mutex_init(&mutex, GP_RANK_LEAF);
	atomic_store(&event.count, 0);
	n_entered = 0;
	has_turn = false;
}

int main(void)
{
	Suite *suite = suite_create("lock");
	TCase *tc = tcase_create("lock");

	tcase_add_checked_fixture(tc, reset, NULL);
	tcase_add_test(tc, one_thread_at_a_time_holds_a_mutex);
	tcase_add_test(tc, threads_that_sleep_on_a_mutex_are_woken_and_keep_errno);
	tcase_add_test(tc, a_mutex_that_is_held_is_busy_and_a_try_fails_at_once);
	tcase_add_test(tc, an_event_that_has_happened_keeps_no_thread_waiting);
	tcase_add_test(tc, threads_that_wait_for_an_event_all_get_their_turn);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
