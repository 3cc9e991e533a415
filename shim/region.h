/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Regions: named caches of device memory. What a thread allocates in one comes from that region's pool of the context,
 * and returns there, whoever frees it, and wherever. Other regions, and none, do not see it; leaving the region keeps
 * it for whoever enters next. Regions nest, belong to a thread, and end with it.
 *
 * The paths of an allocation and a free never look: the thread's caches are a region's, and entering or leaving one
 * shows or hides them (thread.h). Where there is no cache the pool is asked for here. All pools of a context share
 * its fences.
 *
 * A thread that has entered none may be in one by a rule of GPUPOOL_REGIONS (region_rule.c).
 *
 * A region exists from the first allocation in it: a name that nobody allocates under takes nothing.
 */

#include <stdbool.h>

#include "../pool/pool_control.h"
#include "config_regions.h"
#include "context.h"

enum {
	GP_REGION_NONE = 0,
	GP_REGION_UNKNOWN = -1, /* the thread is in one that does not exist yet */
	GP_REGION_NESTED_MAX = 32, /* deeper in, the thread stays in that one; a recursion is one level */
};

/* That the thread is in. */
extern _Thread_local int gp_region_current __attribute__((tls_model("initial-exec")));

/* Whether a region may have that name: it is short, and can be shown. */
bool gp_region_is_name(const char *name);

/*
 * Enters a region, or with NULL stays where the thread is until the pop. Whose it is tells who may pop it: whatever
 * others have pushed since stays. 0 or -ENOMEM; false: there is none.
 */
int gp_region_push(const void *whose, const char *name);
bool gp_region_pop(const void *whose);

void gp_region_thread_ends(void);
void gp_region_after_fork_child(void);

/* Rules that look at the thread, or at who is calling: then threads have no caches. They are there from the start. */
extern bool gp_region_has_rules, gp_region_has_caller_rules;

/* The settings have been read. */
void gp_region_init(const struct gp_config_regions *regions);

/* The region that a rule puts the thread in, if it has entered none. */
int gp_region_by_rule(void);
int gp_region_find_or_add(const char *name);

/* The one that the thread is in, which exists from now on. */
int gp_region_resolve(void);

static inline int gp_region_id(void)
{
	if (gp_likely(gp_region_current != GP_REGION_UNKNOWN && !gp_region_has_rules))
		return gp_region_current;
	return gp_region_resolve();
}

/* By name, GP_REGION_NONE if there is none; and how many there are: their ids are 1 up to that. */
int gp_region_find(const char *name);
int gp_region_count(void);
const char *gp_region_name(int id);

/* region_pool.c: the context's pool for what the thread allocates; as long as the context is in use. */
struct gp_pool *gp_region_pool_slow(struct gp_context *context, int id);

static inline struct gp_pool *gp_region_pool(struct gp_context *context)
{
	int id = gp_region_id();

	return gp_likely(id == GP_REGION_NONE) ? context->pool : gp_region_pool_slow(context, id);
}

/* Of a pool of the context's. */
int gp_region_of(struct gp_context *context, const struct gp_pool *pool);

/* The counters of a region on a device, and how many contexts have a pool of it there. */
unsigned gp_region_tally(int id, int device, struct gp_stats *ret_stats);

/* gp_pool_invalidate of all pools of the region. The bytes that go back. */
uint64_t gp_region_invalidate(int id, struct gp_invalidated *ret_invalidated);
