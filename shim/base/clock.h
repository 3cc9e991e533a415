/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Time and waiting. The unused arguments let a pool's backend use these functions as they are. */

#include <stdint.h>

/* Returns the time of a monotonic clock. */
uint64_t gp_clock_now_ns(void *unused);

/* Pauses for longer with each attempt, counted from 0: the first ones only yield, the longest sleep takes 100 us. */
void gp_clock_pause(void *unused, unsigned attempt);

/* Sleeps for that long, or less after a signal. Not a cancellation point. */
void gp_clock_sleep(uint64_t ns);
