/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_say.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clean.h"

#define PROGRAM "gpupool-stat: "

static void print_clean(const char *text)
{
	char clean[4096];

	stat_clean(clean, sizeof(clean), text);
	fputs(clean, stderr);
}

static void print_message(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
static void print_message(const char *format, va_list args)
{
	char text[4096];

	vsnprintf(text, sizeof(text), format, args);
	fflush(stdout); /* so that the output comes first */
	fputs(PROGRAM, stderr);
	print_clean(text);
	fputc('\n', stderr);
}

void stat_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_message(format, args);
	va_end(args);
}

void stat_error(const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_message(format, args);
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

void stat_clean(char *clean, size_t size, const char *text)
{
	gp_clean(clean, size, text);
}

/* The blocks of Unicode whose characters all have this width; other characters have one column. */
static const struct {
	uint32_t first, last;
	unsigned columns;
} widths[] = {
	{0x300, 0x36f, 0},     /* combining marks */
	{0x1100, 0x115f, 2},   /* Hangul */
	{0x1ab0, 0x1aff, 0},   /* combining marks */
	{0x1dc0, 0x1dff, 0},   /* combining marks */
	{0x20d0, 0x20ff, 0},   /* combining marks for symbols */
	{0x2e80, 0x303e, 2},   /* radicals, Chinese punctuation */
	{0x3041, 0xa4cf, 2},   /* kana, Chinese, Yi */
	{0xac00, 0xd7a3, 2},   /* Hangul syllables */
	{0xf900, 0xfaff, 2},   /* Chinese compatibility */
	{0xfe20, 0xfe2f, 0},   /* combining half marks */
	{0xfe30, 0xfe6f, 2},   /* Chinese compatibility forms */
	{0xff01, 0xff60, 2},   /* fullwidth forms */
	{0xffe0, 0xffe6, 2},   /* fullwidth signs */
	{0x1f300, 0x1f64f, 2}, /* pictographs, emoticons */
	{0x1f900, 0x1f9ff, 2}, /* more pictographs */
	{0x20000, 0x3fffd, 2}, /* more Chinese */
};

/* Returns the width of the character at text, and its length in bytes. */
static size_t columns_of(const char *text, size_t *length)
{
	uint32_t c = gp_utf8_decode(text, length);

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]) && c >= widths[i].first; i++)
		if (c <= widths[i].last)
			return widths[i].columns;
	return 1;
}

size_t stat_columns(const char *text)
{
	size_t n = 0, length;

	for (; *text; text += length)
		n += columns_of(text, &length);
	return n;
}

size_t stat_cut(const char *text, size_t columns)
{
	size_t i = 0, length;

	for (size_t width; text[i] && (width = columns_of(text + i, &length)) <= columns; i += length)
		columns -= width;
	return i;
}
