/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Storage of the counters in stats.def and rounds.def, and how two snapshots add up. */

#include "base.h"

enum gp_round {
#define ROUND(number, name, help) GP_ROUND_##name,
#include "rounds.def"
	GP_N_ROUNDS
};

struct gp_round_stats {
	uint64_t count;		/* times entered */
	uint64_t yielded_bytes; /* given back, or made usable, by it */
	uint64_t ns;		/* time spent in it */
};

struct gp_stats {
#define STAT(name, help) uint64_t name;
#include "stats.def"
	struct gp_round_stats rounds[GP_N_ROUNDS];
};

/* The number of a round in the documentation, and its name. */
unsigned gp_round_number(enum gp_round round);
const char *gp_round_name(enum gp_round round);

/* sum += more, field by field. (The sum of two peaks is an upper bound of the peak of the sum.) */
void gp_stats_add(struct gp_stats *sum, const struct gp_stats *more);
