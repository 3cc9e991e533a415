/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The content of a chunk that is asleep, or about to be (sleep.h). */

#include "pool/pool.h"

struct gp_chunk;

/* The parts of a chunk that are not free, one after another in host memory. */
struct gp_saved {
	void *host;     /* NULL: none was taken yet, or no byte is kept */
	uint64_t size;  /* of the host memory */
	uint64_t bytes; /* that are kept */
	unsigned n;
	struct {
		uint64_t offset, bytes; /* in the chunk */
	} parts[];
};

/* Frees the content of a chunk, if it has any. */
void gp_saved_forget(struct gp_pool *pool, struct gp_chunk *chunk);
