/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_watch.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

/* Waits until the next round. Times that are already past are skipped, so that late rounds do not pile up. */
static void wait_until_next(struct timespec *next, int ms)
{
	struct timespec now;

	next->tv_nsec += ms % 1000 * 1000000L;
	next->tv_sec += ms / 1000 + next->tv_nsec / 1000000000;
	next->tv_nsec %= 1000000000;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec > next->tv_sec || (now.tv_sec == next->tv_sec && now.tv_nsec > next->tv_nsec))
		*next = now;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL) == EINTR)
		;
}

static bool is_over(const struct stat_survey *survey, const struct stat_options *options, uint64_t n)
{
	return !options->watch_ms || n == options->count || ferror(stdout) || (options->n_pids && !survey->n_processes);
}

enum stat_exit stat_watch(const struct stat_question *question, const struct stat_options *options,
	enum stat_exit (*show)(void *arg, struct stat_survey *survey), void *arg)
{
	struct stat_survey survey = {0};
	struct timespec next;
	enum stat_exit result;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (uint64_t n = 1;; n++) {
		if (options->watch_ms)
			stat_survey_again(&survey, question);
		else
			stat_survey_run(&survey, question);
		result = show(arg, &survey);
		fflush(stdout);
		if (is_over(&survey, options, n))
			break;
		wait_until_next(&next, options->watch_ms);
		if (!options->is_json && !options->is_quiet)
			putchar('\n');
	}
	stat_survey_deinit(&survey);
	return result;
}
