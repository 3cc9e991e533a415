/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Allocations in stream order (GPUPOOL_ASYNC) in an answer to "status", as texts. */

#include <jansson.h>
#include <stdbool.h>

#include "tools/text/stat_text.h"

enum { STAT_ASYNC_MAX = 256 };

/*
 * Writes a fact, counted from 0: how many allocations the pool has served, how many it has left to the driver, and why.
 * A sentence without its period. Returns false, without a text, after the last one, and at once if no such allocation
 * has reached gpupool.
 */
bool stat_async_fact(char text[static STAT_ASYNC_MAX], const json_t *status, size_t nth);
