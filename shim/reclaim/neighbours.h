/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Waits for neighbours: other processes under gpupool that hold memory of the same device, and that can be asked, be it
 * through the broker. Without GPUPOOL_OOM_WAIT, an allocation for which the driver has too little waits for them for a
 * bounded time (wait_budget.h) before it fails.
 *
 * While a process waits, its neighbours cache nothing: they are asked again and again, and each time keep their caches
 * empty for a while (reclaim.h, GP_WANTED_NS). Two processes that wait for each other both run out of time.
 *
 * A thread does not wait
 *
 *   - while a stream captures,
 *   - if the memory that all neighbours hold would not be enough, together with what the driver has,
 *   - once the process has waited too much within a minute.
 *
 * The limit of the process never makes a thread wait (pool/rounds.c).
 */

#include "pool/backend.h"
#include "shim/context/context.h"

/* Returns the bytes that the driver has left on the context's device, UINT64_MAX if unknown. */
typedef uint64_t gp_neighbours_available_fn(struct gp_context *context);

/* As the functions of struct gp_backend_ops. No lock may be held. */
uint64_t gp_neighbours_wait_begin(
	struct gp_context *context, uint64_t bytes, struct gp_wait *ret_wait, gp_neighbours_available_fn *available);
enum gp_wait_news gp_neighbours_wait_pause(
	struct gp_context *context, struct gp_wait *wait, gp_neighbours_available_fn *available);
void gp_neighbours_wait_end(struct gp_wait *wait, uint64_t waited_ns, bool is_served);
