/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Deep sleep: gpupool-stat has the driver take out of the device what the pool's sleep leaves there. From before that
 * until after the driver has brought it back, no thread of the process calls the driver: each hook waits first. The
 * driver would make the calls wait, too, but it ends the process in some of them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/base/slow_path.h"

static inline bool gp_deep_is(void)
{
	return gp_slow_path_is_any(GP_SLOW_PATH_DEEP);
}

/* Begins and ends it. To be called with the lock of quiet.h. */
void gp_deep_begin(void);
void gp_deep_end(void);

/* Returns once the process is not deep asleep. Keeps errno. */
void gp_deep_await(void);

/* Notes memory that the driver cannot take out, and after whose refusal a process may be lost. */
void gp_deep_note_refused(const char *what);

/* Returns the first such memory, or NULL. */
const char *gp_deep_refused(void);

/* The bytes that the driver has taken out of each device. UINT64_MAX: not yet, or unknown. */
void gp_deep_set_bytes(int device, uint64_t bytes);
uint64_t gp_deep_bytes_of(int device);
