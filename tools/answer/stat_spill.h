/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory that is in the host (GPUPOOL_SPILL) in an answer to "status", as texts. */

#include <jansson.h>
#include <stdbool.h>

#include "tools/text/stat_text.h"

enum { STAT_SPILL_MAX = 512 };

/* True if memory is or was in the host, or could not go there. */
bool stat_spill_is_of_interest(const json_t *status);

/* Returns the bytes in the host now. */
uint64_t stat_spill_bytes(const json_t *status);

/*
 * Writes "2.00 GiB 43.1 ms" if memory is in the host, or "-". The time is what work that uses all of it once takes more
 * at least: that of copying it, at the speed that copies have had so far. Without a copy there is no time.
 */
void stat_spill_cell(char text[static STAT_COLUMN_MAX], const json_t *status);

/*
 * Writes a fact, counted from 0: how much is in the host, what that costs, and why memory could not move. A sentence
 * without its period. Returns false, without a text, after the last one.
 */
bool stat_spill_fact(char text[static STAT_SPILL_MAX], const json_t *status, size_t nth);
