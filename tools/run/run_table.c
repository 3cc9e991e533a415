/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "run_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clean.h"
#include "common/size.h"

enum { CELL_MAX = 64 };

typedef void cell_fn(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first);

const char *run_end_text(char text[static RUN_END_TEXT_MAX], int status)
{
	if (WIFSIGNALED(status))
		snprintf(text, RUN_END_TEXT_MAX, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, RUN_END_TEXT_MAX, "exit status %d", WEXITSTATUS(status));
	return text;
}

static void name_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	snprintf(cell, CELL_MAX, "%s", run->type ? run->type : "without gpupool");
}

static void time_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	snprintf(cell, CELL_MAX, "%.3f s", (double)run->ns / 1e9);
}

static void speed_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	double ratio = run->ns ? (double)first->ns / (double)run->ns : 0;

	if (run == first || ratio <= 0)
		return;
	if (ratio < 1) /* not "0.11x as fast", which few people read as nine times as long */
		snprintf(cell, CELL_MAX, ratio < 0.1 ? "%.0fx as long" : "%.2fx as long", 1 / ratio);
	else
		snprintf(cell, CELL_MAX, "%.2fx as fast", ratio);
}

static void peak_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_peak)
		(void)gp_amount_text(cell, run->peak_bytes);
}

static void allocations_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_sum)
		(void)gp_grouped_text(cell, run->sum.allocations);
}

static void served_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_sum && run->sum.allocations && run->sum.hits <= run->sum.allocations)
		snprintf(cell, CELL_MAX, "%.2f %%", 100 * (double)run->sum.hits / (double)run->sum.allocations);
}

static void made_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_sum)
		(void)gp_grouped_text(cell, run->sum.calls_made);
}

static void saved_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_sum)
		(void)gp_grouped_text(cell, run->sum.calls_saved);
}

static void ooms_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (run->has_sum)
		(void)gp_grouped_text(cell, run->sum.ooms);
}

static void end_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	if (WIFSIGNALED(run->status))
		snprintf(cell, CELL_MAX, "signal %d", WTERMSIG(run->status));
	else
		snprintf(cell, CELL_MAX, "%d", WEXITSTATUS(run->status));
}

static void output_cell(char cell[static CELL_MAX], const struct run_result *run, const struct run_result *first)
{
	char bytes[GP_GROUPED_TEXT_MAX];

	if (run == first)
		snprintf(cell, CELL_MAX, "%s bytes", gp_grouped_text(bytes, (uint64_t)run->out_bytes));
	else
		snprintf(cell, CELL_MAX, "%s", run->difference.is_different ? "DIFFERENT" : "the same");
}

static const struct {
	const char *label;
	cell_fn *cell;
	const char *absent;
} rows[] = {
	{"", name_cell, ""},
	{"time", time_cell, "-"},
	{"", speed_cell, ""},
	{"peak device memory", peak_cell, "-"},
	{"allocations", allocations_cell, "-"},
	{"  served by the pool", served_cell, "-"},
	{"driver calls for memory", made_cell, "-"},
	{"  saved", saved_cell, "-"},
	{"out-of-memory errors", ooms_cell, "-"},
	{"exit status", end_cell, "-"},
	{"output", output_cell, "-"},
};

static void print_row(size_t row, const struct run_result *results, unsigned n)
{
	char line[32 + RUN_TYPES_MAX * CELL_MAX + CELL_MAX];
	size_t used = (size_t)snprintf(line, sizeof(line), "%-23s", rows[row].label);

	for (unsigned i = 0; i < n; i++) {
		char cell[CELL_MAX] = "";

		rows[row].cell(cell, &results[i], &results[0]);
		used += (size_t)snprintf(line + used, sizeof(line) - used, " %15s", *cell ? cell : rows[row].absent);
	}
	while (used && line[used - 1] == ' ')
		used--;
	printf("%.*s\n", (int)used, line);
}

static void print_line(const char *name, const char *text)
{
	char clean[128];

	gp_clean(clean, sizeof(clean), text);
	printf("    %-16s %s\n", name, *clean ? clean : "(nothing)");
}

static void print_difference(const struct run_result *run)
{
	printf("The output with %s differs from line %" PRIu64 " on:\n", run->type, run->difference.line);
	print_line("without gpupool", run->difference.texts[0]);
	print_line(run->type, run->difference.texts[1]);
}

bool run_table_print(const struct run_result *results, unsigned n, const char *why_no_peak)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		print_row(i, results, n);
	for (unsigned i = 1; i < n; i++)
		if (results[i].difference.is_different)
			print_difference(&results[i]);
	puts("One run each, and the first may have read files from disk: repeat it.");
	if (why_no_peak)
		printf("There is no peak: %s.\n", why_no_peak);
	else
		puts("The peak is what was in use on the devices above that before the run. It is read\n"
		     "from NVML every 10 ms, and includes what other programs took meanwhile.");
	return fflush(stdout) != EOF;
}
