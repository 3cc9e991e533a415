/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
	FIRST_BYTES = 16 << 10,
	MAX_DEPTH = 63,
};

static void fail(struct gp_json *json, int error)
{
	if (!json->error)
		json->error = error;
}

static bool grow(struct gp_json *json, size_t bytes)
{
	size_t mapped = json->mapped_bytes ? json->mapped_bytes : FIRST_BYTES;
	void *text;

	while (mapped < bytes)
		mapped *= 2;
	if (json->text)
		text = mremap(json->text, json->mapped_bytes, mapped, MREMAP_MAYMOVE);
	else
		text = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (text == MAP_FAILED) {
		fail(json, -ENOMEM);
		return false;
	}
	json->text = text;
	json->mapped_bytes = mapped;
	return true;
}

/* Appends bytes. The buffer always has room for two more, the line end and the NUL. */
static void put(struct gp_json *json, const char *bytes, size_t length)
{
	if (json->error)
		return;
	if (length > gp_json_room(json)) {
		fail(json, -EOVERFLOW);
		return;
	}
	if (json->length + length + 2 > json->mapped_bytes && !grow(json, json->length + length + 2))
		return;
	memcpy(json->text + json->length, bytes, length);
	json->length += length;
}

static void put_text(struct gp_json *json, const char *text)
{
	put(json, text, strlen(text));
}

/* The length of the valid UTF-8 sequence at s, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t length;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (length > left)
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0; /* overlong forms */
	if (s[0] == 0xed)
		high = 0x9f; /* surrogates */
	if (s[0] == 0xf0)
		low = 0x90;
	if (s[0] == 0xf4)
		high = 0x8f; /* beyond U+10FFFF */
	if (s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_escape(struct gp_json *json, unsigned char c)
{
	char text[8];

	switch (c) {
	case '"':
		put_text(json, "\\\"");
		break;
	case '\\':
		put_text(json, "\\\\");
		break;
	case '\n':
		put_text(json, "\\n");
		break;
	case '\t':
		put_text(json, "\\t");
		break;
	default:
		snprintf(text, sizeof(text), "\\u%04x", c);
		put_text(json, text);
	}
}

static void put_quoted(struct gp_json *json, const char *value, size_t length)
{
	const unsigned char *s = (const unsigned char *)value;
	size_t i = 0;

	put_text(json, "\"");
	while (i < length && !json->error) {
		size_t run = 0, sequence;

		while (i + run < length && is_plain(s[i + run]))
			run++;
		if (run) {
			put(json, value + i, run);
			i += run;
			continue;
		}
		sequence = utf8_length(s + i, length - i);
		if (sequence > 1)
			put(json, value + i, sequence);
		else if (sequence == 1)
			put_escape(json, s[i]);
		else
			put_text(json, "\\ufffd");
		i += sequence ? sequence : 1;
	}
	put_text(json, "\"");
}

/* Writes what precedes a value: a comma if it is not the first, and in an object its key. */
static void begin_value(struct gp_json *json, const char *key)
{
	bool in_object = json->depth && (json->is_object & 1);

	if (in_object != (key != NULL) || (!json->depth && json->length))
		fail(json, -EINVAL);
	if (json->has_member & 1)
		put_text(json, ",");
	if (json->depth)
		json->has_member |= 1;
	if (key) {
		put_quoted(json, key, strlen(key));
		put_text(json, ":");
	}
}

static void begin_nest(struct gp_json *json, const char *key, bool object)
{
	begin_value(json, key);
	if (json->depth == MAX_DEPTH)
		fail(json, -EINVAL);
	if (json->error)
		return;
	put_text(json, object ? "{" : "[");
	json->depth++;
	json->is_object = json->is_object << 1 | object;
	json->has_member <<= 1;
}

static void end_nest(struct gp_json *json, bool object)
{
	if (!json->depth || (json->is_object & 1) != object)
		fail(json, -EINVAL);
	if (json->error)
		return;
	put_text(json, object ? "}" : "]");
	json->depth--;
	json->is_object >>= 1;
	json->has_member >>= 1;
}

void gp_json_init(struct gp_json *json, size_t cap_bytes)
{
	*json = (struct gp_json){.cap_bytes = cap_bytes};
}

void gp_json_deinit(struct gp_json *json)
{
	if (json->text)
		munmap(json->text, json->mapped_bytes);
	gp_json_init(json, json->cap_bytes);
}

void gp_json_reset(struct gp_json *json)
{
	json->length = 0;
	json->is_object = json->has_member = 0;
	json->depth = 0;
	json->error = 0;
}

size_t gp_json_room(const struct gp_json *json)
{
	if (json->error || json->length + 1 > json->cap_bytes)
		return 0;
	return json->cap_bytes - json->length - 1;
}

int gp_json_finish(struct gp_json *json, const char **text, size_t *length)
{
	if (json->depth || !json->length)
		fail(json, -EINVAL);
	if (json->error)
		return json->error;
	json->text[json->length] = '\n';
	json->text[json->length + 1] = '\0';
	*text = json->text;
	*length = json->length + 1;
	return 0;
}

void gp_json_object_begin(struct gp_json *json, const char *key)
{
	begin_nest(json, key, true);
}

void gp_json_object_end(struct gp_json *json)
{
	end_nest(json, true);
}

void gp_json_array_begin(struct gp_json *json, const char *key)
{
	begin_nest(json, key, false);
}

void gp_json_array_end(struct gp_json *json)
{
	end_nest(json, false);
}

void gp_json_null(struct gp_json *json, const char *key)
{
	begin_value(json, key);
	put_text(json, "null");
}

void gp_json_bool(struct gp_json *json, const char *key, bool value)
{
	begin_value(json, key);
	put_text(json, value ? "true" : "false");
}

void gp_json_u64(struct gp_json *json, const char *key, uint64_t value)
{
	char text[24];

	begin_value(json, key);
	snprintf(text, sizeof(text), "%" PRIu64, value);
	put_text(json, text);
}

void gp_json_i64(struct gp_json *json, const char *key, int64_t value)
{
	char text[24];

	begin_value(json, key);
	snprintf(text, sizeof(text), "%" PRId64, value);
	put_text(json, text);
}

/*
 * Replaces the decimal point of the locale, which may have several bytes, by ".": every character that is not a digit,
 * a sign or the exponent's "e" belongs to the decimal point.
 */
void gp_json_double(struct gp_json *json, const char *key, double value)
{
	char text[64], number[64];
	size_t length = 0;
	bool point = false;

	if (value - value != 0) {
		gp_json_null(json, key); /* infinite, or not a number */
		return;
	}
	begin_value(json, key);
	snprintf(text, sizeof(text), "%.15g", value);
	for (const char *s = text; *s; s++) {
		if ((*s >= '0' && *s <= '9') || strchr("+-e", *s)) {
			number[length++] = *s;
			point = false;
		} else if (!point) {
			number[length++] = '.';
			point = true;
		}
	}
	put(json, number, length);
}

void gp_json_amount(struct gp_json *json, const char *key, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		gp_json_null(json, key);
	else
		gp_json_u64(json, key, bytes);
}

void gp_json_device(struct gp_json *json, const char *key, int device)
{
	if (device < 0)
		gp_json_null(json, key);
	else
		gp_json_i64(json, key, device);
}

void gp_json_address(struct gp_json *json, const char *key, uint64_t value)
{
	char text[24];

	begin_value(json, key);
	snprintf(text, sizeof(text), "\"0x%" PRIx64 "\"", value);
	put_text(json, text);
}

void gp_json_string_n(struct gp_json *json, const char *key, const char *value, size_t length)
{
	if (!value) {
		gp_json_null(json, key);
		return;
	}
	begin_value(json, key);
	put_quoted(json, value, length);
}

void gp_json_string(struct gp_json *json, const char *key, const char *value)
{
	gp_json_string_n(json, key, value, value ? strlen(value) : 0);
}
