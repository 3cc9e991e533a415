/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Writes a PyTorch memory snapshot, as pytorch.org/memory_viz and torch.cuda._memory_viz read it: the segments and
 * blocks at the end, and the last events before that. The viewer walks back from the end, so the oldest events may be
 * missing, but each event must fit those behind it.
 *
 * Pinned memory is left out: a snapshot of PyTorch has device memory only.
 */

#include <stdlib.h>
#include <string.h>

#include "tools/replay/replay_history.h"
#include "convert_formats.h"
#include "convert_snapshot.h"

enum { EVENTS_DEFAULT = 200000 };

struct torch {
	struct pickle pickle;
	struct history_event *ring;
	uint64_t n, size; /* events so far; the ring keeps the last size of them */
	unsigned n_devices;
};

/* Writes a segment and the blocks in it. blocks is sorted by address; returns how many of them begin before its end. */
static size_t put_segment(struct torch *t, const struct history *h, const struct history_segment *s,
	const struct history_block *blocks, size_t n)
{
	struct snapshot_segment segment = {s->addr, s->bytes, h->pools[s->pool].memory, NULL, 0};
	size_t at = 0, first;

	while (at < n && blocks[at].addr < s->addr)
		at++;
	first = at;
	while (at < n && blocks[at].addr - s->addr < s->bytes)
		at++;
	segment.blocks = stat_alloc(calloc(at - first + 1, sizeof(*segment.blocks)));
	for (size_t i = first; i < at; i++)
		segment.blocks[segment.n_blocks++] = (struct snapshot_block){
			blocks[i].addr, blocks[i].bytes, blocks[i].requested_bytes, SNAPSHOT_USED, NULL};
	snapshot_put_segment(&t->pickle, &segment);
	free(segment.blocks);
	return at;
}

static void put_segments(struct torch *t, const struct history *h)
{
	struct history_block *blocks;
	size_t n_blocks = history_blocks(h, &blocks), at = 0;
	struct pickle_list list;

	pickle_list_begin(&t->pickle, &list);
	for (struct history_segment s = {0}; history_next(h, &s);) {
		if (h->pools[s.pool].memory == HISTORY_PINNED)
			continue;
		pickle_list_next(&t->pickle, &list);
		at += put_segment(t, h, &s, &blocks[at], n_blocks - at);
	}
	pickle_list_end(&t->pickle, &list);
	free(blocks);
}

static void put_event(struct torch *t, struct pickle_list *list, const struct history_event *e, const char *action)
{
	pickle_list_next(&t->pickle, list);
	pickle_dict_begin(&t->pickle);
	pickle_put_text(&t->pickle, "action", action);
	if (e->kind == HISTORY_REFUSED)
		pickle_put_u64(&t->pickle, "device_free", e->bytes);
	else
		pickle_put_u64(&t->pickle, "addr", e->addr);
	pickle_put_u64(&t->pickle, "size", e->kind == HISTORY_REFUSED ? e->requested_bytes : e->bytes);
	pickle_put_u64(&t->pickle, "stream", e->stream);
	pickle_put_u64(&t->pickle, "time_us", e->ns / 1000);
	snapshot_put_frames(&t->pickle, NULL, e->thread);
	pickle_dict_end(&t->pickle);
}

static void put_trace(struct torch *t, unsigned device)
{
	uint64_t first = t->n > t->size ? t->n - t->size : 0;
	struct pickle_list list;

	pickle_list_begin(&t->pickle, &list);
	for (uint64_t i = first; i < t->n; i++) {
		static const char *const actions[] = {
			[HISTORY_SEGMENT_NEW] = "segment_alloc",
			[HISTORY_SEGMENT_RELEASED] = "segment_free",
			[HISTORY_BLOCK_NEW] = "alloc",
			[HISTORY_BLOCK_FREED] = "free_requested",
			[HISTORY_REFUSED] = "oom",
		};
		const struct history_event *e = &t->ring[i % t->size];

		if (e->memory != device)
			continue;
		put_event(t, &list, e, actions[e->kind]);
		if (e->kind == HISTORY_BLOCK_FREED)
			put_event(t, &list, e, "free_completed");
	}
	pickle_list_end(&t->pickle, &list);
}

static void put_traces(struct torch *t)
{
	struct pickle_list list;

	pickle_list_begin(&t->pickle, &list);
	for (unsigned device = 0; device < t->n_devices; device++) {
		pickle_list_next(&t->pickle, &list);
		put_trace(t, device);
	}
	pickle_list_end(&t->pickle, &list);
}

/*
 * Skips memory without an address, which the viewer cannot draw. A history does not know how much memory of the
 * device was free at a failed allocation, so the event has the capacity that the program had not reserved.
 */
static void add_event(void *arg, const struct history *h, const struct history_event *event)
{
	struct torch *t = arg;
	const struct history_memory *memory = &h->memories[event->memory];
	struct history_event *e = &t->ring[t->n % t->size];

	if (event->memory == HISTORY_PINNED || event->kind > HISTORY_REFUSED)
		return;
	if (!event->addr && event->kind != HISTORY_REFUSED)
		return;
	*e = *event;
	if (event->kind == HISTORY_REFUSED)
		e->bytes =
			memory->capacity_bytes > memory->total_bytes ? memory->capacity_bytes - memory->total_bytes : 0;
	if (event->memory >= t->n_devices)
		t->n_devices = event->memory + 1;
	t->n++;
}

static enum stat_exit from_recording(struct torch *t, FILE *out, const struct stat_source *source)
{
	struct history history = {.on_change = add_event, .arg = t};
	char error[REPLAY_ERROR_MAX];
	int r = history_run(&history, source->file, source->contents.n_events, error);

	if (r == 0) {
		snapshot_begin(&t->pickle, out);
		put_segments(t, &history);
		snapshot_traces(&t->pickle);
		put_traces(t);
		snapshot_end(&t->pickle);
	} else {
		stat_error(NULL, "%s: %s.", source->name, error);
	}
	history_deinit(&history);
	return r ? STAT_FAILED : STAT_OK;
}

enum stat_exit convert_torch(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	struct torch torch = {.size = n_max == UINT64_MAX ? EVENTS_DEFAULT : n_max + !n_max};
	enum stat_exit result;

	if (source->kind == STAT_SOURCE_PROCESS)
		return convert_torch_process(out, source);
	/* An event of the file accounts for at most four: a block and its segment begin, and later end. */
	torch.size = gp_min(torch.size, source->contents.n_events * 4 + 1);
	torch.ring = stat_alloc(calloc(torch.size, sizeof(*torch.ring)));
	result = from_recording(&torch, out, source);
	free(torch.ring);
	return result;
}
