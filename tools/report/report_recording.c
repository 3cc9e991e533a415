/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Reads a recording twice. The first walk makes the curves and the list of failures, of the whole recording. The second
 * writes the events of the map: the last events only, and before them events that build the state in which they began.
 */

#include "report_recording.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "tools/replay/replay_samples.h"
#include "tools/text/stat_text.h"
#include "report_failures.h"
#include "report_figures.h"

enum { PARTS = 4000, PARTS_OF_SEVERAL = 1000 };

struct first_walk {
	struct samples samples;
	struct report_figures figures;
	struct report_failures failures;
	uint64_t n_addressed;
};

struct second_walk {
	struct report_events *events;
	uint64_t at, first; /* events with an address: how many came so far, and the first to write */
	uint64_t n_before;  /* events written to build the state before that one */
};

json_t *report_memory(unsigned number)
{
	char name[STAT_ERROR_MAX];

	return stat_alloc(
		json_pack("{s:i, s:s, s:I, s:I, s:[]}", "number", (int)number, "name", report_memory_name(name, number),
			"peak_used_bytes", (json_int_t)0, "peak_total_bytes", (json_int_t)0, "samples"));
}

static bool has_address(const struct history_event *event)
{
	return event->addr && event->kind <= HISTORY_BLOCK_FREED;
}

static void take_first(void *arg, const struct history *h, const struct history_event *event)
{
	struct first_walk *w = arg;

	samples_take(&w->samples, h, event);
	report_figures_take(&w->figures, h, event);
	report_failures_take(&w->failures, h, event);
	w->n_addressed += has_address(event);
}

static void put(struct second_walk *w, enum report_event_kind kind, const struct history_event *event)
{
	struct report_event packed = {
		kind, event->memory, event->ns, event->addr, event->bytes, event->requested_bytes};

	report_events_put(w->events, &packed);
}

/* Writes the segments and blocks that exist before the first event of the map, as events. */
static void put_state(struct second_walk *w, const struct history *h, uint64_t ns)
{
	struct history_block *blocks;
	size_t n = history_blocks(h, &blocks);

	for (struct history_segment s = {0}; history_next(h, &s);) {
		struct history_event event = {
			.ns = ns, .memory = h->pools[s.pool].memory, .addr = s.addr, .bytes = s.bytes};

		put(w, REPORT_SEGMENT_NEW, &event);
	}
	for (size_t i = 0; i < n; i++) {
		struct history_event event = {.ns = ns, .memory = h->pools[blocks[i].pool].memory};

		event.addr = blocks[i].addr;
		event.bytes = blocks[i].bytes;
		event.requested_bytes = blocks[i].requested_bytes;
		put(w, REPORT_BLOCK_NEW, &event);
	}
	w->n_before = w->events->n;
	free(blocks);
}

static void take_second(void *arg, const struct history *h, const struct history_event *event)
{
	static const enum report_event_kind kinds[] = {
		[HISTORY_SEGMENT_NEW] = REPORT_SEGMENT_NEW,
		[HISTORY_SEGMENT_RELEASED] = REPORT_SEGMENT_RELEASED,
		[HISTORY_BLOCK_NEW] = REPORT_BLOCK_NEW,
		[HISTORY_BLOCK_FREED] = REPORT_BLOCK_FREED,
	};
	struct second_walk *w = arg;

	if (!has_address(event))
		return;
	if (w->at++ >= w->first)
		put(w, kinds[event->kind], event);
	else if (w->at == w->first)
		put_state(w, h, event->ns);
}

static json_t *make_samples(const struct samples_memory *m)
{
	json_t *list = stat_alloc(json_array());

	for (size_t i = 0; i < m->n; i++)
		json_array_append_new(
			list, stat_alloc(json_pack("[I, I, I]", (json_int_t)m->list[i].ns,
				      (json_int_t)m->list[i].used_bytes, (json_int_t)m->list[i].total_bytes)));
	return list;
}

static void add_memories(json_t *facts, const struct first_walk *w, const struct history *h)
{
	json_t *list = stat_alloc(json_array());

	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++) {
		json_t *memory;

		if (!h->memories[i].is_used || !w->samples.memories[i].n)
			continue;
		memory = report_memory(i);
		json_object_set_new(
			memory, "peak_used_bytes", json_integer((json_int_t)w->figures.memories[i].peak_used_bytes));
		json_object_set_new(
			memory, "peak_total_bytes", json_integer((json_int_t)w->figures.memories[i].peak_total_bytes));
		json_object_set_new(memory, "samples", make_samples(&w->samples.memories[i]));
		report_figures_add(facts, memory, &w->figures, h, i, !h->is_text);
		json_array_append_new(list, memory);
	}
	json_object_set_new(facts, "memories", list);
}

static void add_note(json_t *facts, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_note(json_t *facts, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_array_append_new(json_object_get(facts, "notes"), json_string(text));
}

static void add_notes(json_t *facts, const struct replay_contents *c, uint64_t left_out, bool has_map)
{
	if (left_out)
		add_note(facts, "The map shows the last events; %" PRIu64 " earlier events are only in the curves.",
			left_out);
	if (has_map && c->is_text)
		add_note(facts, "A trace has no times and no driver allocations: each block is shown as a segment.");
	else if (has_map && c->kind == GP_KIND_VMM)
		add_note(facts, "The pool type vmm maps memory in chunks: each block is shown as a segment.");
	if (*c->damage)
		add_note(facts, "The recording is incomplete: %s. The report shows all that comes before.", c->damage);
	else if (!c->is_text && !c->is_exit)
		add_note(facts, "The recording stops before the end of its process.");
}

static void add_summary(json_t *facts, const struct replay_contents *c)
{
	char text[256], time[STAT_TEXT_MAX], start[32] = "";
	time_t second = (time_t)(c->start_s & INT64_MAX);
	struct tm tm;

	if (c->start_s && gmtime_r(&second, &tm))
		strftime(start, sizeof(start), ", from %F %T UTC", &tm);
	stat_duration(time, c->duration_ns);
	if (c->is_text)
		snprintf(text, sizeof(text), "trace: %" PRIu64 " blocks allocated, %" PRIu64 " freed", c->n_allocs,
			c->n_frees);
	else
		snprintf(text, sizeof(text),
			"recording of process %" PRIu64 ", pool %s, %s%s: %" PRIu64 " blocks allocated, %" PRIu64
			" freed, %" PRIu32 " thread%s",
			c->pid, gp_kind_name(c->kind), time, start, c->n_allocs, c->n_frees, c->n_threads,
			c->n_threads == 1 ? "" : "s");
	json_object_set_new(facts, "summary", json_string(text));
}

static int walk(const struct stat_source *source, struct history *h, char error[static REPLAY_ERROR_MAX])
{
	return history_run(h, source->file, source->contents.n_events, error);
}

/* Makes the first walk. Returns 0, or -1 with the reason in error. */
static int walk_first(
	json_t *facts, const struct stat_source *source, struct first_walk *first, char error[static REPLAY_ERROR_MAX])
{
	struct history history = {.on_change = take_first, .arg = first};
	int r = walk(source, &history, error);

	samples_end(&first->samples);
	add_memories(facts, first, &history);
	report_failures_add(facts, &first->failures);
	history_deinit(&history);
	return r;
}

/* Makes the second walk, and writes its events. Returns 0, or -1 with the reason in error. */
static int walk_second(struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t first,
	char error[static REPLAY_ERROR_MAX])
{
	struct second_walk second = {.events = events, .first = first};
	struct history history = {.on_change = take_second, .arg = &second};
	int r = walk(source, &history, error);

	history_deinit(&history);
	json_object_set_new(facts, "n_before", json_integer((json_int_t)second.n_before));
	return r;
}

/* events: NULL: there is no map. */
static enum stat_exit make(
	struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t n_max, unsigned parts)
{
	const struct replay_contents *c = &source->contents;
	uint64_t duration_ns = c->is_text ? c->n_events * 1000 : c->duration_ns, n_left_out = 0;
	struct first_walk first = {0};
	char error[REPLAY_ERROR_MAX];
	int r;

	samples_init(&first.samples, duration_ns, parts);
	report_failures_init(&first.failures, source);
	add_summary(facts, c);
	json_object_set_new(facts, "is_text", json_boolean(c->is_text));
	json_object_set_new(facts, "duration_ns", json_integer((json_int_t)duration_ns));
	r = walk_first(facts, source, &first, error);
	if (events && first.n_addressed > n_max)
		n_left_out = first.n_addressed - n_max;
	if (r == 0 && events)
		r = walk_second(events, facts, source, n_left_out, error);
	if (r == 0)
		add_notes(facts, c, n_left_out, events != NULL);
	samples_deinit(&first.samples);
	report_figures_deinit(&first.figures);
	report_failures_deinit(&first.failures);
	if (r == 0)
		return STAT_OK;
	stat_error(NULL, "%s: %s.", source->name, error);
	return STAT_FAILED;
}

enum stat_exit report_recording(
	struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t n_max)
{
	return make(events, facts, source, n_max, PARTS);
}

enum stat_exit report_recording_curves(json_t *facts, const struct stat_source *source)
{
	return make(NULL, facts, source, 0, PARTS_OF_SEVERAL);
}
