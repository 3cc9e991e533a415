/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The GPU and the driver of a replay: the backend of its pools.
 *
 * If a pool makes a driver call that it also made in the recorded process, it gets the recorded answer. So the same
 * pool type with the same settings does exactly what it did then. Any other call is answered by a model:
 * - Work is complete once the recording saw it complete, once it is older than any work that the recording saw
 *   incomplete, or when the host waits.
 * - Memory whose release was begun is back in the driver once the work before it is complete.
 * - The driver gives memory while there is room for it, at the lowest free addresses: the pools choose among blocks of
 *   one size by address, so addresses that were never reused would lead to other peaks than those of a driver.
 */

#include "pool/pool.h"
#include "pool/submission.h"
#include "replay_map.h"
#include "replay_read.h"

/* The memory of a device, or pinned host memory. */
struct replay_memory {
	struct gp_addrmap map;
	struct gp_budget budget;
	uint64_t unpooled_bytes;
	uint64_t room_bytes;        /* the most that the driver can give, as far as the recording shows */
	uint64_t total_bytes;       /* by the replay */
	uint64_t recorded_bytes;    /* by the recorded process at this point */
	uint64_t peak_bytes;        /* the most that was charged for pools */
	uint64_t peak_position;     /* the event at which it was */
	uint64_t next_address;      /* for memory that was not recorded: no address from here on was used */
	struct replay_map gaps;     /* free addresses below next_address: bytes by address */
	struct replay_map segments; /* of the replay: bytes by address */
};

struct replay_answers {
	struct replay_event *events;
	size_t at, n, size; /* events before at have been applied */
	size_t n_queries;   /* queries among those that have not */
};

/* The position and time up to which the events of all pools have been applied. */
struct replay_clock {
	uint64_t now, now_ns;
};

struct replay_pool {
	struct gp_pool *pool;
	struct replay_pool *fences; /* the pool whose fences it uses: itself, or its sibling */
	uint32_t number;
	struct replay_memory *memory;
	bool is_pinned;
	bool is_early;  /* recorded by a version without thread caches and serial mode */
	unsigned flags; /* GP_RECORD_POOL_... */

	struct replay_answers answers;
	struct replay_pool *next_answered;        /* in the list of pools with queued answers */
	bool is_answered;                         /* in that list */
	const struct replay_clock *clock;         /* ignored until it has moved past first_now */
	uint64_t first_now;                       /* the clock's position when the pool was created */
	struct gp_submissions *work;              /* submissions of the whole process */
	bool is_instant;                          /* a trace: all work completes at once */
	uint64_t now, now_ns;                     /* last event of this pool; at least the clock */
	unsigned n_pauses;                        /* in a row, since an answer was applied */
	uint64_t done;                            /* work submitted up to this position is complete */
	uint64_t lag_ns;                          /* older work is complete, unless a recorded answer contradicts */
	uint64_t covers[GP_FENCE_SLOTS];          /* position of the record of each fence, in the replay */
	uint64_t covers_ns[GP_FENCE_SLOTS];       /* its time */
	uint64_t release_covers, release_ns;      /* the same of the last fence that a release waits for */
	uint64_t recorded_covers[GP_FENCE_SLOTS]; /* the same in the recorded process */
	struct replay_map recorded_segments;      /* of the recorded process */
};

void replay_memory_init(struct replay_memory *memory, uint64_t capacity_bytes, uint64_t limit_bytes);
void replay_memory_deinit(struct replay_memory *memory);

struct gp_backend replay_backend(struct replay_pool *pool);

/* Drops a pool whose context has ended, and its segments. */
void replay_pool_drop(struct replay_pool *pool);
void replay_pool_deinit(struct replay_pool *pool);

/* Queues a recorded answer of the driver until the pool makes a call that it answers. */
void replay_answer(struct replay_pool *pool, const struct replay_event *event);

/* Applies all queued answers: even if the replay made no such calls, they show what the GPU and the driver did. */
void replay_apply_answers(struct replay_pool *pool);

/* Returns the next recorded result of a retry in a RESCUE, or the model's answer for that many bytes. */
int replay_attempt(struct replay_pool *pool, uint64_t bytes);
