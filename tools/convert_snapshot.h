/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The parts of a memory snapshot of PyTorch. */

#include "convert_pickle.h"
#include "stat_sites.h"

enum snapshot_state { SNAPSHOT_USED, SNAPSHOT_PENDING };

struct snapshot_block {
	uint64_t addr, bytes, requested_bytes;
	enum snapshot_state state;
	const struct stat_site *site; /* NULL: unknown */
};

/* A segment, with its blocks by address, none beyond another or its end. What is between them is free. */
struct snapshot_segment {
	uint64_t addr, bytes;
	unsigned device;
	struct snapshot_block *blocks;
	size_t n_blocks;
};

/* Then follows a list of segments, then snapshot_traces(), then a list of lists of events, then the end. */
void snapshot_begin(struct pickle *pickle, FILE *out);
void snapshot_traces(struct pickle *pickle);
void snapshot_end(struct pickle *pickle);

void snapshot_put_segment(struct pickle *pickle, const struct snapshot_segment *segment);

/* The frames of a site; without one, a frame that tells so, and the thread. */
void snapshot_put_frames(struct pickle *pickle, const struct stat_site *site, uint64_t thread);
