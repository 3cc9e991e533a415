/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The pools of device memory that a context has: its own, and those of regions (region.h). */

#include "../pool/lock.h"
#include "../pool/pool.h"

enum { GP_REGIONS_MAX = 64, GP_REGION_NAME_MAX = 64 };

struct gp_context;

struct gp_region_pools {
	struct gp_mutex lock;			       /* who adds one */
	_Atomic(struct gp_pool *) pools[GP_REGIONS_MAX]; /* they stay as long as the context; NULL: none yet */
	_Atomic bool are_all;			       /* there can be no more */
	enum gp_kind kind;			       /* as that of the context's own pool, and its granule */
	uint64_t granule;
	_Atomic bool overlap; /* what each was told */
};

/* With a use of the context. The first is its own. */
void gp_context_each_pool(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);
bool gp_context_has_regions(struct gp_context *context);

/* Work of the context may overlap from now on. */
void gp_context_set_overlap(struct gp_context *context);

/* context.c: tells a new pool what all were told while it was not there yet. */
void gp_context_catch_up(struct gp_context *context, struct gp_pool *pool);
