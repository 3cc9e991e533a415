/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The GPU and the driver of a replay: what stands behind a pool that runs on a recording.
 *
 * Where the pool asks what it asked when it was recorded, it gets the answer of then: so the same kind of pool with the
 * same settings does exactly what it did. Where it asks something else, a model answers: work completes when the
 * recording saw it complete, however often it looked, or when the host waits; memory is given while there is room for
 * it, at addresses that are used once.
 */

#include "../pool/pool.h"
#include "../pool/work.h"
#include "replay_map.h"
#include "replay_read.h"

/* The memory of a device, or that of the machine. */
struct replay_memory {
	struct gp_addrmap map;
	struct gp_budget budget;
	uint64_t unpooled_bytes;
	uint64_t room_bytes;	 /* what the driver has in all, as far as is known */
	uint64_t reserved_bytes; /* by this replay */
	uint64_t recorded_bytes; /* reserved when it was recorded */
	uint64_t peak_bytes;	 /* most that was charged for pools */
	uint64_t next_address;	 /* for what was not recorded */
	struct replay_map segments; /* of this replay: bytes by address */
};

struct replay_answers {
	struct replay_event *events;
	size_t at, n, size; /* those before at have been applied */
};

/* Position and time of what has happened in all pools. */
struct replay_clock {
	uint64_t now, now_ns;
};

struct replay_pool {
	struct gp_pool *pool;
	struct replay_pool *fences; /* whose it has: its own, or another's */
	uint32_t number;
	struct replay_memory *memory;
	bool is_pinned;
	unsigned flags; /* GP_RECORD_POOL_... */

	struct replay_answers answers;
	struct replay_pool *next_answered; /* in the list of pools with answers, if it is there */
	bool is_answered;
	const struct replay_clock *clock;  /* counts once it has moved on */
	uint64_t first_now;		   /* of the clock, when the pool came */
	struct gp_work *work;			     /* the whole process' */
	bool is_instant;			     /* all work completes at once */
	uint64_t now, now_ns;			     /* as in clock, or later: what has happened in this pool */
	uint64_t done;				     /* work submitted up to this position is complete */
	uint64_t covers[GP_FENCE_SLOTS];	     /* position of the records of this replay */
	uint64_t recorded_covers[GP_FENCE_SLOTS];    /* and of those in the recording */
	struct replay_map recorded_segments;	     /* of the recording */
};

void replay_memory_init(struct replay_memory *memory, uint64_t capacity_bytes, uint64_t limit_bytes);
void replay_memory_deinit(struct replay_memory *memory);

struct gp_backend replay_backend(struct replay_pool *pool);

/* Its context has ended, and all that the pool had with it. */
void replay_pool_drop(struct replay_pool *pool);
void replay_pool_deinit(struct replay_pool *pool);

/* An answer that was recorded: waits for the question. */
void replay_answer(struct replay_pool *pool, const struct replay_event *event);

/* Answers that nobody has asked for are still what happened. */
void replay_apply_answers(struct replay_pool *pool);

/* The next recorded result of another attempt in a RESCUE, or what the model says of that many bytes. */
int replay_attempt(struct replay_pool *pool, uint64_t bytes);
