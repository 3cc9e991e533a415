/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "fence_fixture.h"
#include "tests/suite.h"

enum { SOME_ERROR = 700 };

static bool is_completed(uint64_t stamp)
{
	return stamp < gp_fence_completed(&f);
}

static bool is_ordered(uint64_t stamp)
{
	return stamp < gp_fence_ordered(&f);
}

START_TEST(what_nothing_ever_touched_is_done_with_from_the_start)
{
	ck_assert(is_completed(0));
	ck_assert(!is_completed(gp_fence_started(&f)));
	ck_assert(!is_ordered(gp_fence_started(&f)));
}
END_TEST

START_TEST(a_free_is_completed_once_a_later_record_is)
{
	uint64_t stamp = free_something();

	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert(!is_completed(stamp));
	fake_complete_all(&fake);
	ck_assert(!is_completed(stamp));
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(is_completed(stamp));
	ck_assert(!is_completed(gp_fence_started(&f)));
}
END_TEST

START_TEST(an_order_makes_ordered_but_not_completed)
{
	uint64_t stamp = free_something();

	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert(is_ordered(stamp));
	ck_assert(!is_completed(stamp));
	ck_assert_uint_eq(atomic_load(&fake.ordered), 1);
	/* Nothing is ordered twice. */
	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 1);
}
END_TEST

START_TEST(an_order_covers_every_free_before_it)
{
	uint64_t first = free_something(), second = free_something();

	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert_uint_eq(atomic_load(&fake.ordered), 2);
	ck_assert(is_ordered(first));
	ck_assert(is_ordered(second));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 1);
}
END_TEST

START_TEST(the_last_order_can_be_given_again_until_it_is_complete)
{
	free_something();

	ck_assert_int_eq(gp_fence_order_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 0);
	ck_assert_int_eq(gp_fence_order(&f), 0);
	free_something();
	ck_assert_int_eq(gp_fence_order_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 2);
	ck_assert_uint_eq(atomic_load(&fake.ordered), 1);
	atomic_store(&fake.is_capturing, true);
	ck_assert_int_eq(gp_fence_order_again(&f), -EBUSY);
	atomic_store(&fake.is_capturing, false);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	fake_calls(&fake, FAKE_ORDER);
	ck_assert_int_eq(gp_fence_order_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 0);
}
END_TEST

START_TEST(in_order_a_record_at_a_free_is_an_order_which_is_given_once_that_ends)
{
	uint64_t stamp, late;

	ck_assert_int_eq(gp_fence_set_in_order(&f, true), 0);
	stamp = free_something();
	ck_assert(is_ordered(stamp));
	/* Nobody who ends it may go on before the order is given. */
	atomic_store(&fake.is_capturing, true);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gp_fence_set_in_order(&f, false), -EBUSY);
	atomic_store(&fake.is_capturing, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gp_fence_set_in_order(&f, false), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 3);
	ck_assert(!is_ordered(free_something()));
	/* What no free recorded may cover work that nobody has to wait for. */
	gp_fence_set_in_order(&f, true);
	late = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, late, false), 0);
	ck_assert(!is_ordered(late));
	ck_assert_int_eq(gp_fence_order_again(&f), -EAGAIN);
}
END_TEST

START_TEST(in_order_records_do_without_questions)
{
	uint64_t stamp = 0;

	gp_fence_set_in_order(&f, true);
	for (int i = 0; i < 1000; i++) {
		stamp = free_something();
		ck_assert(is_ordered(stamp));
		if (_i == 0) /* else the GPU lags behind */
			fake_complete_all(&fake);
	}
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(is_completed(stamp));
}
END_TEST

START_TEST(there_is_nothing_to_order_or_wait_for_before_a_record)
{
	uint64_t stamp = gp_fence_started(&f);

	ck_assert_int_eq(gp_fence_order(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), -EAGAIN);
	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_slot_after(&f, stamp), GP_NO_SLOT);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
}
END_TEST

START_TEST(one_record_serves_all_that_were_freed_before_it)
{
	uint64_t stamp = gp_fence_started(&f);

	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
}
END_TEST

START_TEST(a_record_that_failed_covers_nothing_and_the_next_covers_more)
{
	uint64_t stamp = gp_fence_started(&f);

	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), SOME_ERROR);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert(!is_completed(stamp));
	/* A free that raced with it counts to the next. */
	stamp = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(is_completed(stamp));
}
END_TEST

/* While the event is being recorded others may free: their work may not be covered. */
static void free_during_record(struct fake *unused, enum fake_call call)
{
	if (call == FAKE_RECORD)
		*(uint64_t *)fake.hook_arg = gp_fence_started(&f);
}

START_TEST(a_free_during_a_record_is_not_covered_by_it)
{
	uint64_t raced = 0;

	fake.hook = free_during_record;
	fake.hook_arg = &raced;
	free_something();
	fake.hook = NULL;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(!is_completed(raced));
	ck_assert_int_eq(gp_fence_record(&f, raced, true), 0);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(is_completed(raced));
}
END_TEST

/* On a real driver this is another thread, which does not wait for who is in there. */
static void ask_during_record(struct fake *unused, enum fake_call call)
{
	if (call != FAKE_RECORD)
		return;
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
	ck_assert_int_eq(gp_fence_wait(&f, gp_fence_started(&f), 1), -EAGAIN);
	++*(unsigned *)fake.hook_arg;
}

START_TEST(while_a_record_makes_the_host_wait_others_ask)
{
	unsigned n_asked = 0;

	fake.record_waits = true;
	free_something();
	fake_complete_all(&fake);
	fake.hook = ask_during_record;
	fake.hook_arg = &n_asked;
	free_something();
	ck_assert_uint_eq(n_asked, 1);
	fake.hook = NULL;
	/* Those that fail lose no slot. */
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 2 * GP_FENCE_SLOTS, SOME_ERROR});
	for (int i = 0; i < 2 * GP_FENCE_SLOTS; i++)
		ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), SOME_ERROR);
	for (int i = 0; i < GP_FENCE_SLOTS - 1; i++)
		free_something();
}
END_TEST

START_TEST(a_capture_forbids_records_orders_and_queries_and_loses_nothing)
{
	uint64_t stamp = free_something();

	atomic_store(&fake.is_capturing, true);
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EBUSY);
	ck_assert_int_eq(gp_fence_order(&f), -EBUSY);
	ck_assert_int_eq(gp_fence_settle(&f), -EBUSY);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), -EBUSY);
	ck_assert(!is_ordered(stamp));
	atomic_store(&fake.is_capturing, false);
	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert(is_ordered(stamp));
}
END_TEST

START_TEST(one_query_settles_everything_where_the_gpu_keeps_up)
{
	uint64_t last = 0;

	for (int i = 0; i < 100; i++)
		last = free_something();
	fake_complete_all(&fake);
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
	ck_assert(is_completed(last));
}
END_TEST

START_TEST(one_query_tells_that_nothing_is_done_where_the_gpu_lags)
{
	for (int i = 0; i < 100; i++)
		free_something();
	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert(!gp_fence_was_ready(&f));
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
}
END_TEST

/* Row: how many of 100 frees are done. */
static const unsigned dones[] = {0, 1, 2, 49, 50, 51, 99, 100};

START_TEST(a_lagging_gpu_is_settled_as_far_as_it_came)
{
	uint64_t stamps[100];

	for (int i = 0; i < 100; i++)
		stamps[i] = free_something();
	gp_fence_settle(&f);
	fake_complete(&fake, dones[_i]);
	while (gp_fence_settle(&f) == 0)
		;
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(is_completed(stamps[i]), i < dones[_i]);
	ck_assert_int_eq(gp_fence_was_ready(&f), dones[_i] == 100);
}
END_TEST

START_TEST(what_is_asked_about_one_stamp_is_one_query_and_none_if_it_is_known)
{
	uint64_t first = free_something(), second = free_something(), last;

	free_something();
	fake_complete(&fake, 2);
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, second), 0);
	ck_assert(is_completed(second));
	ck_assert_int_eq(gp_fence_settle_stamp(&f, first), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
	last = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, last), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, last - 1), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
}
END_TEST

/* The same as what a record said, to whoever has not recorded it. */
START_TEST(what_is_covered_is_told_by_the_last_fence_of_any_thread)
{
	uint64_t stamp = gp_fence_started(&f);

	ck_assert_uint_le(gp_fence_published(&f), stamp);
	ck_assert_int_eq(gp_fence_record(&f, stamp, false), 0);
	ck_assert_uint_gt(gp_fence_published(&f), stamp);
	ck_assert_uint_le(gp_fence_published_at_free(&f), stamp);
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	ck_assert_uint_gt(gp_fence_published_at_free(&f), stamp);
	stamp = gp_fence_started(&f);
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), SOME_ERROR);
	ck_assert_uint_le(gp_fence_published(&f), stamp);
	ck_assert_uint_le(gp_fence_published_at_free(&f), stamp);
}
END_TEST

START_TEST(too_many_outstanding_records_are_refused_until_one_completes)
{
	uint64_t stamp;

	for (int i = 0; i < GP_FENCE_SLOTS; i++)
		free_something();
	stamp = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), -EAGAIN);
	fake_complete(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert(is_completed(stamp));
}
END_TEST

START_TEST(an_order_frees_the_slots_of_all_older_records)
{
	for (int i = 0; i < GP_FENCE_SLOTS; i++)
		free_something();
	ck_assert_int_eq(gp_fence_order(&f), 0);
	for (int i = 0; i < GP_FENCE_SLOTS - 1; i++)
		free_something();
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EAGAIN);
}
END_TEST

START_TEST(a_wait_ends_when_the_fence_completes_and_asks_for_no_later_one)
{
	uint64_t stamp = free_something();

	fake_submit(&fake, 10); /* nobody freed anything after these */
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), 0);
	ck_assert(is_completed(stamp));
	ck_assert_uint_eq(atomic_load(&fake.completed), 1);
	ck_assert_uint_eq(atomic_load(&f.waits), 1);
}
END_TEST

/* Then nothing is left to query. */
static void settle_meanwhile(struct fake *unused, enum fake_call call)
{
	if (call != FAKE_PAUSE)
		return;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
}

START_TEST(a_wait_ends_when_another_thread_has_found_the_fence_complete)
{
	uint64_t stamp = free_something();

	fake.hook = settle_meanwhile;
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), 0);
}
END_TEST

START_TEST(a_bounded_wait_gives_up_in_time)
{
	uint64_t stamp = gp_fence_started(&f);

	fake_submit(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, stamp, false), 0);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_ge(atomic_load(&fake.now_ns), 20 * fake.pause_ns);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
}
END_TEST

static void *free_in_thread(void *stamp)
{
	*(uint64_t *)stamp = free_something();
	return NULL;
}

static uint64_t free_in_another_thread(void)
{
	pthread_t thread;
	uint64_t stamp;

	ck_assert_int_eq(pthread_create(&thread, NULL, free_in_thread, &stamp), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	return stamp;
}

START_TEST(a_wait_for_what_this_thread_freed_has_no_bound)
{
	uint64_t stamp;

	fake_submit(&fake, 100);
	stamp = free_something();
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20 * fake.pause_ns), 0);
	ck_assert(is_completed(stamp));
}
END_TEST

/* That thread may be the one to release what is waited for: only the other was waiting in its free. */
START_TEST(a_wait_for_what_another_thread_freed_gives_up_in_time)
{
	uint64_t stamp = free_in_another_thread();

	fake.pause_completes = 0;
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
	ck_assert(!is_completed(stamp));
}
END_TEST

START_TEST(a_free_of_this_thread_is_due_whatever_another_freed_before)
{
	uint64_t stamp;

	fake_submit(&fake, 100);
	stamp = free_in_another_thread();
	free_something();
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20 * fake.pause_ns), 0);
}
END_TEST

START_TEST(a_wait_for_work_that_no_free_would_have_waited_for_gives_up_in_time)
{
	uint64_t stamp = free_something();

	fake.pause_completes = 0;
	atomic_store(&fake.is_beyond, true);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
}
END_TEST

START_TEST(while_a_fence_that_no_free_recorded_is_not_complete_nothing_is_ordered)
{
	uint64_t stamp = free_something(), newest = gp_fence_started(&f);

	fake_submit(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	ck_assert_uint_gt(gp_fence_started(&f), newest);
	ck_assert_uint_eq(gp_fence_newest(&f), newest);
	ck_assert_int_eq(gp_fence_order(&f), -EAGAIN);
	ck_assert(!is_ordered(stamp));
	/* A later free would have waited for all of it. */
	free_something();
	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert(is_ordered(stamp));
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_order(&f), 0);
	ck_assert(is_completed(stamp));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_ORDER), 1);
}
END_TEST

START_TEST(a_fence_that_a_free_relies_on_counts_as_recorded_at_a_free)
{
	uint64_t stamp = gp_fence_started(&f);

	ck_assert_int_eq(gp_fence_record(&f, stamp, false), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
	ck_assert_int_eq(gp_fence_record(&f, stamp, true), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), gp_fence_started(&f));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
}
END_TEST

START_TEST(the_driver_s_own_errors_are_passed_up)
{
	uint64_t stamp = free_something();

	fake_plan(&fake, (struct fake_plan){FAKE_QUERY, 1, 2, SOME_ERROR});
	ck_assert_int_eq(gp_fence_settle(&f), SOME_ERROR);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), SOME_ERROR);
	fake_plan(&fake, (struct fake_plan){FAKE_ORDER, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_order(&f), SOME_ERROR);
	ck_assert(!is_ordered(stamp));
}
END_TEST

START_TEST(after_the_drop_no_call_reaches_the_driver)
{
	uint64_t stamp = free_something(), before;

	gp_fence_drop(&f);
	before = fake.n_logged;
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EAGAIN);
	ck_assert_int_eq(gp_fence_settle(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_order(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), -EAGAIN);
	ck_assert_int_eq(gp_fence_slot_after(&f, stamp), GP_NO_SLOT);
	ck_assert_uint_eq(fake.n_logged, before);
}
END_TEST

/* More than one fence keeps in mind. */
enum { N_FREERS = GP_FENCE_FREERS + 3 };

static pthread_barrier_t all_freed;

static void *free_at_the_same_time(void *stamp)
{
	int r = gp_fence_record(&f, *(uint64_t *)stamp, true), wait_r;

	pthread_barrier_wait(&all_freed);
	wait_r = gp_fence_wait_due(&f, *(uint64_t *)stamp, 1);
	return r || wait_r != -EAGAIN ? &fake : NULL;
}

START_TEST(each_thread_waits_for_its_own_free_though_a_fence_covers_those_of_many)
{
	uint64_t stamp = gp_fence_started(&f);
	pthread_t threads[N_FREERS];
	void *wrong;

	fake.pause_completes = 0;
	pthread_barrier_init(&all_freed, NULL, N_FREERS + 1);
	free_something();
	for (int i = 0; i < N_FREERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, free_at_the_same_time, &stamp), 0);
	pthread_barrier_wait(&all_freed);
	ck_assert_int_eq(gp_fence_wait_due(&f, stamp, 1), -EAGAIN);
	for (int i = 0; i < N_FREERS; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	ck_assert_uint_le(fake_calls(&fake, FAKE_RECORD), 2);
	pthread_barrier_destroy(&all_freed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fence");
	TCase *tc = tcase_create("fence");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_nothing_ever_touched_is_done_with_from_the_start);
	tcase_add_test(tc, a_free_is_completed_once_a_later_record_is);
	tcase_add_test(tc, an_order_makes_ordered_but_not_completed);
	tcase_add_test(tc, an_order_covers_every_free_before_it);
	tcase_add_test(tc, the_last_order_can_be_given_again_until_it_is_complete);
	tcase_add_test(tc, in_order_a_record_at_a_free_is_an_order_which_is_given_once_that_ends);
	tcase_add_loop_test(tc, in_order_records_do_without_questions, 0, 2);
	tcase_add_test(tc, there_is_nothing_to_order_or_wait_for_before_a_record);
	tcase_add_test(tc, one_record_serves_all_that_were_freed_before_it);
	tcase_add_test(tc, a_record_that_failed_covers_nothing_and_the_next_covers_more);
	tcase_add_test(tc, a_free_during_a_record_is_not_covered_by_it);
	tcase_add_test(tc, while_a_record_makes_the_host_wait_others_ask);
	tcase_add_test(tc, a_capture_forbids_records_orders_and_queries_and_loses_nothing);
	tcase_add_test(tc, one_query_settles_everything_where_the_gpu_keeps_up);
	tcase_add_test(tc, one_query_tells_that_nothing_is_done_where_the_gpu_lags);
	tcase_add_loop_test(
		tc, a_lagging_gpu_is_settled_as_far_as_it_came, 0, sizeof(dones) / sizeof(*dones));
	tcase_add_test(tc, what_is_asked_about_one_stamp_is_one_query_and_none_if_it_is_known);
	tcase_add_test(tc, what_is_covered_is_told_by_the_last_fence_of_any_thread);
	tcase_add_test(tc, too_many_outstanding_records_are_refused_until_one_completes);
	tcase_add_test(tc, an_order_frees_the_slots_of_all_older_records);
	tcase_add_test(tc, a_wait_ends_when_the_fence_completes_and_asks_for_no_later_one);
	tcase_add_test(tc, a_wait_ends_when_another_thread_has_found_the_fence_complete);
	tcase_add_test(tc, a_bounded_wait_gives_up_in_time);
	tcase_add_test(tc, a_wait_for_what_this_thread_freed_has_no_bound);
	tcase_add_test(tc, a_wait_for_what_another_thread_freed_gives_up_in_time);
	tcase_add_test(tc, a_free_of_this_thread_is_due_whatever_another_freed_before);
	tcase_add_test(tc, a_wait_for_work_that_no_free_would_have_waited_for_gives_up_in_time);
	tcase_add_test(tc, while_a_fence_that_no_free_recorded_is_not_complete_nothing_is_ordered);
	tcase_add_test(tc, a_fence_that_a_free_relies_on_counts_as_recorded_at_a_free);
	tcase_add_test(tc, the_driver_s_own_errors_are_passed_up);
	tcase_add_test(tc, after_the_drop_no_call_reaches_the_driver);
	tcase_add_test(tc, each_thread_waits_for_its_own_free_though_a_fence_covers_those_of_many);
	return suite_run(suite);
}
