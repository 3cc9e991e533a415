/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Writes the parts of a PyTorch memory snapshot. */

#include "tools/answer/stat_sites.h"
#include "convert_pickle.h"

enum snapshot_state { SNAPSHOT_USED, SNAPSHOT_PENDING };

struct snapshot_block {
	uint64_t addr, bytes, requested_bytes;
	enum snapshot_state state;
	const struct stat_site *site; /* NULL: unknown */
};

/* A segment. Its blocks are sorted by address, do not overlap and end within it; the memory between them is free. */
struct snapshot_segment {
	uint64_t addr, bytes;
	unsigned device;
	struct snapshot_block *blocks;
	size_t n_blocks;
};

/*
 * The caller writes in this order: snapshot_begin(), a list of segments, snapshot_traces(), a list that has a list of
 * events for each device, snapshot_end().
 */
void snapshot_begin(struct pickle *pickle, FILE *out);
void snapshot_traces(struct pickle *pickle);
void snapshot_end(struct pickle *pickle);

void snapshot_put_segment(struct pickle *pickle, const struct snapshot_segment *segment);

/* Writes the frames of a site, or without a site one frame "no stack" with the thread's number as its line. */
void snapshot_put_frames(struct pickle *pickle, const struct stat_site *site, uint64_t thread);
