/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Waits before an unmap. The driver's unmap takes memory away from running work, so a program that maps memory for each
 * array waits for the GPU before each unmap: XLA calls cuCtxSynchronize. Kept mappings (kept.h) need no such wait,
 * since they are handed out only after their grace period. With GPUPOOL_VMM_SYNC=off the call is omitted: it returns at
 * once.
 *
 * gpupool cannot know whether the program waits for more than the unmap. So a call is omitted only if each of the last
 * calls from the same place was followed by an unmap of a kept mapping, in the same thread and without a submission in
 * between. A program whose host reads what the GPU has written between the two looks the same: the user has to know.
 *
 * The work that an omitted call would have waited for is remembered for its context, by a fence. Before the driver
 * takes any memory away, or memory is mapped again that has not passed its grace period, all such work must be complete
 * (gp_kept_wait_settle), whichever thread omitted the wait.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_device;

/* Sets up this module. To be called once the settings have been read. */
void gp_kept_wait_start(void);

/*
 * The program is about to wait for the current context, at a place of its code. Returns true if the wait is omitted. If
 * not, gp_kept_wait_made follows once the driver has waited.
 */
bool gp_kept_wait_omit(uintptr_t caller);
void gp_kept_wait_made(void);

/* The thread has unmapped a kept mapping. Returns true if work of omitted waits may run. */
bool gp_kept_wait_unmapped(struct gp_device *device, size_t bytes);

/*
 * Returns true once the work of all waits that were omitted until now is complete. False if it is not, unless may_wait;
 * and in a host function, where nothing can be asked.
 */
bool gp_kept_wait_settle(bool may_wait);
