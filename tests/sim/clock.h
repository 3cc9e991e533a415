/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Vector clocks, which record the order of work. Each stream counts its submissions in a lane. For
 * each lane, a clock holds the count up to which all submissions are ordered before the clock's
 * holder. All host threads share one clock.
 */

#include <stdbool.h>
#include <stdint.h>

struct sim_clock {
	uint64_t *lanes;
	unsigned n;
};

void sim_clock_free(struct sim_clock *clock);
void sim_clock_join(struct sim_clock *into, const struct sim_clock *from);
void sim_clock_assign(struct sim_clock *into, const struct sim_clock *from);
void sim_clock_set(struct sim_clock *clock, unsigned lane, uint64_t count);

static inline uint64_t sim_clock_at(const struct sim_clock *clock, unsigned lane)
{
	return lane < clock->n ? clock->lanes[lane] : 0;
}

/* A stream has a lane. A retired lane goes to another stream once the host knows that its work is finished. */
unsigned sim_lane_new(void);
void sim_lane_retire(unsigned lane);
uint64_t sim_lane_tick(unsigned lane);

/* The clock of the host: all work that it has waited for or seen finished. */
const struct sim_clock *sim_host_clock(void);
void sim_host_learn(const struct sim_clock *clock);
static inline bool sim_host_knows(unsigned lane, uint64_t count)
{
	return sim_clock_at(sim_host_clock(), lane) >= count;
}
