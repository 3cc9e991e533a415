/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tuning.h"

/* Sleeps while *word is `value`, unless the kernel wakes the thread earlier. Keeps errno. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
	int kept = errno;

	(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
	errno = kept;
}

static void wake_one(_Atomic uint32_t *word)
{
	int kept = errno;

	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = kept;
}

void gp_event_wait(struct gp_event *event, uint32_t seen)
{
	sleep_on(&event->count, seen);
}

void gp_event_happen(struct gp_event *event)
{
	atomic_fetch_add(&event->count, 1);
	wake_one(&event->count);
}

#ifdef GP_DEBUG
/* The ranks that this thread holds, as bits. No two locks of one rank are held together. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));

void gp_mutex_check_rank(const struct gp_mutex *m)
{
	gp_assert(held >> m->rank == 0);
	held |= 1u << m->rank;
}

void gp_mutex_note_unlock(const struct gp_mutex *m)
{
	held &= ~(1u << m->rank);
}
#endif

void gp_mutex_init(struct gp_mutex *m, enum gp_lock_rank rank)
{
	atomic_init(&m->state, GP_MUTEX_FREE);
	m->rank = rank;
}

void gp_mutex_deinit(struct gp_mutex *m)
{
	gp_assert(!gp_mutex_is_busy(m));
}

/*
 * These locks protect less than a microsecond of work, or a few microseconds where the driver is called. A thread that
 * slept at once would make nearly every hand-over go through the kernel, which takes 100 times as long.
 */
static bool spin(struct gp_mutex *m)
{
	for (unsigned i = 0; i < GP_LOCK_SPINS; i++) {
		if (!gp_mutex_is_busy(m) && gp_mutex_take(m))
			return true;
		gp_pause();
	}
	return false;
}

/*
 * A thread that has slept cannot tell whether others still sleep, so it takes the mutex as awaited. The unlock then
 * wakes one thread too many at worst.
 */
void gp_mutex_await(struct gp_mutex *m)
{
	if (spin(m))
		return;
	while (atomic_exchange_explicit(&m->state, GP_MUTEX_AWAITED, memory_order_acquire) != GP_MUTEX_FREE)
		sleep_on(&m->state, GP_MUTEX_AWAITED);
}

/* The mutex may be gone by now: another thread may have taken it, given it back and freed its memory. */
void gp_mutex_wake(struct gp_mutex *m)
{
	wake_one(&m->state);
}

void gp_yield(unsigned attempt)
{
	struct timespec nap = {.tv_nsec = GP_NAP_NS};
	int cancel_state, kept = errno;

	if (attempt < GP_YIELDS_MAX) {
		sched_yield();
		return;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	nanosleep(&nap, NULL);
	pthread_setcancelstate(cancel_state, NULL);
	errno = kept;
}

void gp_spin_wait(struct gp_spinlock *l)
{
	for (unsigned i = 0; atomic_exchange_explicit(&l->is_locked, true, memory_order_acquire); i++)
		gp_yield(i);
}
