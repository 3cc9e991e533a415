/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A file through the pools: what is in it, and what a kind of pool makes of it. */

#include "replay_gpu.h"

enum { REPLAY_ROWS = 10 };

/* What is in the file, whatever serves it. */
struct replay_contents {
	uint64_t n_events, n_allocs, n_frees, n_refused; /* refused: allocations that failed */
	uint64_t n_foreign;	  /* frees of what was not allocated in it */
	uint64_t duration_ns;	  /* 0 for a text */
	uint64_t peak_live_bytes; /* of device memory, in multiples of GP_ALIGN; of all devices together */
	uint64_t peak_live_pinned_bytes;
	uint64_t pid, start_s; /* 0 where unknown */
	uint32_t n_threads, n_pools;
	enum gp_kind kind;   /* of the first pool of device memory */
	bool is_text, is_cut, is_exit; /* exit: the process ended in order */
	char damage[REPLAY_ERROR_MAX]; /* why there is no more, where a recording is damaged; or empty */
};

/*
 * 0, or -1 and why. A recording that is damaged behind an allocation ends in front of the damage, from now on; a trace,
 * which people write, has to be right as a whole.
 */
int replay_survey(struct replay_file *file, struct replay_contents *ret_contents, char error[static REPLAY_ERROR_MAX]);

enum replay_reuse { REPLAY_REUSE_AUTO, REPLAY_REUSE_ORDERED, REPLAY_REUSE_COMPLETED };

struct replay_settings {
	enum gp_kind kind; /* of the pools of device memory */
	enum replay_reuse reuse;
	uint64_t limit_bytes; /* of device memory; GP_NO_LIMIT: as recorded */
};

/* How things were at one time; of device memory, all devices together. */
struct replay_row {
	uint64_t position, ns;
	uint64_t live_bytes; /* as asked for */
	struct gp_stats stats;
};

struct replay_result {
	struct replay_settings settings;
	struct gp_stats device, pinned; /* of all pools together */
	uint64_t peak_reserved_bytes, peak_reserved_pinned_bytes;
	uint64_t n_refused; /* allocations that failed here and did not when they were recorded */
	/* How far it came until the first of these: allocations that were served, and bytes live at the most. */
	uint64_t n_served, peak_served_bytes;
	unsigned n_rows;
	struct replay_row rows[REPLAY_ROWS];
};

/* The file must have passed replay_survey. 0, or -1 and why. */
int replay_run(struct replay_file *file, const struct replay_contents *contents, const struct replay_settings *settings,
	struct replay_result *ret_result, char error[static REPLAY_ERROR_MAX]);
