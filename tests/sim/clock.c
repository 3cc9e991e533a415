/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "clock.h"

#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct lane {
	uint64_t count;
	bool retired;
};

static struct lane *lanes;
static unsigned n_lanes, lanes_capacity;
static struct sim_clock host;

static void clock_reserve(struct sim_clock *clock, unsigned n)
{
	if (n <= clock->n)
		return;
	clock->lanes = realloc(clock->lanes, n * sizeof(*clock->lanes));
	if (!clock->lanes)
		abort();
	memset(clock->lanes + clock->n, 0, (n - clock->n) * sizeof(*clock->lanes));
	clock->n = n;
}

void sim_clock_free(struct sim_clock *clock)
{
	free(clock->lanes);
	*clock = (struct sim_clock){0};
}

void sim_clock_join(struct sim_clock *into, const struct sim_clock *from)
{
	clock_reserve(into, from->n);
	for (unsigned i = 0; i < from->n; i++)
		if (into->lanes[i] < from->lanes[i])
			into->lanes[i] = from->lanes[i];
}

void sim_clock_assign(struct sim_clock *into, const struct sim_clock *from)
{
	clock_reserve(into, from->n);
	if (from->n)
		memcpy(into->lanes, from->lanes, from->n * sizeof(*from->lanes));
	if (into->n > from->n)
		memset(into->lanes + from->n, 0, (into->n - from->n) * sizeof(*from->lanes));
}

void sim_clock_set(struct sim_clock *clock, unsigned lane, uint64_t count)
{
	clock_reserve(clock, lane + 1);
	clock->lanes[lane] = count;
}

unsigned sim_lane_new(void)
{
	for (unsigned i = 0; i < n_lanes; i++)
		if (lanes[i].retired && sim_host_knows(i, lanes[i].count)) {
			lanes[i].retired = false;
			return i;
		}
	sim_grow(&lanes, &lanes_capacity, n_lanes + 1, sizeof(*lanes));
	lanes[n_lanes] = (struct lane){0};
	return n_lanes++;
}

void sim_lane_retire(unsigned lane)
{
	lanes[lane].retired = true;
}

uint64_t sim_lane_tick(unsigned lane)
{
	return ++lanes[lane].count;
}

const struct sim_clock *sim_host_clock(void)
{
	return &host;
}

void sim_host_learn(const struct sim_clock *clock)
{
	sim_clock_join(&host, clock);
}
