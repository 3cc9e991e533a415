/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks idle processes of the user that have GPUPOOL_SLEEP set to sleep, for a request that lacks memory of the device
 * or for a process that wakes. The processes first say how much their sleep would give and how long they have been
 * idle. None is asked to sleep unless that is enough, and then no more of them than necessary, the longest idle first.
 *
 * Two processes cannot wait for each other: a process that has asked others a moment ago is not idle
 * (gp_reclaim_was_short), a process that falls asleep asks no other process, and each wait has a bound.
 */

#include "neighbours.h"

/* As gp_neighbours_wait_begin and its siblings. */
uint64_t gp_rest_wait_begin(
	struct gp_context *context, uint64_t bytes, struct gp_wait *ret_wait, gp_neighbours_available_fn *available);
enum gp_wait_news gp_rest_wait_pause(
	struct gp_context *context, struct gp_wait *wait, gp_neighbours_available_fn *available);
void gp_rest_wait_end(struct gp_wait *wait);

/*
 * For a process that wakes: asks, and does not wait for the memory. Logs which processes it has asked. Returns true if
 * any of them is on its way.
 */
bool gp_rest_ask(struct gp_context *context, uint64_t bytes, gp_neighbours_available_fn *available);
