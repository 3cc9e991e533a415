/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The submission epoch tells whether the GPU got work since a fence was recorded. If it got none, that fence also
 * covers memory that is freed now, and no other fence is needed. For this, the pool's user must report every
 * submission of every thread. A GPU wait counts as work: it may wait for another context, which the fence does not
 * cover and the driver's own free would have waited for.
 *
 * The word holds the epoch. Its lowest bit shows whether a recording thread has looked at the epoch since it began. A
 * submitting thread ends the epoch only if that bit is set. So the cache line is written once between two fences,
 * however much is submitted.
 *
 * The GPU can run the work, and signal another thread about it, before the driver's call returns to the submitting
 * thread. So the epoch must end before the call. A fence recorded between the end of the epoch and the submission
 * does not cover the work. Therefore the submitting thread stays visible in a lane for as long as the call takes:
 *
 *     submitting thread:  enter the lane; end the epoch if its bit is set; call the driver; leave the lane
 *     recording thread:   set the epoch's bit; check all lanes; record; its fence is valid if all were empty
 *
 * The recording thread finds the submitting thread's lane in one of three states:
 *
 *   - Entered: the fence is valid for no epoch.
 *   - Empty because the call is over: the record covers the work.
 *   - Empty because the thread will enter later: that thread finds the bit set and ends the epoch before it submits.
 *
 * This holds only in one total order of all these accesses, so they are sequentially consistent. The recording thread
 * never waits for a submitting thread: a submission may block for as long as the launch queue is full.
 *
 * The gate keeps submissions out while memory is asleep (pool/vmm/sleep.h). A submission looks at it only if the word's
 * lowest bit is set, that is if a thread has looked at the epoch.
 *
 *     submitting thread:  enter the lane; if the bit is set, look at the gate: closed: leave the lane and wait;
 *                         open: end the epoch; call the driver; leave the lane
 *     closing thread:     close the gate; set the bit; check all lanes; read the word again
 *
 * The closing thread repeats the last three steps until all lanes were empty and the word has not changed. Then no
 * submission is under way and none can begin:
 *
 *   - Only a submitting thread that found the gate open clears the bit. It entered its lane before the gate was closed
 *     and leaves it after it has cleared the bit. If it did so after the closing thread had checked its lane, the lane
 *     was not empty. If it did so before, the word has another epoch when it is read again, even if a recording thread
 *     has set the bit anew.
 *   - So the bit stays set from before the lanes are checked. A thread that enters its lane after the check finds it
 *     set, and the gate closed.
 *
 * A call that makes the driver examine memory without submitting work is a visit. Visits are rare, so they look at the
 * gate itself, and they end no epoch.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base.h"

/* Each lane has its own cache line. Threads beyond this number share lanes. */
enum { GP_SUBMISSION_LANES = 32 };

struct gp_submission_lane {
	_Atomic unsigned n_submitting;
	char apart[GP_LINES_APART - sizeof(_Atomic unsigned)];
};

struct gp_submissions {
	_Atomic uint64_t word;
	_Atomic unsigned n_threads; /* threads that got a lane so far */
	_Atomic bool is_closed;     /* the gate: no submission or visit may begin */
	char apart[GP_LINES_APART];
	struct gp_submission_lane lanes[GP_SUBMISSION_LANES];
	_Atomic unsigned n_visits; /* visits under way */
};

#define GP_SUBMISSION_UNSEEN UINT64_MAX /* permanent: submissions may go unreported */

enum { GP_SUBMISSION_NO_EPOCH = 0 };

#define GP_SUBMISSION_INIT ((struct gp_submissions){.word = 1 << 1}) /* the first epoch, before anything is submitted */

/*
 * Reports a submission: ends the epoch if a recording thread has looked at it. If the exchange fails, another thread
 * has ended the epoch. Returns false, without effect, if the gate is closed.
 */
static inline bool gp_submission_note(struct gp_submissions *work)
{
	uint64_t word = atomic_load(&work->word);

	if (gp_likely(!(word & 1)))
		return true;
	if (gp_unlikely(atomic_load(&work->is_closed)))
		return false;
	if (word != GP_SUBMISSION_UNSEEN)
		(void)atomic_compare_exchange_strong(&work->word, &word, ((word >> 1) + 1) << 1);
	return true;
}

/* Returns a lane for a thread that submits for the first time. */
static inline struct gp_submission_lane *gp_submission_lane(struct gp_submissions *work)
{
	return &work->lanes[atomic_fetch_add(&work->n_threads, 1) % GP_SUBMISSION_LANES];
}

/*
 * Must precede the driver's call that submits. Calls of one thread may nest. Returns false if the gate is closed: then
 * the thread must leave the lane, and wait, and try again.
 */
static inline bool gp_submission_enter(struct gp_submissions *work, struct gp_submission_lane *lane)
{
	(void)atomic_fetch_add(&lane->n_submitting, 1);
	return gp_submission_note(work);
}

/*
 * Must follow that call. A thread that never gets here, because it was cancelled inside the driver, costs only fences.
 */
static inline void gp_submission_leave(struct gp_submission_lane *lane)
{
	(void)atomic_fetch_sub_explicit(&lane->n_submitting, 1, memory_order_release);
}

/* From now on submissions may go unreported. */
static inline void gp_submission_lose_sight(struct gp_submissions *work)
{
	atomic_store(&work->word, GP_SUBMISSION_UNSEEN);
}

/* True if no thread has reported a submission yet. */
static inline bool gp_submission_is_none(struct gp_submissions *work)
{
	return atomic_load(&work->n_threads) == 0;
}

static inline bool gp_submission_is_any_under_way(struct gp_submissions *work)
{
	unsigned n = atomic_load(&work->n_threads);

	for (unsigned i = 0; i < n && i < GP_SUBMISSION_LANES; i++)
		if (atomic_load(&work->lanes[i].n_submitting))
			return true;
	return false;
}

/*
 * Must precede a record. Returns the epoch for which its fence is valid, or GP_SUBMISSION_NO_EPOCH if that is unknown.
 */
static inline uint64_t gp_submission_look(struct gp_submissions *work)
{
	uint64_t word = atomic_load(&work->word);

	if (!(word & 1))
		word = atomic_fetch_or(&work->word, 1);
	return word == GP_SUBMISSION_UNSEEN || gp_submission_is_any_under_way(work) ? GP_SUBMISSION_NO_EPOCH
										    : word >> 1;
}

/* A visit, from before the driver's call until after it. False, and no visit, if the gate is closed. */
static inline bool gp_submission_visit(struct gp_submissions *work)
{
	(void)atomic_fetch_add(&work->n_visits, 1);
	if (gp_likely(!atomic_load(&work->is_closed)))
		return true;
	(void)atomic_fetch_sub(&work->n_visits, 1);
	return false;
}

static inline void gp_submission_end_visit(struct gp_submissions *work)
{
	(void)atomic_fetch_sub_explicit(&work->n_visits, 1, memory_order_release);
}

/* Close and open the gate. One thread at a time may close it. */
static inline void gp_submission_close(struct gp_submissions *work)
{
	atomic_store(&work->is_closed, true);
}

static inline void gp_submission_open(struct gp_submissions *work)
{
	atomic_store(&work->is_closed, false);
}

static inline bool gp_submission_is_closed(struct gp_submissions *work)
{
	return atomic_load(&work->is_closed);
}

/* True if submissions may go unreported. */
static inline bool gp_submission_is_unseen(struct gp_submissions *work)
{
	return atomic_load(&work->word) == GP_SUBMISSION_UNSEEN;
}

/*
 * For the thread that has closed the gate: true if no submission and no visit is under way, and none can begin until
 * the gate is opened. False if some are, or if it has to be asked again.
 */
static inline bool gp_submission_is_quiet(struct gp_submissions *work)
{
	uint64_t word = atomic_fetch_or(&work->word, 1) | 1;

	return !atomic_load(&work->n_visits) && !gp_submission_is_any_under_way(work) && word != GP_SUBMISSION_UNSEEN &&
	       atomic_load(&work->word) == word;
}

/* Returns the current epoch. */
static inline uint64_t gp_submission_epoch(const struct gp_submissions *work)
{
	return atomic_load_explicit(&work->word, memory_order_acquire) >> 1;
}
