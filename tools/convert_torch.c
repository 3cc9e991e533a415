/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A memory snapshot of PyTorch, as pytorch.org/memory_viz and torch.cuda._memory_viz read it: what there is at the
 * end, and the last events before it, from which the viewer goes backwards. So a history may be cut at its beginning,
 * but each event must fit those behind it, and the blocks of a segment must fill it.
 *
 * PyTorch knows device memory alone.
 */

#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "convert_pickle.h"
#include "replay_history.h"

enum { EVENTS_DEFAULT = 200000, SMALL_SEGMENT = 2 << 20 };

struct torch {
	struct pickle pickle;
	struct history_event *ring;
	uint64_t n, size; /* n: of all, of which the last stay */
	const char *note; /* the name of the only frame that anything has */
	unsigned n_devices;
};

/* A segment, with its blocks by address. */
struct segment {
	uint64_t addr, bytes;
	unsigned device;
	const struct history_block *blocks;
	size_t n_blocks;
};

static void put_frames(struct torch *t, uint64_t thread)
{
	struct pickle_list list;

	pickle_text(&t->pickle, "frames");
	pickle_list_begin(&t->pickle, &list);
	pickle_dict_begin(&t->pickle);
	pickle_put_text(&t->pickle, "name", t->note);
	pickle_put_text(&t->pickle, "filename", "thread");
	pickle_put_u64(&t->pickle, "line", thread);
	pickle_dict_end(&t->pickle);
	pickle_list_end(&t->pickle, &list);
}

static void put_block(struct torch *t, uint64_t addr, uint64_t bytes, const struct history_block *block)
{
	pickle_dict_begin(&t->pickle);
	pickle_put_u64(&t->pickle, "address", addr);
	pickle_put_u64(&t->pickle, "size", bytes);
	pickle_put_u64(&t->pickle, "requested_size", block ? block->requested_bytes : 0);
	pickle_put_text(&t->pickle, "state", block ? "active_allocated" : "inactive");
	put_frames(t, 0);
	pickle_dict_end(&t->pickle);
}

/* The blocks, and what is between them. */
static void put_blocks(struct torch *t, const struct segment *s)
{
	struct pickle_list list;
	uint64_t at = s->addr, end = s->addr + s->bytes;

	pickle_text(&t->pickle, "blocks");
	pickle_list_begin(&t->pickle, &list);
	for (size_t i = 0; i < s->n_blocks; i++) {
		const struct history_block *block = &s->blocks[i];

		if (block->addr > at) {
			pickle_list_next(&t->pickle, &list);
			put_block(t, at, block->addr - at, NULL);
		}
		pickle_list_next(&t->pickle, &list);
		put_block(t, block->addr, block->bytes, block);
		at = block->addr + block->bytes;
	}
	if (at < end) {
		pickle_list_next(&t->pickle, &list);
		put_block(t, at, end - at, NULL);
	}
	pickle_list_end(&t->pickle, &list);
}

static void put_pool_id(struct torch *t)
{
	struct pickle_list list;

	pickle_text(&t->pickle, "segment_pool_id");
	pickle_list_begin(&t->pickle, &list);
	pickle_u64(&t->pickle, 0);
	pickle_u64(&t->pickle, 0);
	pickle_list_end(&t->pickle, &list);
}

static void put_segment(struct torch *t, const struct segment *s)
{
	uint64_t bytes = 0, requested_bytes = 0;

	for (size_t i = 0; i < s->n_blocks; i++) {
		bytes += s->blocks[i].bytes;
		requested_bytes += s->blocks[i].requested_bytes;
	}
	pickle_dict_begin(&t->pickle);
	pickle_put_u64(&t->pickle, "device", s->device);
	pickle_put_u64(&t->pickle, "address", s->addr);
	pickle_put_u64(&t->pickle, "total_size", s->bytes);
	pickle_put_u64(&t->pickle, "allocated_size", bytes);
	pickle_put_u64(&t->pickle, "active_size", bytes);
	pickle_put_u64(&t->pickle, "requested_size", requested_bytes);
	pickle_put_u64(&t->pickle, "stream", 0);
	pickle_put_text(&t->pickle, "segment_type", s->bytes > SMALL_SEGMENT ? "large" : "small");
	put_pool_id(t);
	put_frames(t, 0);
	put_blocks(t, s);
	pickle_dict_end(&t->pickle);
}

/* Blocks that are left of others overlap nothing and leave no segment: history_blocks() has seen to that. */
static void put_segments(struct torch *t, const struct history *h)
{
	struct history_block *blocks;
	size_t n_blocks = history_blocks(h, &blocks), at = 0;
	struct pickle_list list;

	pickle_list_begin(&t->pickle, &list);
	for (size_t i = 0; i < h->n_segments; i++) {
		const struct history_segment *s = &h->segments[i];
		struct segment segment = {s->addr, s->bytes, h->pools[s->pool].memory, NULL, 0};

		while (at < n_blocks && blocks[at].addr < s->addr)
			at++;
		segment.blocks = &blocks[at];
		while (at < n_blocks && blocks[at].addr - s->addr < s->bytes) {
			at++;
			segment.n_blocks++;
		}
		if (segment.device == HISTORY_PINNED)
			continue;
		pickle_list_next(&t->pickle, &list);
		put_segment(t, &segment);
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
	pickle_put_u64(&t->pickle, "stream", 0);
	pickle_put_u64(&t->pickle, "time_us", e->ns / 1000);
	put_frames(t, e->thread);
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
			[HISTORY_SEGMENT_GONE] = "segment_free",
			[HISTORY_BLOCK_NEW] = "alloc",
			[HISTORY_BLOCK_GONE] = "free_requested",
			[HISTORY_REFUSED] = "oom",
		};
		const struct history_event *e = &t->ring[i % t->size];

		if (e->memory != device)
			continue;
		put_event(t, &list, e, actions[e->kind]);
		if (e->kind == HISTORY_BLOCK_GONE)
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

static void put_settings(struct torch *t)
{
	pickle_dict_begin(&t->pickle);
	pickle_put_text(&t->pickle, "allocator", "gpupool " GPUPOOL_VERSION);
	pickle_dict_end(&t->pickle);
}

/* What has no address of its own is not in the picture; what the device would have had, the history does not know. */
static void take(void *arg, const struct history *h, const struct history_event *event)
{
	struct torch *t = arg;
	const struct history_memory *memory = &h->memories[event->memory];
	struct history_event *e = &t->ring[t->n % t->size];

	if (event->memory == HISTORY_PINNED || event->kind == HISTORY_DENIED)
		return;
	if (!event->addr && event->kind != HISTORY_REFUSED)
		return;
	*e = *event;
	if (event->kind == HISTORY_REFUSED)
		e->bytes = memory->capacity_bytes > memory->reserved_bytes ?
				   memory->capacity_bytes - memory->reserved_bytes :
				   0;
	if (event->memory >= t->n_devices)
		t->n_devices = event->memory + 1;
	t->n++;
}

/* All of a snapshot. blocks: what there is, or NULL and a history. */
static void put_snapshot(struct torch *t, const struct history *h, FILE *out)
{
	pickle_begin(&t->pickle, out);
	pickle_dict_begin(&t->pickle);
	pickle_text(&t->pickle, "segments");
	put_segments(t, h);
	pickle_text(&t->pickle, "device_traces");
	put_traces(t);
	pickle_text(&t->pickle, "allocator_settings");
	put_settings(t);
	pickle_dict_end(&t->pickle);
	pickle_end(&t->pickle);
}

static enum stat_exit from_recording(struct torch *t, FILE *out, const struct stat_source *source)
{
	struct history history = {.take = take, .arg = t};
	char error[REPLAY_ERROR_MAX];
	int r = history_run(&history, source->file, source->contents.n_events, error);

	if (r == 0)
		put_snapshot(t, &history, out);
	else
		stat_error(NULL, "%s: %s.", source->name, error);
	history_deinit(&history);
	return r ? STAT_FAILED : STAT_OK;
}

#define ADDRESS_END (UINT64_C(1) << 59)

/* Each block that the process has told of, as if it had been allocated just now. */
static void add_blocks(struct history *h, const json_t *blocks)
{
	const json_t *block;
	uint64_t position = 0, device;
	size_t i;

	for (unsigned number = 0; number < HISTORY_DEVICES_MAX; number++)
		history_add(h, &(struct replay_event){.kind = GP_RECORD_POOL, .values = {number, number}});
	json_array_foreach(blocks, i, block) {
		struct replay_event e = {.kind = GP_RECORD_ALLOC, .position = ++position};

		if (!stat_reply_u64(block, "device", &device) || device >= HISTORY_DEVICES_MAX)
			continue;
		e.pool = (uint32_t)device;
		e.values[0] = strtoull(stat_reply_text(block, "address"), NULL, 16);
		e.values[1] = stat_reply_u64_or_0(block, "requested_bytes");
		if (e.values[1] && e.values[1] < ADDRESS_END && e.values[0] < ADDRESS_END)
			history_add(h, &e);
	}
}

static enum stat_exit from_process(struct torch *t, FILE *out, const struct stat_source *source)
{
	struct history history = {.take = take, .arg = t};
	enum stat_exit result;
	json_t *reply = stat_source_ask(source, "blocks", &result);

	if (!reply)
		return result;
	add_blocks(&history, json_object_get(reply, "blocks"));
	t->n = 0;
	put_snapshot(t, &history, out);
	history_deinit(&history);
	json_decref(reply);
	return STAT_OK;
}

enum stat_exit convert_torch(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	struct torch torch = {.size = n_max == UINT64_MAX ? EVENTS_DEFAULT : n_max + !n_max, .note = "no stack"};
	enum stat_exit result;

	/* An event of a file is at most a few of a history. */
	torch.size = gp_min(torch.size, source->contents.n_events * 4 + 1);
	torch.ring = stat_alloc(calloc(torch.size, sizeof(*torch.ring)));
	if (source->kind == STAT_SOURCE_RECORDING)
		result = from_recording(&torch, out, source);
	else
		result = from_process(&torch, out, source);
	free(torch.ring);
	return result;
}
