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

enum { PARTS = 4000, REFUSED_MAX = 1000, EPISODES_MAX = 500 };

/*
 * An episode without enough memory: from the driver's first refusal until the allocation is served or fails. If a
 * limit forbids an allocation, the driver is not asked, and the episode consists of the failure alone.
 */
struct episode {
	bool is_open;
	uint64_t ns, returned_bytes, n_denied;
	uint32_t thread;
};

struct first_walk {
	struct samples samples;
	struct {
		uint64_t used_bytes, reserved_bytes;
	} peaks[HISTORY_MEMORIES_MAX];
	struct episode episodes[HISTORY_MEMORIES_MAX];
	json_t *refused, *done; /* lists */
	uint64_t n_places, n_refused, n_episodes;
};

struct second_walk {
	struct report_events *events;
	uint64_t at, first; /* events with an address: how many came so far, and the first to write */
	uint64_t n_before;  /* events written to build the state before that one */
};

const char *report_memory_name(char name[static STAT_ERROR_MAX], unsigned number)
{
	if (number == HISTORY_PINNED)
		snprintf(name, STAT_ERROR_MAX, "pinned memory");
	else
		snprintf(name, STAT_ERROR_MAX, "device %u", number);
	return name;
}

json_t *report_memory(unsigned number)
{
	char name[STAT_ERROR_MAX];

	return stat_alloc(
		json_pack("{s:i, s:s, s:I, s:I, s:[]}", "number", (int)number, "name", report_memory_name(name, number),
			"peak_used_bytes", (json_int_t)0, "peak_reserved_bytes", (json_int_t)0, "samples"));
}

static bool has_place(const struct history_event *event)
{
	return event->addr && event->kind <= HISTORY_BLOCK_GONE;
}

/* Adds an episode with the bytes that the program requested, not those that the pool requested from the driver. */
static void add_episode(
	struct first_walk *w, const struct episode *e, const struct history_event *event, bool is_served)
{
	char name[STAT_ERROR_MAX];

	if (w->n_episodes++ >= EPISODES_MAX)
		return;
	json_array_append_new(
		w->done, stat_alloc(json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:b}", "ns", (json_int_t)e->ns,
				 "took_ns", (json_int_t)(event->ns - e->ns), "thread", (json_int_t)e->thread, "memory",
				 report_memory_name(name, event->memory), "asked_bytes",
				 (json_int_t)event->requested_bytes, "n_denied", (json_int_t)e->n_denied,
				 "returned_bytes", (json_int_t)e->returned_bytes, "is_served", (int)is_served)));
}

static void follow_episode(struct first_walk *w, const struct history_event *event)
{
	const struct episode fresh = {.is_open = true, .ns = event->ns, .thread = event->thread};
	struct episode *e = &w->episodes[event->memory];
	bool is_same_thread = e->is_open && event->thread == e->thread;

	if (event->kind == HISTORY_DENIED) {
		if (!e->is_open)
			*e = fresh;
		e->n_denied++;
	} else if (e->is_open && event->kind == HISTORY_SEGMENT_GONE && !event->is_own) {
		e->returned_bytes += event->bytes;
	} else if (is_same_thread && (event->kind == HISTORY_BLOCK_NEW || event->kind == HISTORY_REFUSED)) {
		add_episode(w, e, event, event->kind == HISTORY_BLOCK_NEW);
		e->is_open = false;
	} else if (event->kind == HISTORY_REFUSED) {
		add_episode(w, &fresh, event, false);
	}
}

static void take_first(void *arg, const struct history *h, const struct history_event *event)
{
	struct first_walk *w = arg;
	const struct history_memory *m = &h->memories[event->memory];

	samples_take(&w->samples, h, event);
	follow_episode(w, event);
	w->n_places += has_place(event);
	w->peaks[event->memory].used_bytes = gp_max(w->peaks[event->memory].used_bytes, m->used_bytes);
	w->peaks[event->memory].reserved_bytes = gp_max(w->peaks[event->memory].reserved_bytes, m->reserved_bytes);
	if (event->kind != HISTORY_REFUSED || w->n_refused++ >= REFUSED_MAX)
		return;
	json_array_append_new(
		w->refused, stat_alloc(json_pack("{s:I, s:i, s:I}", "ns", (json_int_t)event->ns, "memory",
				    (int)event->memory, "asked_bytes", (json_int_t)event->requested_bytes)));
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
		[HISTORY_SEGMENT_GONE] = REPORT_SEGMENT_GONE,
		[HISTORY_BLOCK_NEW] = REPORT_BLOCK_NEW,
		[HISTORY_BLOCK_GONE] = REPORT_BLOCK_GONE,
	};
	struct second_walk *w = arg;

	if (!has_place(event))
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
				      (json_int_t)m->list[i].used_bytes, (json_int_t)m->list[i].reserved_bytes)));
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
		json_object_set_new(memory, "peak_used_bytes", json_integer((json_int_t)w->peaks[i].used_bytes));
		json_object_set_new(
			memory, "peak_reserved_bytes", json_integer((json_int_t)w->peaks[i].reserved_bytes));
		json_object_set_new(memory, "samples", make_samples(&w->samples.memories[i]));
		json_array_append_new(list, memory);
	}
	json_object_set_new(facts, "memories", list);
	json_object_set(facts, "refused", w->refused);
	json_object_set(facts, "episodes", w->done);
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

static void add_notes(json_t *facts, const struct replay_contents *c, const struct first_walk *w, uint64_t left_out)
{
	if (left_out)
		add_note(facts, "The map shows the last events; %" PRIu64 " earlier events are only in the curves.",
			left_out);
	if (c->is_text)
		add_note(facts, "A trace has no times and no driver allocations: each block is shown as a segment.");
	else if (c->kind == GP_KIND_VMM)
		add_note(facts, "The pool type vmm maps memory in chunks: each block is shown as a segment.");
	if (*c->damage)
		add_note(facts, "The recording is incomplete: %s. The report shows all that comes before.", c->damage);
	else if (!c->is_text && !c->is_exit)
		add_note(facts, "The recording stops before the end of its process.");
	if (w->n_refused > REFUSED_MAX || w->n_episodes > EPISODES_MAX)
		add_note(facts,
			"Only the first are shown of %" PRIu64 " failures and %" PRIu64 " times that memory ran out.",
			w->n_refused, w->n_episodes);
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

/* Makes both walks. Returns 0, or -1 with the reason in error. */
static int walk_twice(struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t n_max,
	struct first_walk *first, char error[static REPLAY_ERROR_MAX])
{
	struct history history = {.take = take_first, .arg = first};
	struct second_walk second = {.events = events};
	int r = walk(source, &history, error);

	samples_end(&first->samples);
	add_memories(facts, first, &history);
	history_deinit(&history);
	if (r)
		return r;
	second.first = first->n_places > n_max ? first->n_places - n_max : 0;
	history = (struct history){.take = take_second, .arg = &second};
	r = walk(source, &history, error);
	history_deinit(&history);
	json_object_set_new(facts, "n_before", json_integer((json_int_t)second.n_before));
	add_notes(facts, &source->contents, first, second.first);
	return r;
}

enum stat_exit report_recording(
	struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t n_max)
{
	const struct replay_contents *c = &source->contents;
	uint64_t duration_ns = c->is_text ? c->n_events * 1000 : c->duration_ns;
	struct first_walk first = {.refused = stat_alloc(json_array()), .done = stat_alloc(json_array())};
	char error[REPLAY_ERROR_MAX];
	int r;

	samples_init(&first.samples, duration_ns, PARTS);
	add_summary(facts, c);
	json_object_set_new(facts, "is_text", json_boolean(c->is_text));
	json_object_set_new(facts, "duration_ns", json_integer((json_int_t)duration_ns));
	r = walk_twice(events, facts, source, n_max, &first, error);
	samples_deinit(&first.samples);
	json_decref(first.refused);
	json_decref(first.done);
	if (r == 0)
		return STAT_OK;
	stat_error(NULL, "%s: %s.", source->name, error);
	return STAT_FAILED;
}
