/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Locks whose waiters yield the processor. A real-time thread that only yields keeps the processor from a normal thread
 * for ever, also from the one that it waits for. Here the other side of each lock goes on only while the waiter sleeps:
 * the program stands in front of the C library's sched_yield, which lets no other thread go on, and of its nanosleep.
 */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "pool/block.h"
#include "pool/lock.h"
#include "pool/ownlock.h"
#include "pool_fixture.h"
#include "shim/rwlock.h"
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
	/* The sleep that a signal cuts short is as good as any. */
	if (n_sleeps > 1)
		other_side();
	errno = EINTR;
	return -1;
}

static struct gp_ownlock own;
static struct gp_rwlock rw;
static struct gp_spinlock spin;
static struct gp_segment segment = {.base = GP_GIB, .size = GP_MIB};
static struct gp_departure departure;

static void own_is_open(void)
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

static void spin_is_free(void)
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

static void driver_is_told(void)
{
	gp_addrmap_departed(&px.map, &departure);
}

/* A second free of memory that is on its way to the driver. */
static void free_departing(void)
{
	ck_assert_int_eq(gp_pool_free(&px.map, segment.base, GP_FREE_NORMAL), GP_E_FOREIGN);
}

static void prepare_departure(void)
{
	gp_addrmap_add_segment(&px.map, &segment);
	gp_addrmap_depart(&px.map, &segment, &departure);
}

static const struct {
	void (*prepare)(void);
	void (*wait)(void);
	void (*other_side)(void);
} rows[] = {
	{NULL, enter_closed, own_is_open},
	{NULL, await_owner, owner_leaves},
	{NULL, lock_spin, spin_is_free},
	{NULL, read_beside_writer, writer_leaves},
	{NULL, write_beside_reader, reader_leaves},
	{prepare_departure, free_departing, driver_is_told},
};

START_TEST(a_waiter_sleeps_after_some_yields_and_keeps_errno)
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

	ADD_ROWS(tc, rows, a_waiter_sleeps_after_some_yields_and_keeps_errno);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
