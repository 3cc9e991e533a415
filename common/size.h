/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The syntax of amounts of memory:
 *
 *	SIZE   := NUMBER [UNIT]		1073741824, 8G, 1.5GiB, 4GB
 *	NUMBER := digits ["." digits]	a fraction needs a unit, and is cut to whole bytes
 *	UNIT   := K M G T, KiB MiB GiB TiB (1024) or B, KB MB GB TB (1000), in any case
 *	LIMIT  := SIZE | NUMBER "%" | "none"
 *	LIMITS := LIMIT | DEVICE "=" LIMIT ("," DEVICE "=" LIMIT)*
 *	DEVICE := 0 ... 63 | "*"	"*" is every other device; without it the others have no limit
 *
 * Nothing may precede or follow the text, not even spaces. The parsers are pure and independent of the locale. They
 * return 0, or -EINVAL with nothing stored and an error that says why and where.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_LIMIT_DEVICES_MAX 64
#define GP_SIZE_TEXT_MAX     24

/* Describes a refused text. `why` continues the quoted text: "'4Gx' is not a size". */
struct gp_text_error {
	size_t offset; /* of the first wrong character, in bytes */
	const char *why;
	const char *next; /* what to write instead; may be NULL */
};

enum gp_limit_kind {
	GP_LIMIT_NONE,
	GP_LIMIT_BYTES,
	GP_LIMIT_SHARE,
};

struct gp_limit {
	enum gp_limit_kind kind;
	uint64_t bytes;
	uint64_t share_ppb; /* of the total: 1000000000 is all of it */
};

struct gp_limit_list {
	struct gp_limit rest; /* for every device that is not named */
	uint64_t named;       /* a bit for each device with an entry */
	struct gp_limit device[GP_LIMIT_DEVICES_MAX];
};

/* Parses a size of at most INT64_MAX, so that sums of a few sizes cannot wrap. */
int gp_size_parse(const char *text, uint64_t *ret_bytes, struct gp_text_error *error);

/* Writes the shortest text that gp_size_parse() reads back as the same number. */
void gp_size_format(uint64_t bytes, char text[static GP_SIZE_TEXT_MAX]);

/* Parse a LIMIT and LIMITS. A limit of 0 is refused, since users could take it for "no limit". */
int gp_limit_parse(const char *text, struct gp_limit *ret_limit, struct gp_text_error *error);
int gp_limit_list_parse(const char *text, struct gp_limit_list *ret_list, struct gp_text_error *error);

/* Returns the limit in bytes, rounded down; UINT64_MAX if there is no limit. */
uint64_t gp_limit_bytes(const struct gp_limit *limit, uint64_t total_bytes);

/* Returns the entry that applies to a device. Any number is allowed. */
const struct gp_limit *gp_limit_list_find(const struct gp_limit_list *list, int device);

/* Parses a ratio from 0 to 1, written as 0.2 or 20%. */
int gp_ratio_parse(const char *text, double *ret_ratio, struct gp_text_error *error);

/* Parses a whole number, or "unlimited", which is UINT64_MAX. */
int gp_count_parse(const char *text, uint64_t *ret_count, struct gp_text_error *error);

/* True if the `length` bytes at text are the (lower-case) word, in upper or lower case. */
bool gp_text_is_word(const char *text, size_t length, const char *word);

/*
 * Writes an amount as "1.50 GiB": rounded to three digits (1000 to 1023 keep four), the same in every locale. All
 * messages, screens and reports use this format. Returns the text.
 */
enum { GP_AMOUNT_TEXT_MAX = 24 };
const char *gp_amount_text(char text[static GP_AMOUNT_TEXT_MAX], uint64_t bytes);
