/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Answers of other processes, which may be anything, made into objects that can be relied on. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stat_say.h"

enum {
	STAT_ERROR_MAX = 512,
	STAT_VALUES_MAX = 1 << 20, /* of a long answer: 8 MiB of "[[],[],..." would become several hundred */
};

/* An upper bound for the number of values that a parser would make of it. */
size_t stat_reply_count(const char *text, size_t length);

/*
 * An answer of schema "gpupool.NAME/1" with at most max_values, to be released with json_decref(). NULL: *ret_exit and
 * error say what is wrong with it, or what the process says is wrong.
 */
json_t *stat_reply_parse(const char *text, size_t length, const char *name, size_t max_values,
	enum stat_exit *ret_exit, char error[static STAT_ERROR_MAX]);

/* A saved answer; or the only answer of a list, which is what --json prints where no process was named. */
json_t *stat_reply_parse_saved(const char *text, size_t length, const char *name, char error[static STAT_ERROR_MAX]);

/* A member that is a number from 0 up. False, and 0, if it is anything else. */
bool stat_reply_u64(const json_t *object, const char *key, uint64_t *ret_value);
uint64_t stat_reply_u64_or_0(const json_t *object, const char *key);

/* A member that is a text, else "?". */
const char *stat_reply_text(const json_t *object, const char *key);

/* Whether this is a device that a process can have, and none before it has its number: seen is 0 for the first. */
bool stat_reply_new_device(const json_t *device, uint64_t *seen, uint64_t *ret_index);

/* The sum of a member over an array of objects. */
uint64_t stat_reply_sum(const json_t *array, const char *key);
