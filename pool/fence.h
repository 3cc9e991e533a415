/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The fences of one context: what says when freed memory may have a new owner, without knowing the streams.
 * Read-copy-update's grace period, for GPU memory (design: context fences).
 *
 * A fence is a number and a recorded event that covers everything submitted to the context before the record.
 *
 *     record:  s = ++started; record the event; publish s
 *     free:    block.stamp = started, read after the program's own submissions
 *
 * The record of any s > stamp was made after the free, so it covers all that could touch the block: the block
 * is *completed* once such an s has completed, and *ordered* once all later work of the context was made to wait
 * for such an s. started is raised before the record, so a free that races with a record counts to the next.
 * A number whose record failed is skipped: a later one covers more. Numbers begin at 2 and 1 is complete from the
 * start, so that a stamp of 0 says "nothing on the GPU ever touched it".
 *
 * Where somebody says what is submitted (work.h), and nothing was since s was recorded, then s covers what is freed now
 * as well, as if it had been freed before: its stamp is s - 1.
 */

#include "fence_state.h"

/* Longer than an idle GPU takes to complete an event (some 5 us), shorter than what one would call behind. */
#define GP_LAG_NS UINT64_C(50000)

void gp_fence_init(struct gp_fence *f, const struct gp_backend *backend);
void gp_fence_deinit(struct gp_fence *f);
void gp_fence_quiesce(struct gp_fence *f); /* returns once no call of the driver is under way that began before */
void gp_fence_drop(struct gp_fence *f); /* the context is gone: no later call reaches the driver or finds a fence */

/*
 * Sees to it that a fence later than the stamp is recorded; another thread's will do. is_at_free: this is part of a
 * free that may make later work wait for all earlier work; other fences cover work that nobody may have to wait for
 * without bound. 0; -EBUSY while a capture forbids it; -EAGAIN where too many are outstanding; or the driver's error.
 */
int gp_fence_record(struct gp_fence *f, uint64_t stamp, bool is_at_free);

/* The same at a free, unless another thread is at the driver for a fence: then -EAGAIN, and later will do. */
int gp_fence_try_record(struct gp_fence *f, uint64_t stamp);

/* Asks the driver what has completed. 0 if anything did, -EAGAIN if not, -EBUSY, or the driver's error. */
int gp_fence_settle(struct gp_fence *f);

/* The same of blocks with this stamp alone: 0 also if another thread has seen it, -EAGAIN if no fence covers them. */
int gp_fence_settle_stamp(struct gp_fence *f, uint64_t stamp);

/*
 * Makes all later work of the context wait for the last published fence, which covers every block freed before it.
 * 0 if that is so now; -EAGAIN if there is none, or one that no free recorded is newer and not complete, for which
 * nobody may be made to wait, or the backend knows of another such; -EBUSY; or the driver's error.
 */
int gp_fence_order(struct gp_fence *f);

/*
 * Whether work is done as it came: then a record at a free is as good as an order. At the end of that the order is
 * given. 0, or that it could not be: then the caller has to wait for what counts as ordered.
 */
int gp_fence_set_in_order(struct gp_fence *f, bool is_in_order);

/* Once more for the last that was ordered upon, if it is not complete: for who was not held back. 0, or as above. */
int gp_fence_order_again(struct gp_fence *f);

/*
 * Waits on the host until blocks with this stamp are completed. Without bound while a free that this thread has made
 * since would have waited for the same; at most max_ns (UINT64_MAX: without bound) for anything else, which may be
 * waiting for this thread. 0; -EAGAIN if no fence covers the stamp or the time is up; -EBUSY; or the driver's error.
 * Holds no lock while it waits.
 */
int gp_fence_wait(struct gp_fence *f, uint64_t stamp, uint64_t max_ns);

/* The same, but only while that is so of a free of this thread's, and at most max_ns. -ENOENT: it is so of none. */
int gp_fence_wait_due(struct gp_fence *f, uint64_t stamp, uint64_t max_ns);

/* The slot of the first published fence later than the stamp, for backend->release_begin; else GP_NO_SLOT. */
int gp_fence_slot_after(struct gp_fence *f, uint64_t stamp);

/* The number of the last fence published at a free that is not known to be complete, or 0. */
uint64_t gp_fence_newest(struct gp_fence *f);

static inline uint64_t gp_fence_started(const struct gp_fence *f)
{
	return atomic_load(&f->started);
}

/* Of what is freed now. */
static inline uint64_t gp_fence_stamp(const struct gp_fence *f)
{
	uint64_t epoch = atomic_load_explicit(&f->clean_epoch, memory_order_acquire);
	uint64_t clean = atomic_load_explicit(&f->clean, memory_order_relaxed);

	if (gp_unlikely(epoch != GP_WORK_NO_EPOCH) && gp_work_epoch(f->backend.work) == epoch)
		return clean - 1;
	return gp_fence_started(f);
}

static inline bool gp_fence_was_ready(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->was_ready, memory_order_relaxed);
}

/* Whether the GPU has fallen behind. That a fence is on its way, as with many threads one always is, is no lag. */
static inline bool gp_fence_lags(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->lags, memory_order_relaxed);
}

static inline bool gp_fence_is_in_order(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->is_in_order, memory_order_relaxed);
}

/* Some fence covers blocks with a stamp below this; in the second, one that was recorded at a free, anybody's. */
static inline uint64_t gp_fence_published(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->published, memory_order_relaxed);
}

static inline uint64_t gp_fence_published_at_free(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->published_at_free, memory_order_relaxed);
}

/* Blocks with a stamp below this are done with on the GPU. */
static inline uint64_t gp_fence_completed(const struct gp_fence *f)
{
#ifdef GP_BREAK_REUSE
	/* Only in a test build, whose suite must find the race that this plants. */
	return UINT64_MAX;
#endif
	return atomic_load_explicit(&f->completed, memory_order_acquire);
}

/* Blocks with a stamp below this may be touched by later work of the same context. */
static inline uint64_t gp_fence_ordered(const struct gp_fence *f)
{
	uint64_t ordered = atomic_load_explicit(&f->ordered, memory_order_acquire);

	return gp_max(ordered, gp_fence_completed(f));
}
