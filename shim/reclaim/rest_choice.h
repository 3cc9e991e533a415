/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The idle processes that are asked to sleep. */

#include "processes.h"

/*
 * Sorts the processes, the longest idle first and among these the largest. Moves those that have to sleep for that many
 * bytes (held_bytes) to the front, and returns their number; 0: all of them together are too few.
 */
unsigned gp_rest_choose(struct gp_process *processes, unsigned n, uint64_t bytes);
