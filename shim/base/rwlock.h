/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A readers-writer lock. gpupool does not use libpthread's, which would require a newer C library. A waiting thread
 * yields the processor, and sleeps after some yields (gp_yield). That is good enough, since writers are rare: a
 * context begins or ends. A reader waits only for a writer that holds the lock, never for another reader or for a
 * waiting writer.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/lock.h"

struct gp_rwlock {
	_Atomic int holders; /* number of readers; -1: a writer */
};

static inline bool gp_rwlock_try_shared(struct gp_rwlock *lock)
{
	int n = atomic_load_explicit(&lock->holders, memory_order_relaxed);

	while (n >= 0)
		if (atomic_compare_exchange_weak_explicit(
			    &lock->holders, &n, n + 1, memory_order_acquire, memory_order_relaxed))
			return true;
	return false;
}

static inline void gp_rwlock_lock_shared(struct gp_rwlock *lock)
{
	for (unsigned i = 0; gp_unlikely(!gp_rwlock_try_shared(lock)); i++)
		gp_yield(i);
}

static inline void gp_rwlock_unlock_shared(struct gp_rwlock *lock)
{
	atomic_fetch_sub_explicit(&lock->holders, 1, memory_order_release);
}

static inline void gp_rwlock_lock(struct gp_rwlock *lock)
{
	int none = 0;

	for (unsigned i = 0; !atomic_compare_exchange_weak_explicit(
		     &lock->holders, &none, -1, memory_order_acquire, memory_order_relaxed);
		i++) {
		none = 0;
		gp_yield(i);
	}
}

static inline void gp_rwlock_unlock(struct gp_rwlock *lock)
{
	atomic_store_explicit(&lock->holders, 0, memory_order_release);
}
