/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Replays a file: a survey of its contents, then a run with each pool type. */

#include "replay_gpu.h"

enum { REPLAY_ROWS = 10 };

/* The contents of a file, which do not depend on the pool type. */
struct replay_contents {
	uint64_t n_events, n_allocs, n_frees, n_refused; /* refused: allocations that failed */
	uint64_t n_foreign;                              /* frees of blocks that are not allocated in the file */
	uint64_t duration_ns;                            /* 0 for a trace */
	uint64_t peak_live_bytes; /* of device memory, in multiples of GP_ALIGN; of all devices together */
	uint64_t peak_live_pinned_bytes;
	uint64_t pid, start_s; /* 0 where unknown */
	uint32_t n_threads, n_pools;
	enum gp_kind kind;             /* of the first pool of device memory */
	bool is_text, is_cut, is_exit; /* is_text: a trace; is_exit: the process ended in order */
	char damage[REPLAY_ERROR_MAX]; /* where and how a recording is damaged, or empty */
};

/*
 * Returns 0, or -1 with the reason in error. A recording that is damaged behind its first allocation is accepted: from
 * now on the file ends before the damage. A trace, which people write, must be valid as a whole.
 */
int replay_survey(struct replay_file *file, struct replay_contents *ret_contents, char error[static REPLAY_ERROR_MAX]);

enum replay_reuse { REPLAY_REUSE_AUTO, REPLAY_REUSE_ORDERED, REPLAY_REUSE_COMPLETED };

struct replay_settings {
	enum gp_kind kind; /* of the pools of device memory */
	enum replay_reuse reuse;
	uint64_t limit_bytes; /* of device memory; GP_NO_LIMIT: as recorded */
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
	uint64_t peak_reserved_bytes, peak_reserved_pinned_bytes;
	uint64_t n_refused; /* allocations that fail in the replay but not in the recorded process */
	/* Until the first of these: allocations that were served, and the most bytes that were live. */
	uint64_t n_served, peak_served_bytes;
	unsigned n_rows;
	struct replay_row rows[REPLAY_ROWS];
};

/* Replays a file that has passed replay_survey(). Returns 0, or -1 with the reason in error. */
int replay_run(struct replay_file *file, const struct replay_contents *contents, const struct replay_settings *settings,
	struct replay_result *ret_result, char error[static REPLAY_ERROR_MAX]);
