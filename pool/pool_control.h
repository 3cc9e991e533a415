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

/* The last failure did not reach the program: somebody made room, and it is tried again. */
void gp_pool_excuse(struct gp_pool *pool);
