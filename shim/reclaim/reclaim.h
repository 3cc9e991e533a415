/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Makes reclaim targets give back what they have cached, for an allocation that ran out of memory. The targets are:
 *
 *   - the context's other pools, those of regions: in rounds 3 and 4, and to keep GPUPOOL_RESERVE free
 *   - the process's other contexts on the device: in round 5
 *   - the user's other processes under gpupool, which are asked through their sockets: in round 5
 *   - processes of other users and containers, through the broker of the machine, if there is one: in round 5, last
 *
 * A process that is asked gives back only cached memory that is completed. It neither waits for the GPU nor asks
 * further processes, so two processes that ask each other at the same time both get an answer.
 */

#include "shim/context/context.h"
#include "shim/base/json.h"
#include "processes.h"

/*
 * Makes the process's other contexts on the device give back cached memory, until at least `bytes` bytes are back.
 * Returns the bytes given back. No lock may be held, here and below.
 */
uint64_t gp_reclaim_from_contexts(struct gp_context *context, uint64_t bytes);

/*
 * The same for all pools of this context, including those of regions. may_wait: first wait for freed memory that has no
 * fence, and at the end until the memory has reached the driver. Does nothing in a context without regions.
 */
uint64_t gp_reclaim_from_siblings(struct gp_context *context, uint64_t bytes, bool may_wait);

/* The same for the pools of pinned memory of all contexts, except for the given pool. */
uint64_t gp_reclaim_from_pinned(struct gp_pool *pool, uint64_t bytes);

/*
 * Asks other processes for memory of the context's device, and then the broker if they have given too little. Returns
 * the bytes that are reported as given back.
 */
uint64_t gp_reclaim_from_processes(struct gp_context *context, uint64_t bytes);

/* The same for those that share the limit of the context's group, without the broker. */
uint64_t gp_reclaim_from_group(struct gp_context *context, uint64_t bytes);

/* True if other processes may be asked for memory of the context's device. */
bool gp_reclaim_can_ask(const struct gp_context *context);

/*
 * As gp_reclaim_from_processes, for a thread that waits for them: they also cache nothing for a while. Returns the
 * bytes that they still hold on the device. max_ms: as for gp_processes_ask.
 */
uint64_t gp_reclaim_want(struct gp_context *context, uint64_t bytes, int max_ms);

/*
 * Asks other processes "COMMAND UUID BYTES". filter: the processes to be asked, called with arg; NULL: all of this
 * user, or of all users if root is to ask them.
 */
void gp_reclaim_ask(struct gp_context *context, const char *command, uint64_t bytes, gp_processes_filter filter,
	const void *arg, int max_ms, struct gp_processes *ret);

/* True if a thread of this process has asked other processes for memory within that time. */
#define GP_SHORT_NS UINT64_C(1000000000)
bool gp_reclaim_was_short(void);

/* Returns the device of a UUID as requests contain it; NULL if this process does not use it. */
struct gp_device *gp_reclaim_find_device(const char *uuid);

/* Notes whether this thread's request waits for other processes. */
void gp_reclaim_note_wait(enum gp_processes_wait wait);

/* Returns the answers of other processes to the last request of this thread, with those during its wait. */
const struct gp_processes *gp_reclaim_last_answers(void);

/*
 * Nanoseconds for which a process caches nothing of a device after a process that waits has asked for its memory. A
 * request without a wait has no such effect: the members of a full group make them all the time.
 */
#define GP_WANTED_NS UINT64_C(500000000)

/* True during that time. */
bool gp_reclaim_is_wanted(const struct gp_context *context);

/* Answer the requests "yield" and "wanted" of another process. */
int gp_reclaim_answer(int argc, char **argv, struct gp_json *out);
int gp_reclaim_answer_wanted(int argc, char **argv, struct gp_json *out);
