/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Reads the file twice. The first walk finds the change of memory that is the moment. The second counts blocks and
 * bytes of each stack up to that change.
 */

#include "replay_holders.h"

#include <stdlib.h>
#include <string.h>

#include "tools/text/stat_say.h"

#define SECONDS_MAX 1e9

bool replay_moment_parse(const char *text, struct replay_moment *moment)
{
	double seconds;
	char *end;

	moment->at = REPLAY_AT_PEAK;
	if (!text || strcmp(text, "peak") == 0)
		return true;
	moment->at = REPLAY_AT_END;
	if (strcmp(text, "end") == 0)
		return true;
	moment->at = REPLAY_AT_TIME;
	seconds = strtod(text, &end);
	if (end == text || *end || !(seconds >= 0 && seconds <= SECONDS_MAX))
		return false;
	moment->ns = (uint64_t)(seconds * 1e9 + 0.5);
	return true;
}

struct walk {
	const struct replay_moment *moment;
	uint64_t n_changes; /* so far */
	uint64_t wanted;    /* changes up to the moment; in the first walk: found so far */
	uint64_t peak_bytes, ns;
	struct replay_holder *by_stack; /* in the second walk; the last entry counts numbers above n_stacks */
	uint32_t n_stacks;              /* the highest number of a stack, plus 1 */
};

static bool is_meant(const struct walk *w, unsigned memory)
{
	return w->moment->memory == memory || (w->moment->memory == REPLAY_ALL_DEVICES && memory < HISTORY_DEVICES_MAX);
}

static uint64_t used_bytes(const struct walk *w, const struct history *h)
{
	uint64_t sum = 0;

	if (w->moment->memory != REPLAY_ALL_DEVICES)
		return h->memories[w->moment->memory].used_bytes;
	for (unsigned i = 0; i < HISTORY_DEVICES_MAX; i++)
		sum += h->memories[i].used_bytes;
	return sum;
}

static void find_moment(void *arg, const struct history *h, const struct history_event *event)
{
	struct walk *w = arg;
	bool is_found;

	w->n_changes++;
	if (event->kind != HISTORY_BLOCK_NEW && event->kind != HISTORY_BLOCK_FREED)
		return;
	if (w->moment->at == REPLAY_AT_PEAK)
		is_found = event->kind == HISTORY_BLOCK_NEW && used_bytes(w, h) > w->peak_bytes;
	else
		is_found = w->moment->at == REPLAY_AT_END || event->ns <= w->moment->ns;
	if (!is_found)
		return;
	w->wanted = w->n_changes;
	w->peak_bytes = used_bytes(w, h);
	w->ns = event->ns;
}

static void count(void *arg, const struct history *h, const struct history_event *event)
{
	struct walk *w = arg;
	struct replay_holder *holder = &w->by_stack[event->stack < w->n_stacks ? event->stack : w->n_stacks];

	if (w->n_changes++ >= w->wanted || !is_meant(w, event->memory))
		return;
	if (event->kind == HISTORY_BLOCK_NEW) {
		holder->blocks++;
		holder->bytes += event->bytes;
		holder->allocs++;
		holder->alloc_bytes += event->bytes;
	} else if (event->kind == HISTORY_BLOCK_FREED) {
		holder->blocks--;
		holder->bytes -= event->bytes;
	}
}

static int walk(struct walk *w, struct replay_file *file, const struct replay_contents *contents,
	void (*on_change)(void *, const struct history *, const struct history_event *),
	char error[static REPLAY_ERROR_MAX])
{
	struct history history = {.on_change = on_change, .arg = w};
	int r = history_run(&history, file, contents->n_events, error);

	history_deinit(&history);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct replay_holder *one = a, *other = b;

	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return (one->stack > other->stack) - (one->stack < other->stack);
}

static void add_holder(struct replay_holder *sum, const struct replay_holder *holder)
{
	sum->blocks += holder->blocks;
	sum->bytes += holder->bytes;
	sum->allocs += holder->allocs;
	sum->alloc_bytes += holder->alloc_bytes;
}

/* Counts the blocks of stacks that the file does not define as blocks without a stack. */
static void merge_undefined(struct walk *w, const struct replay_stacks *stacks)
{
	struct replay_holder *none = &w->by_stack[0];

	for (uint32_t i = 1; i <= w->n_stacks; i++) {
		struct replay_holder *holder = &w->by_stack[i];

		if (replay_stack_find(stacks, i))
			continue;
		add_holder(none, holder);
		*holder = (struct replay_holder){0};
	}
}

/* Takes over the list, and keeps those that hold blocks. */
static void keep_holders(struct replay_holders *holders, const struct walk *w)
{
	holders->list = w->by_stack;
	holders->ns = w->moment->at == REPLAY_AT_TIME ? w->moment->ns : w->ns;
	for (uint32_t i = 0; i < w->n_stacks; i++) {
		if (!w->by_stack[i].blocks)
			continue;
		holders->blocks += w->by_stack[i].blocks;
		holders->bytes += w->by_stack[i].bytes;
		holders->list[holders->n] = w->by_stack[i];
		holders->list[holders->n++].stack = i;
	}
	qsort(holders->list, holders->n, sizeof(*holders->list), compare);
}

int replay_holders_make(struct replay_holders *holders, struct replay_file *file,
	const struct replay_contents *contents, const struct replay_moment *moment, char error[static REPLAY_ERROR_MAX])
{
	struct walk w = {.moment = moment};

	*holders = (struct replay_holders){0};
	if (walk(&w, file, contents, find_moment, error))
		return -1;
	w.n_changes = 0;
	w.n_stacks = replay_stacks_of(file)->n_stacks + 1;
	w.by_stack = stat_alloc(calloc(w.n_stacks + 1, sizeof(*w.by_stack)));
	if (walk(&w, file, contents, count, error)) {
		free(w.by_stack);
		return -1;
	}
	merge_undefined(&w, replay_stacks_of(file));
	keep_holders(holders, &w);
	return 0;
}

void replay_holders_free(struct replay_holders *holders)
{
	free(holders->list);
	*holders = (struct replay_holders){0};
}

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)gp_min(value, INT64_MAX));
}

/* Frames in an answer count objects and places from 0. */
json_t *replay_stack_frames(const struct replay_stack *stack)
{
	json_t *frames = stat_alloc(json_array());

	for (unsigned i = 0; i < stack->n_frames; i++) {
		const struct replay_frame *frame = &stack->frames[i];
		json_t *pair = stat_alloc(json_array());
		bool is_place = frame->object == GP_RECORD_FRAME_PLACE;

		json_array_append_new(pair, json_integer(frame->object > 0 ? frame->object - 1 : frame->object));
		json_array_append_new(pair, number(is_place ? frame->address - 1 : frame->address));
		json_array_append_new(frames, pair);
	}
	return frames;
}

static json_t *make_holder(const struct replay_holder *holder, const struct replay_stack *stack)
{
	json_t *object = stat_alloc(json_object());

	json_object_set_new(object, "blocks", number(holder->blocks));
	json_object_set_new(object, "bytes", number(holder->bytes));
	json_object_set_new(object, "allocs", number(holder->allocs));
	json_object_set_new(object, "alloc_bytes", number(holder->alloc_bytes));
	if (stack)
		json_object_set_new(object, "frames", replay_stack_frames(stack));
	return object;
}

/* A name need not be valid UTF-8: readers of answers clean names before they show them. */
static json_t *text(const char *name)
{
	return name ? json_string_nocheck(name) : json_null();
}

static json_t *make_objects(const struct replay_stacks *stacks)
{
	json_t *list = stat_alloc(json_array());

	for (uint32_t i = 1; i <= stacks->n_objects; i++) {
		const struct replay_object *o = &stacks->objects[i];
		json_t *object = stat_alloc(json_object());

		json_object_set_new(object, "path", text(o->path));
		json_object_set_new(object, "build_id", text(*o->build_id ? o->build_id : NULL));
		json_array_append_new(list, object);
	}
	return list;
}

static json_t *make_places(const struct replay_stacks *stacks)
{
	json_t *list = stat_alloc(json_array());

	for (uint32_t i = 1; i <= stacks->n_places; i++) {
		const struct replay_place *p = &stacks->places[i];
		json_t *place = stat_alloc(json_object());

		json_object_set_new(place, "function", text(p->function));
		json_object_set_new(place, "file", text(p->file));
		json_object_set_new(place, "line", p->line ? number(p->line) : json_null());
		json_array_append_new(list, place);
	}
	return list;
}

json_t *replay_holders_answer(
	const struct replay_holders *holders, const struct replay_file *file, const struct replay_contents *contents)
{
	const struct replay_stacks *stacks = replay_stacks_of(file);
	json_t *answer = stat_alloc(json_object()), *sites = stat_alloc(json_array());
	struct replay_holder rest = {0};

	json_object_set_new(answer, "schema", json_string("gpupool.leaks/1"));
	json_object_set_new(answer, "pid", number(contents->pid));
	json_object_set_new(answer, "n_blocks", number(holders->blocks));
	json_object_set_new(answer, "bytes", number(holders->bytes));
	for (size_t i = 0; i < holders->n; i++) {
		const struct replay_stack *stack = replay_stack_find(stacks, holders->list[i].stack);

		if (stack && json_array_size(sites) == REPLAY_SITES_MAX)
			add_holder(&rest, &holders->list[i]);
		else if (stack)
			json_array_append_new(sites, make_holder(&holders->list[i], stack));
		else
			json_object_set_new(answer, "without_stack", make_holder(&holders->list[i], NULL));
	}
	json_object_set_new(answer, "sites", sites);
	if (rest.blocks)
		json_object_set_new(answer, "rest", make_holder(&rest, NULL));
	json_object_set_new(answer, "objects", make_objects(stacks));
	json_object_set_new(answer, "places", make_places(stacks));
	return answer;
}
