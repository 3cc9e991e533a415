/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Locks whose waiting threads yield the processor. A real-time thread that only yields keeps the processor
 * forever from a normal thread, even from the one that it waits for. Here the other side of each lock goes
 * on only while the waiting thread sleeps: the program replaces the C library's sched_yield, which then lets
 * no other thread run, and its nanosleep.
 */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "pool/block.h"
#include "pool/lock.h"
#include "pool/ownlock.h"
#include "pool_fixture.h"
#include "shim/base/rwlock.h"
#include "tests/suite.h"

enum { YIELDS_MAX = 10000, SLEEP_MAX_NS = 1000000 };

static unsigned n_yields, n_sleeps;
static void (*other_side)(void);

int sched_yield(void)
{
	ck_assert_uint_lt(++n_yields, YIELDS_MAX);
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	ck_assert_int_eq(state, PTHREAD_CANCEL_DISABLE);
	ck_assert_int_eq(time->tv_sec, 0);
	ck_assert_int_le(time->tv_nsec, SLEEP_MAX_NS);
	n_sleeps++;
	/* A sleep that a signal cuts short counts like any other. */
	if (n_sleeps > 1)
		other_side();
	errno = EINTR;
	return -1;
}

static struct gp_ownlock own;
static struct gp_rwlock rw;
static struct gp_spinlock spin;
static struct gp_segment segment = {.base = GP_GIB, .size = GP_MIB};
static struct gp_release in_flight;

static void open_owner_lock(void)
{
	gp_ownlock_open(&own);
}

static void enter_closed(void)
{
	gp_ownlock_close(&own);
	gp_ownlock_enter(&own);
}

static void owner_leaves(void)
{
	gp_ownlock_leave(&own);
}

static void await_owner(void)
{
	gp_ownlock_enter(&own);
	gp_ownlock_close(&own);
	gp_ownlock_await(&own);
}

static void unlock_spin(void)
{
	gp_spin_unlock(&spin);
}

static void lock_spin(void)
{
	gp_spin_lock(&spin);
	gp_spin_lock(&spin);
}

static void writer_leaves(void)
{
	gp_rwlock_unlock(&rw);
}

static void read_beside_writer(void)
{
	gp_rwlock_lock(&rw);
	gp_rwlock_lock_shared(&rw);
}

static void reader_leaves(void)
{
	gp_rwlock_unlock_shared(&rw);
}

static void write_beside_reader(void)
{
	gp_rwlock_lock_shared(&rw);
	gp_rwlock_lock(&rw);
}

static void release_ends(void)
{
	gp_addrmap_release_end(&px.map, &in_flight);
}

/* Frees memory again while it is on its way to the driver. */
static void free_during_release(void)
{
	ck_assert_int_eq(gp_pool_free(&px.map, segment.base, GP_FREE_NORMAL), GP_E_FOREIGN);
}

static void prepare_release(void)
{
	gp_addrmap_add_segment(&px.map, &segment);
	gp_addrmap_release_begin(&px.map, &segment, &in_flight);
}

static const struct {
	void (*prepare)(void);
	void (*wait)(void);
	void (*other_side)(void);
} rows[] = {
	{NULL, enter_closed, open_owner_lock},
	{NULL, await_owner, owner_leaves},
	{NULL, lock_spin, unlock_spin},
	{NULL, read_beside_writer, writer_leaves},
	{NULL, write_beside_reader, reader_leaves},
	{prepare_release, free_during_release, release_ends},
};

START_TEST(a_waiting_thread_sleeps_after_some_yields_and_preserves_errno)
{
	if (rows[_i].prepare)
		rows[_i].prepare();
	other_side = rows[_i].other_side;
	errno = 7;
	rows[_i].wait();
	ck_assert_int_eq(errno, 7);
	ck_assert_uint_eq(n_sleeps, 2);
	ck_assert_uint_gt(n_yields, 0);
	ck_assert_uint_lt(n_yields, 200);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("waits");
	TCase *tc = fixture_case(GP_KIND_SPLIT);

	ADD_ROWS(tc, rows, a_waiting_thread_sleeps_after_some_yields_and_preserves_errno);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
