/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Orders of the steps of a thread that submits and one that closes the gate. Each thread stops after the load that the
 * test names, until the other one has done its part. So the loads of submission.h are replaced here.
 */

#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

static void after_load(const volatile void *object);

#undef atomic_load
#define atomic_load(object)                                                              \
	__extension__({                                                                  \
		__auto_type loaded = atomic_load_explicit(object, memory_order_seq_cst); \
                                                                                         \
		after_load(object);                                                      \
		loaded;                                                                  \
	})

#include "pool/submission.h"
#include "tests/suite.h"

static struct gp_submissions work;
static sem_t submitter_stopped, submitter_may_go_on, submitter_left;
static _Thread_local const volatile void *stop_at; /* the load after which this thread stops, once */
static _Thread_local void (*at_stop)(void);

static void after_load(const volatile void *object)
{
	if (object != stop_at)
		return;
	stop_at = NULL;
	at_stop();
}

static void await(sem_t *semaphore)
{
	while (sem_wait(semaphore))
		;
}

static void stop_submitter(void)
{
	(void)sem_post(&submitter_stopped);
	await(&submitter_may_go_on);
}

/* The submitting thread goes on, and its call is over before the closing thread looks at the lanes. */
static void let_submitter_leave(void)
{
	(void)sem_post(&submitter_may_go_on);
	await(&submitter_left);
}

/* Finds the gate open, and stops before it ends the epoch. */
static void *submit(void *unused)
{
	struct gp_submission_lane *lane = gp_submission_lane(&work);

	stop_at = &work.is_closed;
	at_stop = stop_submitter;
	ck_assert(gp_submission_enter(&work, lane));
	gp_submission_leave(lane);
	(void)sem_post(&submitter_left);
	return NULL;
}

/*
 * The submission clears the bit after the closing thread has set it, and leaves its lane before that thread looks. So
 * all lanes are empty, but the next submission would not look at the gate.
 */
START_TEST(a_gate_is_not_quiet_if_a_submission_that_found_it_open_has_ended_the_epoch_meanwhile)
{
	struct gp_submission_lane *next;
	pthread_t submitter;

	work = GP_SUBMISSION_INIT;
	next = gp_submission_lane(&work);
	(void)sem_init(&submitter_stopped, 0, 0);
	(void)sem_init(&submitter_may_go_on, 0, 0);
	(void)sem_init(&submitter_left, 0, 0);
	(void)gp_submission_look(&work); /* a record, so that submissions look at the gate */
	ck_assert_int_eq(pthread_create(&submitter, NULL, submit, NULL), 0);
	await(&submitter_stopped);
	gp_submission_close(&work);
	stop_at = &work.n_visits;
	at_stop = let_submitter_leave;
	ck_assert(!gp_submission_is_quiet(&work));
	ck_assert_int_eq(pthread_join(submitter, NULL), 0);
	ck_assert(gp_submission_is_quiet(&work));
	ck_assert(!gp_submission_enter(&work, next));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("submission_gate");
	TCase *tc = tcase_create("steps");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, a_gate_is_not_quiet_if_a_submission_that_found_it_open_has_ended_the_epoch_meanwhile);
	return suite_run(suite);
}
