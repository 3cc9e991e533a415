/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_SPILL: when an allocation would run out of device memory, memory that the program has moves to the host, at
 * the same addresses, and comes back once there is room. README.md has the rules.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/context/context.h"
#include "quiet.h"

enum gp_spill_direction { GP_SPILL_OUT, GP_SPILL_BACK, GP_SPILL_DIRECTIONS };

struct gp_spill_status {
	uint64_t host_bytes;              /* of the host, that are mapped in place of device memory */
	uint64_t since_ns;                /* since memory went to the host; 0: none is there */
	uint64_t out_bytes;               /* that went in all */
	uint64_t back_bytes;              /* that came back */
	uint64_t moving_ns;               /* time in which the program could not submit work, since memory moved */
	uint64_t copied_bytes, copied_ns; /* they show the speed of the link */
	uint64_t n_refusals;              /* times that none could be moved for an allocation that was short */
	char whys[GP_SPILL_DIRECTIONS][GP_QUIET_WHY_MAX]; /* the last attempt to move any failed; empty: it did not */
};

/* Functions of struct gp_spill_ops. */
uint64_t gp_spill_make_room(void *context, uint64_t bytes, uint64_t least);

void gp_spill_seek(void *context, bool is_begin);

/*
 * Brings back what there is room for, without waiting for a time of calm. For a thread of the program, or of the
 * server. Returns the bytes.
 */
uint64_t gp_spill_bring_back(void);

/*
 * To be called by a visit (submission.h) before the program exports the block at this address: brings all of it back,
 * since memory of the host cannot be exported. False, and a log line, if that is not possible.
 */
bool gp_spill_settle(CUdeviceptr ptr);

/* True if this byte has memory of the host, of which the driver gives other answers than of device memory. */
bool gp_spill_is_there(CUdeviceptr ptr);

/* All memory of the host has gone back. */
void gp_spill_note_end(void);

struct gp_spill_status gp_spill_status(void);

/* Returns why the setting has no effect on pools of this kind. NULL: it has, or is not set. */
const char *gp_spill_why_not(enum gp_kind kind);

/* Logs once why it has none in this context. */
void gp_spill_log_no_effect(const struct gp_context *context);

/* To be called before there is a context. */
void gp_spill_start(void);
