/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The device memory pools of a context: the main pool, and one for each region in use (region.h). */

#include "pool/lock.h"
#include "pool/pool.h"

enum { GP_REGIONS_MAX = 64, GP_REGION_NAME_MAX = 64 };

struct gp_context;

struct gp_region_pools {
	struct gp_mutex lock;                            /* taken to add a pool */
	_Atomic(struct gp_pool *) pools[GP_REGIONS_MAX]; /* live as long as the context; NULL: none yet */
	_Atomic bool are_all;                            /* no further pool can be created */
	enum gp_kind kind;                               /* of the main pool */
	uint64_t granule;                                /* of the main pool */
	_Atomic bool overlap;                            /* work of the context may overlap: to be told to new pools */
};

/* Calls back for each pool of the context, the main pool first. The caller must hold a use of the context. */
void gp_context_each_pool(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);
bool gp_context_has_regions(struct gp_context *context);

/* Tells all pools that work of the context may overlap from now on. */
void gp_context_set_overlap(struct gp_context *context);

/* context.c: sets in a new pool everything that was set in all pools before it existed. */
void gp_context_catch_up(struct gp_context *context, struct gp_pool *pool);
