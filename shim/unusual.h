/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What most processes never see: one word, so that a call that is not concerned looks once. All but
 * GP_UNUSUAL_LIBRARIES stay set for good.
 */

#include <stdatomic.h>
#include <stdbool.h>

enum gp_unusual {
	GP_UNUSUAL_BYPASS = 1,	/* everything goes straight to the driver (fork, an untrusted driver, its end) */
	GP_UNUSUAL_END = 2,	/* the process ends: the driver and runtimes say themselves what still works */
	GP_UNUSUAL_CURRENT = 4, /* it has more than one context at a time, or somebody whose calls are not seen */
	GP_UNUSUAL_ORIGIN = 8,	/* some memory has an origin (origin.h) */
	GP_UNUSUAL_WATCHED = 16, /* somebody wants to know of each allocation and free (record.h, debug.h) */
	GP_UNUSUAL_WAITING = 32, /* a free waits as the driver's does */
	GP_UNUSUAL_LIBRARIES = 64, /* a library may have been loaded since the last look (libraries.h) */

	/* What concerns both; an allocation; and a free, which may be of any context's memory. */
	GP_UNUSUAL_TO_BOTH = GP_UNUSUAL_BYPASS | GP_UNUSUAL_END | GP_UNUSUAL_ORIGIN | GP_UNUSUAL_WATCHED,
	GP_UNUSUAL_TO_ALLOC = GP_UNUSUAL_TO_BOTH | GP_UNUSUAL_CURRENT | GP_UNUSUAL_LIBRARIES,
	GP_UNUSUAL_TO_FREE = GP_UNUSUAL_TO_BOTH | GP_UNUSUAL_WAITING,
};

extern _Atomic unsigned gp_unusual;

/* Whether any of them is so. */
static inline bool gp_is_unusual(unsigned which)
{
	return (atomic_load_explicit(&gp_unusual, memory_order_relaxed) & which) != 0;
}

static inline void gp_set_unusual(enum gp_unusual which)
{
	if (!gp_is_unusual(which))
		atomic_fetch_or(&gp_unusual, which);
}
