/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Fragmentation at the moment when a pool has taken the most memory from the driver: free memory between blocks that
 * the program holds, which can neither serve a larger request nor go back. The blocks beside it are grouped by the
 * call site of their allocations or, in a recording without stacks, by their thread and size.
 */

#include "replay_run.h"

enum { REPLAY_FRAGMENTS_MAX = 8 };

struct replay_fragment {
	uint32_t stack;     /* number in replay_stacks_of(file); 0: unknown */
	uint32_t thread;    /* with a stack, of one of the blocks */
	uint64_t bytes;     /* of each block, as requested; with a stack, of one of them */
	uint64_t all_bytes; /* of all blocks, as requested */
	uint64_t n_blocks;
	uint64_t beside_bytes; /* free memory beside these blocks, shared with the blocks on its other side */
};

struct replay_fragments {
	uint64_t live_bytes, taken_bytes, unused_bytes, largest_unused_bytes; /* of the pools of device memory */
	uint64_t beside_bytes; /* free memory in segments with blocks that the program holds */
	size_t n, n_groups;    /* groups that are listed, and all */
	struct replay_fragment list[REPLAY_FRAGMENTS_MAX];
};

/*
 * Replays up to the peak of an earlier replay with the same settings. Returns 0, or -1 with the reason in error.
 */
int replay_fragments_find(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_result *earlier, struct replay_progress *progress, struct replay_fragments *ret_fragments,
	char error[static REPLAY_ERROR_MAX]);

/* The call stack of each group as one line, "Grid::grow (grid.cpp:212) < main (main.cpp:7)"; NULL without one. */
struct replay_fragment_sites {
	char *list[REPLAY_FRAGMENTS_MAX];
};

/* Makes the lines. The file must have been read to its end. is_full: names are not shortened. The caller frees them. */
void replay_fragments_name(struct replay_fragment_sites *ret_sites, const struct replay_fragments *fragments,
	const struct replay_file *file, const struct replay_contents *contents, bool is_full);
void replay_fragments_free_names(struct replay_fragment_sites *sites);
