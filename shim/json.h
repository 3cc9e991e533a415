/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A writer of one JSON document into memory of its own, with an upper bound. Nothing has to be
 * checked on the way: the first thing that goes wrong (no room, no memory, an end without its
 * begin) is remembered, nothing more is written, and gp_json_finish() tells.
 *
 * The memory comes straight from the kernel: a guest's thread should leave the program's malloc
 * alone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_json {
	char *text;
	size_t length, mapped_bytes, cap_bytes;
	uint64_t is_object, has_member; /* a bit per open object or array, the innermost lowest */
	unsigned depth;                 /* at most 63 */
	int error;
};

/* Takes no memory yet. No document grows beyond cap_bytes, its line end included. */
void gp_json_init(struct gp_json *json, size_t cap_bytes);
void gp_json_deinit(struct gp_json *json);

/* Forgets what was written, and any error, for a new document. */
void gp_json_reset(struct gp_json *json);

/*
 * How many bytes may still be written: for lists that end early rather than overflow. 0 after an
 * error.
 */
size_t gp_json_room(const struct gp_json *json);

/*
 * Closes the document with a line end. The text is terminated by NUL, lives until the next reset or
 * deinit and is set only on success: 0, -EOVERFLOW (longer than the cap), -ENOMEM, -EINVAL (begins
 * and ends do not match, a key is missing in an object or given elsewhere).
 */
int gp_json_finish(struct gp_json *json, const char **text, size_t *length);

/* Members of an object take a key, everything else takes NULL. */
void gp_json_object_begin(struct gp_json *json, const char *key);
void gp_json_object_end(struct gp_json *json);
void gp_json_array_begin(struct gp_json *json, const char *key);
void gp_json_array_end(struct gp_json *json);

void gp_json_null(struct gp_json *json, const char *key);
void gp_json_bool(struct gp_json *json, const char *key, bool value);
void gp_json_u64(struct gp_json *json, const char *key, uint64_t value);
void gp_json_i64(struct gp_json *json, const char *key, int64_t value);

/* The same digits in every locale; null for what JSON has no number for. */
void gp_json_double(struct gp_json *json, const char *key, double value);

/* UINT64_MAX, which stands for none or unknown, is written as null; and so is a device below 0, which is none. */
void gp_json_amount(struct gp_json *json, const char *key, uint64_t bytes);
void gp_json_device(struct gp_json *json, const char *key, int device);

/* An address as a string, "0x7f12...": numbers above 2^53 are not safe in every reader. */
void gp_json_address(struct gp_json *json, const char *key, uint64_t value);

/* NULL is written as null; bytes that are no UTF-8 become U+FFFD. */
void gp_json_string(struct gp_json *json, const char *key, const char *value);
void gp_json_string_n(struct gp_json *json, const char *key, const char *value, size_t length);
