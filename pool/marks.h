/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * How a loop is told from a program that finds its size. To hold less memory a pool moves it, or gives some back before
 * it takes more; that costs driver calls, and in a loop each round would do so again. So it is noted for which requests
 * that was done: of what size, and when about how much was used. For one that comes again the pool grows instead, so
 * that later rounds find all there is. Rounds that differ a little are known by the number of notes alone. All is
 * forgotten once more is used than then, by a share: that is no loop.
 */

#include "base.h"

enum { GP_MARKS_LOG2 = 8 };

struct gp_marks {
	uint64_t level; /* bytes: the most that was used when they were begun anew */
	unsigned count; /* of notes since */
	uint64_t notes[1 << GP_MARKS_LOG2]; /* what for; one may take the place of another */
};

/* Before anything is done with so many bytes in use. */
void gp_marks_begin(struct gp_marks *marks, uint64_t used_bytes);

/* Something is done for a request of that size. */
void gp_marks_note(struct gp_marks *marks, uint64_t size, uint64_t used_bytes);

/* Whether it has been done for such a request. */
bool gp_marks_is_known(const struct gp_marks *marks, uint64_t size, uint64_t used_bytes);

/* How much more often it has been done, for whatever requests, than by a program that finds its size. */
unsigned gp_marks_excess(const struct gp_marks *marks);
