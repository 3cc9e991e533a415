/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Round 5 of an allocation that ran out of memory: makes reclaim targets give back what they have cached on the device.
 * The targets are first the process's other contexts, then the user's other processes under gpupool, which are asked
 * through their sockets. A target gives back cached memory that is completed. It does not wait for the GPU or ask
 * further processes, so two processes that ask each other at the same time both get an answer.
 */

#include "shim/context/context.h"
#include "shim/base/json.h"
#include "processes.h"

/*
 * Makes the process's other contexts on the device give back cached memory until at least that many bytes are back.
 * Returns the bytes given back. No lock may be held.
 */
uint64_t gp_reclaim_from_contexts(struct gp_context *context, uint64_t bytes);

/* The same for all pools of the context, including those of regions. may_wait: true if it may wait as a free may. */
uint64_t gp_reclaim_from_siblings(struct gp_context *context, uint64_t bytes, bool may_wait);

/* The same for pinned memory of all contexts and kinds, except for the given pool. */
uint64_t gp_reclaim_from_pinned(struct gp_pool *pool, uint64_t bytes);

/* The same for other processes. Returns the bytes that they report. */
uint64_t gp_reclaim_from_processes(struct gp_context *context, uint64_t bytes);

/* Returns what other processes answered when this thread asked them last. */
const struct gp_processes *gp_reclaim_last_answers(void);

/* Answers the request "yield" of another process. */
int gp_reclaim_answer(int argc, char **argv, struct gp_json *out);
