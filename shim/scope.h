/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scopes that the program, or gpupool-stat, has entered. Defer scopes are the process's and hold back what the queue of
 * freed blocks would flush; no-cache scopes are a thread's: what it allocates and frees there goes back to the driver.
 */

#include <stdatomic.h>
#include <stdbool.h>

/* Of the process. Pools look at it themselves. */
extern _Atomic unsigned gp_scope_defers;

void gp_scope_defer_begin(void);

/* False: the program has begun none. Leaving the last one flushes what is over the limits; may_wait: as a free may. */
bool gp_scope_defer_end(bool may_wait);

/* The scope of gpupool-stat, which is one at most. */
void gp_scope_defer_by_hand(bool is_on);

/* How many the thread is in. Outside of any its frees and allocations never come to look: it has its caches. */
extern _Thread_local unsigned gp_scope_no_caches __attribute__((tls_model("initial-exec")));

void gp_scope_no_cache_begin(void);
bool gp_scope_no_cache_end(void);
