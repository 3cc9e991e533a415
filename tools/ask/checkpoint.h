/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's checkpoints of other processes (CUDA 12.8): the driver takes all memory and the contexts of a process
 * out of its devices. The driver is loaded when it is needed, and no context is made here.
 *
 *	running ──lock──► locked ──take──► checkpointed ──restore──► locked ──unlock──► running
 *
 * Each function returns false, with the reason as a sentence without its period, if the driver refuses. A call that is
 * under way in the driver goes on if this program ends. Queries of the state wait for such a call, and all calls wait
 * for a process that is stopped.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stat_reply.h"

enum checkpoint_state {
	CHECKPOINT_RUNNING,
	CHECKPOINT_LOCKED,
	CHECKPOINT_TAKEN,
	CHECKPOINT_FAILED, /* the process cannot use CUDA any more */
};

/* Loads the driver. */
bool checkpoint_open(char why[static STAT_ERROR_MAX]);

/* Any value that a newer driver may return as the state counts as locked: another program is at work. */
bool checkpoint_get(pid_t pid, enum checkpoint_state *ret_state, char why[static STAT_ERROR_MAX]);

/* Waits at most that long for CUDA calls of the process. If they take longer, nothing has changed. */
bool checkpoint_lock(pid_t pid, int timeout_ms, char why[static STAT_ERROR_MAX]);
bool checkpoint_take(pid_t pid, char why[static STAT_ERROR_MAX]);
bool checkpoint_restore(pid_t pid, char why[static STAT_ERROR_MAX]);
bool checkpoint_unlock(pid_t pid, char why[static STAT_ERROR_MAX]);
