/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A lock that one thread, its owner, takes constantly. Other threads rarely take it, one at a time, under a lock of
 * their own. Each side first announces itself and then checks for the other side. The check must not happen before
 * the announcement is visible, and that costs the owner a full barrier each time, as much as any lock. Where the
 * other threads can execute a barrier in every running thread of the process (gp_pool_options.barrier), they pay for
 * both sides, and the owner's lock is two plain stores and a load.
 *
 * The barrier may become available while the process runs. Until then the owner executes its own barrier at each
 * lock, looks for the shared barrier after that, and takes the light path once it has found one. This is safe without
 * any lock: the other threads close first and look for the barrier afterwards. If they found none, their close was
 * visible before the owner could find one.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "base.h"

/* Executes a full memory barrier in every running thread of the process. */
typedef void gp_barrier_fn(void);

/* NULL while no barrier is available. It may be set once, at any time, and does not change after that. */
typedef _Atomic(gp_barrier_fn *) gp_barrier_source;

struct gp_ownlock {
	_Atomic bool is_inside;           /* the owner holds the lock, or tries to */
	_Atomic bool is_closed;           /* other threads keep the owner out */
	bool is_light;                    /* for the owner only: the others execute a barrier between close and await */
	const gp_barrier_source *barrier; /* NULL: none will ever be available */
};

bool gp_ownlock_try_heavy(struct gp_ownlock *l);

/*
 * Tries once. An owner that finds the lock open has also seen everything that was written before it was opened. After
 * false the owner must call gp_ownlock_leave or gp_ownlock_enter_slow.
 */
static inline bool gp_ownlock_try(struct gp_ownlock *l)
{
	if (gp_likely(l->is_light)) {
		atomic_store_explicit(&l->is_inside, true, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		return !atomic_load_explicit(&l->is_closed, memory_order_acquire);
	}
	return gp_ownlock_try_heavy(l);
}

void gp_ownlock_enter_slow(struct gp_ownlock *l);

static inline void gp_ownlock_enter(struct gp_ownlock *l)
{
	if (gp_unlikely(!gp_ownlock_try(l)))
		gp_ownlock_enter_slow(l);
}

static inline void gp_ownlock_leave(struct gp_ownlock *l)
{
	atomic_store_explicit(&l->is_inside, false, memory_order_release);
}

/* Takes the lock unless other threads have closed it. Does not wait. */
static inline bool gp_ownlock_enter_if_open(struct gp_ownlock *l)
{
	if (gp_likely(gp_ownlock_try(l)))
		return true;
	gp_ownlock_leave(l);
	return false;
}

/* For the other threads, in this order: close, gp_barrier_make, await; and open when the work is done. */
void gp_ownlock_close(struct gp_ownlock *l);
void gp_barrier_make(const gp_barrier_source *barrier);
void gp_ownlock_await(struct gp_ownlock *l);

/* In place of await, for a thread that must not wait: if this is true, it opens the lock again and does nothing. */
static inline bool gp_ownlock_is_inside(const struct gp_ownlock *l)
{
	return atomic_load(&l->is_inside);
}

void gp_ownlock_open(struct gp_ownlock *l);
