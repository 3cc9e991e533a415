/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A lock that one thread, its owner, takes over and over, and others hardly ever, who are one at a time by a lock of
 * their own. Each side says that it is there and then looks for the other. For that to work neither may look before its
 * word can be heard, which costs the owner a full barrier each time, as much as any lock. Where the others can have a
 * barrier made in every thread of the process that runs (gp_pool_options.barrier), they pay for both sides, and the
 * owner's lock is two plain stores and a load.
 *
 * The barrier may become available while the process runs. Until then the owner pays. The owner looks for the barrier
 * each time it has paid, and is light from then on. That is safe without any lock: the others close first and look
 * for the barrier afterwards, so if they found none, their closing was visible before the owner could find one.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "base.h"

/* Makes a full memory barrier in every running thread of the process. */
typedef void gp_barrier_fn(void);

/* NULL while there is none. It may be set once, at any time, and then stays. */
typedef _Atomic(gp_barrier_fn *) gp_barrier_source;

struct gp_ownlock {
	_Atomic bool is_inside; /* the owner */
	_Atomic bool is_closed; /* to the owner */
	bool is_light;		/* the owner's: the others make a barrier between close and await */
	const gp_barrier_source *barrier; /* NULL: there will never be one */
};

bool gp_ownlock_try_heavy(struct gp_ownlock *l);

/* Tries once. The others' side is only ever seen open by who has seen what was written before it was. */
static inline bool gp_ownlock_try(struct gp_ownlock *l)
{
	if (gp_likely(l->is_light)) {
		atomic_store_explicit(&l->is_inside, true, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		return !atomic_load_explicit(&l->is_closed, memory_order_acquire);
	}
	return gp_ownlock_try_heavy(l);
}

void gp_ownlock_insist(struct gp_ownlock *l);

static inline void gp_ownlock_enter(struct gp_ownlock *l)
{
	if (gp_unlikely(!gp_ownlock_try(l)))
		gp_ownlock_insist(l);
}

static inline void gp_ownlock_leave(struct gp_ownlock *l)
{
	atomic_store_explicit(&l->is_inside, false, memory_order_release);
}

/* Unless the others are there. */
static inline bool gp_ownlock_enter_at_once(struct gp_ownlock *l)
{
	if (gp_likely(gp_ownlock_try(l)))
		return true;
	gp_ownlock_leave(l);
	return false;
}

/* The others: close, then gp_barrier_make, then await; open when all is done. */
void gp_ownlock_close(struct gp_ownlock *l);
void gp_barrier_make(const gp_barrier_source *barrier);
void gp_ownlock_await(struct gp_ownlock *l);
void gp_ownlock_open(struct gp_ownlock *l);
