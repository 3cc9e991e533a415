/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lock.h"

#ifdef GP_DEBUG
/* The ranks that this thread holds, as bits: ranks are few, and no two locks of one rank are held together. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
#endif

enum {
	SPIN_PAUSES = 512, /* some 20 us where a pause takes 40 ns */
	SPIN_STEP_MAX = 16,
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
 * What these locks guard takes less than a microsecond, or a few where the driver is called. glibc's own patience is a
 * hundred tries, and less the more often it was in vain: with a thread for each processor it runs out, and from then on
 * each takes its turn by way of the kernel, 100 times as long. The tries come more seldom the longer it takes, so
 * that who holds the lock is not disturbed.
 */
static bool spin(pthread_mutex_t *mutex)
{
	unsigned n_pauses = 1;

	for (unsigned total = 0; total < SPIN_PAUSES; total += n_pauses) {
		n_pauses = n_pauses < SPIN_STEP_MAX ? 2 * n_pauses : n_pauses;
		for (unsigned i = 0; i < n_pauses; i++)
			gp_pause();
		if (pthread_mutex_trylock(mutex) == 0)
			return true;
	}
	return false;
}

void gp_mutex_lock(struct gp_mutex *m)
{
#ifdef GP_DEBUG
	gp_assert(held >> m->rank == 0);
	held |= 1u << m->rank;
#endif
	if (gp_unlikely(pthread_mutex_trylock(&m->mutex)) && !spin(&m->mutex))
		pthread_mutex_lock(&m->mutex);
}

bool gp_mutex_try(struct gp_mutex *m)
{
	if (pthread_mutex_trylock(&m->mutex))
		return false;
#ifdef GP_DEBUG
	gp_assert(held >> m->rank == 0);
	held |= 1u << m->rank;
#endif
	return true;
}

void gp_mutex_unlock(struct gp_mutex *m)
{
	pthread_mutex_unlock(&m->mutex);
#ifdef GP_DEBUG
	held &= ~(1u << m->rank);
#endif
}

bool gp_mutex_is_busy(struct gp_mutex *m)
{
	bool is_busy = pthread_mutex_trylock(&m->mutex) != 0;

	if (!is_busy)
		pthread_mutex_unlock(&m->mutex);
	return is_busy;
}

void gp_yield(void)
{
	sched_yield();
}

void gp_spin_wait(struct gp_spinlock *l)
{
	while (atomic_exchange_explicit(&l->is_locked, true, memory_order_acquire))
		sched_yield();
}
