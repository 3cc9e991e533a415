/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Slow-path reasons: conditions that make a call leave the fast path, and that never occur in most processes. They are
 * bits of one word, so that the fast path checks all of them with one load. GP_SLOW_PATH_LIBRARIES,
 * GP_SLOW_PATH_CAPTURE, GP_SLOW_PATH_ASLEEP and GP_SLOW_PATH_DEEP are set and cleared; the other bits stay set for
 * good.
 */

#include <stdatomic.h>
#include <stdbool.h>

enum gp_slow_path {
	GP_SLOW_PATH_BYPASS = 1,     /* all calls go to the driver (forked child, untrusted driver, driver shut down) */
	GP_SLOW_PATH_END = 2,        /* the process is exiting: the driver and runtimes decide what still works */
	GP_SLOW_PATH_CURRENT = 4,    /* the driver must be asked for the current context (context_seen.c, serial.c) */
	GP_SLOW_PATH_ALLOC_INFO = 8, /* allocation records exist (alloc_info.h) */
	GP_SLOW_PATH_WATCHED = 16,   /* each allocation and free is recorded or debugged (record.h, debug.h) */
	GP_SLOW_PATH_WAITING = 32,   /* a free waits for the GPU as the driver's own free does (GPUPOOL_SYNC_FREE) */
	GP_SLOW_PATH_LIBRARIES = 64, /* a library may have been loaded since the last check (libraries.h) */
	GP_SLOW_PATH_CAPTURE = 128,  /* a stream captures; frees ask gp_capture_is_none() instead */
	GP_SLOW_PATH_ASLEEP = 256,   /* the process is asleep: an allocation wakes it (sleep.h) */
	GP_SLOW_PATH_CONTEXTS = 512, /* there may be contexts that gpupool has not seen: the process does not sleep */
	GP_SLOW_PATH_DEEP = 1024,    /* the process is deep asleep: no call reaches the driver (deep.h) */

	/* Reasons for both kinds of calls; for allocations; for frees, which may concern any context's memory. */
	GP_SLOW_PATH_TO_BOTH = GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END | GP_SLOW_PATH_ALLOC_INFO | GP_SLOW_PATH_WATCHED |
			       GP_SLOW_PATH_DEEP,
	GP_SLOW_PATH_TO_ALLOC = GP_SLOW_PATH_TO_BOTH | GP_SLOW_PATH_CURRENT | GP_SLOW_PATH_LIBRARIES |
				GP_SLOW_PATH_CAPTURE | GP_SLOW_PATH_ASLEEP,
	GP_SLOW_PATH_TO_FREE = GP_SLOW_PATH_TO_BOTH | GP_SLOW_PATH_WAITING,
};

extern _Atomic unsigned gp_slow_path;

/* True if any of the given reasons holds. */
static inline bool gp_slow_path_is_any(unsigned which)
{
	return (atomic_load_explicit(&gp_slow_path, memory_order_relaxed) & which) != 0;
}

static inline void gp_slow_path_add(enum gp_slow_path which)
{
	if (!gp_slow_path_is_any(which))
		atomic_fetch_or(&gp_slow_path, which);
}

/* From now on contexts may be created, or become current, without a call of a hook. */
static inline void gp_slow_path_lose_contexts(void)
{
	gp_slow_path_add(GP_SLOW_PATH_CURRENT);
	gp_slow_path_add(GP_SLOW_PATH_CONTEXTS);
}
