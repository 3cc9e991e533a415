/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Replays one call of the program. */

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
	struct replay_map caches; /* thread caches by replay_cache_key(); addr: pointer to the cache */
	struct replay_map
		live; /* blocks by recorded address; addr: the address in the replay, bytes: share of live_bytes */
	struct replay_map
		origins; /* if the settings ask for it: by address, bytes: requested, addr: thread, with the stack */
	uint64_t live_bytes;          /* of device memory, as requested */
	uint64_t n_answers;           /* recorded answers that are queued, of all pools */
	struct replay_pool *answered; /* list of pools with queued answers; some may have none left */
	struct replay_clock clock;
	_Atomic unsigned n_defers;
	struct gp_submissions work; /* what the program submitted */
};

/* Creates a pool for a POOL event, as it was recorded except for what the settings replace. */
void replay_add_pool(struct replay_state *run, const struct replay_event *e);

/* Closes all thread caches, also those of threads whose end was not recorded. */
void replay_close_caches(struct replay_state *run);

/* Replays any other call of the program: an allocation, a free, a change of a pool's settings. */
void replay_call(struct replay_state *run, const struct replay_event *e);
