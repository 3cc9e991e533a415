/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "fence_fixture.h"
#include "tests/suite.h"

enum { SOME_ERROR = 700 };

static bool is_completed(uint64_t seq)
{
	return seq < gp_fence_completed(&f);
}

static bool is_ordered(uint64_t seq)
{
	return seq < gp_fence_gpu_waited(&f);
}

static int record(void)
{
	return gp_fence_record(&f, gp_fence_started(&f), true);
}

static int try_record(void)
{
	return gp_fence_try_record(&f, gp_fence_started(&f));
}

static int poll_all(void)
{
	return gp_fence_poll(&f);
}

static int poll_last(void)
{
	return gp_fence_poll_seq(&f, gp_fence_started(&f) - 1);
}

static int gpu_wait(void)
{
	return gp_fence_gpu_wait(&f);
}

static int host_wait(void)
{
	return gp_fence_wait(&f, gp_fence_started(&f) - 1, UINT64_MAX);
}

static const struct {
	int (*act)(void);
	enum fake_call call;
} failures[] = {
	{record, FAKE_RECORD},
	{try_record, FAKE_RECORD},
	{poll_all, FAKE_QUERY},
	{poll_last, FAKE_QUERY},
	{gpu_wait, FAKE_GPU_WAIT},
	{host_wait, FAKE_QUERY},
};

/* The fake checks that no lock is held. */
START_TEST(a_failed_call_is_reported_to_the_backend_without_the_lock)
{
	(void)free_block();
	ck_assert_uint_eq(atomic_load(&fake.n_failures), 0);
	fake_plan(&fake, (struct fake_plan){failures[_i].call, 1, 1, SOME_ERROR});
	ck_assert_int_eq(failures[_i].act(), SOME_ERROR);
	ck_assert_uint_eq(atomic_load(&fake.n_failures), 1);
	(void)poll_all();
	ck_assert_uint_eq(atomic_load(&fake.n_failures), 1);
}
END_TEST

START_TEST(memory_that_no_work_used_is_completed_from_the_start)
{
	ck_assert(is_completed(0));
	ck_assert(!is_completed(gp_fence_started(&f)));
	ck_assert(!is_ordered(gp_fence_started(&f)));
}
END_TEST

START_TEST(a_freed_block_is_completed_once_a_later_fence_is_completed)
{
	uint64_t seq = free_block();

	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert(!is_completed(seq));
	fake_complete_all(&fake);
	ck_assert(!is_completed(seq));
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(is_completed(seq));
	ck_assert(!is_completed(gp_fence_started(&f)));
}
END_TEST

START_TEST(a_gpu_wait_makes_a_freed_block_ordered_but_not_completed)
{
	uint64_t seq = free_block();

	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert(is_ordered(seq));
	ck_assert(!is_completed(seq));
	ck_assert_uint_eq(atomic_load(&fake.ordered), 1);
	/* The same GPU wait is not made twice. */
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 1);
}
END_TEST

START_TEST(a_gpu_wait_covers_every_earlier_free)
{
	uint64_t first = free_block(), second = free_block();

	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert_uint_eq(atomic_load(&fake.ordered), 2);
	ck_assert(is_ordered(first));
	ck_assert(is_ordered(second));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 1);
}
END_TEST

START_TEST(the_last_gpu_wait_can_be_repeated_until_its_fence_is_complete)
{
	free_block();

	ck_assert_int_eq(gp_fence_gpu_wait_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 0);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	free_block();
	ck_assert_int_eq(gp_fence_gpu_wait_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 2);
	ck_assert_uint_eq(atomic_load(&fake.ordered), 1);
	atomic_store(&fake.is_capturing, true);
	ck_assert_int_eq(gp_fence_gpu_wait_again(&f), -EBUSY);
	atomic_store(&fake.is_capturing, false);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	fake_calls(&fake, FAKE_GPU_WAIT);
	ck_assert_int_eq(gp_fence_gpu_wait_again(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 0);
}
END_TEST

START_TEST(the_end_of_serial_mode_makes_the_gpu_wait_that_records_at_frees_stood_for)
{
	uint64_t seq, recorded_seq;

	ck_assert_int_eq(gp_fence_set_serial(&f, true), 0);
	seq = free_block();
	ck_assert(is_ordered(seq));
	/* Every call that ends the mode fails until the GPU wait is made. */
	atomic_store(&fake.is_capturing, true);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gp_fence_set_serial(&f, false), -EBUSY);
	atomic_store(&fake.is_capturing, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gp_fence_set_serial(&f, false), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 3);
	ck_assert(!is_ordered(free_block()));
	/* A record outside a free may cover work that no thread has to wait for. */
	gp_fence_set_serial(&f, true);
	recorded_seq = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, recorded_seq, false), 0);
	ck_assert(!is_ordered(recorded_seq));
	ck_assert_int_eq(gp_fence_gpu_wait_again(&f), -EAGAIN);
}
END_TEST

START_TEST(in_serial_mode_a_thousand_records_need_no_query)
{
	uint64_t seq = 0;

	gp_fence_set_serial(&f, true);
	for (int i = 0; i < 1000; i++) {
		seq = free_block();
		ck_assert(is_ordered(seq));
		if (_i == 0) /* in the other row the GPU lags */
			fake_complete_all(&fake);
	}
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(is_completed(seq));
}
END_TEST

START_TEST(before_the_first_record_there_is_no_fence_to_wait_for)
{
	uint64_t seq = gp_fence_started(&f);

	ck_assert_int_eq(gp_fence_gpu_wait(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), -EAGAIN);
	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_slot_after(&f, seq), GP_NO_SLOT);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
}
END_TEST

START_TEST(one_record_covers_all_earlier_frees)
{
	uint64_t seq = gp_fence_started(&f);

	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
}
END_TEST

START_TEST(a_failed_record_covers_nothing_and_the_next_record_covers_its_frees)
{
	uint64_t seq = gp_fence_started(&f);

	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, seq, true), SOME_ERROR);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert(!is_completed(seq));
	/* A free that raced with the failed record belongs to the next fence. */
	seq = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(is_completed(seq));
}
END_TEST

/* Other threads may free while the event is being recorded. The fence need not cover their work. */
static void free_during_record(struct fake *unused, enum fake_call call)
{
	if (call == FAKE_RECORD)
		*(uint64_t *)fake.hook_arg = gp_fence_started(&f);
}

START_TEST(a_free_during_a_record_is_not_covered_by_that_fence)
{
	uint64_t raced = 0;

	fake.hook = free_during_record;
	fake.hook_arg = &raced;
	free_block();
	fake.hook = NULL;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(!is_completed(raced));
	ck_assert_int_eq(gp_fence_record(&f, raced, true), 0);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(is_completed(raced));
}
END_TEST

/* Plays another thread, which does not wait for the thread inside the driver. */
static void poll_during_record(struct fake *unused, enum fake_call call)
{
	if (call != FAKE_RECORD)
		return;
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
	ck_assert_int_eq(gp_fence_wait(&f, gp_fence_started(&f), 1), -EAGAIN);
	++*(unsigned *)fake.hook_arg;
}

START_TEST(other_threads_can_poll_while_a_record_makes_the_host_wait)
{
	unsigned n_polled = 0;

	fake.record_waits = true;
	free_block();
	fake_complete_all(&fake);
	fake.hook = poll_during_record;
	fake.hook_arg = &n_polled;
	free_block();
	ck_assert_uint_eq(n_polled, 1);
	fake.hook = NULL;
	/* Failed records lose no slot. */
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 2 * GP_FENCE_SLOTS, SOME_ERROR});
	for (int i = 0; i < 2 * GP_FENCE_SLOTS; i++)
		ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), SOME_ERROR);
	for (int i = 0; i < GP_FENCE_SLOTS - 1; i++)
		free_block();
}
END_TEST

START_TEST(a_capture_forbids_all_fence_calls_until_it_ends_and_loses_no_fence)
{
	uint64_t seq = free_block();

	atomic_store(&fake.is_capturing, true);
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EBUSY);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), -EBUSY);
	ck_assert_int_eq(gp_fence_poll(&f), -EBUSY);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), -EBUSY);
	ck_assert(!is_ordered(seq));
	atomic_store(&fake.is_capturing, false);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert(is_ordered(seq));
}
END_TEST

START_TEST(one_query_finds_all_fences_complete_while_the_gpu_keeps_up)
{
	uint64_t last = 0;

	for (int i = 0; i < 100; i++)
		last = free_block();
	fake_complete_all(&fake);
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
	ck_assert(is_completed(last));
}
END_TEST

START_TEST(one_query_finds_that_no_fence_is_complete_while_the_gpu_lags)
{
	for (int i = 0; i < 100; i++)
		free_block();
	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert(!gp_fence_was_ready(&f));
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
}
END_TEST

/* Each row: how many of 100 frees the GPU has completed. */
static const unsigned completed_counts[] = {0, 1, 2, 49, 50, 51, 99, 100};

START_TEST(repeated_polls_of_a_lagging_gpu_find_every_completed_fence)
{
	uint64_t seqs[100];

	for (int i = 0; i < 100; i++)
		seqs[i] = free_block();
	gp_fence_poll(&f);
	fake_complete(&fake, completed_counts[_i]);
	while (gp_fence_poll(&f) == 0)
		;
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(is_completed(seqs[i]), i < completed_counts[_i]);
	ck_assert_int_eq(gp_fence_was_ready(&f), completed_counts[_i] == 100);
}
END_TEST

START_TEST(a_poll_of_one_fence_needs_one_query_or_none_if_the_result_is_known)
{
	uint64_t first = free_block(), second = free_block(), last;

	free_block();
	fake_complete(&fake, 2);
	fake_calls(&fake, FAKE_QUERY);
	ck_assert_int_eq(gp_fence_poll_seq(&f, second), 0);
	ck_assert(is_completed(second));
	ck_assert_int_eq(gp_fence_poll_seq(&f, first), 0);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
	last = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_poll_seq(&f, last), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 0);
	ck_assert_int_eq(gp_fence_poll_seq(&f, last - 1), -EAGAIN);
	ck_assert_uint_eq(fake_calls(&fake, FAKE_QUERY), 1);
}
END_TEST

/* A thread that has not recorded the fence learns the same as the thread that has. */
START_TEST(published_fences_show_every_thread_which_frees_are_covered)
{
	uint64_t seq = gp_fence_started(&f);

	ck_assert_uint_le(gp_fence_published(&f), seq);
	ck_assert_int_eq(gp_fence_record(&f, seq, false), 0);
	ck_assert_uint_gt(gp_fence_published(&f), seq);
	ck_assert_uint_le(gp_fence_published_at_free(&f), seq);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	ck_assert_uint_gt(gp_fence_published_at_free(&f), seq);
	seq = gp_fence_started(&f);
	fake_plan(&fake, (struct fake_plan){FAKE_RECORD, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_record(&f, seq, true), SOME_ERROR);
	ck_assert_uint_le(gp_fence_published(&f), seq);
	ck_assert_uint_le(gp_fence_published_at_free(&f), seq);
}
END_TEST

START_TEST(records_beyond_the_fence_slots_are_refused_until_one_completes)
{
	uint64_t seq;

	for (int i = 0; i < GP_FENCE_SLOTS; i++)
		free_block();
	seq = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), -EAGAIN);
	fake_complete(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
	ck_assert(is_completed(seq));
}
END_TEST

START_TEST(a_gpu_wait_frees_the_slots_of_all_older_fences)
{
	for (int i = 0; i < GP_FENCE_SLOTS; i++)
		free_block();
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	for (int i = 0; i < GP_FENCE_SLOTS - 1; i++)
		free_block();
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EAGAIN);
}
END_TEST

START_TEST(a_wait_ends_when_its_fence_completes_and_does_not_wait_for_later_work)
{
	uint64_t seq = free_block();

	fake_submit(&fake, 10); /* no free followed this work */
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), 0);
	ck_assert(is_completed(seq));
	ck_assert_uint_eq(atomic_load(&fake.completed), 1);
	ck_assert_uint_eq(atomic_load(&f.host_waits), 1);
}
END_TEST

/* Plays another thread, which polls during the wait. Then nothing is left to query. */
static void poll_meanwhile(struct fake *unused, enum fake_call call)
{
	if (call != FAKE_PAUSE)
		return;
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_poll(&f), 0);
}

START_TEST(a_wait_ends_when_another_thread_has_found_the_fence_complete)
{
	uint64_t seq = free_block();

	fake.hook = poll_meanwhile;
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), 0);
}
END_TEST

START_TEST(a_bounded_wait_gives_up_at_its_bound)
{
	uint64_t seq = gp_fence_started(&f);

	fake_submit(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, seq, false), 0);
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_ge(atomic_load(&fake.now_ns), 20 * fake.pause_ns);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
}
END_TEST

static void *free_in_thread(void *seq)
{
	*(uint64_t *)seq = free_block();
	return NULL;
}

static uint64_t free_in_another_thread(void)
{
	pthread_t thread;
	uint64_t seq;

	ck_assert_int_eq(pthread_create(&thread, NULL, free_in_thread, &seq), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	return seq;
}

START_TEST(a_wait_for_a_free_of_the_same_thread_has_no_bound)
{
	uint64_t seq;

	fake_submit(&fake, 100);
	seq = free_block();
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20 * fake.pause_ns), 0);
	ck_assert(is_completed(seq));
}
END_TEST

/* The work may be waiting for this thread: only the other thread would have waited for it, in its free. */
START_TEST(a_wait_for_a_free_of_another_thread_gives_up_at_its_bound)
{
	uint64_t seq = free_in_another_thread();

	fake.pause_completes = 0;
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
	ck_assert(!is_completed(seq));
}
END_TEST

START_TEST(a_later_free_of_the_same_thread_removes_the_bound_of_a_wait)
{
	uint64_t seq;

	fake_submit(&fake, 100);
	seq = free_in_another_thread();
	free_block();
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20 * fake.pause_ns), 0);
}
END_TEST

START_TEST(a_wait_for_work_that_no_free_would_have_waited_for_gives_up_at_its_bound)
{
	uint64_t seq = free_block();

	fake.pause_completes = 0;
	atomic_store(&fake.is_beyond, true);
	ck_assert_int_eq(gp_fence_wait(&f, seq, 20 * fake.pause_ns), -EAGAIN);
	ck_assert_uint_le(atomic_load(&fake.now_ns), 21 * fake.pause_ns);
}
END_TEST

START_TEST(no_gpu_wait_is_made_while_a_fence_that_no_free_recorded_is_incomplete)
{
	uint64_t seq = free_block(), newest = gp_fence_started(&f);

	fake_submit(&fake, 1);
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	ck_assert_uint_gt(gp_fence_started(&f), newest);
	ck_assert_uint_eq(gp_fence_newest(&f), newest);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), -EAGAIN);
	ck_assert(!is_ordered(seq));
	/* A later free would have waited for all this work. */
	free_block();
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert(is_ordered(seq));
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), false), 0);
	fake_complete_all(&fake);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), 0);
	ck_assert(is_completed(seq));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_GPU_WAIT), 1);
}
END_TEST

START_TEST(a_fence_that_a_free_relies_on_counts_as_recorded_at_a_free)
{
	uint64_t seq = gp_fence_started(&f);

	ck_assert_int_eq(gp_fence_record(&f, seq, false), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), 0);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	ck_assert_uint_eq(gp_fence_newest(&f), gp_fence_started(&f));
	ck_assert_uint_eq(fake_calls(&fake, FAKE_RECORD), 1);
}
END_TEST

START_TEST(driver_errors_of_fence_calls_are_passed_up)
{
	uint64_t seq = free_block();

	fake_plan(&fake, (struct fake_plan){FAKE_QUERY, 1, 2, SOME_ERROR});
	ck_assert_int_eq(gp_fence_poll(&f), SOME_ERROR);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), SOME_ERROR);
	fake_plan(&fake, (struct fake_plan){FAKE_GPU_WAIT, 1, 1, SOME_ERROR});
	ck_assert_int_eq(gp_fence_gpu_wait(&f), SOME_ERROR);
	ck_assert(!is_ordered(seq));
}
END_TEST

START_TEST(after_the_drop_no_fence_call_reaches_the_driver)
{
	uint64_t seq = free_block(), before;

	gp_fence_drop(&f);
	before = fake.n_logged;
	ck_assert_int_eq(gp_fence_record(&f, gp_fence_started(&f), true), -EAGAIN);
	ck_assert_int_eq(gp_fence_poll(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_gpu_wait(&f), -EAGAIN);
	ck_assert_int_eq(gp_fence_wait(&f, seq, UINT64_MAX), -EAGAIN);
	ck_assert_int_eq(gp_fence_slot_after(&f, seq), GP_NO_SLOT);
	ck_assert_uint_eq(fake.n_logged, before);
}
END_TEST

/* More threads than one fence remembers. */
enum { N_FREERS = GP_FENCE_FREERS + 3 };

static pthread_barrier_t all_freed;

static void *free_at_the_same_time(void *seq)
{
	int r = gp_fence_record(&f, *(uint64_t *)seq, true), wait_r;

	pthread_barrier_wait(&all_freed);
	wait_r = gp_fence_wait_due(&f, *(uint64_t *)seq, 1);
	return r || wait_r != -EAGAIN ? &fake : NULL;
}

START_TEST(each_thread_waits_for_its_own_free_even_if_a_fence_covers_those_of_many)
{
	uint64_t seq = gp_fence_started(&f);
	pthread_t threads[N_FREERS];
	void *wrong;

	fake.pause_completes = 0;
	pthread_barrier_init(&all_freed, NULL, N_FREERS + 1);
	free_block();
	for (int i = 0; i < N_FREERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, free_at_the_same_time, &seq), 0);
	pthread_barrier_wait(&all_freed);
	ck_assert_int_eq(gp_fence_wait_due(&f, seq, 1), -EAGAIN);
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
	tcase_add_loop_test(
		tc, a_failed_call_is_reported_to_the_backend_without_the_lock, 0, sizeof(failures) / sizeof(*failures));
	tcase_add_test(tc, memory_that_no_work_used_is_completed_from_the_start);
	tcase_add_test(tc, a_freed_block_is_completed_once_a_later_fence_is_completed);
	tcase_add_test(tc, a_gpu_wait_makes_a_freed_block_ordered_but_not_completed);
	tcase_add_test(tc, a_gpu_wait_covers_every_earlier_free);
	tcase_add_test(tc, the_last_gpu_wait_can_be_repeated_until_its_fence_is_complete);
	tcase_add_test(tc, the_end_of_serial_mode_makes_the_gpu_wait_that_records_at_frees_stood_for);
	tcase_add_loop_test(tc, in_serial_mode_a_thousand_records_need_no_query, 0, 2);
	tcase_add_test(tc, before_the_first_record_there_is_no_fence_to_wait_for);
	tcase_add_test(tc, one_record_covers_all_earlier_frees);
	tcase_add_test(tc, a_failed_record_covers_nothing_and_the_next_record_covers_its_frees);
	tcase_add_test(tc, a_free_during_a_record_is_not_covered_by_that_fence);
	tcase_add_test(tc, other_threads_can_poll_while_a_record_makes_the_host_wait);
	tcase_add_test(tc, a_capture_forbids_all_fence_calls_until_it_ends_and_loses_no_fence);
	tcase_add_test(tc, one_query_finds_all_fences_complete_while_the_gpu_keeps_up);
	tcase_add_test(tc, one_query_finds_that_no_fence_is_complete_while_the_gpu_lags);
	tcase_add_loop_test(tc, repeated_polls_of_a_lagging_gpu_find_every_completed_fence, 0,
		sizeof(completed_counts) / sizeof(*completed_counts));
	tcase_add_test(tc, a_poll_of_one_fence_needs_one_query_or_none_if_the_result_is_known);
	tcase_add_test(tc, published_fences_show_every_thread_which_frees_are_covered);
	tcase_add_test(tc, records_beyond_the_fence_slots_are_refused_until_one_completes);
	tcase_add_test(tc, a_gpu_wait_frees_the_slots_of_all_older_fences);
	tcase_add_test(tc, a_wait_ends_when_its_fence_completes_and_does_not_wait_for_later_work);
	tcase_add_test(tc, a_wait_ends_when_another_thread_has_found_the_fence_complete);
	tcase_add_test(tc, a_bounded_wait_gives_up_at_its_bound);
	tcase_add_test(tc, a_wait_for_a_free_of_the_same_thread_has_no_bound);
	tcase_add_test(tc, a_wait_for_a_free_of_another_thread_gives_up_at_its_bound);
	tcase_add_test(tc, a_later_free_of_the_same_thread_removes_the_bound_of_a_wait);
	tcase_add_test(tc, a_wait_for_work_that_no_free_would_have_waited_for_gives_up_at_its_bound);
	tcase_add_test(tc, no_gpu_wait_is_made_while_a_fence_that_no_free_recorded_is_incomplete);
	tcase_add_test(tc, a_fence_that_a_free_relies_on_counts_as_recorded_at_a_free);
	tcase_add_test(tc, driver_errors_of_fence_calls_are_passed_up);
	tcase_add_test(tc, after_the_drop_no_fence_call_reaches_the_driver);
	tcase_add_test(tc, each_thread_waits_for_its_own_free_even_if_a_fence_covers_those_of_many);
	return suite_run(suite);
}
