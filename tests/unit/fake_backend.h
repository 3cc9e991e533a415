/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A backend of plain numbers. Memory is ranges of addresses. The clock advances when the allocator pauses.
 * The GPU is a count of work: the test submits work and says when it completes, in order, so a fence is the
 * count at its record.
 *
 * For every 512 bytes the fake remembers the last work that may use them. So it detects a block that is
 * handed out too early, memory that goes back too early, and a wait for work for which no free would have
 * waited. The first such breach is kept in `breach`.
 *
 * A plan can make any call fail. Every call is recorded, and checks that the allocator holds no lock except
 * those that backend.h allows. Thread-safe, once set up.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "pool/backend.h"
#include "pool/submission.h"

/*
 * For a function with a long loop of relaxed atomic operations on notes of the test. They order nothing and race
 * with nothing, and the thread sanitiser would make each of them cost as much as a call.
 */
#define UNWATCHED __attribute__((no_sanitize_thread, noinline))

enum fake_call {
	FAKE_RESERVE,
	FAKE_RELEASE,
	FAKE_RELEASE_BEGIN,
	FAKE_RELEASE_POLL,
	FAKE_RELEASE_DRAIN,
	FAKE_RECORD,
	FAKE_QUERY,
	FAKE_GPU_WAIT,
	FAKE_PAUSE,
	FAKE_TRIM,
	FAKE_ASK_CONTEXTS,
	FAKE_ASK_PROCESSES,
	FAKE_ASK_GROUP,
	FAKE_ASK_SIBLINGS,
	FAKE_WAIT_PAUSE,
	FAKE_AVAILABLE,
	FAKE_MAP,
	FAKE_UNMAP,
	FAKE_UNDO, /* undoes a map that failed half-way */
	FAKE_HOST_TAKE,
	FAKE_HOST_PIN,
	FAKE_COPY,
	FAKE_COPY_WAIT,
	FAKE_HOST_CREATE,
	FAKE_N_CALLS
};

/* The nth to the (nth + count - 1)th call from now fail with this error. */
struct fake_plan {
	enum fake_call call;
	unsigned nth, count;
	int error;
};

enum { FAKE_LOG_SIZE = 4096 };

/* Pieces of host memory: neither of the size of a chunk nor a divisor of it. */
#define FAKE_PIECE (24 * GP_MIB)

struct fake_log_entry {
	enum fake_call call;
	uint64_t addr, bytes; /* of reserve and the releases */
	uint64_t next_bytes;  /* of host_take */
	int slot, result;
};

struct fake_range {
	uint64_t addr, size; /* bytes */
	uint64_t behind;     /* the memory is free after this work; valid while is_leaving */
	bool is_leaving;
};

struct fake {
	/* Set by the test, before the first call or between two calls. */
	bool reports_submissions; /* submissions are reported (submission.h) */
	uint64_t capacity;        /* bytes that can be reserved */
	uint64_t outside;         /* bytes of these that other users of the device hold */
	uint64_t trim_yields;     /* bytes of `outside` that trim_driver frees, once */
	uint64_t siblings_yield, contexts_yield, processes_yield; /* bytes of `outside` to free when asked, once */
	_Atomic uint64_t *group_held; /* what the other members of a group hold, of which each request frees */
	uint64_t group_yields[4];     /* these bytes in turn */
	unsigned n_group_asks;
	uint64_t sleepers_ns;     /* how long a thread may wait for processes that fall asleep, likewise */
	uint64_t wait_ns;         /* how long a thread may wait for other processes */
	unsigned wait_pauses;     /* pauses of that wait, the last of which frees wait_yields, or ends the wait if 0 */
	uint64_t wait_yields;     /* bytes of `outside` */
	_Atomic bool is_wanted;   /* another process lacks memory */
	uint64_t pause_ns;        /* how far each pause advances the clock */
	unsigned pause_completes; /* pieces of work that complete during a pause */
	bool cannot_release_behind;
	bool is_first_release_slow; /* the first release_begin takes long */
	bool arrives_on_drain_only; /* release_poll never reports a release as done */
	_Atomic bool has_ended;     /* the context has ended, and with it all its work */
	bool cannot_map;            /* addresses cannot be reserved */
	_Atomic bool is_serial;     /* serial mode: a record at a free is as good as a GPU wait */
	bool has_one_stream;        /* all work is serial anyway, so any GPU wait is harmless */
	void (*hook)(struct fake *fake, enum fake_call call); /* before a call takes effect */
	void *hook_arg;

	/* Reported by the fake. */
	_Atomic uint64_t submitted, completed, ordered; /* work */
	_Atomic uint64_t recorded, recorded_at_free;    /* work that some record covers */
	_Atomic uint64_t waitable;                      /* work that some free would have waited for */
	_Atomic uint64_t now_ns;
	_Atomic bool is_capturing; /* the fence functions answer -EBUSY */
	_Atomic bool record_waits; /* as with a driver that has no context events */
	_Atomic bool is_beyond;    /* a free would not have waited for the unfinished work */
	_Atomic uint64_t n_calls[FAKE_N_CALLS];
	uint64_t waits_begun, waits_ended, waits_served, waited_ns; /* for other processes */
	_Atomic uint64_t n_failures;                                /* calls of fence_failed */
	_Atomic unsigned attempt_max;                               /* the highest attempt that a pause was given */
	_Atomic(const char *) breach;
	uint64_t reserved_bytes;
	uint64_t host_bytes;                      /* of host memory that is taken, in pieces of FAKE_PIECE */
	uint64_t pinned_bytes;                    /* of host memory that is pinned for copies */
	bool is_host_kept;                        /* host memory is there from the sleep before */
	uint64_t zeroed_bytes;                    /* set to zero so far for chunks that woke */
	struct fake_log_entry log[FAKE_LOG_SIZE]; /* a ring; the latest call precedes n_logged % FAKE_LOG_SIZE */
	uint64_t n_logged;

	uint64_t (*make_room)(uint64_t bytes, uint64_t least); /* for round 7; NULL: no memory can move */
	uint64_t seeks;                                        /* requests that ask for room */

	/* Private. */
	struct gp_submissions work;
	pthread_mutex_t lock;      /* ranges, log, plans */
	struct fake_range *ranges; /* by address */
	size_t n_ranges, ranges_size;
	struct fake_chunk *chunks;
	size_t n_chunks, chunks_size;
	uint64_t n_handles;
	struct fake_copies *copies;
	_Atomic uint64_t addresses_end, addresses_bytes;
	struct fake_plan plans[FAKE_N_CALLS];
	_Atomic uint64_t covers[GP_FENCE_SLOTS];
	_Atomic unsigned idle_pauses;
	_Atomic uint64_t *units; /* the history, a word a unit; NULL with too much memory */
	size_t n_units;
};

/* Keeps a history for a capacity up to 1 GiB. */
void fake_init(struct fake *fake, uint64_t capacity);
void fake_deinit(struct fake *fake);

/*
 * Returns the address where the content of this memory was first, and whether it is in host memory now. 0: nothing is
 * mapped there.
 */
uint64_t fake_content(struct fake *fake, uint64_t addr, bool *ret_is_of_host);

/*
 * Returns NULL if there was no breach, and all mappings and addresses are gone, except those that the driver
 * refused to unmap.
 */
const char *fake_check_unmapped(struct fake *fake);
struct gp_backend fake_backend(struct fake *fake);

/* The plan replaces an earlier plan for the same call. */
void fake_plan(struct fake *fake, struct fake_plan plan);
bool fake_is_planned(struct fake *fake, enum fake_call call);

/* fake_submit returns the number of the last piece of work. */
uint64_t fake_submit(struct fake *fake, unsigned n);
void fake_complete(struct fake *fake, uint64_t work);
void fake_complete_all(struct fake *fake);

/* Returns the number of these calls since it was last asked. */
unsigned fake_calls(struct fake *fake, enum fake_call call);

enum fake_use { FAKE_FREED, FAKE_FREED_UNFENCED, FAKE_FREED_SYNCED };

/* True if submissions are reported and none happened since the last record. */
bool fake_is_covered(const struct fake *fake);

/* The program is about to free a block that all work so far may touch. */
void fake_note_free(struct fake *fake, uint64_t addr, uint64_t bytes, enum fake_use use);

/* The program frees a block in stream order. Streams are the numbers 1 to 255. */
void fake_note_free_on(struct fake *fake, uint64_t addr, uint64_t bytes, unsigned stream);

/* Exports memory, so that another process may hold it from now on. */
void fake_note_export(struct fake *fake, uint64_t addr, uint64_t bytes);

/* Return the reason why a block must not be handed out now, or on that stream (0: none), or NULL. */
const char *fake_check_hand_out(struct fake *fake, uint64_t addr, uint64_t bytes, bool is_gpu_wait_enough);
const char *fake_check_hand_out_on(
	struct fake *fake, uint64_t addr, uint64_t bytes, bool is_gpu_wait_enough, unsigned stream);
