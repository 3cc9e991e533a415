/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The counters of stats.def and ladder.def, and the sum of two snapshots. */

#include "base.h"

enum gp_step {
#define STEP(name, is_timed, help) GP_STEP_##name,
#include "ladder.def"
	GP_N_STEPS
};

enum gp_round {
#define ROUND(number, name, doing, help) GP_ROUND_##name,
#include "ladder.def"
	GP_N_ROUNDS
};

struct gp_step_stats {
	uint64_t count;      /* requests that the step served */
	uint64_t ns;         /* time spent in it, also without success; 0 if the time is not taken */
	uint64_t fastest_ns; /* the shortest time in which it served a request; 0: none, or the time is not taken */
};

struct gp_round_stats {
	uint64_t count;        /* times that the round was entered */
	uint64_t gained_bytes; /* bytes that it gave back or made usable */
	uint64_t ns;           /* time spent in it */
};

struct gp_stats {
#define STAT(name, ...) uint64_t name;
#include "stats.def"
	struct gp_step_stats steps[GP_N_STEPS];
	struct gp_round_stats rounds[GP_N_ROUNDS];
};

const char *gp_step_name(enum gp_step step);

/* Return the number of a round in the documentation, its name, and the words in messages for what it does. */
unsigned gp_round_number(enum gp_round round);
const char *gp_round_name(enum gp_round round);
const char *gp_round_doing(enum gp_round round);

/* Adds `more` to `sum`, field by field. The sum of two peaks is an upper bound of the peak of the sum. */
void gp_stats_add(struct gp_stats *sum, const struct gp_stats *more);
