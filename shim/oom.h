/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Out-of-memory errors that reach the program, explained: a few lines at the time, and all that is known for who asks
 * later. Of many errors in a row the first, the second, the fourth and so on are told of.
 */

#include <stdbool.h>
#include <time.h>

#include "../pool/failure.h"
#include "leaks.h"
#include "peers.h"

enum gp_oom_what { GP_OOM_DEVICE, GP_OOM_PINNED, GP_OOM_UNPOOLED };

/* The cause is what would have helped the request (oom_cause.c). */
enum gp_oom_cause {
	GP_OOM_BEYOND_DEVICE, /* the request is larger than the device */
	GP_OOM_BEYOND_LIMIT,  /* the request is larger than the limit */
	GP_OOM_FRAGMENTED,    /* the pool has enough cached, but not in one piece */
	GP_OOM_LIMITED,	      /* the limit is reached */
	GP_OOM_FULL,	      /* the device is full */
	GP_OOM_OTHERS,	      /* the device is full, and others hold more of it than this process */
	GP_OOM_REFUSED,	      /* the driver refused though it has enough */
	GP_OOM_PENDING,	      /* enough was freed, but the GPU may still use it */
	GP_OOM_ROUNDED,	      /* the pool's rounding of sizes takes what is missing */
	GP_OOM_N_CAUSES
};

enum { GP_OOM_PINS = 16, GP_OOM_PIN_BLOCKS = 4, GP_OOM_HOLDERS = 16 };

/* A driver allocation that cannot be given back, since the program holds a part of it. */
struct gp_oom_pin {
	uint64_t base, bytes, free_bytes, largest_free_bytes, used_bytes, n_used;
	struct gp_oom_pin_block {
		uint64_t addr, bytes;
		uint32_t site;
	} blocks[GP_OOM_PIN_BLOCKS]; /* the first of those that are used */
};

struct gp_oom {
	uint64_t n; /* of all; 0: there was none */
	uint64_t time_ns;
	time_t time; /* as the wall clock has it */
	enum gp_oom_what what;
	enum gp_oom_cause cause;
	int device; /* -1: pinned memory */
	enum gp_kind kind; /* of the pools, as configured */
	uint64_t bytes;
	uint64_t missing_bytes; /* even if all free memory were in one piece */
	uint64_t limit_bytes, charged_bytes; /* GP_NO_LIMIT: none */
	uint64_t device_total_bytes, device_free_bytes, unpooled_bytes; /* UINT64_MAX: unknown */
	uint64_t largest_free_bytes;
	uint64_t least_bytes;	/* that the program's blocks take under any pool type */
	uint64_t held_bytes;	/* that, and what is not pooled: the program's own share */
	uint64_t usable_bytes;	/* what that share can come to; UINT64_MAX: unknown */
	uint64_t granule;	/* of memory that can be mapped; 0: none can */
	uint64_t movable_bytes; /* free memory that vmm could move, about */
	bool is_vmm_better;	/* vmm would have served the request */
	struct gp_stats stats;
	struct gp_failure failure;
	struct gp_peers peers; /* what other processes said; n is 0 if none was asked */
	uint32_t site;
	unsigned n_pins, n_holders, n_callers;
	uint64_t n_pinned_segments, pinned_free_bytes;
	struct gp_oom_pin pins[GP_OOM_PINS];		/* most free bytes first */
	struct gp_holders holders[GP_OOM_HOLDERS], without; /* by site, most bytes first; none while stacks are off */
	struct gp_holders callers[GP_OOM_HOLDERS];	    /* likewise by caller */
};

/* What an allocation of that many bytes is told. No lock may be held. Keeps errno. */
void gp_oom_of_device(uint64_t bytes);
void gp_oom_of_pinned(struct gp_pool *pool, uint64_t bytes);
void gp_oom_of_unpooled(int device, struct gp_pool *rescuer, uint64_t bytes);

/* oom_survey.c. No lock may be held. */
void gp_oom_find_granule(struct gp_oom *oom); /* before the survey, of a device */
void gp_oom_survey(struct gp_oom *oom);	      /* the pins, least and movable bytes, the largest free block */

/* oom_cause.c: the cause and all that follows from the other numbers. */
void gp_oom_explain(struct gp_oom *oom);
bool gp_oom_is_full(const struct gp_oom *oom);
uint64_t gp_oom_others_bytes(const struct gp_oom *oom); /* of the device, that this process does not hold */

/* oom_say.c: the lines. */
void gp_oom_say(const struct gp_oom *oom);

/* oom_json.c: the answer to "oom" about that one. 0, or -ENOMEM. No lock may be held. */
int gp_oom_write(struct gp_json *out, const struct gp_oom *oom);

/* The last one. */
void gp_oom_last(struct gp_oom *ret);

/* Request "oom". */
int gp_oom_answer(int argc, char **argv, struct gp_json *out);
