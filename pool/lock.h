/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Mutexes with ranks. A thread takes locks in increasing rank only. Builds with GP_DEBUG check the order, so a single
 * thread reveals a deadlock that would need two threads to happen.
 *
 * Most locks are held for less time than it takes to go to sleep and be woken, so a thread that finds a lock taken
 * spins for a moment first. The locks that may be held across driver calls are marked DRIVER below. The pool's own is
 * none of them: no list, tree or counter waits for the driver.
 *
 * A mutex is a futex of the kernel (Drepper, "Futexes Are Tricky", 2011, the third mutex). One exchange takes a free
 * mutex, and one gives it back. libpthread's mutex needs about 80 instructions for both, since it first finds out of
 * which type it is. That would be a tenth of the instructions of a request for new memory, which takes five locks.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "base.h"

/* Locks may be taken in this order. */
enum gp_lock_rank {
	GP_RANK_QUIET = 1,    /* quiet.c: one thread at a time moves the memory of the process; DRIVER */
	GP_RANK_SET_UP,       /* process.c: sets up the modules of the library */
	GP_RANK_PEERS,        /* hook_peer.c: one change of the access of devices at a time; DRIVER */
	GP_RANK_STREAMED,     /* region_pool.c: one thread at a time makes a pool of mapped memory; DRIVER */
	GP_RANK_REPORT,       /* oom.c: one report of an out-of-memory error at a time; DRIVER */
	GP_RANK_FENCE_WAIT,   /* fence.c: serialises records that make the host wait; DRIVER */
	GP_RANK_FENCE,        /* fence.c: the fences of a context; DRIVER: record, query and GPU wait */
	GP_RANK_POOL,         /* pool.c: lists, trees and counters of one pool */
	GP_RANK_SEGMENT_TREE, /* addrmap.c: finds the segment that holds an address */
	GP_RANK_ADDRMAP,      /* addrmap.c: one shard of the map from addresses to blocks */
	GP_RANK_ZONES,        /* debug_zone.c: memory that the program must not write to; DRIVER: while it is checked */
	GP_RANK_ZONE_IO,      /* debug_io.c: serialises the stream that reads and fills checked memory; DRIVER */
	GP_RANK_CAPTURES,     /* capture.c: the running captures; DRIVER: asks whether they still run */
	GP_RANK_LEAF,         /* any lock under which no other lock of the pool is taken */
	GP_RANK_RECORD_TABLE, /* record_backend.c: pools are recorded in the order of their numbers */
	GP_RANK_RECORD_STACKS, /* record_stacks.c: a file, a line or a stack is defined once in a recording */
	GP_RANK_RECORD,        /* the recorder, whatever lock the recording thread holds */
};

enum { GP_MUTEX_FREE, GP_MUTEX_HELD, GP_MUTEX_AWAITED /* held, and other threads may sleep on it */ };

struct gp_mutex {
	_Atomic uint32_t state;
	enum gp_lock_rank rank;
};

#define GP_MUTEX_INIT(rank_)     \
	{                        \
		.rank = (rank_), \
	}

/* A lock that is nearly always free and held for a few instructions, under which no other lock is taken. */
struct gp_spinlock {
	_Atomic bool is_locked;
};

/* Tells the processor that this loop waits for another thread. */
static inline void gp_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb"); /* about 40 cycles; yield takes one */
#endif
}

/*
 * Lets other threads run, from a loop that counts its attempts from 0: yields the processor, and after some attempts
 * sleeps instead. A real-time thread that only yielded would keep normal threads off its processor forever,
 * including the thread that it waits for. It is not a cancellation point and preserves errno.
 */
void gp_yield(unsigned attempt);

void gp_spin_wait(struct gp_spinlock *l);

static inline void gp_spin_lock(struct gp_spinlock *l)
{
	if (gp_unlikely(atomic_exchange_explicit(&l->is_locked, true, memory_order_acquire)))
		gp_spin_wait(l);
}

static inline void gp_spin_unlock(struct gp_spinlock *l)
{
	atomic_store_explicit(&l->is_locked, false, memory_order_release);
}

/* Threads wait for a change of the number. */
struct gp_event {
	_Atomic uint32_t count;
};

/*
 * gp_event_wait sleeps while the number is `seen`, and may return early. gp_event_happen changes the number and wakes
 * one of the threads that sleep. Neither is a cancellation point, and both keep errno.
 */
void gp_event_wait(struct gp_event *event, uint32_t seen);
void gp_event_happen(struct gp_event *event);

void gp_mutex_init(struct gp_mutex *m, enum gp_lock_rank rank);
void gp_mutex_deinit(struct gp_mutex *m);

/* The slow parts of gp_mutex_lock and gp_mutex_unlock, and the check of ranks. */
void gp_mutex_await(struct gp_mutex *m);
void gp_mutex_wake(struct gp_mutex *m);

#ifdef GP_DEBUG
void gp_mutex_check_rank(const struct gp_mutex *m);
void gp_mutex_note_unlock(const struct gp_mutex *m);
#else
static inline void gp_mutex_check_rank(const struct gp_mutex *m)
{
}

static inline void gp_mutex_note_unlock(const struct gp_mutex *m)
{
}
#endif

/* True if a thread holds the mutex right now. */
static inline bool gp_mutex_is_busy(const struct gp_mutex *m)
{
	return atomic_load_explicit(&m->state, memory_order_relaxed) != GP_MUTEX_FREE;
}

static inline bool gp_mutex_take(struct gp_mutex *m)
{
	uint32_t state = GP_MUTEX_FREE;

	return atomic_compare_exchange_strong_explicit(
		&m->state, &state, GP_MUTEX_HELD, memory_order_acquire, memory_order_relaxed);
}

static inline void gp_mutex_lock(struct gp_mutex *m)
{
	gp_mutex_check_rank(m);
	if (gp_unlikely(!gp_mutex_take(m)))
		gp_mutex_await(m);
}

/* Takes the mutex only if it is free. Does not write to the cache line of a mutex that is held. */
static inline bool gp_mutex_try(struct gp_mutex *m)
{
	if (gp_mutex_is_busy(m) || !gp_mutex_take(m))
		return false;
	gp_mutex_check_rank(m);
	return true;
}

static inline void gp_mutex_unlock(struct gp_mutex *m)
{
	gp_mutex_note_unlock(m);
	if (gp_unlikely(atomic_exchange_explicit(&m->state, GP_MUTEX_FREE, memory_order_release) == GP_MUTEX_AWAITED))
		gp_mutex_wake(m);
}
