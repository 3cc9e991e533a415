/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A backend of numbers. Memory is ranges of addresses; the clock moves when the allocator pauses;
 * the GPU is a count of work: the test submits it and says when it completes, in order, so that a
 * fence is the count at its record. The fake remembers for every 512 bytes up to which work they
 * may be in use, and so knows whether a block was handed out, or memory given back, too early, and
 * whether anybody was made to wait for work that no free would have waited for. The first such
 * breach is kept in `breach`.
 *
 * Any call can be made to fail by a plan, every call is recorded, and each checks that the
 * allocator holds no lock but those that backend.h allows. Thread-safe, once set up.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "pool/backend.h"
#include "pool/work.h"

enum fake_call {
	FAKE_RESERVE,
	FAKE_RELEASE,
	FAKE_RELEASE_BEGIN,
	FAKE_RELEASE_POLL,
	FAKE_RELEASE_DRAIN,
	FAKE_RECORD,
	FAKE_QUERY,
	FAKE_ORDER,
	FAKE_PAUSE,
	FAKE_TRIM,
	FAKE_ASK_CONTEXTS,
	FAKE_ASK_PROCESSES,
	FAKE_ASK_SIBLINGS,
	FAKE_AVAILABLE,
	FAKE_MAP,
	FAKE_UNMAP,
	FAKE_UNDO, /* of a call to map that fails half-way */
	FAKE_N_CALLS
};

/* The nth to the (nth + count - 1)th call from now fail with this error. */
struct fake_plan {
	enum fake_call call;
	unsigned nth, count;
	int error;
};

enum { FAKE_LOG_SIZE = 4096 };

struct fake_log_entry {
	enum fake_call call;
	uint64_t addr, bytes; /* of reserve and the releases */
	int slot, result;
};

struct fake_range {
	uint64_t addr, size; /* bytes */
	uint64_t behind;     /* the work after which the memory is free; valid while is_leaving */
	bool is_leaving;
};

struct fake {
	/* What the test may set, before the first call or between two. */
	bool says_work;           /* what is submitted is told (work.h) */
	uint64_t capacity;        /* bytes that can be reserved */
	uint64_t outside;         /* of these, bytes that somebody else holds */
	uint64_t trim_yields;     /* bytes of them that trim_driver gets back, once */
	uint64_t siblings_yield, contexts_yield, processes_yield; /* bytes of them that others give when asked, once */
	uint64_t pause_ns;        /* how far a pause moves the clock */
	unsigned pause_completes; /* pieces of work that complete during a pause */
	bool cannot_release_behind;
	bool arrives_on_drain_only; /* what was begun is never back at a poll */
	_Atomic bool has_ended;     /* the context, and with it all its work */
	bool cannot_map;            /* addresses without memory are not to be had */
	_Atomic bool is_in_order;   /* work is done as it comes: a record at a free is as good as an order */
	bool has_one_stream; /* all work is in order anyhow: any order is harmless */
	void (*hook)(struct fake *fake, enum fake_call call); /* before a call takes effect */
	void *hook_arg;

	/* What it tells. */
	_Atomic uint64_t submitted, completed, ordered; /* work */
	_Atomic uint64_t recorded, recorded_at_free; /* work that the records so far cover */
	_Atomic uint64_t waitable; /* work that some free would have waited for */
	_Atomic uint64_t now_ns;
	_Atomic bool is_capturing; /* the fence functions answer -EBUSY */
	_Atomic bool record_waits; /* as with a driver that has no context events */
	_Atomic bool is_beyond;    /* what is unfinished is beyond what a free would have waited for */
	_Atomic uint64_t n_calls[FAKE_N_CALLS];
	_Atomic unsigned attempt_max; /* of the pauses */
	_Atomic(const char *) breach;
	uint64_t reserved_bytes;
	struct fake_log_entry log[FAKE_LOG_SIZE]; /* the latest, at n_logged % FAKE_LOG_SIZE */
	uint64_t n_logged;

	/* Its own. */
	struct gp_work work;
	pthread_mutex_t lock;      /* ranges, log, plans */
	struct fake_range *ranges; /* by address */
	size_t n_ranges, ranges_size;
	struct fake_piece *pieces;
	size_t n_pieces, pieces_size;
	uint64_t n_handles;
	_Atomic uint64_t addresses_end, addresses_bytes;
	struct fake_plan plans[FAKE_N_CALLS];
	_Atomic uint64_t covers[GP_FENCE_SLOTS];
	_Atomic unsigned idle_pauses;
	_Atomic uint64_t *units; /* the history, a word a unit; NULL with too much memory */
	size_t n_units;
};

/* The history is kept up to 1 GiB. */
void fake_init(struct fake *fake, uint64_t capacity);
void fake_deinit(struct fake *fake);

/* NULL: all went well, and what was mapped is gone, and the addresses too, but for what the driver would not unmap. */
const char *fake_check_unmapped(struct fake *fake);
struct gp_backend fake_backend(struct fake *fake);

/* The plan replaces an earlier one for the same call. */
void fake_plan(struct fake *fake, struct fake_plan plan);
bool fake_is_planned(struct fake *fake, enum fake_call call);

/* The GPU: returns the number of the last piece of work. */
uint64_t fake_submit(struct fake *fake, unsigned n);
void fake_complete(struct fake *fake, uint64_t work);
void fake_complete_all(struct fake *fake);

/* The number of calls since the last time it was asked for this one. */
unsigned fake_calls(struct fake *fake, enum fake_call call);

enum fake_use { FAKE_FREED, FAKE_FREED_LATE, FAKE_FREED_SYNCED };

/* Whether nothing was submitted since the last record, and it is told what is. */
bool fake_is_covered(const struct fake *fake);

/* The program is about to free a block that all work so far may touch. */
void fake_note_free(struct fake *fake, uint64_t addr, uint64_t bytes, enum fake_use use);

/* Somebody outside may hold this memory from now on. */
void fake_note_export(struct fake *fake, uint64_t addr, uint64_t bytes);

/* What is wrong with handing out a block now, or NULL. */
const char *fake_check_hand_out(struct fake *fake, uint64_t addr, uint64_t bytes, bool may_order);
