/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The library's life in a process has two steps. The first call of a hook sets up the modules. This prints no message
 * and keeps no file or socket open. The first allocation that gpupool serves starts the library: it reports wrong
 * settings and opens the control socket.
 */

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic int gp_process_mode; /* 0: not set up yet, 1: on, -1: off */
bool gp_process_set_up(void);

/* True if GPUPOOL is on. The first call sets up the modules, so every hook calls this before it uses a module. */
static inline bool gp_process_is_on(void)
{
	int mode = atomic_load_explicit(&gp_process_mode, memory_order_acquire);

	return mode ? mode > 0 : gp_process_set_up();
}

extern _Atomic bool gp_process_is_started;
void gp_process_start_slow(void);

/* Called at each allocation. The first call starts the library. */
static inline void gp_process_start(void)
{
	if (__builtin_expect(!atomic_load_explicit(&gp_process_is_started, memory_order_relaxed), 0))
		gp_process_start_slow();
}
