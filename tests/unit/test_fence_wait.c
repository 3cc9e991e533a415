/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* How often who waits asks the GPU, and how late that makes it. */

#include <check.h>
#include <errno.h>

#include "fence_fixture.h"
#include "tests/suite.h"

/* Waits for work that takes so long: how much longer that took. */
static uint64_t late_ns(unsigned us)
{
	uint64_t stamp, start_ns;

	/* Each pause completes one. */
	atomic_store(&fake.waitable, fake_submit(&fake, (unsigned)(us * 1000 / fake.pause_ns) - 1));
	stamp = free_something();
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), 0);
	return atomic_load(&fake.now_ns) - start_ns - 1000 * us;
}

START_TEST(who_waits_as_long_as_before_asks_a_few_times_and_is_not_late)
{
	fake.pause_ns = 1000;
	for (unsigned round = 0; round < 100; round++) {
		uint64_t stamp;

		fake_calls(&fake, FAKE_QUERY);
		ck_assert_uint_le(late_ns(64), 3000);
		if (round >= 30)
			ck_assert_uint_le(fake_calls(&fake, FAKE_QUERY), 8);
		/* What is done at once says nothing. */
		stamp = free_something();
		fake_complete_all(&fake);
		ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), 0);
	}
	ck_assert_uint_eq(atomic_load(&f.waits), 100);
	ck_assert_uint_lt(atomic_load(&fake.attempt_max), 64);
}
END_TEST

/* On a real backend that is when pauses become sleeps. */
START_TEST(a_long_wait_pauses_longer)
{
	fake.pause_ns = 1000;
	late_ns(30000);
	ck_assert_uint_ge(atomic_load(&fake.attempt_max), 64);
}
END_TEST

static void take_fifty_us(struct fake *unused, enum fake_call call)
{
	if (call == FAKE_QUERY)
		atomic_fetch_add(&fake.now_ns, 50000);
}

START_TEST(a_rest_begins_after_a_question_that_took_long)
{
	uint64_t n_pauses;

	fake.pause_ns = 1000;
	for (unsigned i = 0; i < 100; i++)
		late_ns(20);
	fake.hook = take_fifty_us;
	fake_calls(&fake, FAKE_PAUSE);
	fake_calls(&fake, FAKE_QUERY);
	/* Each pause completes one: 20 us, but for the rest. */
	atomic_store(&fake.waitable, fake_submit(&fake, 15));
	ck_assert_int_eq(gp_fence_wait(&f, free_something(), UINT64_MAX), 0);
	n_pauses = fake_calls(&fake, FAKE_PAUSE);
	ck_assert_uint_ge(n_pauses, 16);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
}
END_TEST

/* Whatever they were before: 5 us and 150 us in turns, or one long wait after many short ones. */
static const struct {
	unsigned n_short, n_long;
} turns[] = {{1, 1}, {3, 1}, {1, 3}, {50, 1}};

START_TEST(short_waits_are_hardly_late_among_long_ones)
{
	uint64_t late = 0;

	fake.pause_ns = 1000;
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < turns[_i].n_long; i++)
			late_ns(150);
		for (unsigned i = 0; i < turns[_i].n_short; i++)
			late += late_ns(5);
	}
	/* A rest of 100 us would be 82 too much. */
	ck_assert_uint_le(late / (20 * turns[_i].n_short), 40000);
}
END_TEST

START_TEST(however_long_waits_were_nobody_rests_longer_than_100_us_and_less_once_overslept)
{
	uint64_t late = UINT64_MAX, was_late;

	fake.pause_ns = 1000;
	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	do {
		was_late = late;
		late = late_ns(1);
		ck_assert_uint_le(late, 90000);
		ck_assert(late <= was_late / 2 + 1000);
	} while (late > 1000);
}
END_TEST

/* First each microsecond, then after a thirty-second of what was waited, and in the end each 100 us. */
static const struct {
	unsigned us, least, most;
} lengths[] = {{30, 30, 32}, {1000, 100, 180}, {30000, 350, 550}};

START_TEST(who_waits_longer_than_before_asks_at_intervals_that_grow)
{
	uint64_t n;

	fake.pause_ns = 250;
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_uint_le(late_ns(lengths[_i].us), lengths[_i].us * 1000 / 32 + 1000);
	n = fake_calls(&fake, FAKE_QUERY);
	ck_assert_uint_ge(n, lengths[_i].least);
	ck_assert_uint_le(n, lengths[_i].most);
}
END_TEST

static void settle_after_ten(struct fake *unused, enum fake_call call)
{
	static unsigned n_pauses;

	if (call != FAKE_PAUSE || ++n_pauses != 10)
		return;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_settle(&f), 0);
}

START_TEST(who_rests_sees_at_once_what_another_thread_has_found)
{
	uint64_t stamp, start_ns;

	fake.pause_ns = 1000;
	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	fake.pause_completes = 0;
	stamp = free_something();
	fake.hook = settle_after_ten;
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait(&f, stamp, UINT64_MAX), 0);
	ck_assert_uint_le(atomic_load(&fake.now_ns) - start_ns, 11000);
}
END_TEST

/* The last of the work is done in the last pause before the bound. */
static int wait_until_just_done(unsigned us)
{
	atomic_store(&fake.waitable, fake_submit(&fake, us - 1));
	return gp_fence_wait_due(&f, free_something(), us * UINT64_C(1000));
}

START_TEST(time_is_up_in_the_middle_of_a_rest_and_then_it_is_asked_for_once_more)
{
	uint64_t stamp, start_ns;

	fake.pause_ns = 1000;
	ck_assert_int_eq(wait_until_just_done(50), 0);
	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	ck_assert_int_eq(wait_until_just_done(20), 0);
	/* How long that took is known. */
	ck_assert_uint_le(late_ns(20), 1000);

	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	atomic_store(&fake.waitable, fake_submit(&fake, 100));
	stamp = free_something();
	fake_calls(&fake, FAKE_QUERY);
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait_due(&f, stamp, 10000), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
	ck_assert_uint_eq(atomic_load(&fake.now_ns) - start_ns, 10000);
}
END_TEST

static void go_beyond_after_thirty(struct fake *unused, enum fake_call call)
{
	static unsigned n_pauses;

	if (call == FAKE_PAUSE && ++n_pauses == 30)
		atomic_store(&fake.is_beyond, true);
}

/* What is left then is work that no free of this thread's would have waited for. */
START_TEST(the_bound_of_a_wait_counts_from_when_it_is_due_no_more)
{
	uint64_t stamp = free_something(), start_ns = atomic_load(&fake.now_ns);

	fake.pause_ns = 1000;
	fake.pause_completes = 0;
	fake.hook = go_beyond_after_thirty;
	ck_assert_int_eq(gp_fence_wait(&f, stamp, 20000), -EAGAIN);
	ck_assert_uint_ge(atomic_load(&fake.now_ns) - start_ns, 45000);
	ck_assert_uint_le(atomic_load(&fake.now_ns) - start_ns, 52000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fence_wait");
	TCase *tc = tcase_create("fence_wait");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, who_waits_as_long_as_before_asks_a_few_times_and_is_not_late);
	tcase_add_test(tc, a_long_wait_pauses_longer);
	tcase_add_test(tc, a_rest_begins_after_a_question_that_took_long);
	ADD_ROWS(tc, turns, short_waits_are_hardly_late_among_long_ones);
	tcase_add_test(tc, however_long_waits_were_nobody_rests_longer_than_100_us_and_less_once_overslept);
	ADD_ROWS(tc, lengths, who_waits_longer_than_before_asks_at_intervals_that_grow);
	tcase_add_test(tc, who_rests_sees_at_once_what_another_thread_has_found);
	tcase_add_test(tc, the_bound_of_a_wait_counts_from_when_it_is_due_no_more);
	tcase_add_test(tc, time_is_up_in_the_middle_of_a_rest_and_then_it_is_asked_for_once_more);
	return suite_run(suite);
}
