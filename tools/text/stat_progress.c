/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SHOWN_AFTER_NS UINT64_C(1000000000)

enum { STEPS = 1000 };

static uint64_t next_step, start_ns;
static int shown = -1; /* percent; -1: nothing is shown */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void stat_progress(uint64_t done, uint64_t all)
{
	int percent;

	if (done < next_step)
		return;
	next_step = done + all / STEPS;
	if (!start_ns)
		start_ns = now_ns();
	percent = all && done < all ? (int)((double)done * 100 / (double)all) : 99;
	if (percent == shown || !isatty(STDERR_FILENO) || now_ns() - start_ns < SHOWN_AFTER_NS)
		return;
	fprintf(stderr, "\rgpupool-stat: %2d%%", percent);
	fflush(stderr);
	shown = percent;
}

void stat_progress_end(void)
{
	if (shown >= 0)
		fprintf(stderr, "\r%20s\r", "");
	shown = -1;
	next_step = start_ns = 0;
}
