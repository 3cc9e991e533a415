/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Sleep: the memory of a pool of the kind vmm goes back to the driver, and its content to host memory, while the
 * addresses stay reserved. Awake again, each chunk is mapped where it was.
 *
 * The caller has made sure that the GPU is idle and that nothing can be submitted until the pool is awake
 * (submission.h). It calls, for each pool:
 *
 *     to sleep:  enter; survey; take host memory; move out; leave
 *     to wake:   enter; take device memory; move in; leave
 *
 * Between enter and leave no other thread maps, unmaps or pins memory of the pool: a thread that has to grow the pool
 * waits, and any other thread skips the step. While the pool is asleep its chunks stay in the list and in the granules
 * that they cover, so blocks can be freed, merged and even handed out: a thread that uses a block has to submit work,
 * which wakes the pool. A chunk that is asleep is not moved and not given back. Its bytes stay in the total and in the
 * budget, since they are needed again. A pool that is asleep does not grow (GP_E_ASLEEP).
 *
 * No function takes device memory for some chunks only and returns: two processes that wake at the same time would each
 * hold what the other one waits for.
 */

#include "pool/pool.h"

struct gp_sleep_bytes {
	uint64_t device_bytes;  /* of chunks that go, or are asleep */
	uint64_t taken_bytes;   /* of chunks that are asleep, and have device memory again: the wake goes on */
	uint64_t dropped_bytes; /* of those chunks whose content is dropped */
	uint64_t host_bytes;    /* of the content of the others */
	uint64_t mapped_bytes;  /* of the host memory for that */
	uint64_t shared_bytes;  /* of chunks that were exported, or whose region was invalidated: they cannot sleep */
	uint64_t stuck_bytes;   /* of chunks that the driver refused to unmap: likewise */
};

/*
 * Waits at most max_ns until no thread maps or unmaps. 0; -EAGAIN if the time is up, -ENOTSUP if the pool has another
 * kind or its backend cannot copy, or GP_E_DEAD. After 0, gp_pool_sleep_leave must follow.
 */
int gp_pool_sleep_enter(struct gp_pool *pool, uint64_t max_ns);

/* Gives back the host memory of chunks that are not asleep, or not any more. */
void gp_pool_sleep_leave(struct gp_pool *pool);

/*
 * Finds what has to be kept of each chunk. drops: nothing is; the memory is zero when it comes back, also that of
 * spilled chunks, which do not sleep. 0, -ENOMEM if there is no host memory for the list, or GP_E_DEAD.
 */
int gp_pool_sleep_survey(struct gp_pool *pool, bool drops, struct gp_sleep_bytes *ret_bytes);

/*
 * Takes the host memory for that, piece by piece, and may start to copy. 0, -ENOMEM, or the driver's error: then
 * gp_pool_sleep_leave gives it back. must_stop, unless NULL, is asked before each piece; -ECANCELED once it returns
 * true.
 */
int gp_pool_sleep_take_host(struct gp_pool *pool, bool (*must_stop)(void *arg), void *arg);

/*
 * Moves chunk by chunk. 0, or an error: then some chunks may be asleep. must_stop, unless NULL, is asked before each
 * chunk; -ECANCELED once it returns true.
 */
int gp_pool_sleep_move_out(struct gp_pool *pool, bool (*must_stop)(void *arg), void *arg);

/*
 * Takes device memory for all chunks that are asleep, or for none. 0, -ENOMEM, GP_E_DEAD or the driver's error.
 */
int gp_pool_sleep_take_device(struct gp_pool *pool);

/*
 * Takes at most these bytes of device memory for chunks that are asleep, maps them, and starts to copy their content.
 * *ret_is_all: no chunk that is asleep lacks memory. *ret_taken is added to. 0 also if the driver has no more memory;
 * GP_E_DEAD or the driver's error. gp_pool_sleep_move_in does the rest, or gp_pool_sleep_return_device undoes it.
 */
int gp_pool_sleep_take_some(struct gp_pool *pool, uint64_t most, uint64_t *ret_taken, bool *ret_is_all);

/* Gives back the device memory that was taken for chunks that are still asleep. */
void gp_pool_sleep_return_device(struct gp_pool *pool);

/*
 * Maps all chunks that are asleep, and copies their content in. When it returns 0, the copies are complete and nothing
 * is asleep. -ENOMEM, GP_E_DEAD, or the driver's error: then all of them are asleep, and the caller has to give back
 * their memory.
 */
int gp_pool_sleep_move_in(struct gp_pool *pool);

/*
 * Unpins a piece of the host memory of a pool that is asleep. The driver has tables for pinned memory in the device's
 * memory, 2 MiB for each GiB. False if no piece is pinned. gp_pool_sleep_move_in pins it again.
 */
bool gp_pool_sleep_unpin(struct gp_pool *pool);

/* Returns an address in the pool's mapped device memory, or 0. Between enter and leave. */
uint64_t gp_pool_sleep_address(struct gp_pool *pool);

/*
 * Asks for device memory: with is_for_all the driver's own pools and other processes for what they have cached, and in
 * any case idle processes to sleep in turn. Returns true if any of them is on its way.
 */
bool gp_pool_sleep_ask(struct gp_pool *pool, uint64_t bytes, bool is_for_all);

/* Returns what is asleep. Other kinds have nothing asleep. */
struct gp_sleep_bytes gp_pool_asleep(struct gp_pool *pool);
