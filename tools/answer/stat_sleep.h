/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state of sleep in an answer to "status", as texts. */

#include <jansson.h>
#include <stdbool.h>

#include "tools/text/stat_text.h"

enum { STAT_SLEEP_MAX = 256 };

/* True if the process is not awake, or has GPUPOOL_SLEEP set. */
bool stat_sleep_is_of_interest(const json_t *status);

/* Returns what the driver has taken out of the devices in a deep sleep. False: it is not known. */
bool stat_sleep_deep_bytes(const json_t *status, uint64_t *ret_bytes);

/*
 * Writes "28.0 MiB 5m03s" if the process is asleep, followed by " deep" if it is deep asleep, "waking" or the like if
 * it moves memory, or "-".
 */
void stat_sleep_cell(char text[static STAT_COLUMN_MAX], const json_t *status);

/* Writes what a process that is asleep has given and where its content is, in a sentence without its period, or "". */
void stat_sleep_sentence(char text[static STAT_SLEEP_MAX], const json_t *status);

/*
 * Writes another fact about sleep, counted from 0: what stays on the device and why, or that nothing does; the
 * setting; the last refusal.
 * Returns false, without a text, after the last one.
 */
bool stat_sleep_fact(char text[static STAT_SLEEP_MAX], const json_t *status, size_t nth);
