/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What lies where, out of an answer to "map". */

#include "stat_look.h"

struct stat_segment {
	uint64_t address;
	uint64_t size_bytes, used_bytes, requested_bytes, cached_bytes, pending_bytes;
	uint64_t n_used;
	const json_t *blocks; /* of the answer */
	size_t pool;
};

struct stat_map_pool {
	int64_t device;	 /* -1: pinned memory */
	const char *region; /* of the answer; "": none */
	size_t first, n; /* segments, the largest first */
	uint64_t n_segments, largest_cached_bytes, largest_free_bytes;
	struct stat_segment sum; /* of those that are listed */
};

struct stat_map {
	const json_t *reply;
	struct stat_segment *segments;
	size_t n_segments;
	struct stat_map_pool *pools;
	size_t n_pools;
	bool is_truncated;
};

/* Refers to the answer. */
void stat_map_make(struct stat_map *map, const json_t *reply);
void stat_map_free(struct stat_map *map);

/* What the pool is of: "pinned memory", "device 0", "device 0, region forward"; clean. */
enum { STAT_MAP_NAME_MAX = 128 };
void stat_map_name(char name[static STAT_MAP_NAME_MAX], const struct stat_map_pool *pool);

/* A block of a segment; false if it is none. */
struct stat_map_block {
	uint64_t offset, bytes, requested;
	enum stat_part part; /* used, cached or pending */
	int64_t site;	     /* in "sites" of the answer; -1: unknown */
};
bool stat_map_block(const json_t *block, uint64_t offset, struct stat_map_block *ret);

/* How large a cell is, so that no segment has more than that many: a power of two. */
uint64_t stat_map_cell_bytes(const struct stat_map *map, size_t cells_max);

struct stat_cell {
	enum stat_part part;
	unsigned level; /* of a cell that is used: in eighths, at least one */
};

/* How many cells a segment has, and those: at most n. */
size_t stat_map_cells(
	const struct stat_segment *segment, uint64_t cell_bytes, struct stat_cell *cells, size_t n);

/* One column. */
const char *stat_map_cell_glyph(struct stat_look look, const struct stat_cell *cell);

/* The screen of one answer. */
void stat_show_map(const struct stat_process *process, const struct stat_options *options);
