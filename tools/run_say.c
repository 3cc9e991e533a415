/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_say.h"

#define PROGRAM "gpupool-run: "
#define INDENT  ((int)strlen(PROGRAM))

bool run_is_quiet;

/* Names of files and values come from anywhere, and must not move the terminal's cursor. */
static void print_clean(const char *text)
{
	for (; *text; text++)
		fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, stderr);
}

static void say(const char *next, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));
static void say(const char *next, const char *format, va_list args)
{
	char *text;

	fputs(PROGRAM, stderr);
	if (vasprintf(&text, format, args) >= 0) {
		print_clean(text);
		free(text);
	}
	fputc('\n', stderr);
	if (next) {
		fprintf(stderr, "%*sNext: ", INDENT, "");
		print_clean(next);
		fputc('\n', stderr);
	}
}

void run_error(const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(next, format, args);
	va_end(args);
}

void run_warn(const char *next, const char *format, ...)
{
	va_list args;

	if (run_is_quiet)
		return;
	va_start(args, format);
	say(next, format, args);
	va_end(args);
}

/* Columns that a terminal gives to the first bytes of a text: one for each character of UTF-8. */
static int columns(const char *text, size_t length)
{
	int n = 0;

	for (size_t i = 0; i < length && text[i]; i++)
		n += (text[i] & 0xc0) != 0x80;
	return n;
}

void run_mark(const char *name, const char *value, const struct gp_text_error *error)
{
	int before = INDENT - 1 + columns(name, strlen(name)) + 1 + columns(value, error->offset);

	run_error(NULL, "%s: '%s' %s", name, value, error->why);
	fprintf(stderr, "%*s%s=", INDENT - 1, "", name);
	print_clean(value);
	fprintf(stderr, "\n%*s^", before, "");
	if (error->next)
		fprintf(stderr, "  %s", error->next);
	fputc('\n', stderr);
}
