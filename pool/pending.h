/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The deferred-free queue: blocks that the program has freed and the GPU may still use, ordered by fence sequence
 * within each size class. Guarded by the pool's lock.
 *
 * Blocks freed in stream order (GP_BLOCK_STREAM) are unfenced blocks that later work of their stream may use at once.
 * They stand in lists of their own, by a hash of the stream.
 */

#include "block.h"
#include "sizeclass.h"

enum {
	GP_PENDING_BINS = 64,
	GP_PENDING_STREAMS = 16,                    /* queues for blocks freed in stream order */
	GP_PENDING_QUEUES = 2 + GP_PENDING_STREAMS, /* fenced blocks, unfenced ones, and those freed in stream order */
};

struct gp_pending {
	/* All queues but the first: unfenced blocks, usable on completion. A bit is set where the bin is not empty. */
	struct gp_list bins[GP_PENDING_QUEUES][GP_PENDING_BINS];
	uint64_t bitmap[GP_PENDING_QUEUES];
	uint64_t bytes, count;
	uint64_t n_unfenced, n_stream; /* of these blocks, unfenced ones, and of those, blocks freed in stream order */
	uint64_t stream_seq_min;       /* no block freed in stream order has a fence sequence below this */
	uint64_t newest_seq;           /* the largest fence sequence that ever entered */
};

void gp_pending_init(struct gp_pending *p);
void gp_pending_add(struct gp_pending *p, struct gp_block *block);
void gp_pending_remove(struct gp_pending *p, struct gp_block *block);

/*
 * Takes out one usable block: its fence sequence is below `gpu_waited`, or for an unfenced block below `completed`.
 * NULL if there is none.
 */
struct gp_block *gp_pending_take_usable(struct gp_pending *p, uint64_t gpu_waited, uint64_t completed);

/*
 * Returns the block that was freed first among those of min_bytes to max_bytes, or NULL. Never an unfenced block, since
 * no work or thread may be made to wait for that, nor one of a retired segment, which is not handed out again.
 */
struct gp_block *gp_pending_find(struct gp_pending *p, uint64_t min_bytes, uint64_t max_bytes);

/*
 * Returns a block of min_bytes to max_bytes that was freed on the stream, one of the smallest and of those that were
 * freed last. NULL if none is found. Never a block of a segment that is retired or goes back once it is free.
 */
struct gp_block *gp_pending_find_of_stream(
	struct gp_pending *p, uint64_t stream, uint64_t min_bytes, uint64_t max_bytes);

/* Neighbours of which each was freed on the same stream or is cached. */
struct gp_run {
	struct gp_block *first, *last;
};

/* True if the block can be a part of a run of the stream. */
bool gp_pending_is_of_run(const struct gp_block *block, uint64_t stream);

/*
 * Finds a run of at least `bytes` with a block of more than GP_SMALL_MAX that was freed on the stream; runs of small
 * blocks are long. The run has no more blocks than are needed. Never one of a segment that is retired or goes back once
 * it is free.
 */
bool gp_pending_find_run_of_stream(struct gp_pending *p, uint64_t stream, uint64_t bytes, struct gp_run *ret_run);

/*
 * Returns a segment of which the program holds nothing and some is queued, or NULL if none is found. Prefers unfenced
 * blocks to others, and then large ones to small ones.
 */
struct gp_segment *gp_pending_find_unused(struct gp_pending *p);
