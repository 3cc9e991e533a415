/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A recording has no counters of hits. An allocation is a miss if its thread asked the driver for memory since the
 * thread's previous allocation in the same memory: the answers of the driver to a call precede the record of the call.
 */

#include "report_figures.h"

#include "tools/text/stat_say.h"

static uint64_t key_of(const struct history_event *event)
{
	return (uint64_t)event->thread * HISTORY_MEMORIES_MAX + event->memory + 1;
}

static void count_allocation(struct report_figures *figures, const struct history_event *event)
{
	struct report_figure *figure = &figures->memories[event->memory];
	struct replay_entry *asked = replay_map_find(&figures->asked, key_of(event));

	if (asked)
		replay_map_remove(&figures->asked, asked);
	figure->n_failed += event->kind == HISTORY_REFUSED;
	figure->misses += asked && event->kind == HISTORY_BLOCK_NEW;
	figure->hits += !asked && event->kind == HISTORY_BLOCK_NEW;
}

static json_t *bytes_or_null(uint64_t bytes)
{
	return bytes > INT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static void note_limit(struct report_figure *figure, const struct history_memory *m, uint64_t ns)
{
	if (figure->n_limits++ >= REPORT_LIMITS_MAX)
		return;
	if (!figure->limits)
		figure->limits = stat_alloc(json_array());
	json_array_append_new(
		figure->limits, stat_alloc(json_pack("[I, o]", (json_int_t)ns, bytes_or_null(m->limit_bytes))));
}

void report_figures_take(struct report_figures *figures, const struct history *h, const struct history_event *event)
{
	struct report_figure *figure = &figures->memories[event->memory];
	const struct history_memory *m = &h->memories[event->memory];

	figure->peak_used_bytes = gp_max(figure->peak_used_bytes, m->used_bytes);
	figure->peak_total_bytes = gp_max(figure->peak_total_bytes, m->total_bytes);
	if (event->kind == HISTORY_BLOCK_NEW || event->kind == HISTORY_REFUSED)
		count_allocation(figures, event);
	else if (event->kind == HISTORY_DENIED || (event->kind == HISTORY_SEGMENT_NEW && !event->is_own))
		replay_map_put(&figures->asked, (struct replay_entry){.key = key_of(event)});
	else if (event->kind == HISTORY_LIMIT)
		note_limit(figure, m, event->ns);
}

void report_figures_deinit(struct report_figures *figures)
{
	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++)
		json_decref(figures->memories[i].limits);
	replay_map_deinit(&figures->asked);
}

const char *report_memory_name(char name[static STAT_ERROR_MAX], unsigned number)
{
	if (number == HISTORY_PINNED)
		snprintf(name, STAT_ERROR_MAX, "pinned memory");
	else
		snprintf(name, STAT_ERROR_MAX, "device %u", number);
	return name;
}

static json_t *new_entry(json_t *facts, unsigned number)
{
	char name[STAT_ERROR_MAX];
	json_t *entry =
		stat_alloc(json_pack("{s:i, s:s}", "number", (int)number, "name", report_memory_name(name, number)));

	json_array_append_new(json_object_get(facts, "figures"), entry);
	return entry;
}

static void set(json_t *entry, const char *name, uint64_t value)
{
	json_object_set_new(entry, name, json_integer((json_int_t)gp_min(value, INT64_MAX)));
}

void report_figures_add(json_t *facts, json_t *memory, const struct report_figures *figures, const struct history *h,
	unsigned number, bool has_driver)
{
	const struct report_figure *figure = &figures->memories[number];
	json_t *entry = new_entry(facts, number);

	set(entry, "peak_used_bytes", figure->peak_used_bytes);
	set(entry, "allocs", figure->hits + figure->misses);
	set(entry, "failed", figure->n_failed);
	if (!has_driver)
		return;
	set(entry, "peak_total_bytes", figure->peak_total_bytes);
	set(entry, "hits", figure->hits);
	set(entry, "driver_allocs", h->memories[number].n_driver_allocs);
	set(entry, "driver_frees", h->memories[number].n_driver_frees);
	set(entry, "limit_changes", figure->n_limits > 1 ? figure->n_limits - 1 : 0);
	json_object_set_new(entry, "limit_bytes", bytes_or_null(h->memories[number].limit_bytes));
	if (figure->limits)
		json_object_set(memory, "limits", figure->limits);
}

void report_figures_add_counters(json_t *facts, const json_t *counters, unsigned number)
{
	static const char *const members[][2] = {
		{"peak_used_bytes", "peak_used_bytes"},
		{"peak_total_bytes", "peak_total_bytes"},
		{"hits", "hits"},
		{"driver_allocs", "driver_allocs"},
		{"driver_frees", "driver_frees"},
		{"driver_moves", "moves"},
		{"failed", "ooms"},
	};
	json_t *entry = new_entry(facts, number);
	uint64_t limit;

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		set(entry, members[i][0], stat_reply_u64_or_0(counters, members[i][1]));
	set(entry, "allocs", stat_reply_u64_or_0(counters, "hits") + stat_reply_u64_or_0(counters, "misses"));
	json_object_set_new(entry, "limit_bytes",
		bytes_or_null(stat_reply_u64(counters, "limit_bytes", &limit) ? limit : UINT64_MAX));
}
