/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A recording as a history of memory: what is taken from the driver and handed to the program, one change after
 * another, and how much of it there is at each.
 *
 * Whatever the file says, each change fits those before it: a segment or a block that goes was there, a block that
 * comes lies in a segment, and where another was at its address, that went before. A block outside every segment, as
 * all are in a text, whose driver is unknown, or in pools that map pieces of memory to addresses of their own, is given
 * a segment of its own.
 */

#include "replay_map.h"
#include "replay_read.h"

enum { HISTORY_DEVICES_MAX = 64, HISTORY_PINNED = HISTORY_DEVICES_MAX, HISTORY_MEMORIES_MAX };

enum history_kind {
	HISTORY_SEGMENT_NEW,
	HISTORY_SEGMENT_GONE,
	HISTORY_BLOCK_NEW,
	HISTORY_BLOCK_GONE,
	HISTORY_REFUSED, /* an allocation of the program failed */
	HISTORY_DENIED,	 /* the driver had none */
};

struct history_event {
	enum history_kind kind;
	uint64_t position, ns;
	uint32_t thread;
	unsigned memory; /* number of a device, or HISTORY_PINNED */
	uint64_t addr;	 /* 0: of memory that is not at an address of its own */
	uint64_t bytes, requested_bytes;
	bool is_own; /* a segment for one block: not what the driver gave */
};

struct history_memory {
	bool is_used; /* there is a pool of it */
	uint64_t used_bytes, reserved_bytes;
	uint64_t n_blocks, n_segments;
	uint64_t capacity_bytes;
};

/* Segments do not overlap. */
struct history_segment {
	uint64_t addr, bytes;
	uint64_t n_blocks; /* that begin in it */
	uint32_t pool;
	bool is_own;
};

struct history_pool {
	unsigned memory;
	bool has_places; /* its driver allocations are where its blocks are */
};

struct history {
	struct history_memory memories[HISTORY_MEMORIES_MAX];
	struct replay_map segments; /* by address; addr: how many blocks begin in it */
	struct replay_map blocks;   /* by address: rounded bytes; in addr those asked for */
	struct replay_map handles; /* of driver allocations without a place */
	struct history_pool *pools;
	uint32_t n_pools;
	uint64_t pid, start_s; /* 0: unknown */
	bool is_text;

	/* Called after each change. */
	void (*take)(void *arg, const struct history *history, const struct history_event *event);
	void *arg;
};

/* Walks a file from its beginning. take and arg are set, and nothing else. 0, or -1 and why. */
int history_run(struct history *history, struct replay_file *file, uint64_t n_events,
	char error[static REPLAY_ERROR_MAX]);
void history_deinit(struct history *history);

/* The segment that an address is in. False if there is none. */
bool history_find(const struct history *history, uint64_t addr, struct history_segment *ret_segment);

/* The next segment by address after *segment, or the first if its bytes are 0. False after the last. */
bool history_next(const struct history *history, struct history_segment *segment);

struct history_block {
	uint64_t addr, bytes, requested_bytes;
	uint32_t pool;
};

/* All blocks by address, to be freed; their number. Cut where they would overlap or leave their segment. */
size_t history_blocks(const struct history *history, struct history_block **ret_blocks);
