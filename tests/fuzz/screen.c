/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "screen.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"

enum { KEPT_MAX = 8 << 20 };

struct screen {
	FILE *file, *replaced; /* replaced: stdout or stderr of the program, which file stands in for */
	size_t n_bytes;
	unsigned n_expected; /* number of missing bytes of the current character */
	uint32_t character, least;
	bool keeps;
};

static struct screen screens[2];
static char kept[KEPT_MAX];
static size_t n_kept;

static void check_character(uint32_t c)
{
	FUZZ_CHECK(c == '\n' || c >= 0x20, "control character U+%04X", (unsigned)c);
	FUZZ_CHECK(c < 0x7f || c > 0x9f, "control character U+%04X", (unsigned)c);
	FUZZ_CHECK(c < 0xd800 || c > 0xdfff, "surrogate U+%04X", (unsigned)c);
	FUZZ_CHECK(c <= 0x10ffff, "not a character: U+%06X", (unsigned)c);
	FUZZ_CHECK(
		c != 0x061c && c != 0x200e && c != 0x200f && (c < 0x2028 || c > 0x202e) && (c < 0x2066 || c > 0x2069),
		"character that reverses or breaks a line: U+%04X", (unsigned)c);
}

static void check_byte(struct screen *screen, unsigned char c)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};

	if (screen->n_expected) {
		FUZZ_CHECK((c & 0xc0) == 0x80, "invalid byte %02x inside a UTF-8 character", c);
		screen->character = screen->character << 6 | (c & 0x3f);
		if (--screen->n_expected)
			return;
		FUZZ_CHECK(screen->character >= screen->least, "overlong UTF-8 encoding of U+%04X",
			(unsigned)screen->character);
		check_character(screen->character);
		return;
	}
	FUZZ_CHECK(c < 0x80 || (c >= 0xc0 && c < 0xf8), "invalid first byte %02x of a UTF-8 character", c);
	screen->n_expected = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	screen->least = least[screen->n_expected];
	screen->character = screen->n_expected ? c & (0x3fu >> screen->n_expected) : c;
	if (!screen->n_expected)
		check_character(c);
}

static ssize_t print(void *cookie, const char *bytes, size_t n)
{
	struct screen *screen = cookie;

	for (size_t i = 0; i < n; i++)
		check_byte(screen, (unsigned char)bytes[i]);
	screen->n_bytes += n;
	if (screen->keeps && n <= KEPT_MAX - n_kept) {
		memcpy(kept + n_kept, bytes, n);
		n_kept += n;
	}
	return (ssize_t)n;
}

static FILE *begin(struct screen *screen, FILE *replaced, bool keeps)
{
	if (!screen->file)
		screen->file = fopencookie(screen, "w", (cookie_io_functions_t){.write = print});
	fuzz_require(screen->file != NULL, "no stream");
	screen->replaced = replaced;
	screen->n_bytes = 0;
	screen->n_expected = 0;
	screen->keeps = keeps;
	return screen->file;
}

void screens_begin(bool keeps)
{
	n_kept = 0;
	stdout = begin(&screens[0], stdout, keeps);
	stderr = begin(&screens[1], stderr, false);
}

static FILE *end(struct screen *screen, size_t most)
{
	fflush(screen->file);
	FUZZ_CHECK(!screen->n_expected, "the output ends within a UTF-8 character");
	FUZZ_CHECK(screen->n_bytes <= most, "the output has %zu bytes, more than %zu", screen->n_bytes, most);
	return screen->replaced;
}

void screens_end(size_t most)
{
	stdout = end(&screens[0], most);
	stderr = end(&screens[1], most);
}

const char *screens_kept(size_t *ret_length)
{
	*ret_length = n_kept;
	return kept;
}

void screens_check_json(void)
{
	json_t *object;

	if (!n_kept)
		return;
	object = json_loadb(kept, n_kept, JSON_REJECT_DUPLICATES, NULL);
	FUZZ_CHECK(json_is_object(object), "the output is not a JSON object: %.*s", (int)n_kept, kept);
	FUZZ_CHECK(memchr(kept, '\n', n_kept) == kept + n_kept - 1, "the JSON output is not exactly one line");
	json_decref(object);
}
