/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Mutexes with ranks. A thread takes locks in increasing rank only; builds with GP_DEBUG check it, so that a
 * deadlock that needs two threads to happen is found by one. They are held for less time than it takes to go to sleep
 * and be woken, so who finds one taken tries again for a moment first.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base.h"

/* In the order in which they may be taken, each with its reason. */
enum gp_lock_rank {
	GP_RANK_FENCE_WAIT = 1, /* fence.c: where a record makes the host wait, one at a time; held across that wait */
	GP_RANK_FENCE,	      /* fence.c: one record at a time; THE lock that is held across driver calls */
	GP_RANK_POOL,	      /* pool.c: lists, trees and counters of one pool */
	GP_RANK_SEGMENT_TREE, /* addrmap.c: which segment holds an address */
	GP_RANK_ADDRMAP,      /* addrmap.c: one shard of address -> block; innermost */
	GP_RANK_ZONES,	      /* debug_zone.c: what the program may not write to; held while that is looked at */
	GP_RANK_ZONE_IO,      /* debug_io.c: one at a time on the stream by which memory is looked at */
	GP_RANK_LEAF,	      /* anything that takes no other lock */
	GP_RANK_RECORD_TABLE, /* record_backend.c: pools are written down in the order of their numbers */
	GP_RANK_RECORD,	      /* who writes down what happens, whatever is locked meanwhile */
};

struct gp_mutex {
	pthread_mutex_t mutex;
	enum gp_lock_rank rank;
};

#define GP_MUTEX_INIT(rank_)                                                                                           \
	{                                                                                                              \
		.mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, .rank = (rank_)                                        \
	}

/* For what is nearly always free and held for some instructions only, with no other lock taken meanwhile. */
struct gp_spinlock {
	_Atomic bool is_locked;
};

/* Tells the processor that this is a loop which waits for another. */
static inline void gp_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb"); /* some 40 cycles; yield is one */
#endif
}

/*
 * Lets other threads go on, in a loop that counts its attempts from 0: yields the processor, and after some attempts
 * sleeps. A real-time thread that only yielded would keep a normal thread from its processor for ever, also the one
 * that it waits for. Cancels nothing and keeps errno.
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

void gp_mutex_init(struct gp_mutex *m, enum gp_lock_rank rank);
void gp_mutex_deinit(struct gp_mutex *m);
void gp_mutex_lock(struct gp_mutex *m);
void gp_mutex_unlock(struct gp_mutex *m);

/* Whether somebody has it just now; and takes it only if nobody has, which may take a moment if another is as fast. */
bool gp_mutex_is_busy(const struct gp_mutex *m);
bool gp_mutex_try(struct gp_mutex *m);
