/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/clean.h"
#include "doctor_say.h"

/* Columns of a line if the output is not a terminal, the fewest columns of a terminal, and where the text begins. */
enum { WIDTH = 80, WIDTH_MIN = 40, INDENT = 19 };

static int width_of_output(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col)
		return WIDTH;
	return size.ws_col < WIDTH_MIN ? WIDTH_MIN : size.ws_col;
}

static int columns_of(const char *word, size_t length)
{
	int n = 0;

	for (size_t i = 0, bytes; i < length; i += bytes, n++)
		(void)gp_utf8_decode(word + i, &bytes);
	return n;
}

/* Prints a text from a column on, and breaks it at spaces. A word that is too long for a line is not broken. */
static void print_wrapped(const char *text)
{
	int column = INDENT, width = width_of_output();

	for (const char *word = text; *word;) {
		size_t length = strcspn(word, " ");
		int columns = columns_of(word, length);

		if (column > INDENT && column + 1 + columns > width) {
			printf("\n%*s", INDENT, "");
			column = INDENT;
		} else if (column > INDENT) {
			putchar(' ');
			column++;
		}
		fwrite(word, 1, length, stdout);
		column += columns;
		word += length;
		word += strspn(word, " ");
	}
	putchar('\n');
}

static void print_line(const char *state, const char *subject, const char *text)
{
	size_t size = strlen(text) + 1;
	char *clean = malloc(size);

	printf("%-4s  %-12s ", state, subject);
	if (clean) {
		gp_clean(clean, size, text);
		print_wrapped(clean);
	} else {
		putchar('\n');
	}
	free(clean);
}

static void print_next(const char *next)
{
	char *text;

	if (!next || asprintf(&text, "Next: %s", next) < 0)
		return;
	printf("%*s", INDENT, "");
	print_wrapped(text);
	free(text);
}

void doctor_good(struct doctor *doctor, const char *subject, const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	doctor->n_good++;
	if (run_is_quiet)
		return;
	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return;
	print_line("good", subject, text);
	free(text);
}

static void say_todo(struct doctor *doctor, const char *subject, const char *text, const char *next)
{
	doctor->n_todo++;
	print_line("todo", subject, text);
	print_next(next);
}

void doctor_todo(struct doctor *doctor, const char *subject, const char *next, const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	say_todo(doctor, subject, n < 0 ? "out of memory" : text, next);
	if (n >= 0)
		free(text);
}

static void take_message(void *arg, const char *text, const char *next)
{
	struct doctor *doctor = arg;

	doctor->n_heard++;
	say_todo(doctor, doctor->subject, text, next);
}

void doctor_listen(struct doctor *doctor, const char *subject)
{
	doctor->subject = subject;
	doctor->n_heard = 0;
	doctor->listener = (struct run_listener){take_message, doctor};
	run_listen(&doctor->listener);
}

bool doctor_heard_nothing(struct doctor *doctor)
{
	run_listen(NULL);
	return !doctor->n_heard;
}
