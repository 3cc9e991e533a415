/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Sleepers fall asleep and wake together: all contexts of the process, and their pools of device memory. There is one
 * set, for the thread that holds the lock of quiet.h: it is too large for the stack of a thread of the program.
 */

#include "shim/context/context.h"
#include "pool/vmm/sleep.h"

enum { GP_SLEEPERS_CONTEXTS_MAX = GP_CONTEXTS_SEEN_MAX, GP_SLEEPERS_POOLS_MAX = 1024 };

struct gp_sleepers {
	struct gp_context *contexts[GP_SLEEPERS_CONTEXTS_MAX]; /* with uses */
	uint64_t fences[GP_SLEEPERS_CONTEXTS_MAX];
	struct gp_sleeper {
		struct gp_pool *pool; /* with a reference */
		struct gp_context *context;
		bool is_entered;
		bool drops; /* the content */
	} pools[GP_SLEEPERS_POOLS_MAX];
	unsigned n_contexts, n_pools;
	bool is_too_many; /* some are missing */
};

/* Collects all contexts that have not ended, and puts them. */
void gp_sleepers_collect(struct gp_sleepers *sleepers);
void gp_sleepers_put(struct gp_sleepers *sleepers);

/*
 * gp_sleepers_enter calls gp_pool_sleep_enter for each pool that can sleep, and waits until end_ns in all. 0 or its
 * error. Pools of other kinds, and those of contexts that are lost, are left out. gp_sleepers_leave undoes it for the
 * pools that were entered.
 */
int gp_sleepers_enter(struct gp_sleepers *sleepers, uint64_t end_ns);
void gp_sleepers_leave(struct gp_sleepers *sleepers);

/*
 * Adds up what gp_pool_sleep_survey finds. drops: the regions whose content is dropped, as bits, that of GP_REGION_NONE
 * not among them; or all memory. 0 or its error.
 */
#define GP_SLEEPERS_REGION(id) (UINT64_C(1) << ((id)-1))
struct gp_sleepers_drops {
	uint64_t regions;
	bool is_all;
};
int gp_sleepers_survey(
	struct gp_sleepers *sleepers, const struct gp_sleepers_drops *drops, struct gp_sleep_bytes *ret_bytes);

/* Learns how the driver answers queries about the memory (pointer_answers.h). Between enter and leave. */
void gp_sleepers_learn(struct gp_sleepers *sleepers);

/*
 * As the functions of pool/vmm/sleep.h, for all pools that were entered, until one of them fails. The pools whose
 * content is dropped move out last, and then nothing but an error of the driver stops the move.
 */
int gp_sleepers_take_host(struct gp_sleepers *sleepers, bool (*must_stop)(void *arg), void *arg);
int gp_sleepers_move_out(struct gp_sleepers *sleepers, bool (*must_stop)(void *arg), void *arg);
int gp_sleepers_take_device(struct gp_sleepers *sleepers);
int gp_sleepers_move_in(struct gp_sleepers *sleepers);

/*
 * Takes what the devices have free at the moment, and starts to copy. Unless all fits, a little stays free: a process
 * that falls asleep meanwhile may need some for the tables of its host memory.
 */
int gp_sleepers_take_some(struct gp_sleepers *sleepers, uint64_t *ret_taken, bool *ret_is_all);
void gp_sleepers_return_device(struct gp_sleepers *sleepers);

/* Unpins a piece of the host memory of one pool. False if none is pinned. Between enter and leave, asleep. */
bool gp_sleepers_unpin(struct gp_sleepers *sleepers);

/*
 * True if a device has less free memory than is asleep there, so that an attempt to take it would only keep it from
 * other processes for a moment. The driver may find more than it reports.
 */
bool gp_sleepers_are_short(const struct gp_sleepers *sleepers);

/*
 * Asks for device memory, on each device for what is asleep there: other processes to sleep, and with is_for_all for
 * all that they and the driver have cached. Returns true if any process is falling asleep for it.
 */
bool gp_sleepers_ask(struct gp_sleepers *sleepers, bool is_for_all);

/* Return how many contexts have ended or broken, and what was asleep in those that have broken. */
unsigned gp_sleepers_lost(const struct gp_sleepers *sleepers);
uint64_t gp_sleepers_lost_bytes(const struct gp_sleepers *sleepers);

/* True if memory is asleep whose content was dropped. */
bool gp_sleepers_have_dropped(const struct gp_sleepers *sleepers);

/* Returns the bytes that are asleep on a device, or on all (-1). Waits for nothing, and needs no set. */
struct gp_sleep_bytes gp_sleepers_asleep(int device);

/* The context has ended, or an error has made it unusable: its memory cannot be moved. */
static inline bool gp_sleepers_is_lost(const struct gp_context *context)
{
	return gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_BROKEN);
}
