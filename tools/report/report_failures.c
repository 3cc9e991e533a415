/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "report_failures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/text/stat_text.h"
#include "report_figures.h"

enum { REFUSED_MAX = 1000, EPISODES_MAX = 500, FULL_PERCENT = 95, CAUSE_MAX = 256, BLOCK_ALIGN = 512 };

#define STEPS_MAX UINT64_C(20000000) /* of all searches for the largest unused block together */

void report_failures_init(struct report_failures *f, const struct stat_source *source)
{
	*f = (struct report_failures){
		.source = source, .refused = stat_alloc(json_array()), .done = stat_alloc(json_array())};
	if (source->leaks)
		f->stacks = stat_stacks_new(source->leaks, 0, source->uid);
}

void report_failures_deinit(struct report_failures *f)
{
	if (f->stacks)
		stat_stacks_free_quietly(f->stacks);
	json_decref(f->refused);
	json_decref(f->done);
	json_decref(f->first);
}

static uint64_t rounded(uint64_t bytes)
{
	return (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

/*
 * Returns the largest piece of memory that is unused: between blocks, or between a block and the end of its
 * segment. Returns UINT64_MAX if it is unknown: vmm pools have no fixed pieces, and the search has a limit.
 */
static uint64_t largest_piece(struct report_failures *f, const struct history *h, unsigned memory)
{
	uint64_t largest = 0;

	for (struct history_segment s = {0}; history_next(h, &s);) {
		const struct replay_entry *block = replay_map_at_least(&h->blocks, s.addr);
		uint64_t at = s.addr, end = s.addr + s.bytes;

		if (!h->pools[s.pool].has_addresses && h->pools[s.pool].memory == memory)
			return UINT64_MAX;
		for (; block && block->key < end; block = replay_map_next(&h->blocks, block)) {
			if (h->pools[s.pool].memory == memory && block->key > at)
				largest = gp_max(largest, block->key - at);
			at = gp_max(at, block->key + block->bytes);
			if (++f->n_steps > STEPS_MAX)
				return UINT64_MAX;
		}
		if (h->pools[s.pool].memory == memory && end > at)
			largest = gp_max(largest, end - at);
		if (++f->n_steps > STEPS_MAX)
			return UINT64_MAX;
	}
	return largest;
}

/* Tells why free memory did not serve the request. A recording does not say whether the GPU may still be using it. */
static void explain_idle(char text[static CAUSE_MAX], uint64_t idle, uint64_t largest, uint64_t asked)
{
	char all[STAT_TEXT_MAX], piece[STAT_TEXT_MAX], lacking[STAT_TEXT_MAX];

	stat_bytes(all, idle);
	if (largest < asked) {
		stat_bytes(piece, largest);
		stat_bytes(lacking, asked - largest);
		snprintf(text, CAUSE_MAX,
			"fragmentation: %s are cached between blocks that the program holds, but the largest unused "
			"block "
			"has %s, %s too little",
			all, piece, lacking);
	} else {
		snprintf(text, CAUSE_MAX,
			"the limit is reached: of %s that are free, the GPU may still be using some, or they are "
			"reserved for other sizes",
			all);
	}
}

/* Tells why a limit forbade the request. */
static void explain_limit(char text[static CAUSE_MAX], const struct history_memory *m, uint64_t asked, uint64_t largest)
{
	uint64_t limit = m->limit_bytes, held = gp_min(m->used_bytes + m->unpooled_bytes, limit);
	uint64_t taken = gp_min(m->total_bytes + m->unpooled_bytes, limit);
	uint64_t idle = m->total_bytes - gp_min(m->used_bytes, m->total_bytes);
	uint64_t reach = limit - taken + idle, permille = held / gp_max(limit / 1000, 1);
	char one[STAT_TEXT_MAX], other[STAT_TEXT_MAX];

	stat_bytes(one, held);
	stat_bytes(other, limit);
	if (asked > limit) {
		snprintf(text, CAUSE_MAX, "the request is larger than the limit");
	} else if (held > limit / 100 * FULL_PERCENT) {
		snprintf(text, CAUSE_MAX,
			"the limit is reached: the program itself holds %s of the %s that it may use (%" PRIu64
			".%" PRIu64 " %%)",
			one, other, permille / 10, permille % 10);
	} else if (reach >= asked) {
		explain_idle(text, idle, largest, asked);
	} else {
		stat_bytes(one, asked - reach);
		snprintf(text, CAUSE_MAX, "the limit is reached: %s short even if all available memory were contiguous",
			one);
	}
}

static void explain(struct report_failures *f, char text[static CAUSE_MAX], const struct history *h,
	const struct history_event *event, uint64_t n_denied)
{
	const struct history_memory *m = &h->memories[event->memory];
	bool is_pinned = event->memory == HISTORY_PINNED;
	uint64_t asked = rounded(gp_min(event->requested_bytes, INT64_MAX));

	if (!n_denied && m->limit_bytes <= INT64_MAX)
		explain_limit(text, m, asked, largest_piece(f, h, event->memory));
	else if (asked > m->capacity_bytes)
		snprintf(text, CAUSE_MAX, "the request is larger than %s",
			is_pinned ? "the machine's memory" : "the device");
	else
		snprintf(text, CAUSE_MAX, "%s: the driver refused %" PRIu64 " time%s",
			is_pinned ? "no pinned memory is left" : "the device is full", n_denied, stat_plural(n_denied));
}

/* Returns the numbers of the process as the message has them. */
static void describe(char text[static CAUSE_MAX], const struct history_memory *m)
{
	char used[STAT_TEXT_MAX], idle[STAT_TEXT_MAX], unpooled[STAT_TEXT_MAX], limit[STAT_TEXT_MAX] = "none";

	stat_bytes(used, m->used_bytes);
	stat_bytes(idle, m->total_bytes - gp_min(m->used_bytes, m->total_bytes));
	stat_bytes(unpooled, m->unpooled_bytes);
	if (m->limit_bytes <= INT64_MAX)
		stat_bytes(limit, m->limit_bytes);
	snprintf(text, CAUSE_MAX, "used %s, unused %s, not pooled %s, limit %s", used, idle, unpooled, limit);
}

static void set_requested_at(struct report_failures *f, json_t *episode, uint32_t number)
{
	const struct replay_stack *stack = replay_stack_find(replay_stacks_of(f->source->file), number);
	json_t *frames = stack && f->stacks ? replay_stack_frames(stack) : NULL;
	char *text = frames ? stat_stacks_text(f->stacks, frames) : NULL;

	if (text)
		json_object_set_new(episode, "requested_at", json_string(text));
	free(text);
	json_decref(frames);
}

/* Writes the first error as one sentence, as the first lines of the message. */
static void tell_first(struct report_failures *f, const struct history_event *event, const char *cause)
{
	char asked[STAT_TEXT_MAX], name[STAT_ERROR_MAX], text[2 * CAUSE_MAX];
	bool is_pinned = event->memory == HISTORY_PINNED;

	stat_bytes(asked, event->requested_bytes);
	snprintf(text, sizeof(text), "Out of %s%s: a request for %s failed; %s", is_pinned ? "" : "memory on ",
		report_memory_name(name, event->memory), asked, cause);
	f->first = json_string(text);
}

/* Adds an episode with the bytes that the program requested, not those that the pool requested from the driver. */
static void add_episode(struct report_failures *f, const struct report_episode *e, const struct history *h,
	const struct history_event *event)
{
	bool is_served = event->kind == HISTORY_BLOCK_NEW;
	char name[STAT_ERROR_MAX], cause[CAUSE_MAX], numbers[CAUSE_MAX];
	json_t *episode;

	if (f->n_episodes++ >= EPISODES_MAX)
		return;
	episode = stat_alloc(json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:b}", "ns", (json_int_t)e->ns, "took_ns",
		(json_int_t)(event->ns - e->ns), "thread", (json_int_t)e->thread, "memory",
		report_memory_name(name, event->memory), "requested_bytes", (json_int_t)event->requested_bytes,
		"n_denied", (json_int_t)e->n_denied, "returned_bytes", (json_int_t)e->returned_bytes, "is_served",
		(int)is_served));
	if (!is_served) {
		explain(f, cause, h, event, e->n_denied);
		describe(numbers, &h->memories[event->memory]);
		json_object_set_new(episode, "cause", json_string(cause));
		json_object_set_new(episode, "process", json_string(numbers));
		set_requested_at(f, episode, event->stack);
		if (!f->first)
			tell_first(f, event, cause);
	}
	json_array_append_new(f->done, episode);
}

static void follow_episode(struct report_failures *f, const struct history *h, const struct history_event *event)
{
	const struct report_episode fresh = {.is_open = true, .ns = event->ns, .thread = event->thread};
	struct report_episode *e = &f->episodes[event->memory];
	bool is_same_thread = e->is_open && event->thread == e->thread;

	if (event->kind == HISTORY_DENIED) {
		if (!e->is_open)
			*e = fresh;
		e->n_denied++;
	} else if (e->is_open && event->kind == HISTORY_SEGMENT_RELEASED && !event->is_own) {
		e->returned_bytes += event->bytes;
	} else if (is_same_thread && (event->kind == HISTORY_BLOCK_NEW || event->kind == HISTORY_REFUSED)) {
		add_episode(f, e, h, event);
		e->is_open = false;
	} else if (event->kind == HISTORY_REFUSED) {
		add_episode(f, &fresh, h, event);
	}
}

void report_failures_take(struct report_failures *f, const struct history *h, const struct history_event *event)
{
	follow_episode(f, h, event);
	if (event->kind != HISTORY_REFUSED || f->n_refused++ >= REFUSED_MAX)
		return;
	json_array_append_new(
		f->refused, stat_alloc(json_pack("{s:I, s:i, s:I}", "ns", (json_int_t)event->ns, "memory",
				    (int)event->memory, "requested_bytes", (json_int_t)event->requested_bytes)));
}

void report_failures_add(json_t *facts, const struct report_failures *f)
{
	char text[STAT_TEXT_MAX + 128];

	json_object_set(facts, "refused", f->refused);
	json_object_set(facts, "episodes", f->done);
	if (f->first)
		json_object_set(facts, "oom", f->first);
	if (f->n_refused <= REFUSED_MAX && f->n_episodes <= EPISODES_MAX)
		return;
	snprintf(text, sizeof(text),
		"Only the first are shown of %" PRIu64 " failures and %" PRIu64 " times that memory ran out.",
		f->n_refused, f->n_episodes);
	json_array_append_new(json_object_get(facts, "notes"), json_string(text));
}
