/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Turns a recording into a history of memory: a sequence of segments taken from the driver and blocks handed to the
 * program, with the totals after each change.
 *
 * The changes are consistent, even if the file is not:
 * - A segment or block that ends was there before.
 * - A new block lies in a segment.
 * - A block or segment at the addresses of a new one ends before it.
 *
 * A block outside every segment gets a segment for itself. All blocks of a trace are like this, since it does not know
 * the driver, and all blocks of vmm pools, which map physical chunks to addresses that the driver did not choose.
 */

#include "replay_map.h"
#include "replay_read.h"

enum { HISTORY_DEVICES_MAX = 64, HISTORY_PINNED = HISTORY_DEVICES_MAX, HISTORY_MEMORIES_MAX };

enum history_kind {
	HISTORY_SEGMENT_NEW,
	HISTORY_SEGMENT_RELEASED,
	HISTORY_BLOCK_NEW,
	HISTORY_BLOCK_FREED,
	HISTORY_REFUSED, /* an allocation of the program failed */
	HISTORY_DENIED,  /* the driver refused a request of the pool */
	HISTORY_LIMIT,   /* the limit has changed */
};

struct history_event {
	enum history_kind kind;
	uint64_t position, ns;
	uint32_t thread;
	uint32_t stack;  /* of the allocation of a block, or of one that failed; 0: unknown */
	unsigned memory; /* number of a device, or HISTORY_PINNED */
	uint64_t addr;   /* 0: physical memory without an address, or a failure */
	uint64_t bytes, requested_bytes;
	uint64_t stream; /* number of the stream in whose order a block is allocated or freed; 0: of none */
	bool is_own;     /* a segment made for one block; the driver did not allocate it */
};

struct history_memory {
	bool is_used; /* there is or was a pool of it */
	uint64_t used_bytes, total_bytes;
	uint64_t n_blocks, n_segments;
	uint64_t capacity_bytes;
	uint64_t limit_bytes;                     /* UINT64_MAX: none */
	uint64_t unpooled_bytes;                  /* counts against the limit without being pooled */
	uint64_t n_driver_allocs, n_driver_frees; /* calls that took memory from the driver, and returned it */
};

/* Segments do not overlap. */
struct history_segment {
	uint64_t addr, bytes;
	uint64_t n_blocks; /* blocks that begin in it */
	uint32_t pool;
	bool is_own;
};

struct history_pool {
	unsigned memory;
	bool has_addresses; /* its driver allocations have addresses, and its blocks lie in them; false for vmm */
};

struct history {
	struct history_memory memories[HISTORY_MEMORIES_MAX];
	struct replay_map segments; /* by address; addr: number of blocks that begin in it */
	struct replay_map blocks;   /* by address; bytes: rounded size, addr: requested size */
	struct replay_map handles;  /* driver allocations without an address, by handle */
	struct history_pool *pools;
	uint32_t n_pools;
	uint64_t pid, start_s; /* 0: unknown */
	bool is_text;

	/* Called after each change. */
	void (*on_change)(void *arg, const struct history *history, const struct history_event *event);
	void *arg;
};

/*
 * Reads a file from its beginning, and calls on_change for each change. The caller sets on_change and arg, and zeroes
 * the rest. Returns 0, or -1 with the reason in error.
 */
int history_run(
	struct history *history, struct replay_file *file, uint64_t n_events, char error[static REPLAY_ERROR_MAX]);
void history_deinit(struct history *history);

/* Finds the segment that an address is in. False if there is none. */
bool history_find(const struct history *history, uint64_t addr, struct history_segment *ret_segment);

/* Replaces *segment by the next one by address, or by the first if its bytes are 0. False after the last. */
bool history_next(const struct history *history, struct history_segment *segment);

struct history_block {
	uint64_t addr, bytes, requested_bytes;
	uint32_t pool;
};

/*
 * Returns the number of blocks, and in *ret_blocks an array of them, sorted by address, which the caller frees. A block
 * that would overlap the next one or leave its segment is cut off there.
 */
size_t history_blocks(const struct history *history, struct history_block **ret_blocks);
