/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_show.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "tools/ask/stat_report.h"
#include "tools/text/stat_text.h"
#include "replay_conclude.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

enum { CELL_MAX = 32 };

const char *replay_reuse_name(enum replay_reuse reuse)
{
	static const char *const names[] = {"auto", "ordered", "completed"};

	return names[reuse];
}

static double over(uint64_t bytes, uint64_t base)
{
	return base ? (double)bytes / (double)base : 0;
}

static double hit_rate(const struct gp_stats *stats)
{
	return over(stats->hits, stats->hits + stats->misses);
}

static void print_and_free(struct stat_table *table)
{
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

void replay_show_contents(const struct replay_contents *c)
{
	char live[STAT_TEXT_MAX], pinned[STAT_TEXT_MAX], time[STAT_TEXT_MAX];

	stat_bytes(live, c->peak_live_bytes);
	stat_bytes(pinned, c->peak_live_pinned_bytes);
	if (c->is_text) {
		printf("trace without times");
	} else {
		stat_duration(time, c->duration_ns);
		printf("recording of process %" PRIu64 ", pool %s, %" PRIu32 " thread%s, %s%s", c->pid,
			gp_kind_name(c->kind), c->n_threads, stat_plural(c->n_threads), time,
			c->is_exit ? "" : ", the end of the process is missing");
	}
	printf("\n%" PRIu64 " allocation%s, %" PRIu64 " free%s, peak live %s", c->n_allocs, stat_plural(c->n_allocs),
		c->n_frees, stat_plural(c->n_frees), live);
	if (c->peak_live_pinned_bytes)
		printf(" and %s pinned", pinned);
	printf("\n");
	if (c->n_refused)
		printf("%" PRIu64 " allocation%s failed in the recorded process\n", c->n_refused,
			stat_plural(c->n_refused));
}

static void add_kind(
	struct stat_table *table, const char *name, const struct gp_stats *stats, uint64_t total, uint64_t live)
{
	char cells[11][CELL_MAX];
	const char *row[] = {name, cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7],
		cells[8], cells[9], cells[10]};
	const uint64_t counts[] = {stats->driver_allocs, stats->driver_frees, stats->moves, stats->fence_records,
		stats->fence_queries, stats->fence_orders, stats->fence_waits, stats->ooms};

	stat_bytes(cells[0], total);
	snprintf(cells[1], CELL_MAX, "%.3f", over(total, live));
	snprintf(cells[2], CELL_MAX, "%.1f%%", 100 * hit_rate(stats));
	for (size_t i = 0; i < LENGTH(counts); i++)
		snprintf(cells[3 + i], CELL_MAX, "%" PRIu64, counts[i]);
	stat_table_add(table, row);
}

static void show_kinds(const struct replay_contents *c, const struct replay_result *results, size_t n)
{
	static const char *const headings[] = {"<POOL", ">TOTAL", ">/ LIVE", ">HITS", ">ALLOCS", ">FREES", ">MOVES",
		">RECORDS", ">QUERIES", ">GPU-WAITS", ">WAITS", ">OOMS"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));

	for (size_t i = 0; i < n; i++)
		add_kind(table, gp_kind_name(results[i].settings.kind), &results[i].device, results[i].peak_total_bytes,
			c->peak_live_bytes);
	/* Pinned memory has two pool types, none and binned: the first and the last result show both. */
	for (size_t i = 0; i < n && c->peak_live_pinned_bytes; i++)
		if (i == 0 || i == n - 1)
			add_kind(table, results[i].settings.kind == GP_KIND_NONE ? "pinned, none" : "pinned",
				&results[i].pinned, results[i].peak_total_pinned_bytes, c->peak_live_pinned_bytes);
	print_and_free(table);
}

/* Returns the share of the memory taken from the driver that the program has not requested. */
static double unused(const struct replay_row *row)
{
	return row->stats.total_bytes ? 1 - over(row->live_bytes, row->stats.total_bytes) : 0;
}

static void show_rows(const struct replay_contents *c, const struct replay_result *result)
{
	static const char *const headings[] = {
		">AT", ">USED", ">CACHED", ">PENDING", ">RETURNING", ">TOTAL", ">UNUSED"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));

	for (unsigned i = 0; i < result->n_rows; i++) {
		const struct replay_row *row = &result->rows[i];
		char cells[LENGTH(headings)][STAT_TEXT_MAX];
		const char *texts[] = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]};

		if (c->duration_ns)
			stat_duration(cells[0], row->ns);
		else
			snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, row->position);
		stat_bytes(cells[1], row->stats.used_bytes);
		stat_bytes(cells[2], row->stats.cached_bytes);
		stat_bytes(cells[3], row->stats.pending_bytes);
		stat_bytes(cells[4], row->stats.returning_bytes);
		stat_bytes(cells[5], row->stats.total_bytes);
		snprintf(cells[6], sizeof(cells[6]), "%.1f%%", 100 * unused(row));
		stat_table_add(table, texts);
	}
	print_and_free(table);
}

static void show_refused(const struct replay_result *result)
{
	char live[STAT_TEXT_MAX];

	stat_bytes(live, result->peak_served_bytes);
	printf("%" PRIu64 " allocation%s in the replay but not in the recorded process; served before the first: "
	       "%" PRIu64 ", with at most %s live\n",
		result->n_refused, result->n_refused == 1 ? " fails" : "s fail", result->n_served, live);
}

static void conclude(
	struct replay_conclusion *ret, const struct replay_contents *c, const struct replay_result *results, size_t n)
{
	struct replay_option options[GP_N_KINDS];

	for (size_t i = 0; i < n; i++)
		options[i] = replay_option_of(&results[i]);
	replay_conclude(ret, c, options, n);
}

void replay_show(const struct replay_contents *c, const struct replay_result *results, size_t n,
	const struct replay_causes *causes)
{
	struct replay_conclusion conclusion;

	replay_show_contents(c);
	putchar('\n');
	show_kinds(c, results, n);
	for (size_t i = 0; i < n; i++) {
		printf("\n%s\n", gp_kind_name(results[i].settings.kind));
		if (results[i].n_refused)
			show_refused(&results[i]);
		show_rows(c, &results[i]);
	}
	if (causes)
		replay_show_fragments(causes->kind, c, &causes->fragments, &causes->sites);
	if (!c->peak_live_bytes)
		return;
	conclude(&conclusion, c, results, n);
	replay_conclusion_show(c, &conclusion);
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)gp_min(value, INT64_MAX)));
}

static json_t *make_stats(const struct gp_stats *stats, uint64_t total, uint64_t live)
{
	json_t *object = stat_alloc(json_object());

	set(object, "peak_live_bytes", live);
	json_object_set_new(object, "total_over_live", live ? json_real(over(total, live)) : json_null());
	json_object_set_new(object, "hit_rate", json_real(hit_rate(stats)));
#define STAT(name, ...) set(object, #name, stats->name);
#include "pool/stats.def"
	set(object, "peak_total_bytes", total); /* less than the sum of pools whose peaks were at other times */
	return object;
}

static json_t *make_row(const struct replay_contents *c, const struct replay_row *row)
{
	json_t *object = stat_alloc(json_object());

	set(object, "event", row->position);
	json_object_set_new(object, "time_ns", c->duration_ns ? json_integer((json_int_t)row->ns) : json_null());
	set(object, "live_bytes", row->live_bytes);
	set(object, "used_bytes", row->stats.used_bytes);
	set(object, "cached_bytes", row->stats.cached_bytes);
	set(object, "pending_bytes", row->stats.pending_bytes);
	set(object, "returning_bytes", row->stats.returning_bytes);
	set(object, "total_bytes", row->stats.total_bytes);
	return object;
}

static json_t *make_run(const struct replay_contents *c, const struct replay_result *r)
{
	json_t *object = stat_alloc(json_object()), *rows = stat_alloc(json_array());
	bool is_limited = r->settings.limit_bytes != GP_NO_LIMIT;

	json_object_set_new(object, "pool", json_string(gp_kind_name(r->settings.kind)));
	json_object_set_new(object, "reuse", json_string(replay_reuse_name(r->settings.reuse)));
	json_object_set_new(
		object, "limit_bytes", is_limited ? json_integer((json_int_t)r->settings.limit_bytes) : json_null());
	set(object, "n_refused", r->n_refused);
	set(object, "n_served", r->n_served);
	set(object, "peak_served_bytes", r->peak_served_bytes);
	json_object_set_new(object, "device", make_stats(&r->device, r->peak_total_bytes, c->peak_live_bytes));
	json_object_set_new(
		object, "pinned", make_stats(&r->pinned, r->peak_total_pinned_bytes, c->peak_live_pinned_bytes));
	for (unsigned i = 0; i < r->n_rows; i++)
		json_array_append_new(rows, make_row(c, &r->rows[i]));
	json_object_set_new(object, "rows", rows);
	return object;
}

void replay_show_json(const struct replay_contents *c, const struct replay_result *results, size_t n,
	const struct replay_causes *causes)
{
	json_t *object = stat_alloc(json_object()), *runs = stat_alloc(json_array());
	struct replay_conclusion conclusion;

	json_object_set_new(object, "schema", json_string("gpupool.replay/1"));
	json_object_set_new(object, "format", json_string(c->is_text ? "trace" : "recording"));
	json_object_set_new(object, "is_cut", json_boolean(c->is_cut));
	json_object_set_new(object, "is_damaged", json_boolean(*c->damage));
	json_object_set_new(object, "has_end", json_boolean(c->is_exit));
	json_object_set_new(object, "pid", c->pid ? json_integer((json_int_t)c->pid) : json_null());
	json_object_set_new(object, "pool", c->is_text ? json_null() : json_string(gp_kind_name(c->kind)));
	set(object, "n_threads", c->n_threads);
	set(object, "n_allocs", c->n_allocs);
	set(object, "n_frees", c->n_frees);
	set(object, "n_refused", c->n_refused);
	set(object, "n_foreign_frees", c->n_foreign);
	set(object, "duration_ns", c->duration_ns);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(runs, make_run(c, &results[i]));
	json_object_set_new(object, "runs", runs);
	json_object_set_new(object, "fragmentation",
		causes ? replay_fragments_json(&causes->fragments, &causes->sites) : json_null());
	conclude(&conclusion, c, results, n);
	json_object_set_new(
		object, "advice", c->peak_live_bytes ? replay_conclusion_json(c, &conclusion) : json_null());
	stat_report_print(object);
	json_decref(object);
}
