/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Calls that make a running pool give back, keep or flush memory. */

#include "pool_alloc.h"

/* As gp_pool_reclaim, until `want` bytes are given back. Enters no rounds and does not wait for GPU work. */
uint64_t gp_pool_trim(struct gp_pool *pool, uint64_t want);

/* Lets nothing stay cached from the next free on, for as long as the backend says that memory is wanted elsewhere. */
void gp_pool_press(struct gp_pool *pool);

/*
 * A defer scope has ended: brings the queue back under its limits. may_wait: true if this may wait as the program's own
 * free, where the driver gives memory back in no other way.
 */
void gp_pool_flush(struct gp_pool *pool, bool may_wait);

/*
 * A capture is about to begin, during which no fence is recorded: records one for the blocks that have none, so that
 * they can be used again during the capture. Does not wait.
 */
void gp_pool_prepare_for_capture(struct gp_pool *pool);

/* Sets the queue's limit in bytes. */
void gp_pool_set_pending_max(struct gp_pool *pool, uint64_t bytes);

/*
 * True if everything that may touch the pool's memory has finished all work so far. Waits as a free of the program may,
 * and a little for work for which a free may not wait. Returns false if a capture forbids to ask.
 */
bool gp_pool_is_idle(struct gp_pool *pool);

/*
 * Gives back all cached memory. Memory that the program holds now goes back, too, once it is freed. Memory that is
 * allocated later is cached as usual. Returns the bytes that go back now.
 */
struct gp_invalidated {
	uint64_t busy_blocks, busy_bytes; /* what the program holds */
};
uint64_t gp_pool_invalidate(struct gp_pool *pool, struct gp_invalidated *ret_invalidated);

/*
 * A grace period for memory that is not the pool's. gp_pool_grace_begin starts it: *ret_seq stands for all work
 * submitted to the context so far. 0; -ENOTSUP if the record of a fence would make the host wait, or the driver's
 * error. The period may begin during a capture; the fence is then recorded later.
 */
int gp_pool_grace_begin(struct gp_pool *pool, uint64_t *ret_seq);

/* True once that work has completed. Does not wait. */
bool gp_pool_grace_is_over(struct gp_pool *pool, uint64_t seq);

/* For a sibling that has run out of memory: waits a little for unfenced blocks. */
void gp_pool_await_unfenced(struct gp_pool *pool);

/* Waits until returning memory has reached the driver. A thread in the rounds of a sibling then tries again. */
void gp_pool_await_returning(struct gp_pool *pool, uint64_t max_ns);

/* The context has a new part, which earlier GPU waits may not hold back: repeats them. */
void gp_pool_gpu_wait_again(struct gp_pool *pool);

/*
 * Enters or leaves serial mode: all work of the context is done in the order in which it came, so the pool and its
 * siblings reuse memory without a GPU wait. Leave it before any work runs out of order: leaving makes such work wait
 * for what was freed, or waits on the host.
 */
void gp_pool_set_serial(struct gp_pool *pool, bool is_serial);

/*
 * Waits on the host for all work of the context so far, as a free may. 0; -EBUSY if a capture forbids it, -EAGAIN if
 * the pool is dead; or the driver's error.
 */
int gp_pool_synchronize(struct gp_pool *pool);

/*
 * Uncounts the last failure: it did not reach the program, because memory was freed and the allocation is tried again.
 */
void gp_pool_uncount_oom(struct gp_pool *pool);

/*
 * Gives back all cached memory and waits briefly until the driver has it, except in the kind none. Returns its bytes.
 */
uint64_t gp_pool_reclaim(struct gp_pool *pool);

/*
 * From now on reuse needs completion: something outside the context may be the first to touch a block. Waits for what
 * was handed out after a GPU wait alone. 0; -EBUSY if a capture forbids the wait, -EAGAIN if the pool is dead, or the
 * driver's error: then a later call waits for it.
 */
int gp_pool_require_completion(struct gp_pool *pool);

/*
 * From now on every new block is a driver allocation of its own, as with the kind binned, so that it can be exported.
 * Blocks that are parts of segments stay so, and their segments go back once they are free. Only the kind split has
 * such blocks.
 */
void gp_pool_set_whole(struct gp_pool *pool);

/* Sets whether work of the context may overlap with other work of it: more than one stream exists. */
void gp_pool_set_overlap(struct gp_pool *pool, bool overlap);

/*
 * Something outside the process may hold the memory from now on: once it is freed, it goes back to the driver instead
 * of to another owner. This affects the whole segment, or with the kind vmm the block. 0 or GP_E_FOREIGN.
 */
int gp_pool_export(struct gp_addrmap *map, uint64_t addr);
