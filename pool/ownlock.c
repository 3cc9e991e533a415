/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ownlock.h"

#include "lock.h"

bool gp_ownlock_try_heavy(struct gp_ownlock *l)
{
	(void)atomic_exchange(&l->is_inside, true);
	if (atomic_load(&l->is_closed))
		return false;
	l->is_light = l->barrier && atomic_load(l->barrier);
	return true;
}

void gp_ownlock_enter_slow(struct gp_ownlock *l)
{
	unsigned attempt = 0;

	do {
		gp_ownlock_leave(l);
		while (atomic_load_explicit(&l->is_closed, memory_order_acquire))
			gp_yield(attempt++);
	} while (!gp_ownlock_try(l));
}

void gp_ownlock_close(struct gp_ownlock *l)
{
	atomic_store(&l->is_closed, true);
}

void gp_barrier_make(const gp_barrier_source *barrier)
{
	/*
	 * Sequentially consistent, after the close: if an owner is already on the light path, this load finds the
	 * barrier, too.
	 */
	gp_barrier_fn *make = barrier ? atomic_load(barrier) : NULL;

	if (make)
		make();
}

void gp_ownlock_await(struct gp_ownlock *l)
{
	for (unsigned i = 0; atomic_load(&l->is_inside); i++)
		gp_yield(i);
}

void gp_ownlock_open(struct gp_ownlock *l)
{
	atomic_store_explicit(&l->is_closed, false, memory_order_release);
}
