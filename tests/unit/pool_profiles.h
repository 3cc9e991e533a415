/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Profiles of the model: the behaviour of the backend, and the limits of the pool. One row for each profile. */

#include "pool_model.h"

static const struct profile {
	const char *name;
	bool cannot_release_behind, arrives_on_drain_only, completion_only, is_pressed_soon, can_wait, is_serial;
	uint64_t pending_bytes_max, pending_count_max;
} profiles[] = {
	{"with the defaults", .pending_bytes_max = UINT64_MAX, .pending_count_max = UINT64_MAX},
	{"with a short queue", .pending_bytes_max = 8 * GP_MIB, .pending_count_max = 10},
	{"without a queue"},
	{"on completion only", .completion_only = true, .pending_bytes_max = 40 * GP_MIB,
		.pending_count_max = UINT64_MAX},
	{"like pinned memory", .completion_only = true, .cannot_release_behind = true, .pending_bytes_max = 40 * GP_MIB,
		.pending_count_max = 10},
	{"on an old driver", .cannot_release_behind = true, .pending_bytes_max = UINT64_MAX,
		.pending_count_max = UINT64_MAX},
	{"with slow returns", .arrives_on_drain_only = true, .pending_bytes_max = 8 * GP_MIB,
		.pending_count_max = UINT64_MAX},
	{"on a full device", .is_pressed_soon = true, .can_wait = true, .pending_bytes_max = UINT64_MAX,
		.pending_count_max = UINT64_MAX},
	{"in serial mode", .is_serial = true, .pending_bytes_max = UINT64_MAX, .pending_count_max = UINT64_MAX},
};

_Static_assert(sizeof(profiles) / sizeof(*profiles) == MODEL_N_PROFILES, "a row for each");
