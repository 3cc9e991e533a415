/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The program's own say when memory has run out: gpupool_set_oom_hook() of api/gpupool.h. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../pool/pool.h"

enum { GP_OOM_HOOK_PINNED = -2 }; /* instead of a device */

typedef int gp_oom_hook_fn(void *arg, int device, uint64_t bytes);

/* NULL: none. A call of the one before may still be under way in another thread. */
void gp_oom_hook_set(gp_oom_hook_fn *fn, void *arg);

extern _Atomic bool gp_oom_hook_exists;
bool gp_oom_hook_call(struct gp_pool *pool, int device, uint64_t bytes);

static inline bool gp_oom_hook_is_set(void)
{
	return atomic_load_explicit(&gp_oom_hook_exists, memory_order_relaxed);
}

/*
 * Asks the program whether an allocation that is about to fail shall be tried once more. pool: where the failure was
 * counted, or NULL. No lock may be held: the program may free, and allocate, whose failure does not come here again.
 */
static inline bool gp_oom_hook_says_again(struct gp_pool *pool, int device, uint64_t bytes)
{
	return gp_oom_hook_is_set() && gp_oom_hook_call(pool, device, bytes);
}
