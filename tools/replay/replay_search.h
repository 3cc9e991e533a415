/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Searches the smallest limit under which a pool type serves a recording, by bisection over replays. */

#include "replay_run.h"

/* A replay with a limit. */
struct replay_try {
	uint64_t limit_bytes; /* of each device */
	uint64_t peak_bytes, driver_calls, host_waits;
	double hit_rate;
	uint64_t n_rescued; /* allocations that failed in the recorded process and are served */
	bool fits;          /* every allocation is served that was served in the recorded process */
};

struct replay_found {
	enum gp_kind kind;
	struct replay_result recorded; /* with the recorded limit, or none */
	bool fits;                     /* with some limit */
	bool serves_all;               /* with it, also the allocations that failed in the recorded process */
	struct replay_try smallest;    /* with the smallest limit that fits, to about 1 % */
	uint64_t n_replays;
};

/* At most this many replays are made by a search. */
enum { REPLAY_SEARCH_MAX = 12 };

/* Replays with this limit. Returns 0, or -1 with the reason in error. */
int replay_try_limit(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_settings *settings, struct replay_progress *progress, struct replay_try *ret_try,
	char error[static REPLAY_ERROR_MAX]);

/* Returns 0, or -1 with the reason in error. */
int replay_search(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_settings *settings, struct replay_progress *progress, struct replay_found *ret_found,
	char error[static REPLAY_ERROR_MAX]);
