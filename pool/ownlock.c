/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ownlock.h"

#include <pthread.h>

void gp_ownlock_insist(struct gp_ownlock *l)
{
	do {
		gp_ownlock_leave(l);
		while (atomic_load_explicit(&l->is_closed, memory_order_acquire))
			sched_yield();
	} while (!gp_ownlock_try(l));
}

void gp_ownlock_close(struct gp_ownlock *l)
{
	atomic_store(&l->is_closed, true);
}

void gp_ownlock_await(struct gp_ownlock *l)
{
	while (atomic_load(&l->is_inside))
		sched_yield();
}

void gp_ownlock_open(struct gp_ownlock *l)
{
	atomic_store_explicit(&l->is_closed, false, memory_order_release);
}
