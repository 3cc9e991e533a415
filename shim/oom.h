/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Out-of-memory errors that reach the program, explained: a few lines at the time, and all that is known for who asks
 * later. Of many errors in a row the first, the second, the fourth and so on are told of.
 */

#include <time.h>

#include "../pool/failure.h"
#include "leaks.h"
#include "peers.h"

enum gp_oom_what { GP_OOM_DEVICE, GP_OOM_PINNED, GP_OOM_UNPOOLED };

enum gp_oom_cause {
	GP_OOM_BEYOND_DEVICE, /* more than there is at all */
	GP_OOM_BEYOND_LIMIT,  /* more than the limit allows at all */
	GP_OOM_FRAGMENTED,    /* there is enough, but not in one piece */
	GP_OOM_LIMITED,	      /* the limit has no more */
	GP_OOM_FULL,	      /* the driver has no more */
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
	uint64_t bytes, missing_bytes;
	uint64_t limit_bytes, charged_bytes; /* GP_NO_LIMIT: none */
	uint64_t device_total_bytes, device_free_bytes, unpooled_bytes; /* UINT64_MAX: unknown */
	uint64_t largest_free_bytes;
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

/* oom_say.c: the lines. */
void gp_oom_say(const struct gp_oom *oom);

/* The last one. */
void gp_oom_last(struct gp_oom *ret);

/* Request "oom". */
int gp_oom_answer(int argc, char **argv, struct gp_json *out);
