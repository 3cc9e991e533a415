/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Writes one JSON document into its own buffer, up to a maximum size. The caller need not check each call. The first
 * error (no room, no memory, an end without its begin) is stored, nothing more is written after it, and
 * gp_json_finish() returns it.
 *
 * The buffer is mapped from the kernel, because gpupool's threads should not use the program's malloc.
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

/* Allocates nothing. A document may have at most cap_bytes, including its line end. */
void gp_json_init(struct gp_json *json, size_t cap_bytes);
void gp_json_deinit(struct gp_json *json);

/* Discards the document and any error, for a new document. */
void gp_json_reset(struct gp_json *json);

/*
 * Returns the number of bytes that may still be written, so that a list can end early instead of overflowing; 0 after
 * an error.
 */
size_t gp_json_room(const struct gp_json *json);

/*
 * Ends the document with a newline. The text is terminated by NUL, valid until the next reset or deinit, and set only
 * on success. Returns 0, -EOVERFLOW (longer than the maximum), -ENOMEM, or -EINVAL (a begin without its end or the
 * reverse, a member of an object without a key, or a key outside an object).
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

/* Writes the same digits in every locale; null for infinity and NaN, which JSON does not have. */
void gp_json_double(struct gp_json *json, const char *key, double value);

/* Write a number of bytes, with null for UINT64_MAX (none or unknown); and a device, with null below 0 (none). */
void gp_json_amount(struct gp_json *json, const char *key, uint64_t bytes);
void gp_json_device(struct gp_json *json, const char *key, int device);

/* Writes an address as a string, "0x7f12...": not every reader can represent numbers above 2^53. */
void gp_json_address(struct gp_json *json, const char *key, uint64_t value);

/* Write null for NULL, and U+FFFD for bytes that are not UTF-8. */
void gp_json_string(struct gp_json *json, const char *key, const char *value);
void gp_json_string_n(struct gp_json *json, const char *key, const char *value, size_t length);
