/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Parses and checks the answers of other processes, which may be hostile. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/text/stat_say.h"

enum {
	STAT_ERROR_MAX = 512,
	STAT_VALUES_MAX = 1 << 20, /* of a long answer; 8 MiB of "[[],[],..." would take several hundred MiB */
};

/* Returns an upper bound for the number of values that a parser would make of a text. */
size_t stat_reply_count(const char *text, size_t length);

/*
 * Parses an answer of schema "gpupool.NAME/..." with at most max_values, and gives an older one the present names. The
 * caller releases it with json_decref().
 * Returns NULL if the answer is not valid, or is an error of the process: *ret_exit and error then describe it.
 */
json_t *stat_reply_parse(const char *text, size_t length, const char *name, size_t max_values, enum stat_exit *ret_exit,
	char error[static STAT_ERROR_MAX]);

/*
 * Parses a saved answer. A list of exactly one answer is also valid, since --json prints a list if the user names no
 * process.
 */
json_t *stat_reply_parse_saved(const char *text, size_t length, const char *name, char error[static STAT_ERROR_MAX]);

/* Gets a member that is a number of at least 0. Returns false, and sets 0, if it is anything else. */
bool stat_reply_u64(const json_t *object, const char *key, uint64_t *ret_value);
uint64_t stat_reply_u64_or_0(const json_t *object, const char *key);

/* Returns a member that is a text, or "?". */
const char *stat_reply_text(const json_t *object, const char *key);

/* Returns true if the device has a valid number that no device before it has. The caller starts with seen = 0. */
bool stat_reply_new_device(const json_t *device, uint64_t *seen, uint64_t *ret_index);

/* Returns the sum of a member over an array of objects, at most UINT64_MAX. */
uint64_t stat_reply_sum(const json_t *array, const char *key);
