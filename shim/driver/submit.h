/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The submissions of the process (pool/submission.h). Every hook of submit.def reports its driver call here, from
 * before the call until it has returned.
 */

#include "pool/submission.h"

extern struct gp_submissions gp_submitted;
extern _Thread_local struct gp_submission_lane *gp_submit_lane __attribute__((tls_model("initial-exec")));

/* Reasons to look at the stream of a submission. */
enum {
	GP_SUBMIT_SERIAL = 1,  /* serial mode has not ended in all pools (serial.h) */
	GP_SUBMIT_CAPTURE = 2, /* a stream captures (capture.h) */
	GP_SUBMIT_ORDER = 4,   /* the program allocates or frees in stream order (stream_order.h) */
};

extern _Atomic unsigned gp_submit_reasons;

static inline bool gp_submit_is_stream_of_interest(void)
{
	return atomic_load_explicit(&gp_submit_reasons, memory_order_acquire) != 0;
}

/*
 * The same for a thread in its lane. Either it finds a reason, or the thread that adds the reason afterwards finds the
 * lane entered (gp_submission_is_any_under_way).
 */
static inline bool gp_submit_is_stream_of_interest_now(void)
{
	return atomic_load(&gp_submit_reasons) != 0;
}

/*
 * The gate is closed while the process falls asleep, is asleep or wakes (backend/sleep.h). The function is called by a
 * thread that finds it closed. It returns once the gate has been opened, or returns false if the calling thread has
 * closed it itself.
 */
void gp_submit_on_closed(bool (*fn)(void));

/* Returns once the gate is open, at that moment. */
void gp_submit_await_slow(void);

static inline void gp_submit_await(void)
{
	if (gp_unlikely(gp_submission_is_closed(&gp_submitted)))
		gp_submit_await_slow();
}

/* The same for a visit, which has not begun and which it begins. */
void gp_submit_visit_again(void);

/*
 * Enters the thread's lane. NULL if the gate is closed, or if the stream is of interest and is_for_any. Calls no
 * function outside of this file, so that the compiler need not save the arguments of the hook around it. The compiler
 * would not inline it in 200 hooks by itself, which costs a launch a quarter more of the instructions that gpupool adds
 * (tests/bench/instructions.py).
 */
static inline __attribute__((always_inline)) struct gp_submission_lane *gp_submit_enter(bool is_for_any)
{
	struct gp_submission_lane *lane = gp_submit_lane;

	if (gp_unlikely(!lane))
		gp_submit_lane = lane = gp_submission_lane(&gp_submitted);
	if (gp_likely(
		    gp_submission_enter(&gp_submitted, lane) && !(is_for_any && gp_submit_is_stream_of_interest_now())))
		return lane;
	gp_submission_leave(lane);
	return NULL;
}

static inline __attribute__((always_inline)) struct gp_submission_lane *gp_submit_try(void)
{
	return gp_submit_enter(false);
}

/* For a submission whose stream is not looked at. */
static inline __attribute__((always_inline)) struct gp_submission_lane *gp_submit_try_any(void)
{
	return gp_submit_enter(true);
}

/* Waits for the gate, and enters the lane. */
struct gp_submission_lane *gp_submit_begin_again(void);

/* Called before and after a driver call that submits work. */
static inline struct gp_submission_lane *gp_submit_begin(void)
{
	struct gp_submission_lane *lane = gp_submit_try();

	return gp_likely(lane != NULL) ? lane : gp_submit_begin_again();
}

static inline void gp_submit_end(struct gp_submission_lane *lane)
{
	gp_submission_leave(lane);
}

/* Called before and after a driver call that examines or changes memory without submitting work: a visit. */
static inline void gp_submit_visit(void)
{
	if (gp_unlikely(!gp_submission_visit(&gp_submitted)))
		gp_submit_visit_again();
}

static inline void gp_submit_end_visit(void)
{
	gp_submission_end_visit(&gp_submitted);
}
