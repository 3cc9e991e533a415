/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The thrash detector: tells a steady loop from a program that is still growing. To hold less memory, a pool moves
 * memory, or gives some back before it takes more. That costs driver calls, and a loop would pay them in every
 * iteration. So the pool notes each request for which it did so: the size, and roughly how much was used at that time.
 *
 *   - If the request comes again, the pool grows instead, so that later iterations find enough memory.
 *   - Iterations that differ a little are recognised by the number of notes alone.
 *   - All notes are dropped once more is used than before, by a share: such a program is still growing.
 */

#include "base.h"

enum { GP_THRASH_LOG2 = 8 };

struct gp_thrash {
	uint64_t level;                      /* the most bytes used when the notes were last dropped */
	unsigned count;                      /* notes since then */
	uint64_t notes[1 << GP_THRASH_LOG2]; /* hashes of the requests; a later one may overwrite an earlier one */
};

/* Must precede any use of the notes. used_bytes includes the request. */
void gp_thrash_begin(struct gp_thrash *thrash, uint64_t used_bytes);

/* Notes that memory was moved or given back for a request of that size. */
void gp_thrash_note(struct gp_thrash *thrash, uint64_t size, uint64_t used_bytes);

/* True if memory was moved or given back for such a request before, when as much was used. */
bool gp_thrash_is_known(const struct gp_thrash *thrash, uint64_t size, uint64_t used_bytes);

/* Returns by how much the number of notes exceeds what a growing program needs. */
unsigned gp_thrash_excess(const struct gp_thrash *thrash);
