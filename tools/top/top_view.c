/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "top_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "top_devices.h"

enum {
	PLOT_MIN = 4,
	PLOT_LINES = 10,
	PLOT_COLUMNS_MIN = 24,
	CELL_MAX = TOP_COMMAND_MAX + STAT_ERROR_MAX + 2 * TOP_NOTE_MAX + 16
};

/* The columns of the table. Each is shown only on screens that are wide enough. */
enum cell {
	PID,
	USER,
	DEVICES,
	POOL,
	UP,
	USED,
	CACHED,
	PENDING,
	TOTAL,
	PEAK,
	LIMIT,
	BLOCKS,
	HITS,
	ALLOCS,
	MISSES,
	OOM,
	LABELS,
	COMMAND,
	N_CELLS
};
static const struct {
	const char *heading;
	int width;                    /* negative: to the left */
	int screen_min, labelled_min; /* width of the screen; the second applies if any process has labels */
	int sort;                     /* the sort order by this column; -1: none */
} row_cells[N_CELLS] = {
	[PID] = {"PID", 8, 0, 0, TOP_BY_PID},
	[USER] = {"USER", -9, 64, 100, TOP_BY_USER},
	[DEVICES] = {"DEVICES", -8, 186, 200, -1},
	[POOL] = {"POOL", -7, 194, 208, -1},
	[UP] = {"UP", 7, 72, 76, TOP_BY_UP},
	[USED] = {"USED", 9, 18, 18, TOP_BY_USED},
	[CACHED] = {"CACHED", 9, 48, 48, TOP_BY_CACHED},
	[PENDING] = {"PENDING", 9, 96, 116, -1},
	[TOTAL] = {"TOTAL", 9, 30, 30, TOP_BY_TOTAL},
	[PEAK] = {"PEAK", 9, 152, 170, -1},
	[LIMIT] = {"LIMIT", 9, 164, 182, -1},
	[BLOCKS] = {"BLOCKS", 9, 176, 192, -1},
	[HITS] = {"HITS", 6, 80, 90, TOP_BY_HITS},
	[ALLOCS] = {"ALLOC/S", 8, 128, 146, TOP_BY_ALLOCS},
	[MISSES] = {"MISS/S", 7, 140, 158, -1},
	[OOM] = {"OOM", 4, 104, 120, -1},
	[LABELS] = {"JOB", -16, 0, 64, -1},
	[COMMAND] = {"COMMAND", -CELL_MAX, 0, 0, TOP_BY_COMMAND},
};

static void write_cell(char text[static CELL_MAX], const struct top_row *row, enum cell cell)
{
	const uint64_t bytes[N_CELLS] = {[USED] = row->used_bytes,
		[CACHED] = row->cached_bytes,
		[PENDING] = row->pending_bytes,
		[TOTAL] = row->total_bytes,
		[PEAK] = row->peak_bytes,
		[LIMIT] = row->limit_bytes};

	strcpy(text, "-");
	if (cell == PID)
		snprintf(text, CELL_MAX, "%d", (int)row->pid);
	else if (cell == USER)
		snprintf(text, CELL_MAX, "%s", row->user);
	else if (cell == LABELS)
		snprintf(text, CELL_MAX, "%s", row->labels);
	else if (cell == COMMAND)
		snprintf(text, CELL_MAX, "%s%s%s%s%s%s%s", row->error, *row->error ? " | " : "", row->asleep,
			*row->asleep ? " | " : "", row->spilled, *row->spilled ? " | " : "", row->command);
	else if (!row->reply)
		return;
	else if (cell == UP)
		stat_age(text, row->uptime_ns);
	else if (cell == OOM || cell == BLOCKS)
		snprintf(text, CELL_MAX, "%" PRIu64, cell == OOM ? row->n_ooms : row->n_used_blocks);
	else if (cell == DEVICES && *row->devices)
		snprintf(text, CELL_MAX, "%s", row->devices);
	else if (cell == POOL)
		stat_clean(text, CELL_MAX, stat_reply_text(row->reply, "pool"));
	else if (cell == ALLOCS || cell == MISSES)
		stat_rate_text(text, cell == ALLOCS ? row->rates.allocs : row->rates.misses);
	else if (cell == DEVICES || (cell == LIMIT && row->limit_bytes == UINT64_MAX))
		return;
	else if (cell != HITS)
		stat_bytes(text, bytes[cell]);
	else if (row->hit_rate >= 0)
		snprintf(text, CELL_MAX, "%.1f%%", 100 * row->hit_rate);
}

/* Draws a row of the table, or the headings if row is NULL. */
static void draw_cells(const struct top_screen *screen, const struct top_model *model, int line, unsigned style,
	const struct top_row *row)
{
	int column = 1;
	char text[CELL_MAX];

	for (int i = 0; i < N_CELLS; i++) {
		bool is_left = row_cells[i].width < 0;
		int width = abs(row_cells[i].width), pad;

		if (screen->columns < (model->has_labels ? row_cells[i].labelled_min : row_cells[i].screen_min) ||
			(i == LABELS && !model->has_labels))
			continue;
		if (row)
			write_cell(text, row, (enum cell)i);
		else
			snprintf(text, sizeof(text), "%s%s", row_cells[i].heading,
				row_cells[i].sort != (int)model->sort ? ""
				: model->is_reversed                  ? "^"
								      : "*");
		pad = is_left ? 0 : width - (int)stat_columns(text);
		column += pad > 0 ? pad : 0;
		top_screen_put(screen, line, column, is_left ? width : width - (pad > 0 ? pad : 0), style, text);
		column += (is_left ? width : width - (pad > 0 ? pad : 0)) + 1;
	}
}

size_t top_view_at(const struct top_view *view, const struct top_model *model)
{
	for (size_t i = 0; i < model->n_shown; i++)
		if (model->shown[i]->pid == view->selected)
			return i;
	return 0;
}

static void draw_rows(
	const struct top_screen *screen, struct top_view *view, const struct top_model *model, int from, int to)
{
	size_t at = top_view_at(view, model), n = to > from ? (size_t)(to - from) : 0;

	if (at < view->first)
		view->first = at;
	if (n && at >= view->first + n)
		view->first = at - n + 1;
	for (size_t i = 0; i < n && view->first + i < model->n_shown; i++) {
		bool is_selected = view->first + i == at;
		unsigned style = is_selected ? TOP_REVERSE : TOP_PLAIN;

		if (is_selected) {
			top_screen_fill(screen, from + (int)i, style);
			top_screen_put(screen, from + (int)i, 0, 1, style, ">");
		}
		draw_cells(screen, model, from + (int)i, style, model->shown[view->first + i]);
	}
	if (n && !model->n_shown)
		top_screen_put(screen, from, 1, screen->columns, TOP_PLAIN,
			model->n_rows ? "no process matches the filter"
				      : "no process with gpupool; start one: gpupool-run CMD");
}

static void draw_head(const struct top_screen *screen, const struct top_view *view, const struct top_model *model)
{
	char text[512], host[64] = "", clean[64], when[16] = "", why[STAT_ERROR_MAX];
	time_t now = time(NULL);
	struct tm tm;

	gethostname(host, sizeof(host) - 1);
	stat_clean(clean, sizeof(clean), host);
	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "gpupool-stat top  %s  %s  %zu process%s%s  %s %g s  by %s%s%s%s%s", clean, when,
		model->n_rows, model->n_rows == 1 ? "" : "es",
		stat_survey_is_incomplete(&model->survey, why) ? " (incomplete)" : "",
		view->is_paused ? "PAUSED, every" : "every", view->interval_s, top_sort_name(model->sort),
		model->is_reversed ? ", reversed" : "", *model->filter ? "  filter '" : "", model->filter,
		*model->filter ? "'" : "");
	top_screen_fill(screen, 0, TOP_REVERSE);
	top_screen_put(screen, 0, 0, screen->columns, TOP_REVERSE, text);
}

static void draw_foot(const struct top_screen *screen, const struct top_view *view)
{
	const char *keys = view->detail ? "? help  1-5 or Tab page  arrows scroll  p pause  Esc back  q quit"
					: "? help  / filter  s sort  Enter details  d plot  p pause  q quit";

	top_screen_fill(screen, screen->rows - 1, TOP_REVERSE);
	top_screen_put(screen, screen->rows - 1, 0, screen->columns, TOP_REVERSE,
		view->prompt     ? view->prompt
		: *view->message ? view->message
				 : keys);
}

/* Draws plots of devices, from view->device on. There are several if each gets at least PLOT_LINES lines. */
static int draw_plots(
	const struct top_screen *screen, struct top_view *view, const struct top_model *model, int row, int room)
{
	int n_devices = (int)model->n_devices, n = room / PLOT_LINES, height;

	if (!n_devices)
		return row;
	n = n < 1 ? 1 : n < n_devices ? n : n_devices;
	height = room / n < screen->rows / 2 ? room / n : screen->rows / 2;
	if (height < PLOT_MIN || screen->columns < PLOT_COLUMNS_MIN)
		return row;
	view->device = view->device % model->n_devices;
	for (int i = 0; i < n; i++, row += height)
		top_devices_plot(screen, &model->devices[(view->device + (size_t)i) % model->n_devices], row, height,
			view->interval_s);
	return row;
}

/* Draws the devices from the second line on, and plots if there is room. Returns the line after them. */
static int draw_devices(const struct top_screen *screen, struct top_view *view, const struct top_model *model)
{
	int room = screen->rows - 5, n = (int)model->n_devices, row = 1, table;
	int lines = n * 2 <= room / 2 + 1 ? 2 : 1;
	int n_bars = n * lines <= room ? n : room > 0 ? room : 0;
	char text[64];

	for (int i = 0; i < n_bars; i++, row += lines)
		top_devices_bar(screen, &model->devices[i], row, lines == 2);
	if (n_bars < n) {
		snprintf(text, sizeof(text), "and %d more devices ", n - n_bars + 1);
		if (n_bars)
			top_screen_fill(screen, row - 1, TOP_PLAIN);
		top_screen_put(screen, row - (n_bars > 0), 0, screen->columns, TOP_PLAIN, text);
	}
	table = (int)model->n_shown + 2 < room / 2 ? (int)model->n_shown + 2 : room / 2;
	return draw_plots(screen, view, model, row, screen->rows - row - 2 - table);
}

static const char *const help[] = {
	"Up Down PgUp PgDn   choose a process, scroll",
	"Enter               show its details; Esc, Left or Backspace: back",
	NULL, /* the pages of the details, from top_detail_help() */
	"s S F6              sort by the next column, by the previous one",
	"o                   reverse the order",
	"/ F4                filter: a part of command, user, job, or a pid",
	"d                   plot the next device",
	"p Space             pause, continue",
	"+ -                 ask less often, more often",
	"R                   give its cached memory back (--allow-changes)",
	"? h F1              this help",
	"q                   quit",
	"",
	"asleep | COMMAND: the bytes are given to the driver, for that time;",
	"in host | COMMAND: the bytes are in host memory; using them takes that long;",
	"used: allocated by the program; pending: freed, the GPU may still use it;",
	"returning: on its way to the driver; cached: unused, ready for reuse;",
	"outside: other processes, CUDA itself, memory that is not pooled.",
};

static void draw_help(const struct top_screen *screen)
{
	char pages[TOP_DETAIL_HELP_MAX];

	top_detail_help(pages);
	for (int i = 0; i < (int)(sizeof(help) / sizeof(help[0])) && i + 2 < screen->rows; i++)
		top_screen_put(screen, i + 1, 1, screen->columns, TOP_PLAIN, help[i] ? help[i] : pages);
}

void top_view_draw(const struct top_screen *screen, struct top_view *view, struct top_model *model)
{
	int row;

	top_screen_clear(screen);
	draw_head(screen, view, model);
	if (view->wants_help) {
		draw_help(screen);
	} else if (view->detail) {
		top_detail_draw(screen, view->detail, 1, screen->rows - 1);
	} else {
		row = draw_devices(screen, view, model);
		if (row < screen->rows - 1) {
			top_screen_fill(screen, row, TOP_REVERSE);
			draw_cells(screen, model, row, TOP_REVERSE, NULL);
		}
		draw_rows(screen, view, model, row + 1, screen->rows - 1);
	}
	draw_foot(screen, view);
	top_screen_show(screen);
}
