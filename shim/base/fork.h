/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Functions that run first in a forked child. A module with a lock, or with a count of what other threads do, resets it
 * there: threads of the parent that held the lock do not exist in the child.
 */

/* The library has half as many. */
enum { GP_FORK_CHILDREN_MAX = 32 };

/* A module's function, in memory that lasts. */
struct gp_fork_child {
	void (*fn)(void);
};

/*
 * Adds the function, unless it has been added. When the call returns, the function is in place, also if another thread
 * adds it at the same time. A module adds its function before it takes its lock for the first time.
 * The functions run in the reverse order of their addition, as those of atexit() do. If two threads add the library's
 * first function at the same time, all functions may run twice, so each must allow that.
 */
void gp_fork_on_child(const struct gp_fork_child *child);
