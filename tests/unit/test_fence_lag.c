/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The conditions under which the GPU counts as lagging. */

#include <check.h>
#include <errno.h>

#include "fence_fixture.h"
#include "tests/suite.h"

static void wait_for_us(uint64_t us)
{
	atomic_fetch_add(&fake.now_ns, us * 1000);
}

/* Even an idle GPU needs some time to complete an event, and with many threads there is always an incomplete event. */
START_TEST(the_gpu_does_not_lag_while_all_outstanding_fences_are_recent)
{
	for (int i = 0; i < 100; i++) {
		uint64_t before = fake_submit(&fake, 0);

		free_block();
		wait_for_us(10);
		fake_complete(&fake, before);
		(void)gp_fence_poll(&f);
		ck_assert(!gp_fence_was_ready(&f));
		ck_assert(!gp_fence_lags(&f));
	}
}
END_TEST

/* The GPU keeps lagging, without interruption, as long as it stays that far behind. */
START_TEST(the_gpu_lags_once_a_fence_is_50_us_old_and_incomplete)
{
	free_block();
	(void)gp_fence_poll(&f);
	ck_assert(!gp_fence_lags(&f));
	wait_for_us(49);
	(void)gp_fence_poll(&f);
	ck_assert(!gp_fence_lags(&f));
	wait_for_us(1);
	for (int i = 0; i < 100; i++) {
		(void)gp_fence_poll(&f);
		ck_assert(gp_fence_lags(&f));
		free_block();
		wait_for_us(10);
		if (i >= 20)
			fake_complete(&fake, fake_submit(&fake, 0) - 20);
	}
	fake_complete_all(&fake);
	while (gp_fence_poll(&f) == 0)
		;
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* Microseconds between polls. Infrequent polls do not show how long a fence took. */
static const unsigned steps[] = {10, 1000};

START_TEST(the_lag_ends_once_no_polled_fence_is_seen_to_take_long)
{
	free_block();
	(void)gp_fence_poll(&f);
	wait_for_us(1000);
	(void)gp_fence_poll(&f);
	ck_assert(gp_fence_lags(&f));
	for (int i = 0; i < 3; i++) {
		uint64_t before = fake_submit(&fake, 0);

		free_block();
		fake_complete(&fake, before);
		wait_for_us(steps[_i]);
		(void)gp_fence_poll(&f);
		ck_assert(!gp_fence_was_ready(&f));
	}
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* Fences are rarely polled in serial mode, so the records themselves must find out that the lag has ended. */
START_TEST(in_serial_mode_the_gpu_lags_until_it_keeps_up_with_the_records)
{
	gp_fence_set_serial(&f, true);
	free_block();
	(void)gp_fence_poll(&f);
	wait_for_us(1000);
	for (int i = 0; i < 1000; i++) {
		free_block();
		(void)gp_fence_poll_seq(&f, 1);
		wait_for_us(1);
		ck_assert(gp_fence_lags(&f));
	}
	for (int i = 0; i < 200; i++) {
		free_block();
		fake_complete_all(&fake);
		wait_for_us(1000);
	}
	ck_assert(!gp_fence_lags(&f));
}
END_TEST

/* The watched fence is dropped to make room long before the next poll. */
START_TEST(in_serial_mode_a_fence_that_was_not_polled_again_does_not_count_as_lag)
{
	uint64_t seq;

	gp_fence_set_serial(&f, true);
	ck_assert_int_eq(gp_fence_poll_seq(&f, free_block()), -EAGAIN);
	for (int i = 0; i < 200; i++) {
		free_block();
		fake_complete_all(&fake);
	}
	wait_for_us(1000000);
	seq = free_block();
	for (int us = 0; us < 49; us += 12) {
		ck_assert_int_eq(gp_fence_poll_seq(&f, seq), -EAGAIN);
		ck_assert(!gp_fence_lags(&f));
		wait_for_us(12);
	}
	wait_for_us(12);
	ck_assert_int_eq(gp_fence_poll_seq(&f, seq), -EAGAIN);
	ck_assert(gp_fence_lags(&f));
}
END_TEST

/* If later fences are complete as well, one query should find them all complete. */
START_TEST(a_poll_of_one_completed_fence_does_not_mark_the_gpu_as_behind)
{
	uint64_t first = free_block(), second = free_block();

	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll_seq(&f, first), 0);
	ck_assert(gp_fence_was_ready(&f));
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert_uint_gt(gp_fence_completed(&f), second);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
}
END_TEST

START_TEST(a_poll_of_one_incomplete_fence_marks_the_gpu_as_behind)
{
	uint64_t seq = free_block();

	ck_assert(gp_fence_was_ready(&f));
	ck_assert_int_eq(gp_fence_poll_seq(&f, seq), -EAGAIN);
	ck_assert(!gp_fence_was_ready(&f));
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll_seq(&f, seq), 0);
	ck_assert(gp_fence_was_ready(&f));
}
END_TEST

START_TEST(a_try_record_and_a_poll_of_one_fence_do_not_wait_for_another_thread)
{
	uint64_t seq = gp_fence_started(&f);

	gp_mutex_lock(&f.lock);
	ck_assert_int_eq(gp_fence_try_record(&f, seq), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 0);
	gp_mutex_unlock(&f.lock);
	ck_assert_int_eq(gp_fence_try_record(&f, seq), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
	ck_assert_uint_gt(gp_fence_published_at_free(&f), seq);
	/* A fence that the other thread has found complete needs no lock. */
	gp_mutex_lock(&f.lock);
	atomic_store(&f.completed, gp_fence_published(&f));
	ck_assert_int_eq(gp_fence_poll_seq(&f, seq), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	gp_mutex_unlock(&f.lock);
}
END_TEST

START_TEST(a_try_record_does_nothing_if_the_record_would_make_the_host_wait)
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
	tcase_add_test(tc, the_gpu_does_not_lag_while_all_outstanding_fences_are_recent);
	tcase_add_test(tc, the_gpu_lags_once_a_fence_is_50_us_old_and_incomplete);
	tcase_add_loop_test(
		tc, the_lag_ends_once_no_polled_fence_is_seen_to_take_long, 0, sizeof(steps) / sizeof(*steps));
	tcase_add_test(tc, in_serial_mode_the_gpu_lags_until_it_keeps_up_with_the_records);
	tcase_add_test(tc, in_serial_mode_a_fence_that_was_not_polled_again_does_not_count_as_lag);
	tcase_add_test(tc, a_poll_of_one_completed_fence_does_not_mark_the_gpu_as_behind);
	tcase_add_test(tc, a_poll_of_one_incomplete_fence_marks_the_gpu_as_behind);
	tcase_add_test(tc, a_try_record_and_a_poll_of_one_fence_do_not_wait_for_another_thread);
	tcase_add_test(tc, a_try_record_does_nothing_if_the_record_would_make_the_host_wait);
	return suite_run(suite);
}
