/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stats.h"

static const struct {
	unsigned number;
	const char *name, *doing;
} rounds[GP_N_ROUNDS] = {
#define ROUND(number, name, doing, help) {number, #name, doing},
#include "ladder.def"
};

const char *gp_step_name(enum gp_step step)
{
	static const char *const names[GP_N_STEPS] = {
#define STEP(name, is_timed, help) [GP_STEP_##name] = #name,
#include "ladder.def"
	};

	return names[step];
}

unsigned gp_round_number(enum gp_round round)
{
	return rounds[round].number;
}

const char *gp_round_name(enum gp_round round)
{
	return rounds[round].name;
}

const char *gp_round_doing(enum gp_round round)
{
	return rounds[round].doing;
}

/* 0 stands for none. */
static uint64_t fastest(uint64_t a, uint64_t b)
{
	return a && b ? gp_min(a, b) : a + b;
}

void gp_stats_add(struct gp_stats *sum, const struct gp_stats *more)
{
#define STAT(name, ...) sum->name += more->name;
#include "stats.def"
	for (int i = 0; i < GP_N_STEPS; i++) {
		sum->steps[i].count += more->steps[i].count;
		sum->steps[i].ns += more->steps[i].ns;
		sum->steps[i].fastest_ns = fastest(sum->steps[i].fastest_ns, more->steps[i].fastest_ns);
	}
	for (int i = 0; i < GP_N_ROUNDS; i++) {
		sum->rounds[i].count += more->rounds[i].count;
		sum->rounds[i].gained_bytes += more->rounds[i].gained_bytes;
		sum->rounds[i].ns += more->rounds[i].ns;
	}
}
