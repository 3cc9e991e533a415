/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* When the GPU is said to have fallen behind. */

#include <check.h>
#include <errno.h>

#include "fence_fixture.h"
#include "tests/suite.h"

static void wait_for_us(uint64_t us)
{
	atomic_fetch_add(&fake.now_ns, us * 1000);
}

/* Even an idle GPU takes its time to complete an event, and with many threads there is always one on its way. */
START_TEST(the_gpu_does_not_lag_while_all_that_is_outstanding_is_recent)
{
	for (int i = 0; i < 100; i++) {
		uint64_t before = fake_submit(&fake, 0);

		free_something();
		wait_for_us(10);
		fake_complete(&fake, before);
		(void)gp_fence_settle(&f);
		ck_assert(!gp_fence_was_ready(&f));
		ck_assert(!gp_fence_lags(&f));
	}
}
END_TEST

/* However long it stays so: nothing else is said in between, while it is always as far behind. */
START_TEST(the_gpu_lags_once_what_was_recorded_a_while_ago_is_not_done)
{
	free_something();
	(void)gp_fence_settle(&f);
	ck_assert(!gp_fence_lags(&f));
	wait_for_us(49);
	(void)gp_fence_settle(&f);
	ck_assert(!gp_fence_lags(&f));
	wait_for_us(1);
	for (int i = 0; i < 100; i++) {
		(void)gp_fence_settle(&f);
		ck_assert(gp_fence_lags(&f));
		free_something();
		wait_for_us(10);
		if (i >= 20)
			fake_complete(&fake, fake_submit(&fake, 0) - 20);
	}
	fake_complete_all(&fake);
	while (gp_fence_settle(&f) == 0)
		;
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* Microseconds from one question to the next: who asks seldom does not know how long anything took. */
static const unsigned steps[] = {10, 1000};

START_TEST(the_gpu_has_caught_up_once_nothing_is_seen_to_take_long)
{
	free_something();
	(void)gp_fence_settle(&f);
	wait_for_us(1000);
	(void)gp_fence_settle(&f);
	ck_assert(gp_fence_lags(&f));
	for (int i = 0; i < 3; i++) {
		uint64_t before = fake_submit(&fake, 0);

		free_something();
		fake_complete(&fake, before);
		wait_for_us(steps[_i]);
		(void)gp_fence_settle(&f);
		ck_assert(!gp_fence_was_ready(&f));
	}
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* Then a free may lie where only a fence tells that it can be had; and nobody asks later whether it still lags. */
START_TEST(in_order_the_gpu_lags_until_it_keeps_up_with_the_records)
{
	gp_fence_set_in_order(&f, true);
	free_something();
	(void)gp_fence_settle(&f);
	wait_for_us(1000);
	for (int i = 0; i < 1000; i++) {
		free_something();
		(void)gp_fence_settle_stamp(&f, 1);
		wait_for_us(1);
		ck_assert(gp_fence_lags(&f));
	}
	for (int i = 0; i < 200; i++) {
		free_something();
		fake_complete_all(&fake);
		wait_for_us(1000);
	}
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* The one that was watched makes room long before anybody asks again. */
START_TEST(in_order_what_nobody_asked_for_again_is_no_lag)
{
	uint64_t stamp;

	gp_fence_set_in_order(&f, true);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, free_something()), -EAGAIN);
	for (int i = 0; i < 200; i++) {
		free_something();
		fake_complete_all(&fake);
	}
	wait_for_us(1000000);
	stamp = free_something();
	for (int us = 0; us < 49; us += 12) {
		ck_assert_int_eq(gp_fence_settle_stamp(&f, stamp), -EAGAIN);
		ck_assert(!gp_fence_lags(&f));
		wait_for_us(12);
	}
	wait_for_us(12);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, stamp), -EAGAIN);
	ck_assert(gp_fence_lags(&f));
}
END_TEST

/* There may be more, and all of it complete: then one query is to settle it. */
START_TEST(what_is_done_of_one_stamp_does_not_say_that_the_gpu_is_behind)
{
	uint64_t first = free_something(), second = free_something();

	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, first), 0);
	ck_assert(gp_fence_was_ready(&f));
	ck_assert_int_eq(gp_fence_settle(&f), 0);
	ck_assert_uint_gt(gp_fence_completed(&f), second);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
}
END_TEST

START_TEST(what_is_not_done_of_one_stamp_says_that_one_has_to_wait)
{
	uint64_t stamp = free_something();

	ck_assert(gp_fence_was_ready(&f));
	ck_assert_int_eq(gp_fence_settle_stamp(&f, stamp), -EAGAIN);
	ck_assert(!gp_fence_was_ready(&f));
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle_stamp(&f, stamp), 0);
	ck_assert(gp_fence_was_ready(&f));
}
END_TEST

START_TEST(who_need_not_wait_for_another_at_the_driver_does_not)
{
	uint64_t stamp = gp_fence_started(&f);

	gp_mutex_lock(&f.lock);
	ck_assert_int_eq(gp_fence_try_record(&f, stamp), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 0);
	gp_mutex_unlock(&f.lock);
	ck_assert_int_eq(gp_fence_try_record(&f, stamp), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
	ck_assert_uint_gt(gp_fence_published_at_free(&f), stamp);
	/* What the other thread finds out is enough. */
	gp_mutex_lock(&f.lock);
	atomic_store(&f.completed, gp_fence_published(&f));
	ck_assert_int_eq(gp_fence_settle_stamp(&f, stamp), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	gp_mutex_unlock(&f.lock);
}
END_TEST

START_TEST(a_record_that_would_wait_is_not_tried)
{
	atomic_store(&fake.record_waits, true);
	ck_assert_int_eq(gp_fence_try_record(&f, gp_fence_started(&f)), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fence_lag");
	TCase *tc = tcase_create("fence_lag");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_gpu_does_not_lag_while_all_that_is_outstanding_is_recent);
	tcase_add_test(tc, the_gpu_lags_once_what_was_recorded_a_while_ago_is_not_done);
	tcase_add_loop_test(tc, the_gpu_has_caught_up_once_nothing_is_seen_to_take_long, 0,
		sizeof(steps) / sizeof(*steps));
	tcase_add_test(tc, in_order_the_gpu_lags_until_it_keeps_up_with_the_records);
	tcase_add_test(tc, in_order_what_nobody_asked_for_again_is_no_lag);
	tcase_add_test(tc, what_is_done_of_one_stamp_does_not_say_that_the_gpu_is_behind);
	tcase_add_test(tc, what_is_not_done_of_one_stamp_says_that_one_has_to_wait);
	tcase_add_test(tc, who_need_not_wait_for_another_at_the_driver_does_not);
	tcase_add_test(tc, a_record_that_would_wait_is_not_tried);
	return suite_run(suite);
}
