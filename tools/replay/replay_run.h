/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Runs the allocator on the calls in a file, with one pool type and one limit. */

#include "pool/pool.h"
#include "replay_jobs.h"
#include "replay_survey.h"

enum { REPLAY_ROWS = 10 };

enum replay_reuse { REPLAY_REUSE_AUTO, REPLAY_REUSE_ORDERED, REPLAY_REUSE_COMPLETED };

struct replay_settings {
	enum gp_kind kind; /* of the pools of device memory */
	enum replay_reuse reuse;
	uint64_t limit_bytes;  /* of device memory; GP_NO_LIMIT: as recorded */
	bool ends_at_refusal;  /* ends at the first allocation that fails only in the replay */
	bool knows_origins;    /* remembers which thread and which stack allocated each block (replay_state.origins) */
	uint64_t end_position; /* the last event; 0: of the file */
};

/* The state at one time: the device memory of all devices together. */
struct replay_row {
	uint64_t position, ns;
	uint64_t live_bytes; /* as requested */
	struct gp_stats stats;
};

struct replay_result {
	struct replay_settings settings;
	struct gp_stats device, pinned; /* of all pools together */
	uint64_t peak_total_bytes, peak_total_pinned_bytes;
	uint64_t peak_device_bytes, peak_position; /* of the device with the highest peak, and the event */
	uint32_t n_devices;
	uint64_t n_refused; /* allocations that fail in the replay but not in the recorded process */
	uint64_t n_rescued; /* allocations that failed in the recorded process and are served in the replay */
	/* Until the first of these: allocations that were served, and the most bytes that were live. */
	uint64_t n_served, peak_served_bytes;
	unsigned n_rows;
	struct replay_row rows[REPLAY_ROWS];
};

/* Returns the calls that took memory from the driver, gave it back, or moved it. */
static inline uint64_t replay_driver_calls(const struct replay_result *result)
{
	return result->device.driver_allocs + result->device.driver_frees + result->device.moves;
}

struct replay_state;

/* Looks at the pools at the end of a replay. */
struct replay_look {
	void (*fn)(void *arg, const struct replay_state *run);
	void *arg;
};

/*
 * Replays a file that has passed replay_survey(). Returns 0, or -1 with the reason in error. progress and look may be
 * NULL.
 */
int replay_run(struct replay_file *file, const struct replay_contents *contents, const struct replay_settings *settings,
	struct replay_progress *progress, const struct replay_look *look, struct replay_result *ret_result,
	char error[static REPLAY_ERROR_MAX]);
