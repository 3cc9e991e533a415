/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scopes that the program or gpupool-stat has entered. A defer scope belongs to the process: while there is one, the
 * queue of freed blocks is not flushed. A no-cache scope belongs to a thread: memory that the thread allocates and
 * frees in it goes back to the driver.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/pool_control.h"

/* Number of defer scopes of the process. Each pool has a pointer to it. */
extern _Atomic unsigned gp_scope_defers;

void gp_scope_defer_begin(void);

/*
 * Ends a defer scope of the program. The end of the process's last defer scope flushes the queues down to their limits.
 * may_wait: true if the flush may wait as a free may. Returns false if the program has not begun a defer scope.
 */
bool gp_scope_defer_end(bool may_wait);

/* Begins or ends the defer scope of gpupool-stat. There is at most one. */
void gp_scope_defer_explicitly(bool is_on);

/* Number of no-cache scopes that the thread is in. The fast path need not check it: inside a scope it has no caches. */
extern _Thread_local unsigned gp_scope_no_caches __attribute__((tls_model("initial-exec")));

void gp_scope_no_cache_begin(void);
bool gp_scope_no_cache_end(void);

/* Allocates from the pool; inside a no-cache scope, an uncached block. */
static inline int gp_scope_alloc(
	struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	return gp_scope_no_caches ? gp_pool_alloc_uncached(pool, bytes, options, ret_addr)
				  : gp_pool_alloc_with(pool, bytes, options, ret_addr);
}
