/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A snapshot of the live blocks: a private list of each block that the program holds at one moment. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_holding_kind {
	GP_HOLDING_DEVICE,
	GP_HOLDING_PINNED,
	GP_HOLDING_UNPOOLED, /* driver memory that is counted and passed through */
};

struct gp_holding {
	uint64_t key;       /* the key of its allocation record (trace/alloc_info.h); for a block its address */
	uint64_t bytes;     /* taken from the pool or the driver */
	uint64_t requested; /* by the program */
	int device;
	uint32_t module; /* the calling module (trace/module.h) */
	enum gp_holding_kind kind;
};

struct gp_live_blocks {
	struct gp_holding *list;
	size_t n, room;
	uint64_t n_all, bytes; /* including holdings that do not fit into the list */
	size_t mapped_bytes;
	int device;                /* only while the list is filled: the device of the current context */
	enum gp_holding_kind kind; /* likewise: the kind of the current pool's memory */
};

/*
 * Takes a snapshot of everything that the program holds. No lock may be held. Returns false without host memory.
 */
bool gp_live_blocks_take(struct gp_live_blocks *live);
void gp_live_blocks_free(struct gp_live_blocks *live);
