/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Counts the allocations in stream order that are left to the driver, by their reasons (common/async_left.def). Each of
 * them is a call that has reached a hook. The pool counts what it serves (stream_allocs in pool/stats.def). A thread
 * counts before it calls the driver.
 */

#include "shim/base/json.h"

enum gp_async_left {
	GP_ASYNC_LEFT_NONE, /* the pool serves the allocation */
#define GP_ASYNC_LEFT(id, name, words) GP_ASYNC_LEFT_##id,
#include "common/async_left.def"
	GP_N_ASYNC_LEFT
};

void gp_async_left_note(enum gp_async_left why);

/* Returns the number of allocations that were left for that reason; for GP_ASYNC_LEFT_NONE, for any. */
uint64_t gp_async_left_count(enum gp_async_left why);

/* Returns the words that follow the number of allocations. */
const char *gp_async_left_words(enum gp_async_left why);

/* Writes the member "async" of a process. */
void gp_async_left_write(struct gp_json *out);
