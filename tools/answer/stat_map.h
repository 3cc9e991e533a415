/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The segments and blocks in an answer to "map". */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stat_look.h"

struct stat_segment {
	uint64_t address;
	uint64_t size_bytes, used_bytes, requested_bytes, cached_bytes, pending_bytes;
	uint64_t n_used;
	const json_t *blocks; /* points into the answer */
	size_t pool;
};

struct stat_map_pool {
	int64_t device;     /* -1: pinned memory */
	const char *region; /* points into the answer; "": none */
	bool is_streamed;   /* for allocations in stream order */
	size_t first, n;    /* segments, the largest first */
	uint64_t n_segments, largest_cached_bytes, largest_unused_bytes;
	struct stat_segment sum; /* of the listed segments */
};

struct stat_map {
	const json_t *reply;
	struct stat_segment *segments;
	size_t n_segments;
	struct stat_map_pool *pools;
	size_t n_pools;
	bool is_truncated;
};

/* Reads an answer, which must outlive the map. */
void stat_map_make(struct stat_map *map, const json_t *reply);
void stat_map_free(struct stat_map *map);

/*
 * Writes the memory that a pool is of: "pinned memory", "device 0", "device 0, in stream order, region forward". The
 * name is clean.
 */
enum { STAT_MAP_NAME_MAX = 128 };
void stat_map_name(char name[static STAT_MAP_NAME_MAX], const struct stat_map_pool *pool);

/* Reads a block of a segment. Returns false if it is not valid. */
struct stat_map_block {
	uint64_t offset, bytes, requested;
	enum stat_part part; /* used, cached or pending */
	int64_t site;        /* in "sites" of the answer; -1: unknown */
};
bool stat_map_block(const json_t *block, uint64_t offset, struct stat_map_block *ret);

/* Returns the size of a cell, a power of two, such that no segment has more than cells_max cells. */
uint64_t stat_map_cell_bytes(const struct stat_map *map, size_t cells_max);

struct stat_cell {
	enum stat_part part;
	unsigned level; /* of a used cell: eighths, at least one */
};

/* Fills in the cells of a segment, at most n. Returns their number. */
size_t stat_map_cells(const struct stat_segment *segment, uint64_t cell_bytes, struct stat_cell *cells, size_t n);

/* Returns the character of a cell, one column wide. */
const char *stat_map_cell_glyph(struct stat_look look, const struct stat_cell *cell);
