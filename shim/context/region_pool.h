/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The device memory pools of a context: the main pool, and one for each region in use (region.h).
 *
 * Unless it is of the kind vmm itself, each of them has a second one for allocations in stream order, of that kind. The
 * driver's own memory of that sort is mapped, too: every context of the device has access to it, and it outlives its
 * context (survivor.h), unlike memory of cuMemAlloc. Where the driver cannot map memory, it serves such allocations.
 */

#include "pool/lock.h"
#include "pool/pool.h"
#include "pool/pool_control.h"

enum { GP_REGIONS_MAX = 64, GP_REGION_NAME_MAX = 64 };

struct gp_context;

struct gp_region_pools {
	struct gp_mutex lock;                            /* taken to add a pool */
	_Atomic(struct gp_pool *) pools[GP_REGIONS_MAX]; /* by id - 1; live as long as the context; NULL: none yet */
	_Atomic bool is_full;                            /* no further pool can be created */
	enum gp_kind kind;                               /* of the main pool */
	uint64_t granule;                                /* of the main pool */
	_Atomic bool overlap;           /* work of the context may overlap; new pools are set accordingly */
	_Atomic bool are_streams_apart; /* allocations in stream order have pools of their own */
	bool is_streamed_full;          /* no further one can be created; under the next */
	struct gp_mutex streamed_lock;  /* held while one of them is made */
	_Atomic(struct gp_pool *) streamed[GP_REGIONS_MAX + 1]; /* those, by id; likewise */
};

/* Calls back for each pool of the context, the main pool first. The caller must hold a use of the context. */
void gp_context_each_pool(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);
bool gp_context_has_siblings(struct gp_context *context);

/* Calls back for the pools that serve allocations in stream order, likewise. */
void gp_context_each_streamed(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);

/* Tells all pools that work of the context may overlap from now on. */
void gp_context_set_overlap(struct gp_context *context);

/*
 * Return the pool of a region, and the one for stream order or NULL, creating it if needed. Valid as long as the caller
 * uses the context.
 */
struct gp_pool *gp_region_pool_slow(struct gp_context *context, int id);
struct gp_pool *gp_region_streamed_slow(struct gp_context *context, int id);

/* Returns the region of a pool of the context; GP_REGION_NONE for those outside of regions. */
int gp_region_of(struct gp_context *context, const struct gp_pool *pool);

/* True if the pool serves allocations in stream order alone. */
bool gp_region_is_streamed(const struct gp_context *context, const struct gp_pool *pool);

/* Adds up the counters of a region on a device. Returns the number of contexts that have pools for it there. */
unsigned gp_region_totals(int id, int device, struct gp_stats *ret_stats);

/* Calls gp_pool_invalidate for all pools of the region. Returns the bytes that go back. */
uint64_t gp_region_invalidate(int id, struct gp_invalidated *ret_invalidated);
