/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Somebody else first: slow work of a context still writes to a block that is freed, and the first to touch the next
 * owner's memory is not later work of that context, which an order on the GPU would hold back.
 */

#include "place.h"

enum { FIRST_TOUCHED = 64 << 10 }; /* bytes of each block that are written */
#define FIRST_QUICK_NS 300000ull
#define FIRST_LONG_NS  2500000000ull /* longer than it takes a real GPU to make a context, or to open memory */

struct first {
	struct place *place; /* that owns the memory */
	CUstream slow;
	CUevent done; /* the slow work */
	unsigned n_early; /* blocks that had a new owner while it still wrote to them */
	unsigned n_reused;
};

void first_init(struct first *first, struct place *place);

/* Before the start: there will be long work, and on the simulated GPU a question shall take a good part of it. */
void first_expect_long(void);

/* Work that writes to a block for so long, its free, and a new block of the same size. */
CUdeviceptr first_take_over(struct first *first, size_t bytes, uint64_t ns);

/* What the rest comes to: words that are wrong, and blocks that were handed out too early. */
void first_say(const struct first *first, size_t wrong);
