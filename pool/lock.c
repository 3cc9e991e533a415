/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lock.h"

#include <errno.h>

#include "tuning.h"

#ifdef GP_DEBUG
/* The ranks that this thread holds, as bits. No two locks of one rank are held together. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
#endif

void gp_mutex_init(struct gp_mutex *m, enum gp_lock_rank rank)
{
	m->mutex = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	m->rank = rank;
}

void gp_mutex_deinit(struct gp_mutex *m)
{
	pthread_mutex_destroy(&m->mutex);
}

/*
 * Reads glibc's lock word, which is 0 while the mutex is free, as glibc's static initialisers show.
 * pthread_mutex_trylock would write to the cache line each time, and is not available in every process before glibc
 * 2.34.
 */
bool gp_mutex_is_busy(const struct gp_mutex *m)
{
	return __atomic_load_n(&m->mutex.__data.__lock, __ATOMIC_RELAXED) != 0;
}

/*
 * These locks protect less than a microsecond of work, or a few microseconds where the driver is called. glibc itself
 * spins 100 times at most, and less the more often spinning failed. With a thread on every processor that is not
 * enough, and then every hand-over goes through the kernel, which takes 100 times as long.
 */
static void spin(const struct gp_mutex *m)
{
	for (unsigned i = 0; i < GP_LOCK_SPINS && gp_mutex_is_busy(m); i++)
		gp_pause();
}

void gp_mutex_lock(struct gp_mutex *m)
{
#ifdef GP_DEBUG
	gp_assert(held >> m->rank == 0);
	held |= 1u << m->rank;
#endif
	spin(m);
	pthread_mutex_lock(&m->mutex);
}

bool gp_mutex_try(struct gp_mutex *m)
{
	if (gp_mutex_is_busy(m))
		return false;
	gp_mutex_lock(m);
	return true;
}

void gp_mutex_unlock(struct gp_mutex *m)
{
	pthread_mutex_unlock(&m->mutex);
#ifdef GP_DEBUG
	held &= ~(1u << m->rank);
#endif
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
