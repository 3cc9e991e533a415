/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The number of queries that a waiting thread makes, and how late its wait ends because of the pauses between them. */

#include <check.h>
#include <errno.h>

#include "fence_fixture.h"
#include "tests/suite.h"

/* Waits for work that takes `us`. Returns how much longer than that the wait took. */
static uint64_t late_ns(unsigned us)
{
	uint64_t seq, start_ns;

	/* Each pause completes one piece of work. */
	atomic_store(&fake.waitable, fake_submit(&fake, (unsigned)(us * 1000 / fake.pause_ns) - 1));
	seq = free_block();
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), 0);
	return atomic_load(&fake.now_ns) - start_ns - 1000 * us;
}

START_TEST(a_wait_as_long_as_earlier_ones_polls_a_few_times_and_ends_on_time)
{
	fake.pause_ns = 1000;
	for (unsigned round = 0; round < 100; round++) {
		uint64_t seq;

		fake_calls(&fake, FAKE_QUERY);
		ck_assert_uint_le(late_ns(64), 3000);
		if (round >= 30)
			ck_assert_uint_le(fake_calls(&fake, FAKE_QUERY), 8);
		/* Work that is complete at once does not change the estimate. */
		seq = free_block();
		fake_complete_all(&fake);
		ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), 0);
	}
	ck_assert_uint_eq(atomic_load(&f.host_waits), 100);
	ck_assert_uint_lt(atomic_load(&fake.attempt_max), 64);
}
END_TEST

/* At high attempt numbers the pauses of a real backend become sleeps. */
START_TEST(a_long_wait_raises_the_attempt_number_of_its_pauses)
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

START_TEST(the_first_pause_of_a_wait_counts_from_the_end_of_a_slow_query)
{
	uint64_t n_pauses;

	fake.pause_ns = 1000;
	for (unsigned i = 0; i < 100; i++)
		late_ns(20);
	fake.hook = take_fifty_us;
	fake_calls(&fake, FAKE_PAUSE);
	fake_calls(&fake, FAKE_QUERY);
	/* Each pause completes one piece of work, so the work takes 16 us, less than the first pause. */
	atomic_store(&fake.waitable, fake_submit(&fake, 15));
	ck_assert_int_eq(gp_fence_wait(&f, free_block(), UINT64_MAX), 0);
	n_pauses = fake_calls(&fake, FAKE_PAUSE);
	ck_assert_uint_ge(n_pauses, 16);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
}
END_TEST

/* Numbers of short waits (5 us) and long waits (150 us) that alternate. */
static const struct {
	unsigned n_short, n_long;
} turns[] = {{1, 1}, {3, 1}, {1, 3}, {50, 1}};

START_TEST(short_waits_among_long_ones_end_only_a_little_late)
{
	uint64_t late = 0;

	fake.pause_ns = 1000;
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < turns[_i].n_long; i++)
			late_ns(150);
		for (unsigned i = 0; i < turns[_i].n_short; i++)
			late += late_ns(5);
	}
	/* With the longest first pause each short wait would be 82 us late. */
	ck_assert_uint_le(late / (20 * turns[_i].n_short), 40000);
}
END_TEST

START_TEST(the_first_pause_of_a_wait_is_at_most_100_us_and_halves_when_too_long)
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

/*
 * The poll interval is first 1 us, then 1/32 of the time waited, and at most 100 us. Expected numbers of
 * queries.
 */
static const struct {
	unsigned us, least, most;
} lengths[] = {{30, 30, 32}, {1000, 100, 180}, {30000, 350, 550}};

START_TEST(a_wait_longer_than_earlier_ones_polls_at_growing_intervals)
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

static void poll_after_ten_pauses(struct fake *unused, enum fake_call call)
{
	static unsigned n_pauses;

	if (call != FAKE_PAUSE || ++n_pauses != 10)
		return;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
}

START_TEST(a_pausing_wait_ends_as_soon_as_another_thread_finds_the_fence_complete)
{
	uint64_t seq, start_ns;

	fake.pause_ns = 1000;
	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	fake.pause_completes = 0;
	seq = free_block();
	fake.hook = poll_after_ten_pauses;
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), 0);
	ck_assert_uint_le(atomic_load(&fake.now_ns) - start_ns, 11000);
}
END_TEST

/* The last of the work completes in the last pause before the bound. */
static int wait_until_just_done(unsigned us)
{
	atomic_store(&fake.waitable, fake_submit(&fake, us - 1));
	return gp_fence_wait_due(&f, free_block(), us * UINT64_C(1000));
}

START_TEST(a_bounded_wait_ends_on_time_within_a_pause_after_one_more_poll)
{
	uint64_t seq, start_ns;

	fake.pause_ns = 1000;
	ck_assert_int_eq(wait_until_just_done(50), 0);
	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	ck_assert_int_eq(wait_until_just_done(20), 0);
	/* The duration of that wait was learned. */
	ck_assert_uint_le(late_ns(20), 1000);

	for (unsigned i = 0; i < 100; i++)
		late_ns(150);
	atomic_store(&fake.waitable, fake_submit(&fake, 100));
	seq = free_block();
	fake_calls(&fake, FAKE_QUERY);
	start_ns = atomic_load(&fake.now_ns);
	ck_assert_int_eq(gp_fence_wait_due(&f, seq, 10000), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 2);
	ck_assert_uint_eq(atomic_load(&fake.now_ns) - start_ns, 10000);
}
END_TEST

static void go_beyond_after_thirty_pauses(struct fake *unused, enum fake_call call)
{
	static unsigned n_pauses;

	if (call == FAKE_PAUSE && ++n_pauses == 30)
		atomic_store(&fake.is_beyond, true);
}

/* From then on the unfinished work is work that no free of this thread would have waited for. */
START_TEST(the_bound_of_a_wait_starts_once_the_threads_own_frees_no_longer_need_it)
{
	uint64_t seq = free_block(), start_ns = atomic_load(&fake.now_ns);

	fake.pause_ns = 1000;
	fake.pause_completes = 0;
	fake.hook = go_beyond_after_thirty_pauses;
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20000), -EAGAIN);
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
	tcase_add_test(tc, a_wait_as_long_as_earlier_ones_polls_a_few_times_and_ends_on_time);
	tcase_add_test(tc, a_long_wait_raises_the_attempt_number_of_its_pauses);
	tcase_add_test(tc, the_first_pause_of_a_wait_counts_from_the_end_of_a_slow_query);
	ADD_ROWS(tc, turns, short_waits_among_long_ones_end_only_a_little_late);
	tcase_add_test(tc, the_first_pause_of_a_wait_is_at_most_100_us_and_halves_when_too_long);
	ADD_ROWS(tc, lengths, a_wait_longer_than_earlier_ones_polls_at_growing_intervals);
	tcase_add_test(tc, a_pausing_wait_ends_as_soon_as_another_thread_finds_the_fence_complete);
	tcase_add_test(tc, the_bound_of_a_wait_starts_once_the_threads_own_frees_no_longer_need_it);
	tcase_add_test(tc, a_bounded_wait_ends_on_time_within_a_pause_after_one_more_poll);
	return suite_run(suite);
}
