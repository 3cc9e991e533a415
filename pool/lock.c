/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lock.h"

#include <errno.h>

#ifdef GP_DEBUG
/* The ranks that this thread holds, as bits: ranks are few, and no two locks of one rank are held together. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
#endif

enum {
	SPINS = 512, /* some 20 us where a pause takes 40 ns */
	YIELDS = 64,
	NAP_NS = 20000,
};

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
 * By glibc's word for it, which is 0 while nobody has the mutex, as its static initialisers say. pthread_mutex_trylock
 * would write to the line each time, and is not in every process before glibc 2.34.
 */
bool gp_mutex_is_busy(const struct gp_mutex *m)
{
	return __atomic_load_n(&m->mutex.__data.__lock, __ATOMIC_RELAXED) != 0;
}

/*
 * What these locks guard takes less than a microsecond, or a few where the driver is called. glibc's own patience is a
 * hundred tries, and less the more often it was in vain: with a thread for each processor it runs out, and from then on
 * each takes its turn by way of the kernel, 100 times as long.
 */
static void spin(const struct gp_mutex *m)
{
	for (unsigned i = 0; i < SPINS && gp_mutex_is_busy(m); i++)
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
	struct timespec nap = {.tv_nsec = NAP_NS};
	int cancel_state, kept = errno;

	if (attempt < YIELDS) {
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
