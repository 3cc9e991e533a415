/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The program's out-of-memory hook: gpupool_set_oom_hook() of api/gpupool.h. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/pool.h"

enum { GP_OOM_HOOK_PINNED = -2 }; /* the device number that the hook gets if pinned memory has run out */

typedef int gp_oom_hook_fn(void *arg, int device, uint64_t bytes);

/* Sets the hook; NULL removes it. A call of the previous hook may still be under way in another thread. */
void gp_oom_hook_set(gp_oom_hook_fn *fn, void *arg);

extern _Atomic bool gp_oom_hook_exists;

/* Works like gp_oom_hook_says_again, when a hook is set. */
bool gp_oom_hook_call(struct gp_pool *pool, int device, uint64_t bytes);

static inline bool gp_oom_hook_is_set(void)
{
	return atomic_load_explicit(&gp_oom_hook_exists, memory_order_relaxed);
}

/*
 * Asks the program's hook whether to retry an allocation that is about to fail. pool: the pool that counted the
 * failure, or NULL. No lock may be held: the hook may free and allocate. An allocation that fails inside the hook does
 * not call it again.
 */
static inline bool gp_oom_hook_says_again(struct gp_pool *pool, int device, uint64_t bytes)
{
	return gp_oom_hook_is_set() && gp_oom_hook_call(pool, device, bytes);
}
