/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Parses and formats amounts of memory. A cursor moves over the text and stops at the first wrong character. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "size.h"

#define PPB             UINT64_C(1000000000)
#define PERCENT         (PPB / 100)
#define FRACTION_DIGITS 18

#define HOW_SIZE  "use 4G or 4GiB (1024), or 4GB (1000)"
#define HOW_LIMIT "use 4G or 4GiB (1024), 4GB (1000), 50% or none"
#define HOW_LIST  "use for example 0=8GiB,1=50%,*=none"
#define HOW_RATIO "use a fraction from 0 to 1, or a percentage: 0.2 or 20%"
#define HOW_COUNT "use a whole number or unlimited"

struct cursor {
	const char *start;
	const char *at;
	struct gp_text_error *error;
};

struct number {
	const char *start;
	uint64_t whole; /* UINT64_MAX if it is larger */
	uint64_t fraction;
	uint64_t fraction_unit;   /* denominator of the fraction: 10, 100, 1000 ... */
	const char *fraction_dot; /* the decimal point; NULL if there is none */
	bool is_exact;            /* no non-zero digits were cut from the end */
};

static int fail_at(struct cursor *c, const char *at, const char *why, const char *next)
{
	*c->error = (struct gp_text_error){
		.offset = (size_t)(at - c->start),
		.why = why,
		.next = next,
	};
	return -EINVAL;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool gp_text_is_word(const char *text, size_t length, const char *word)
{
	for (size_t i = 0; i < length; i++)
		if (!word[i] || lower(text[i]) != word[i])
			return false;
	return !word[length];
}

/* Consumes the entry if it is this word; otherwise leaves the cursor where it is. */
static bool take_word(struct cursor *c, const char *word)
{
	size_t length = strcspn(c->at, ",");

	if (!gp_text_is_word(c->at, length, word))
		return false;
	c->at += length;
	return true;
}

static bool is_at_end(const struct cursor *c)
{
	return *c->at == '\0' || *c->at == ',';
}

static bool take_digits(struct cursor *c, uint64_t *ret)
{
	uint64_t value = 0;

	if (!is_digit(*c->at))
		return false;
	for (; is_digit(*c->at); c->at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*c->at - '0'), &value))
			value = UINT64_MAX;
	*ret = value;
	return true;
}

static void take_fraction(struct cursor *c, struct number *n)
{
	for (int digits = 0; is_digit(*c->at); c->at++, digits++) {
		if (digits >= FRACTION_DIGITS) {
			n->is_exact = n->is_exact && *c->at == '0';
			continue;
		}
		n->fraction = n->fraction * 10 + (uint64_t)(*c->at - '0');
		n->fraction_unit *= 10;
	}
}

static int take_number(struct cursor *c, struct number *n, const char *why, const char *next)
{
	*n = (struct number){.start = c->at, .fraction_unit = 1, .is_exact = true};
	if (*c->at == '-')
		return fail_at(c, c->at, "is negative", next);
	if (is_at_end(c))
		return fail_at(c, c->at, c->at == c->start ? "is empty" : "ends too early", next);
	if (!take_digits(c, &n->whole))
		return fail_at(c, c->at, why, next);
	if (*c->at != '.')
		return 0;
	n->fraction_dot = c->at++;
	if (!is_digit(*c->at))
		return fail_at(c, c->at, why, next);
	take_fraction(c, n);
	return 0;
}

/* Multiplies the number by the unit, rounded down. Returns false if the result needs more than 64 bits. */
static bool number_scale(const struct number *n, uint64_t unit, uint64_t *ret)
{
	unsigned __int128 value = (unsigned __int128)n->whole * unit;

	value += (unsigned __int128)n->fraction * unit / n->fraction_unit;
	*ret = (uint64_t)value;
	return value <= UINT64_MAX && n->whole != UINT64_MAX;
}

static uint64_t take_unit(struct cursor *c)
{
	static const char letters[] = "kmgt";
	const char *letter = *c->at ? strchr(letters, lower(*c->at)) : NULL;
	unsigned power = letter ? (unsigned)(letter - letters) + 1 : 0;
	uint64_t base = 1024;
	uint64_t unit = 1;

	if (letter)
		c->at++;
	if (lower(*c->at) == 'b') {
		base = 1000;
		c->at++;
	} else if (letter && lower(c->at[0]) == 'i' && lower(c->at[1]) == 'b') {
		c->at += 2;
	}
	while (power--)
		unit *= base;
	return unit;
}

/* Parses what follows the number of a size, and computes the bytes. */
static int size_finish(struct cursor *c, const struct number *n, const char *next, uint64_t *ret)
{
	uint64_t unit = take_unit(c);
	uint64_t bytes;

	if (!is_at_end(c))
		return fail_at(c, c->at, "is not a size", next);
	if (n->fraction_dot && unit == 1)
		return fail_at(c, n->fraction_dot, "has a fraction of a byte", "add a unit, as in 1.5G");
	if (!number_scale(n, unit, &bytes) || bytes > INT64_MAX)
		return fail_at(c, n->start, "is too large", next);
	*ret = bytes;
	return 0;
}

static int share_finish(struct cursor *c, const struct number *n, uint64_t *ret_ppb)
{
	c->at++;
	if (!is_at_end(c))
		return fail_at(c, c->at, "is not a percentage", HOW_LIMIT);
	if (n->whole > 100 || (n->whole == 100 && (n->fraction || !n->is_exact)))
		return fail_at(c, n->start, "is over 100 %", "use at most 100%");
	number_scale(n, PERCENT, ret_ppb);
	return 0;
}

static int take_limit(struct cursor *c, struct gp_limit *ret)
{
	struct gp_limit limit = {.kind = GP_LIMIT_NONE};
	struct number n;
	int r;

	if (take_word(c, "none")) {
		*ret = limit;
		return 0;
	}
	r = take_number(c, &n, "is not a size", HOW_LIMIT);
	if (r < 0)
		return r;
	if (*c->at == '%') {
		limit.kind = GP_LIMIT_SHARE;
		r = share_finish(c, &n, &limit.share_ppb);
	} else {
		limit.kind = GP_LIMIT_BYTES;
		r = size_finish(c, &n, HOW_LIMIT, &limit.bytes);
	}
	if (r < 0)
		return r;
	if (!limit.bytes && !limit.share_ppb)
		return fail_at(c, n.start, "is a limit of zero", "use none for no limit");
	*ret = limit;
	return 0;
}

int gp_size_parse(const char *text, uint64_t *ret_bytes, struct gp_text_error *error)
{
	struct cursor c = {.start = text, .at = text, .error = error};
	struct number n;
	uint64_t bytes;
	int r;

	r = take_number(&c, &n, "is not a size", HOW_SIZE);
	if (r < 0)
		return r;
	r = size_finish(&c, &n, HOW_SIZE, &bytes);
	if (r < 0)
		return r;
	if (*c.at)
		return fail_at(&c, c.at, "is not a size", HOW_SIZE);
	*ret_bytes = bytes;
	return 0;
}

void gp_size_format(uint64_t bytes, char text[static GP_SIZE_TEXT_MAX])
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;

	while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof(units) / sizeof(*units)) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, GP_SIZE_TEXT_MAX, "%" PRIu64 "%s", bytes, units[unit]);
}

int gp_limit_parse(const char *text, struct gp_limit *ret_limit, struct gp_text_error *error)
{
	struct cursor c = {.start = text, .at = text, .error = error};
	struct gp_limit limit;
	int r = take_limit(&c, &limit);

	if (r < 0)
		return r;
	if (*c.at)
		return fail_at(&c, c.at, "is more than one limit", HOW_LIMIT);
	*ret_limit = limit;
	return 0;
}

/* Parses "DEVICE=" and returns the device's limit, or NULL with the error set. */
static struct gp_limit *take_device(struct cursor *c, struct gp_limit_list *list, bool *rest_seen)
{
	const char *start = c->at;
	bool seen;
	uint64_t device = 0;

	if (*c->at == '*') {
		c->at++;
		seen = *rest_seen;
		*rest_seen = true;
	} else if (take_digits(c, &device) && device < GP_LIMIT_DEVICES_MAX) {
		seen = list->named >> device & 1;
		list->named |= UINT64_C(1) << device;
	} else if (c->at != start && *c->at == '=') {
		fail_at(c, start, "names a device over 63", HOW_LIST);
		return NULL;
	} else {
		fail_at(c, start, is_at_end(c) ? "has an empty entry" : "names no device", HOW_LIST);
		return NULL;
	}
	if (*c->at != '=') {
		fail_at(c, start, "has an entry without a device", HOW_LIST);
		return NULL;
	}
	c->at++;
	if (seen) {
		fail_at(c, start, "names a device twice", "give each device one limit");
		return NULL;
	}
	return *start == '*' ? &list->rest : &list->device[device];
}

int gp_limit_list_parse(const char *text, struct gp_limit_list *ret_list, struct gp_text_error *error)
{
	struct cursor c = {.start = text, .at = text, .error = error};
	struct gp_limit_list list = {.named = 0};
	bool rest_seen = false;

	if (!strchr(text, '=') && !strchr(text, ',')) {
		int r = gp_limit_parse(text, &list.rest, error);
		if (r < 0)
			return r;
		*ret_list = list;
		return 0;
	}
	for (;;) {
		struct gp_limit *limit = take_device(&c, &list, &rest_seen);
		if (!limit)
			return -EINVAL;
		int r = take_limit(&c, limit);
		if (r < 0)
			return r;
		if (*c.at == '\0')
			break;
		c.at++;
	}
	*ret_list = list;
	return 0;
}

uint64_t gp_limit_bytes(const struct gp_limit *limit, uint64_t total_bytes)
{
	switch (limit->kind) {
	case GP_LIMIT_NONE:
		return UINT64_MAX;
	case GP_LIMIT_BYTES:
		return limit->bytes;
	case GP_LIMIT_SHARE:
		return (uint64_t)((unsigned __int128)total_bytes * limit->share_ppb / PPB);
	}
	return 0;
}

const struct gp_limit *gp_limit_list_find(const struct gp_limit_list *list, int device)
{
	if (device >= 0 && device < GP_LIMIT_DEVICES_MAX && list->named >> device & 1)
		return &list->device[device];
	return &list->rest;
}

int gp_ratio_parse(const char *text, double *ret_ratio, struct gp_text_error *error)
{
	struct cursor c = {.start = text, .at = text, .error = error};
	struct number n;
	uint64_t one = 1;
	uint64_t ppb;
	int r;

	r = take_number(&c, &n, "is not a fraction", HOW_RATIO);
	if (r < 0)
		return r;
	if (*c.at == '%') {
		one = 100;
		c.at++;
	}
	if (*c.at)
		return fail_at(&c, c.at, "is not a fraction", HOW_RATIO);
	if (n.whole > one || (n.whole == one && (n.fraction || !n.is_exact)))
		return fail_at(&c, n.start, "is over 1", HOW_RATIO);
	number_scale(&n, PPB / one, &ppb);
	*ret_ratio = (double)ppb / (double)PPB;
	return 0;
}

int gp_count_parse(const char *text, uint64_t *ret_count, struct gp_text_error *error)
{
	struct cursor c = {.start = text, .at = text, .error = error};
	uint64_t count;

	if (gp_text_is_word(text, strlen(text), "unlimited")) {
		*ret_count = UINT64_MAX;
		return 0;
	}
	if (*c.at == '-')
		return fail_at(&c, c.at, "is negative", HOW_COUNT);
	if (!*c.at)
		return fail_at(&c, c.at, "is empty", HOW_COUNT);
	if (!take_digits(&c, &count) || *c.at)
		return fail_at(&c, c.at, "is not a whole number", HOW_COUNT);
	if (count > INT64_MAX)
		return fail_at(&c, c.start, "is too large", HOW_COUNT);
	*ret_count = count;
	return 0;
}

/* Returns the bytes in units of 1 << shift, times the factor, rounded to the nearest. */
static uint64_t scale(uint64_t bytes, unsigned shift, unsigned factor)
{
	uint64_t whole = bytes >> shift, rest = bytes & ((UINT64_C(1) << shift) - 1);

	/* Prevents an overflow of rest * factor. */
	if (shift > 50) {
		rest >>= shift - 50;
		shift = 50;
	}
	return whole * factor + ((rest * factor + (UINT64_C(1) << shift >> 1)) >> shift);
}

const char *gp_amount_text(char text[static GP_AMOUNT_TEXT_MAX], uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	uint64_t hundredths, tenths;
	unsigned unit = 0;

	/* A value that would be rounded to 1024 becomes 1 of the next unit. */
	while (unit < 6 && bytes >= 1024 && bytes >= UINT64_C(2047) << (10 * unit) >> 1)
		unit++;
	hundredths = scale(bytes, 10 * unit, 100);
	tenths = scale(bytes, 10 * unit, 10);
	if (!unit || tenths > 999)
		snprintf(text, GP_AMOUNT_TEXT_MAX, "%" PRIu64 " %s", scale(bytes, 10 * unit, 1), units[unit]);
	else if (hundredths > 999)
		snprintf(text, GP_AMOUNT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
	else
		snprintf(text, GP_AMOUNT_TEXT_MAX, "%" PRIu64 ".%02" PRIu64 " %s", hundredths / 100, hundredths % 100,
			units[unit]);
	return text;
}
