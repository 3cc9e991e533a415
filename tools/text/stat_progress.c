/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { WORTH_SHOWING = 500000, STEPS = 100 };

static uint64_t next_step;
static bool is_shown;

void stat_progress(uint64_t done, uint64_t all)
{
	uint64_t step;

	if (all < WORTH_SHOWING || done < next_step)
		return;
	step = all / STEPS;
	next_step = done + step;
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\rgpupool-stat: %2d%%", done < all ? (int)(done / step) % STEPS : STEPS);
	fflush(stderr);
	is_shown = true;
}

void stat_progress_end(void)
{
	if (is_shown)
		fprintf(stderr, "\r%20s\r", "");
	is_shown = false;
	next_step = 0;
}
