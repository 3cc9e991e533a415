/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Waits before an unmap. The driver's unmap takes memory away from running work, so a program that maps memory for each
 * array waits for the GPU before each unmap: XLA calls cuCtxSynchronize. Kept mappings (kept.h) need no such wait,
 * since they are handed out, and given back, only after their grace period. With GPUPOOL_VMM_SYNC=off the call returns
 * at once.
 *
 * gpupool cannot know whether the program waits for more than the unmap. So a call is left out only if each of the last
 * calls from the same place was followed by an unmap of a kept mapping, in the same thread and without a submission in
 * between. A program whose host reads what the GPU has written between the two looks the same: the user has to know.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets up this module. To be called once the settings have been read. */
void gp_kept_wait_start(void);

/*
 * The program is about to wait for the current context, at a place of its code. Returns true if the wait may be left
 * out. If not, gp_kept_wait_made follows once the driver has waited.
 */
bool gp_kept_wait_is_needless(uintptr_t caller);
void gp_kept_wait_made(void);

/* The thread has unmapped a kept mapping. Returns true if it has left out the wait before. */
bool gp_kept_wait_unmapped(size_t bytes);

/*
 * Makes a wait that the thread has left out, for its current context. To be called before an unmap that reaches the
 * driver.
 */
void gp_kept_wait_make_up(void);
