/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clean.h"
#include "run_say.h"

#define PROGRAM "gpupool-run: "
#define INDENT  ((int)strlen(PROGRAM))

bool run_is_quiet;
static const struct run_listener *listener;

void run_listen(const struct run_listener *new_listener)
{
	listener = new_listener;
}

/* Replaces control characters: names of files and values must not control the terminal. */
static void print_clean(const char *text)
{
	size_t size = strlen(text) + 1;
	char *clean = malloc(size);

	if (!clean)
		return;
	gp_clean(clean, size, text);
	fputs(clean, stderr);
	free(clean);
}

static void print_message(const char *next, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static void print_message(const char *next, const char *format, va_list args)
{
	char *text;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	if (listener) {
		listener->take(listener->arg, text ? text : "out of memory", next);
		free(text);
		return;
	}
	fputs(PROGRAM, stderr);
	if (text)
		print_clean(text);
	free(text);
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
	print_message(next, format, args);
	va_end(args);
}

void run_warn(const char *next, const char *format, ...)
{
	va_list args;

	if (run_is_quiet && !listener)
		return;
	va_start(args, format);
	print_message(next, format, args);
	va_end(args);
}

void run_say(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return;
	print_clean(text);
	fputc('\n', stderr);
	free(text);
}

void run_progress(const char *format, ...)
{
	char line[80]; /* a longer line would wrap, and could not be replaced */
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fputs("\r\033[K", stderr);
	print_clean(line);
	fflush(stderr);
}

/* Returns the columns of the first length bytes of a text on the terminal: one for each character. */
static int columns(const char *text, size_t length)
{
	int n = 0;

	for (size_t i = 0, bytes; i < length && text[i]; i += bytes, n++)
		(void)gp_utf8_decode(text + i, &bytes);
	return n;
}

void run_mark(const char *name, const char *value, const struct gp_text_error *error)
{
	int before = INDENT - 1 + columns(name, strlen(name)) + 1 + columns(value, error->offset);

	run_error(listener ? error->next : NULL, "%s: '%s' %s", name, value, error->why);
	if (listener)
		return;
	fprintf(stderr, "%*s%s=", INDENT - 1, "", name);
	print_clean(value);
	fprintf(stderr, "\n%*s^", before, "");
	if (error->next)
		fprintf(stderr, "  %s", error->next);
	fputc('\n', stderr);
}
