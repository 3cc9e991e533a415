/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <inttypes.h>
#include <stdio.h>

#include "tools/ask/stat_report.h"
#include "tools/text/stat_text.h"
#include "replay_advise.h"
#include "replay_show.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static void print_and_free(struct stat_table *table)
{
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

static void show_kinds(const struct replay_contents *contents, const struct replay_advice *advice)
{
	static const char *const headings[] = {
		"<POOL", ">PEAK", ">/ LIVE", ">CALLS", ">SMALLEST LIMIT", ">/ LIVE", ">CALLS"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));
	double live = (double)contents->peak_live_bytes;

	for (size_t i = 0; i < GP_N_KINDS; i++) {
		const struct replay_found *found = &advice->kinds[i];
		char cells[LENGTH(headings)][STAT_TEXT_MAX] = {"", "", "", "", "none fits", "-", "-"};
		const char *row[] = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]};

		snprintf(cells[0], STAT_TEXT_MAX, "%s", gp_kind_name(found->kind));
		stat_bytes(cells[1], found->recorded.peak_total_bytes);
		snprintf(cells[2], STAT_TEXT_MAX, "%.2f", (double)found->recorded.peak_total_bytes / live);
		snprintf(cells[3], STAT_TEXT_MAX, "%" PRIu64, replay_driver_calls(&found->recorded));
		if (found->fits) {
			stat_bytes(cells[4], found->smallest.limit_bytes);
			snprintf(cells[5], STAT_TEXT_MAX, "%.2f", (double)found->smallest.peak_bytes / live);
			snprintf(cells[6], STAT_TEXT_MAX, "%" PRIu64, found->smallest.driver_calls);
		}
		stat_table_add(table, row);
	}
	print_and_free(table);
}

/* Limits are whole MiB, so that those above a small one can be equal. */
static bool is_repeated(const struct replay_advice *advice, size_t i)
{
	return i && advice->limits[i].limit_bytes == advice->limits[i - 1].limit_bytes;
}

static void show_limits(const struct replay_advice *advice)
{
	static const char *const headings[] = {">LIMIT", ">PEAK", ">HITS", ">CALLS", ">HOST WAITS", "<"};
	struct stat_table *table;

	if (!advice->n_limits)
		return;
	printf("\n%s with a limit on each device\n", gp_kind_name(advice->conclusion.after.kind));
	table = stat_table_new(headings, LENGTH(headings));
	for (size_t i = 0; i < advice->n_limits; i++) {
		const struct replay_try *one = &advice->limits[i];
		char cells[LENGTH(headings)][STAT_TEXT_MAX];
		const char *row[] = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]};

		if (is_repeated(advice, i))
			continue;
		stat_bytes(cells[0], one->limit_bytes);
		stat_bytes(cells[1], one->peak_bytes);
		snprintf(cells[2], STAT_TEXT_MAX, "%.1f%%", 100 * one->hit_rate);
		snprintf(cells[3], STAT_TEXT_MAX, "%" PRIu64, one->driver_calls);
		snprintf(cells[4], STAT_TEXT_MAX, "%" PRIu64, one->host_waits);
		snprintf(cells[5], STAT_TEXT_MAX, "%s", one->fits ? "" : "allocations fail");
		stat_table_add(table, row);
	}
	print_and_free(table);
}

static void show_notes(const struct replay_contents *contents, const struct replay_advice *advice)
{
	const struct replay_found *after = &advice->kinds[advice->conclusion.after.kind];

	if (contents->n_refused && advice->conclusion.has_after)
		printf("\n%" PRIu64
		       " allocation%s failed in the recorded process; with the advised limit %s serves %" PRIu64 "\n",
			contents->n_refused, stat_plural(contents->n_refused), gp_kind_name(after->kind),
			after->serves_all ? contents->n_refused : after->smallest.n_rescued);
	if (contents->n_exports && contents->kind != GP_KIND_VMM)
		puts("\nvmm is not recommended: the program shares memory with other processes or devices");
}

void replay_advise_show(const struct replay_contents *contents, const struct replay_advice *advice)
{
	replay_show_contents(contents);
	putchar('\n');
	show_kinds(contents, advice);
	show_limits(advice);
	if (advice->has_fragments)
		replay_show_fragments(contents->kind, contents, &advice->fragments, &advice->sites);
	show_notes(contents, advice);
	replay_conclusion_show(contents, &advice->conclusion);
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)gp_min(value, INT64_MAX)));
}

static json_t *make_try(const struct replay_try *one)
{
	json_t *object = stat_alloc(json_object());

	set(object, "limit_bytes", one->limit_bytes);
	json_object_set_new(object, "fits", json_boolean(one->fits));
	set(object, "peak_bytes", one->peak_bytes);
	set(object, "driver_calls", one->driver_calls);
	set(object, "host_waits", one->host_waits);
	json_object_set_new(object, "hit_rate", json_real(one->hit_rate));
	return object;
}

static json_t *make_kind(const struct replay_found *found)
{
	json_t *object = stat_alloc(json_object());

	json_object_set_new(object, "pool", json_string(gp_kind_name(found->kind)));
	set(object, "peak_bytes", found->recorded.peak_total_bytes);
	set(object, "driver_calls", replay_driver_calls(&found->recorded));
	set(object, "n_refused", found->recorded.n_refused);
	set(object, "n_rescued", found->recorded.n_rescued);
	json_object_set_new(object, "serves_all", json_boolean(found->serves_all));
	set(object, "n_replays", found->n_replays);
	json_object_set_new(object, "smallest", found->fits ? make_try(&found->smallest) : json_null());
	return object;
}

void replay_advise_show_json(const struct replay_contents *contents, const struct replay_advice *advice)
{
	json_t *object = stat_alloc(json_object()), *kinds = stat_alloc(json_array()),
	       *limits = stat_alloc(json_array());

	json_object_set_new(object, "schema", json_string("gpupool.advise/1"));
	json_object_set_new(object, "source", json_string(contents->is_text ? "trace" : "recording"));
	json_object_set_new(object, "is_damaged", json_boolean(*contents->damage));
	json_object_set_new(object, "is_cut", json_boolean(contents->is_cut));
	set(object, "n_allocs", contents->n_allocs);
	set(object, "n_refused", contents->n_refused);
	set(object, "peak_live_bytes", contents->peak_live_bytes);
	for (size_t i = 0; i < GP_N_KINDS; i++)
		json_array_append_new(kinds, make_kind(&advice->kinds[i]));
	for (size_t i = 0; i < advice->n_limits; i++)
		if (!is_repeated(advice, i))
			json_array_append_new(limits, make_try(&advice->limits[i]));
	json_object_set_new(object, "pools", kinds);
	json_object_set_new(object, "limits", limits);
	json_object_set_new(object, "fragmentation",
		advice->has_fragments ? replay_fragments_json(&advice->fragments, &advice->sites) : json_null());
	json_object_set_new(object, "advice", replay_conclusion_json(contents, &advice->conclusion));
	stat_report_print(object);
	json_decref(object);
}
