/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/size.h"
#include "stat_name.h"
#include "stat_say.h"

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

/* Prints a number with three significant digits, or with all digits before the point if there are more. */
static void print_three_digits(char *text, size_t size, double value, const char *unit)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	snprintf(text, size, "%.*f %s", decimals, value, unit);
}

void stat_bytes(char text[static STAT_TEXT_MAX], uint64_t bytes)
{
	gp_amount_text(text, bytes);
}

void stat_bytes_julia(char text[static STAT_TEXT_MAX], uint64_t bytes)
{
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 6; unit++)
		value /= 1024;
	if (unit == 0)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
	else
		snprintf(text, STAT_TEXT_MAX, "%.3f %s", value, units[unit]);
}

void stat_duration(char text[static STAT_TEXT_MAX], uint64_t ns)
{
	static const char *const names[] = {"ns", "us", "ms", "s"};
	double value = (double)ns;
	unsigned unit = 0;

	for (; value >= 999.5 && unit < 3; unit++)
		value /= 1000;
	if (unit == 0)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 " ns", ns);
	else
		print_three_digits(text, STAT_TEXT_MAX, value, names[unit]);
}

void stat_age(char text[static STAT_TEXT_MAX], uint64_t ns)
{
	uint64_t s = ns / 1000000000;

	if (s < 60)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
	else
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}

const char *stat_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

struct stat_table {
	const char *const *headings;
	size_t n_columns, n_rows, n_allocated;
	char **cells; /* row by row */
};

enum { CELL_MAX = 1 << 14 };

struct stat_table *stat_table_new(const char *const *headings, size_t n_columns)
{
	struct stat_table *table = stat_alloc(calloc(1, sizeof(*table)));

	table->headings = headings;
	table->n_columns = n_columns;
	return table;
}

void stat_table_free(struct stat_table *table)
{
	for (size_t i = 0; i < table->n_rows * table->n_columns; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

void stat_table_add(struct stat_table *table, const char *const *cells)
{
	char **row, clean[CELL_MAX];

	if (table->n_rows == table->n_allocated) {
		table->n_allocated = table->n_allocated ? table->n_allocated * 2 : 16;
		table->cells = stat_alloc(
			reallocarray(table->cells, table->n_allocated * table->n_columns, sizeof(*table->cells)));
	}
	row = table->cells + table->n_rows++ * table->n_columns;
	for (size_t i = 0; i < table->n_columns; i++) {
		stat_clean(clean, sizeof(clean), cells[i]);
		if (i + 1 < table->n_columns)
			clean[stat_cut(clean, STAT_COLUMN_MAX)] = '\0';
		row[i] = stat_alloc(strdup(clean));
	}
}

static size_t column_width(const struct stat_table *table, size_t column)
{
	size_t width = strlen(table->headings[column]) - 1;

	for (size_t i = 0; i < table->n_rows; i++) {
		size_t columns = stat_columns(table->cells[i * table->n_columns + column]);

		if (columns > width)
			width = columns;
	}
	return width;
}

/* Prints a cell that is cut. A stack keeps the file and line of its first frame. */
static void print_cut(const char *cell, size_t columns)
{
	char *text = stat_alloc(strdup(cell));

	stat_name_fit(text, columns);
	fwrite(text, 1, stat_cut(text, columns), stdout);
	free(text);
}

static void print_row(const struct stat_table *table, const char *const *cells, const size_t *widths, size_t width)
{
	size_t used = 0, last = table->n_columns - 1;

	for (size_t i = 0; i <= last; i++) {
		const char *cell = cells[i];
		bool is_right = table->headings[i][0] == '>';
		size_t columns = stat_columns(cell);
		int pad = (int)(widths[i] > columns ? widths[i] - columns : 0);

		if (i)
			fputs("  ", stdout);
		if (is_right)
			printf("%*s", pad, "");
		if (i == last && !is_right && width > used)
			print_cut(cell, width - used);
		else
			fputs(cell, stdout);
		if (!is_right && i < last)
			printf("%*s", pad, "");
		used += widths[i] + 2;
	}
	putchar('\n');
}

void stat_table_print(const struct stat_table *table, size_t width)
{
	size_t *widths = stat_alloc(calloc(table->n_columns, sizeof(*widths)));
	const char **headings = stat_alloc(calloc(table->n_columns, sizeof(*headings)));

	for (size_t i = 0; i < table->n_columns; i++) {
		widths[i] = column_width(table, i);
		headings[i] = table->headings[i] + 1;
	}
	print_row(table, headings, widths, width);
	for (size_t i = 0; i < table->n_rows; i++)
		print_row(table, (const char *const *)table->cells + i * table->n_columns, widths, width);
	free(widths);
	free(headings);
}

/* Returns the length of the next line: as many words as fit, or as much of the first word as fits. */
static size_t line_length(const char *text, size_t columns)
{
	size_t most = stat_cut(text, columns), length = most;

	if (!text[most] || text[most] == ' ')
		return most;
	while (length && text[length] != ' ')
		length--;
	return length ? length : most;
}

void stat_print_lines(const char *text, size_t width)
{
	static const char indent[] = "  ";
	size_t in = 0, length;

	do {
		length = width > 2 * sizeof(indent) ? line_length(text, width - in) : strlen(text);
		printf("%s%.*s\n", in ? indent : "", (int)length, text);
		text += length + strspn(text + length, " ");
		in = sizeof(indent) - 1;
	} while (*text);
}

size_t stat_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
		return 0;
	return size.ws_col;
}
