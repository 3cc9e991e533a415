/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The submission epoch: whether the GPU got work since a fence was recorded. If it got none, that fence also covers
 * what is freed now, and no other fence is needed. For this the program of the pool reports every submission of every
 * thread. A wait on the GPU counts as work: it may wait for another context, which the fence does not cover and the
 * driver's own free would have waited for.
 *
 * The word holds the epoch and, in its lowest bit, whether a recording thread has looked at it since it began. A
 * submitting thread ends the epoch only if one has. So the line is written once between two fences, however much is
 * submitted.
 *
 * The GPU can run the work, and tell another thread of it, before the driver's call returns to the submitting thread.
 * So the epoch ends before the call. A fence recorded between that and the submission does not cover the work, so a
 * submitting thread stays visible in a lane for as long as the call takes:
 *
 *     submitting thread:  enter the lane; end the epoch if its bit is set; call the driver; leave the lane
 *     recording thread:   set the epoch's bit; look at all lanes; record; good for the epoch if all were empty
 *
 * The recording thread finds the lane entered; or empty because the call is over, and then the record covers it; or
 * empty because the thread will enter later, and then that thread finds the bit and ends the epoch before it submits.
 * This holds in the one order of all these accesses, so they are sequentially consistent. The recording thread never
 * waits: a submission may be held up for as long as the launch queue is full.
 */

#include "base.h"

/* Each has a line of its own. Threads beyond their number share. */
enum { GP_WORK_LANES = 32 };

struct gp_work_lane {
	_Atomic unsigned n_submitting;
	char apart[GP_LINES_APART - sizeof(_Atomic unsigned)];
};

struct gp_work {
	_Atomic uint64_t word;
	_Atomic unsigned n_threads; /* that got a lane so far */
	char apart[GP_LINES_APART];
	struct gp_work_lane lanes[GP_WORK_LANES];
};

#define GP_WORK_UNSEEN UINT64_MAX /* for good */

enum { GP_WORK_NO_EPOCH = 0 };

#define GP_WORK_INIT ((struct gp_work){.word = 1 << 1}) /* the first epoch; before anything is submitted */

/* A submission ends an epoch that was looked at. If the exchange fails another thread has ended it. */
static inline void gp_work_note(struct gp_work *work)
{
	uint64_t word = atomic_load(&work->word);

#ifdef GP_BREAK_WORK
	/* Only in a test build, whose suite must find what is handed out too early. */
	return;
#endif
	if (gp_unlikely(word & 1) && word != GP_WORK_UNSEEN)
		(void)atomic_compare_exchange_strong(&work->word, &word, ((word >> 1) + 1) << 1);
}

/* The lane of a thread that submits for the first time. */
static inline struct gp_work_lane *gp_work_lane(struct gp_work *work)
{
	return &work->lanes[atomic_fetch_add(&work->n_threads, 1) % GP_WORK_LANES];
}

/* Before the driver's call that submits. Calls of one thread may nest. */
static inline void gp_work_enter(struct gp_work *work, struct gp_work_lane *lane)
{
	(void)atomic_fetch_add(&lane->n_submitting, 1);
	gp_work_note(work);
}

/* After that call. A thread that never gets there, since it was cancelled inside the driver, costs fences only. */
static inline void gp_work_leave(struct gp_work_lane *lane)
{
	(void)atomic_fetch_sub_explicit(&lane->n_submitting, 1, memory_order_release);
}

/* From now on there may be submissions that are not reported. */
static inline void gp_work_lose(struct gp_work *work)
{
	atomic_store(&work->word, GP_WORK_UNSEEN);
}

static inline bool gp_work_is_submitting(struct gp_work *work)
{
	unsigned n = atomic_load(&work->n_threads);

#ifdef GP_BREAK_LANES
	/* Only in a test build, whose suite must find what is handed out too early. */
	return false;
#endif
	for (unsigned i = 0; i < n && i < GP_WORK_LANES; i++)
		if (atomic_load(&work->lanes[i].n_submitting))
			return true;
	return false;
}

/* Before a record: the epoch that its fence is good for; GP_WORK_NO_EPOCH where that is not known. */
static inline uint64_t gp_work_look(struct gp_work *work)
{
	uint64_t word = atomic_load(&work->word);

	if (!(word & 1))
		word = atomic_fetch_or(&work->word, 1);
	return word == GP_WORK_UNSEEN || gp_work_is_submitting(work) ? GP_WORK_NO_EPOCH : word >> 1;
}

/* The current epoch. */
static inline uint64_t gp_work_epoch(const struct gp_work *work)
{
	return atomic_load_explicit(&work->word, memory_order_acquire) >> 1;
}
