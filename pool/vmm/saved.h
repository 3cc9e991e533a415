/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The content of chunks that are asleep, or about to be (sleep.h), and the host memory that has it. */

#include "pool/pool.h"

struct gp_chunk;
struct gp_vm;

/*
 * The parts of a chunk that are not free. In the pool's host memory they lie one after another, and so do the contents
 * of the chunks.
 */
struct gp_saved {
	uint64_t at;     /* of the first part, in the pool's host memory */
	uint64_t bytes;  /* that are kept */
	uint64_t name;   /* of the chunk in a recording */
	bool is_dropped; /* nothing is kept: the memory is zero when it comes back */
	bool is_filling; /* the chunk is asleep and mapped, and the copies into it have been started */
	unsigned n;
	struct {
		uint64_t offset, bytes; /* in the chunk */
	} parts[];
};

/*
 * The host memory of a pool: pieces of struct gp_sleep_ops.piece_bytes, the last of which may be smaller. The driver
 * refuses a copy across two pieces.
 */
struct gp_saved_pieces {
	struct gp_saved_piece {
		void *host;
		uint64_t bytes;
		bool is_pinned;
	} * pieces;
	unsigned n;
	uint64_t copied;    /* up to here the copies out have been started, in this sleep */
	bool are_under_way; /* some copies out have been started and not been awaited */
};

/*
 * Takes a further piece of at least these bytes. 0, -ENOMEM, or the driver's error. next_bytes, *ret_is_new: see
 * backend.h.
 */
int gp_saved_take_piece(struct gp_pool *pool, uint64_t bytes, uint64_t next_bytes, bool *ret_is_new);

/* Pins the piece, if the driver allows it. */
void gp_saved_pin(struct gp_pool *pool, struct gp_saved_piece *piece);

/* Unpins the last piece that is pinned. False if there is none. */
bool gp_saved_unpin(struct gp_pool *pool);

/* Frees the list of what is kept of a chunk, if it has any. */
void gp_saved_forget(struct gp_chunk *chunk);

/* Gives back all pieces. No chunk is asleep. */
void gp_saved_give_back(struct gp_pool *pool);
