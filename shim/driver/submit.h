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
};

extern _Atomic unsigned gp_submit_reasons;

static inline bool gp_submit_is_stream_of_interest(void)
{
	return atomic_load_explicit(&gp_submit_reasons, memory_order_acquire) != 0;
}

/* Called before and after a driver call that submits work. */
static inline struct gp_submission_lane *gp_submit_begin(void)
{
	struct gp_submission_lane *lane = gp_submit_lane;

	if (gp_unlikely(!lane))
		gp_submit_lane = lane = gp_submission_lane(&gp_submitted);
	gp_submission_enter(&gp_submitted, lane);
	return lane;
}

static inline void gp_submit_end(struct gp_submission_lane *lane)
{
	gp_submission_leave(lane);
}
