/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Runs several replays of one file at the same time, each in a process of its own, and as many at a time as there are
 * processors. Few events are replayed in this process instead, one job after the other. Shows the progress.
 */

#include "replay_survey.h"

/* Counts the events that a job has replayed. */
struct replay_progress {
	int fd; /* to the process that shows the progress; -1: this process shows it */
	uint64_t n_done, n_all;
};

void replay_progress_add(struct replay_progress *progress, uint64_t n_events);

/*
 * A job. It writes its result, of result_bytes, to ret_result, which is all zeros before; the result must not contain
 * pointers. Returns 0, or -1 with the reason in error.
 */
typedef int (*replay_job_fn)(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress,
	void *ret_result, char error[static REPLAY_ERROR_MAX]);

struct replay_jobs {
	const char *path;                       /* of the file, which every process opens anew */
	const struct replay_contents *contents; /* of the file */
	replay_job_fn run;
	void *arg;
	size_t n, result_bytes;
	void *results;     /* n * result_bytes */
	uint64_t n_events; /* that all jobs together are expected to replay */
};

/* Runs the jobs 0 to n - 1. Returns 0, or -1 with the reason in error. */
int replay_jobs_run(const struct replay_jobs *jobs, char error[static REPLAY_ERROR_MAX]);
