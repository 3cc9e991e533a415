/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* One call of the program's in a replay. */

#include "replay_gpu.h"
#include "replay_run.h"

enum { REPLAY_DEVICES_MAX = 64 };

struct replay_state {
	const struct replay_contents *contents;
	struct replay_settings settings;
	struct replay_result *result;
	struct replay_memory *devices[REPLAY_DEVICES_MAX], *pinned;
	struct replay_pool **pools;
	uint32_t n_pools;
	struct replay_map caches; /* of threads, for pools; addr: where the cache is */
	struct replay_map live; /* by the address in the file: that of the replay, and the bytes of live_bytes */
	uint64_t live_bytes;	/* of device memory, as asked for */
	uint64_t n_answers; /* that wait, of all pools */
	struct replay_pool *answered; /* the list of the pools that have some, or had */
	struct replay_clock clock;
	_Atomic unsigned n_defers;
	struct gp_work work; /* what the program submitted */
};

/* A pool as the recorded process had it, or as the settings have it. */
void replay_add_pool(struct replay_state *run, const struct replay_event *e);

/* Those of threads that had no end, too. */
void replay_close_caches(struct replay_state *run);

/* Anything else that was called for: an allocation, a free, what pools were told. */
void replay_call(struct replay_state *run, const struct replay_event *e);
