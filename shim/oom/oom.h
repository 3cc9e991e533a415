/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Explains out-of-memory errors that reach the program: at once in a few log lines, and in full in the answer to a
 * later request "oom". The 1st, 2nd, 4th, 8th error of a process and so on are logged.
 */

#include <stdbool.h>
#include <time.h>

#include "pool/pool.h"
#include "shim/context/group.h"
#include "shim/usage/leaks.h"
#include "shim/reclaim/processes.h"

enum gp_oom_what { GP_OOM_DEVICE, GP_OOM_PINNED, GP_OOM_UNPOOLED };

/* The cause is what would have helped the request (oom_cause.c). */
enum gp_oom_cause {
	GP_OOM_BEYOND_DEVICE, /* the request is larger than the device */
	GP_OOM_BEYOND_LIMIT,  /* the request is larger than the limit */
	GP_OOM_FRAGMENTED,    /* the pool has enough cached, but it is not contiguous */
	GP_OOM_LIMITED,       /* the limit is reached */
	GP_OOM_GROUP,         /* the limit of the group is reached, or the process cannot join the group */
	GP_OOM_FULL,          /* the device is full */
	GP_OOM_OTHERS,        /* the device is full; other processes and CUDA use more than the program */
	GP_OOM_REFUSED,       /* the driver refused although it has enough */
	GP_OOM_PENDING,       /* enough was freed, but the GPU may still use it */
	GP_OOM_ROUNDED,       /* the bytes that the pool adds to sizes would have been enough */
	GP_OOM_N_CAUSES
};

enum { GP_OOM_SEGMENTS = 16, GP_OOM_SEGMENT_BLOCKS = 4, GP_OOM_HOLDERS = 16 };

/* A partly used segment: it cannot be given back because the program holds blocks in it. */
struct gp_oom_segment {
	uint64_t base, bytes, unused_bytes, largest_unused_bytes, used_bytes, n_used;
	struct gp_oom_segment_block {
		uint64_t addr, bytes;
		uint32_t site;
	} blocks[GP_OOM_SEGMENT_BLOCKS]; /* the first blocks that the program holds there */
};

struct gp_oom {
	uint64_t n; /* number of the error, from 1; 0: there was none */
	uint64_t time_ns;
	time_t time; /* of the wall clock */
	enum gp_oom_what what;
	enum gp_oom_cause cause;
	int device;        /* -1: pinned memory */
	enum gp_kind kind; /* of the pool that has failed, or of the device's */
	uint64_t bytes;
	uint64_t missing_bytes;              /* what the request lacks even if all available memory were contiguous */
	uint64_t limit_bytes, charged_bytes; /* GP_NO_LIMIT: none */
	uint64_t device_total_bytes, device_free_bytes, unpooled_bytes; /* UINT64_MAX: unknown */
	uint64_t largest_unused_bytes;
	uint64_t least_bytes;   /* what the program's blocks take under every pool type */
	uint64_t held_bytes;    /* least_bytes plus memory that is not pooled: the program's own share */
	uint64_t usable_bytes;  /* upper bound of that share; UINT64_MAX: unknown */
	uint64_t granule;       /* of mapped memory; 0: memory cannot be mapped */
	uint64_t movable_bytes; /* estimate of the free memory that vmm could move */
	bool is_vmm_better;     /* vmm would have served the request */
	struct gp_group_report group;
	struct gp_stats stats;
	struct gp_failure failure;
	struct gp_processes processes; /* answers of other processes; n is 0 if none was asked */
	uint32_t site;
	unsigned n_segments, n_holders, n_callers;
	uint64_t n_partly_used,
		partly_used_unused_bytes; /* all segments of struct gp_oom_segment, and their free bytes */
	struct gp_oom_segment segments[GP_OOM_SEGMENTS]; /* those with the most free bytes, most first */
	struct gp_holders holders[GP_OOM_HOLDERS];       /* by call site, most bytes first; none while stacks are off */
	struct gp_holders without;                       /* blocks without a call site, while stacks are on */
	struct gp_holders callers[GP_OOM_HOLDERS];       /* by calling module, most bytes first */
};

/*
 * Report that an allocation of `bytes` fails with out of memory. failure: what the pool tried for it, or a failure of 0
 * bytes if no pool tried anything. No lock may be held. These functions keep errno. gp_oom_of_device: on the device of
 * the current context.
 */
void gp_oom_of_device(uint64_t bytes, const struct gp_failure *failure);
void gp_oom_on_device(int device, uint64_t bytes, const struct gp_failure *failure);
void gp_oom_of_pinned(uint64_t bytes, const struct gp_failure *failure);
void gp_oom_of_unpooled(int device, uint64_t bytes, const struct gp_failure *failure);

/* Copies the last error; its n is the number of errors so far. */
void gp_oom_last(struct gp_oom *ret);
