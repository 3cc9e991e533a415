/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Regions: named caches of device memory. Each context has a pool for each region in use. Memory that a thread
 * allocates inside a region comes from the region's pool. It returns to that pool, whichever thread frees it and
 * whether or not that thread is in the region. Code outside the region does not get it. When a thread leaves the
 * region, the cached memory stays for the next thread that enters. Threads enter regions, one inside another, and leave
 * all of them when they end.
 *
 * The fast paths of allocations and frees do not check regions: each thread cache belongs to a region, and when the
 * thread enters or leaves a region, its caches are shown or hidden (thread.h). A thread without a cache finds the pool
 * with gp_region_pool. All pools of a context share its fences.
 *
 * If a thread has not entered a region, a rule of GPUPOOL_REGIONS may put it in one (region_rule.h).
 *
 * A region is created at the first allocation in it, so a name that is never used costs nothing.
 */

#include <stdbool.h>

#include "pool/pool_control.h"
#include "common/config_regions.h"
#include "context.h"
#include "region_rule.h"

enum {
	GP_REGION_NONE = 0,
	GP_REGION_UNKNOWN = -1,    /* the thread is in a region that is not created yet */
	GP_REGION_NESTED_MAX = 32, /* beyond these levels the thread stays where it is; a recursion is one level */
};

/* The region that the thread is in. */
extern _Thread_local int gp_region_current __attribute__((tls_model("initial-exec")));

/* True if a region may have that name: short enough and printable. */
bool gp_region_is_name(const char *name);

/*
 * Enters a region. With NULL the thread stays in its region, but the pop must be called as well. Returns 0 or -ENOMEM.
 * The owner identifies the API or the NVTX domain that pushes.
 */
int gp_region_push(const void *owner, const char *name);

/* Leaves the owner's last entry; later entries of other owners stay. Returns false if the owner has none. */
bool gp_region_pop(const void *owner);

/* Called when the thread ends: it leaves all regions. */
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
 * Return the id of the region with that name (GP_REGION_NONE if there is none), the number of regions, whose ids are 1
 * to that number, and the name of a region.
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

/*
 * Returns the pool from which the thread allocates in stream order, likewise. NULL: there is none, since the driver
 * cannot map memory.
 */
static inline struct gp_pool *gp_region_streamed_pool(struct gp_context *context)
{
	if (context->regions.kind == GP_KIND_VMM)
		return gp_region_pool(context);
	return gp_region_streamed_slow(context, gp_region_id());
}
