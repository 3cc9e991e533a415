/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Slow work of a context still writes to a block that is freed, and the first access to the next owner's memory comes
 * from outside that context. A GPU wait delays only later work of the context, and therefore not this access.
 */

#include "work_context.h"

enum { FIRST_TOUCHED = 64 << 10 }; /* bytes of each block that are written */
#define FIRST_QUICK_NS 300000ull
#define FIRST_LONG_NS  2500000000ull /* longer than it takes a real GPU to make a context, or to open memory */

struct first {
	struct work_context *context; /* owner of the memory */
	CUstream slow;
	CUevent done;     /* recorded after the slow work */
	unsigned n_early; /* blocks that got a new owner while the slow work still wrote to them */
	unsigned n_reused;
};

void first_init(struct first *first, struct work_context *context);

/*
 * Call this before the start of a scenario with long work: it makes each query take 10 ms of the simulated GPU's time,
 * so that a few hundred queries outlast the work.
 */
void first_expect_long(void);

/* Launches work that writes to a block for ns, frees the block, and returns a new block of the same size. */
CUdeviceptr first_reuse_block(struct first *first, size_t bytes, uint64_t ns);

/* Prints the number of wrong words, and of blocks that were handed out too early. */
void first_print(const struct first *first, size_t wrong);
