/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Functions that run first in a forked child. A module with a lock, or with a count of what other threads do, resets it
 * there: threads of the parent that held the lock do not exist in the child.
 */

#include <stdatomic.h>
#include <stdbool.h>

/* A module's function, in memory that lasts. The other members belong to fork.c. */
struct gp_fork_child {
	void (*fn)(void);
	struct gp_fork_child *next;
	_Atomic bool is_added;
};

/*
 * Adds the function, unless it has been added. A module adds its function before it takes its lock for the first time.
 * The functions run in the reverse order of their addition, as those of atexit() do.
 */
void gp_fork_on_child(struct gp_fork_child *child);
