/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Keeps the counter page of this process (common/counter_page.h). No thread of the program does anything for it but at
 * an out-of-memory error, at the first memory of a device, and at the exit. A new peak of memory from the driver is
 * one store (shim/context/device.h).
 */

#include "common/counter_page.h"

/* Registers what the page needs: for a forked child, for the end of a context, and for the first memory of a device. */
void gp_counter_page_set_up(void);

/*
 * Creates the page beside the control socket at this path. Continues the counters of an earlier program of this process
 * (exec). Without a page everything else works: it needs a file system in memory.
 */
void gp_counter_page_start(const char *socket_path);

/*
 * Copies the counters to the page. The first call also removes old pages of ended processes from the directory. For
 * the control server's thread. No lock may be held.
 */
void gp_counter_page_tick(void);

/* Counts an out-of-memory error that reaches the program. device: its number; -1: pinned memory. */
void gp_counter_page_note_oom(int device, uint64_t bytes);
