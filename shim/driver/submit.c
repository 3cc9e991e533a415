/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "submit.h"

#include <errno.h>

struct gp_submissions gp_submitted = GP_SUBMISSION_INIT;
_Atomic unsigned gp_submit_reasons = GP_SUBMIT_SERIAL;
_Thread_local struct gp_submission_lane *gp_submit_lane __attribute__((tls_model("initial-exec")));

static bool (*on_closed)(void); /* set before there is a context */

void gp_submit_on_closed(bool (*fn)(void))
{
	on_closed = fn;
}

/* Returns false if this thread has closed the gate, and may pass. Keeps errno, as hooks that submit work do not. */
static bool await(void)
{
	int saved_errno = errno;
	bool was_closed = on_closed && on_closed();

	errno = saved_errno;
	return was_closed;
}

void gp_submit_await_slow(void)
{
	(void)await();
}

struct gp_submission_lane *gp_submit_begin_again(void)
{
	struct gp_submission_lane *lane = NULL;

	while (!lane && await())
		lane = gp_submit_try();
	if (lane)
		return lane;
	/* The thread that has closed the gate may pass it. */
	(void)gp_submission_enter(&gp_submitted, gp_submit_lane);
	return gp_submit_lane;
}

void gp_submit_visit_again(void)
{
	while (await())
		if (gp_submission_visit(&gp_submitted))
			return;
	(void)atomic_fetch_add(&gp_submitted.n_visits, 1);
}
