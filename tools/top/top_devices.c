/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "top_devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { AXIS = 10, EIGHTHS = 8, NAME_MAX_BYTES = STAT_DEVICE_NAME_MAX + 8 };

static uint64_t bytes_of(const struct top_device *device, enum stat_part part)
{
	switch (part) {
	case STAT_PART_USED:
		return device->used_bytes;
	case STAT_PART_CACHED:
		return device->cached_bytes;
	case STAT_PART_PENDING:
		return device->pending_bytes;
	case STAT_PART_RETURNING:
		return device->returning_bytes;
	case STAT_PART_OUTSIDE:
		return device->outside_bytes;
	default:
		return device->free_bytes;
	}
}

static const enum stat_part parts_in_order[] = {
	STAT_PART_USED, STAT_PART_PENDING, STAT_PART_RETURNING, STAT_PART_CACHED, STAT_PART_OUTSIDE, STAT_PART_FREE};
enum { N_PARTS_IN_ORDER = sizeof(parts_in_order) / sizeof(parts_in_order[0]) };

/* Returns the size that the whole bar stands for: that of the device or, if unknown, all memory that is held. */
static double whole_of(const struct top_device *device)
{
	double held = (double)device->held_bytes, total = (double)device->is.total_bytes;

	return total > held ? total : held > 0 ? held : 1;
}

static void draw_bar(const struct top_screen *screen, const struct top_device *device, int row, int column, int columns)
{
	double whole = whole_of(device), sum = 0;
	int at = 0;

	for (int i = 0; i < N_PARTS_IN_ORDER; i++) {
		uint64_t bytes = bytes_of(device, parts_in_order[i]);
		int end;

		sum += parts_in_order[i] == STAT_PART_FREE ? whole : (double)bytes;
		end = (int)((sum < whole ? sum : whole) / whole * columns + 0.5);
		/* A part that is not empty gets at least one column. */
		if (bytes && bytes != UINT64_MAX && end == at && at < columns)
			end = at + 1;
		for (; at < end; at++)
			top_screen_part(screen, row, column + at, parts_in_order[i],
				stat_look_glyph(screen->look, parts_in_order[i]));
	}
}

/* Writes bytes in the shortest form: "157M" for "157 MiB". */
static void write_short(char text[static STAT_TEXT_MAX], uint64_t bytes)
{
	char *space;

	stat_bytes(text, bytes);
	space = strchr(text, ' ');
	if (space)
		memcpy(space, (char[]){space[1] == 'B' ? '\0' : space[1], '\0'}, 2);
}

/* Draws the number of a part, and returns the next column. Leaves out pending and returning memory while it is 0. */
static int draw_number(
	const struct top_screen *screen, const struct top_device *device, enum stat_part part, int row, int column)
{
	uint64_t bytes = bytes_of(device, part);
	char number[STAT_TEXT_MAX] = "-", text[64];

	if (!bytes && (part == STAT_PART_PENDING || part == STAT_PART_RETURNING))
		return column;
	if (bytes != UINT64_MAX)
		write_short(number, bytes);
	/* In ASCII the glyph is a character that could be read as the first letter of the name. */
	snprintf(text, sizeof(text), "%s%s %s", screen->look.is_ascii ? " " : "", stat_look_name(part), number);
	if (column + 1 + (int)strlen(text) > screen->columns)
		return screen->columns;
	top_screen_part(screen, row, column, part, stat_look_glyph(screen->look, part));
	return top_screen_put(screen, row, column + 1, screen->columns, TOP_PLAIN, text) + 1;
}

/* Writes "device 0" or, if two devices have this number, "device 0 GPU-1a2b3c4d". */
static void write_name(char name[static NAME_MAX_BYTES], const struct top_device *device)
{
	char text[STAT_DEVICE_NAME_MAX];

	stat_device_name(text, &device->is, device->has_namesake);
	snprintf(name, NAME_MAX_BYTES, "device %s", text);
}

void top_devices_bar(const struct top_screen *screen, const struct top_device *device, int row, bool has_numbers)
{
	char name[NAME_MAX_BYTES], held[STAT_TEXT_MAX], total[STAT_TEXT_MAX] = "-", text[96];
	int column, right;

	write_name(name, device);
	stat_bytes(held, device->held_bytes);
	if (device->is.total_bytes)
		stat_bytes(total, device->is.total_bytes);
	snprintf(text, sizeof(text), " %s of %s", held, total);
	right = screen->columns - (int)strlen(text);
	column = top_screen_put(screen, row, 0, screen->columns, TOP_BOLD, name) + 1;
	if (right - column < EIGHTHS) /* there is no room for both */
		right = screen->columns;
	top_screen_put(screen, row, column, 1, TOP_PLAIN, "[");
	if (right - column > 2)
		draw_bar(screen, device, row, column + 1, right - column - 2);
	top_screen_put(screen, row, right - 1, 1, TOP_PLAIN, "]");
	top_screen_put(screen, row, right, screen->columns, TOP_BOLD, text);
	column = 1;
	for (int i = 0; has_numbers && i < N_PARTS_IN_ORDER; i++)
		column = draw_number(screen, device, parts_in_order[i], row + 1, column);
}

/* Returns the sample of a column, or NULL if there is none yet. The last column has the newest sample. */
static const struct top_sample *sample_at(const struct top_device *device, int column, int columns)
{
	size_t back = (size_t)(columns - 1 - column);

	if (back >= device->n_samples || back >= TOP_HISTORY)
		return NULL;
	return &device->history[(device->n_samples - 1 - back) % TOP_HISTORY];
}

static uint64_t highest(const struct top_device *device, int columns)
{
	uint64_t most = 1;

	for (int i = 0; i < columns; i++) {
		const struct top_sample *sample = sample_at(device, i, columns);

		if (sample && sample->held_bytes > most)
			most = sample->held_bytes;
		if (sample && sample->used_bytes > most)
			most = sample->used_bytes;
	}
	return most;
}

static unsigned eighths(uint64_t bytes, uint64_t most, int rows)
{
	return (unsigned)((double)bytes / (double)most * rows * EIGHTHS + 0.5);
}

/* Draws one cell of the plot. floor, used and held are heights above the axis, in eighths of a cell. */
static void draw_cell(
	const struct top_screen *screen, int row, int column, unsigned floor, unsigned used, unsigned held)
{
	bool is_whole = screen->look.is_ascii;

	if (used >= floor + EIGHTHS || (is_whole && used >= floor + EIGHTHS / 2))
		top_screen_part(screen, row, column, STAT_PART_USED, stat_look_glyph(screen->look, STAT_PART_USED));
	else if (used > floor && !is_whole)
		top_screen_part(screen, row, column, STAT_PART_USED, stat_look_level(screen->look, used - floor));
	else if (held >= floor + EIGHTHS / 2)
		top_screen_part(screen, row, column, STAT_PART_CACHED, stat_look_glyph(screen->look, STAT_PART_CACHED));
}

static void draw_title(
	const struct top_screen *screen, const struct top_device *device, int row, int columns, double interval_s)
{
	char name[NAME_MAX_BYTES], text[128];
	int column;

	write_name(name, device);
	snprintf(text, sizeof(text), "%s, the last %.*f s: ", name, interval_s < 0.1 ? 2 : 1, interval_s * columns);
	column = top_screen_put(screen, row, 0, screen->columns, TOP_BOLD, text);
	top_screen_part(screen, row, column, STAT_PART_USED, stat_look_glyph(screen->look, STAT_PART_USED));
	column = top_screen_put(screen, row, column + 1, screen->columns, TOP_PLAIN, " used  ");
	top_screen_part(screen, row, column, STAT_PART_CACHED, stat_look_glyph(screen->look, STAT_PART_CACHED));
	top_screen_put(screen, row, column + 1, screen->columns, TOP_PLAIN, " unused");
}

void top_devices_plot(
	const struct top_screen *screen, const struct top_device *device, int row, int rows, double interval_s)
{
	int columns = screen->columns - AXIS, height = rows - 1;
	uint64_t most = highest(device, columns);
	char text[STAT_TEXT_MAX], label[STAT_TEXT_MAX + 16];

	draw_title(screen, device, row, columns, interval_s);
	for (int line = 0; line < height; line++) {
		stat_bytes(text, line ? 0 : most);
		snprintf(label, sizeof(label), "%*s|", AXIS - 1, !line || line + 1 == height ? text : "");
		top_screen_put(screen, row + 1 + line, 0, AXIS, TOP_PLAIN, label);
	}
	for (int i = 0; i < columns; i++) {
		const struct top_sample *sample = sample_at(device, i, columns);

		for (int line = 0; sample && line < height; line++)
			draw_cell(screen, row + height - line, AXIS + i, (unsigned)line * EIGHTHS,
				eighths(sample->used_bytes, most, height), eighths(sample->held_bytes, most, height));
	}
}
