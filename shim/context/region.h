/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Regions: named caches of device memory. Memory that a thread allocates inside a region comes from the region's pool
 * of the context. It returns to that pool, whichever thread frees it and whether or not that thread is in the region.
 * Code outside the region does not get it. Cached memory stays when a thread leaves the region, for the next one that
 * enters. Regions nest, belong to a thread, and end with it.
 *
 * The fast paths of allocations and frees do not look at regions: each thread cache belongs to a region, and entering
 * or leaving one shows or hides caches (thread.h). Without a thread cache the pool is looked up here. All pools of a
 * context share its fences.
 *
 * A thread that has entered no region may be in one by a rule of GPUPOOL_REGIONS (region_rule.c).
 *
 * A region is created at the first allocation in it, so a name alone costs nothing.
 */

#include <stdbool.h>

#include "pool/pool_control.h"
#include "common/config_regions.h"
#include "context.h"
#include "region_rule.h"

enum {
	GP_REGION_NONE = 0,
	GP_REGION_UNKNOWN = -1,    /* the thread is in a region that is not created yet */
	GP_REGION_NESTED_MAX = 32, /* deeper levels stay in the last region; a recursion counts as one level */
};

/* The region that the thread is in. */
extern _Thread_local int gp_region_current __attribute__((tls_model("initial-exec")));

/* True if a region may have that name: short enough and printable. */
bool gp_region_is_name(const char *name);

/*
 * Enters a region; with NULL the thread stays where it is until the pop. 0 or -ENOMEM. The owner identifies the API or
 * NVTX domain that pushes.
 */
int gp_region_push(const void *owner, const char *name);

/* Leaves the owner's last entry; later entries of other owners stay. Returns false if the owner has none. */
bool gp_region_pop(const void *owner);

void gp_region_thread_ends(void);

/* Returns the region with the name, creating it if needed; GP_REGION_NONE if there are too many. */
int gp_region_find_or_add(const char *name);

/* Returns the region that the thread is in, creating it if needed. */
int gp_region_resolve(void);

static inline int gp_region_id(void)
{
	if (gp_likely(gp_region_current != GP_REGION_UNKNOWN && !gp_region_has_rules))
		return gp_region_current;
	return gp_region_resolve();
}

/*
 * Return a region by name (GP_REGION_NONE if there is none), the number of regions, whose ids start at 1, and a name.
 */
int gp_region_find(const char *name);
int gp_region_count(void);
const char *gp_region_name(int id);

/* Returns the pool from which the thread allocates. Valid as long as the caller uses the context. */
static inline struct gp_pool *gp_region_pool(struct gp_context *context)
{
	int id = gp_region_id();

	return gp_likely(id == GP_REGION_NONE) ? context->pool : gp_region_pool_slow(context, id);
}
