/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Counters per second, from two answers of the same process to "status". The time between them is that of the process,
 * so neither a late answer nor a stopped process distorts a rate.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/text/stat_text.h"

struct stat_rates {
	double allocs, misses, driver_calls; /* per second; negative: unknown */
	double driver_share;                 /* of the time that was spent in these calls, from 0 */
};

/* Returns the time between two answers, or 0 if it is unknown. before: NULL: there is none. */
uint64_t stat_rate_elapsed_ns(const json_t *reply, const json_t *before);

/* Sets the rates of a device, or of pinned memory, from the same object of both answers. before: NULL: all unknown. */
void stat_rates_of(struct stat_rates *rates, const json_t *object, const json_t *before, uint64_t elapsed_ns);

/* The same for all devices of a process, from its answers. */
void stat_rates_of_process(struct stat_rates *rates, const json_t *reply, const json_t *before);

/* Returns the device with the same number in the other answer, or NULL. */
const json_t *stat_rate_device_before(const json_t *before, const json_t *device);

/* Returns the rate of one member, or a negative number if it is unknown or the member does not count events. */
double stat_rate_of_member(const char *key, const json_t *object, const json_t *before, uint64_t elapsed_ns);

/* Writes three significant digits: "0", "0.25", "12.3", "1.23k", "4.56M"; "-" if the rate is unknown. */
void stat_rate_text(char text[static STAT_TEXT_MAX], double per_second);
