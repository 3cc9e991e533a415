/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "gpupool-stat: "

static void print_clean(const char *text)
{
	char clean[4096];

	stat_clean(clean, sizeof(clean), text);
	fputs(clean, stderr);
}

static void say(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
static void say(const char *format, va_list args)
{
	char text[4096];

	vsnprintf(text, sizeof(text), format, args);
	fflush(stdout); /* so that what was found comes first */
	fputs(PROGRAM, stderr);
	print_clean(text);
	fputc('\n', stderr);
}

void stat_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

void stat_error(const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	if (!next)
		return;
	fprintf(stderr, "%*sNext: ", (int)strlen(PROGRAM), "");
	print_clean(next);
	fputc('\n', stderr);
}

static void (*before_end)(void);

void stat_before_end(void (*fn)(void))
{
	before_end = fn;
}

void *stat_alloc(void *memory)
{
	if (memory)
		return memory;
	if (before_end)
		before_end();
	stat_error(NULL, "there is not enough memory.");
	exit(STAT_FAILED);
}

/* The character at text, 0 if there is no valid one, and its length in bytes. */
static uint32_t decode(const char *text, size_t *length)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c = s[0];
	size_t n = c < 0x80 ? 1 : (c & 0xe0) == 0xc0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : 4;

	*length = 1;
	if (n == 1)
		return c;
	if (n == 4 && (c & 0xf8) != 0xf0)
		return 0;
	c &= 0x7fu >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*length = n;
	return c;
}

static bool is_printable(uint32_t c)
{
	return c >= 0x20 && (c < 0x7f || c > 0x9f) && c != 0x061c && c != 0x200e && c != 0x200f &&
	       (c < 0x2028 || c > 0x202e) && (c < 0x2066 || c > 0x2069);
}

void stat_clean(char *clean, size_t size, const char *text)
{
	size_t used = 0, length;

	for (; *text; text += length) {
		bool is_kept = is_printable(decode(text, &length));
		size_t n = is_kept ? length : 1;

		if (used + n >= size)
			break;
		if (is_kept)
			memcpy(clean + used, text, n);
		else
			clean[used] = '?';
		used += n;
	}
	clean[used] = '\0';
}

size_t stat_columns(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

size_t stat_cut(const char *text, size_t columns)
{
	size_t i = 0;

	while (text[i] && (columns || (text[i] & 0xc0) == 0x80))
		columns -= (text[i++] & 0xc0) != 0x80;
	return i;
}
