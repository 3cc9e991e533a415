/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a running pool can be told to do, or to leave, with what it keeps. */

#include "pool.h"

/* As gp_pool_reclaim, until that many bytes are together. Enters no rounds and waits for no work of the GPU's. */
uint64_t gp_pool_trim(struct gp_pool *pool, uint64_t want);

/*
 * A scope that held flushes back has ended: brings the queue back under its limits. may_wait: as a free of the
 * program's may, where the driver gives back in no other way.
 */
void gp_pool_flush(struct gp_pool *pool, bool may_wait);

/* The queue's limit in bytes from now on. */
void gp_pool_set_pending_max(struct gp_pool *pool, uint64_t bytes);

/* As gp_pool_alloc: a driver allocation of its own, which goes back when it is freed and the GPU is done with it. */
int gp_pool_alloc_uncached(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

/*
 * As gp_pool_free: a block that is a driver allocation of its own goes back when the GPU is done with it; of another,
 * the segment goes back as soon as nothing of it is used.
 */
int gp_pool_free_uncached(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * Whether whoever may touch the pool's memory is done with all work so far. Waits, as a free of the program's may, and
 * a little for what that may not wait for. False also where a capture forbids to ask.
 */
bool gp_pool_is_idle(struct gp_pool *pool);

/*
 * What is cached goes back, and so does, when it is freed, what the program holds: none of it is cached again. What is
 * allocated from then on is. Returns the bytes that go back now.
 */
struct gp_invalidated {
	uint64_t busy_blocks, busy_bytes; /* that the program holds */
};
uint64_t gp_pool_invalidate(struct gp_pool *pool, struct gp_invalidated *ret_invalidated);

/* For a sibling that has run out of memory: waits a little for what a fence of its own free covers not yet. */
void gp_pool_await_late(struct gp_pool *pool);

/* Waits for what is on its way back to arrive in the driver; whoever is in the rounds of a sibling then tries again. */
void gp_pool_await_returning(struct gp_pool *pool, uint64_t max_ns);

/* The context has a new part, which orders that were given before may not hold back: they do now. */
void gp_pool_order_again(struct gp_pool *pool);

/*
 * Whether all work of the context is done in the order in which it came: then memory is used again without an order, by
 * the pool's siblings, too. No before there is work out of order: that waits for what was freed, or the host does.
 */
void gp_pool_set_in_order(struct gp_pool *pool, bool is_in_order);

/*
 * Waits on the host for all work of the context so far, as a free may. 0; -EBUSY if a capture forbids it, -EAGAIN if
 * the pool is dead; or the driver's error.
 */
int gp_pool_synchronize(struct gp_pool *pool);

/* The last failure did not reach the program: somebody made room, and it is tried again. */
void gp_pool_excuse(struct gp_pool *pool);
