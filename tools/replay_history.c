/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_history.h"

#include <stdlib.h>
#include <string.h>

#include "stat_progress.h"
#include "stat_say.h"

#define BLOCK_ALIGN UINT64_C(512)

enum { KIND_VMM = 4 };

/* The number of segments that begin at the address or before it. */
static size_t count_until(const struct history *h, uint64_t addr)
{
	size_t from = 0, to = h->n_segments;

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (h->segments[middle].addr <= addr)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static struct history_segment *find(const struct history *h, uint64_t addr)
{
	size_t n = count_until(h, addr);
	struct history_segment *segment = n ? &h->segments[n - 1] : NULL;

	return segment && addr - segment->addr < segment->bytes ? segment : NULL;
}

const struct history_segment *history_find(const struct history *h, uint64_t addr)
{
	return find(h, addr);
}

static void tell(struct history *h, const struct history_event *event)
{
	h->take(h->arg, h, event);
}

/* What is happening, without what it is about. */
static struct history_event make_event(const struct history *h, const struct replay_event *e, uint32_t pool)
{
	return (struct history_event){
		.position = e->position,
		.ns = h->is_text ? e->position * 1000 : e->ns,
		.thread = e->thread,
		.memory = h->pools[pool].memory,
	};
}

static uint64_t rounded(uint64_t bytes)
{
	return (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

static void remove_segment(struct history *h, struct history_segment *segment, const struct replay_event *e)
{
	struct history_event event = make_event(h, e, segment->pool);
	struct history_memory *memory = &h->memories[event.memory];
	size_t at = (size_t)(segment - h->segments);

	event.kind = HISTORY_SEGMENT_GONE;
	event.addr = segment->addr;
	event.bytes = segment->bytes;
	event.is_own = segment->is_own;
	memory->reserved_bytes -= segment->is_own ? 0 : segment->bytes;
	memory->n_segments -= !segment->is_own;
	h->n_segments--;
	memmove(&h->segments[at], &h->segments[at + 1], (h->n_segments - at) * sizeof(*h->segments));
	tell(h, &event);
}

static void remove_block(struct history *h, struct replay_entry *block, const struct replay_event *e)
{
	struct history_segment *segment = find(h, block->key);
	struct history_event event = make_event(h, e, block->pool);
	struct history_memory *memory = &h->memories[event.memory];

	event.kind = HISTORY_BLOCK_GONE;
	event.addr = block->key;
	event.bytes = block->bytes;
	event.requested_bytes = block->addr;
	memory->used_bytes -= block->bytes;
	memory->n_blocks--;
	if (segment)
		segment->n_blocks--;
	replay_map_remove(&h->blocks, block);
	tell(h, &event);
	if (segment && segment->is_own)
		remove_segment(h, segment, e);
}

/* Blocks whose segment goes, by a file that does not tell of their end. Removing one may put another in its place. */
static void remove_blocks_in(struct history *h, uint64_t addr, uint64_t bytes, const struct replay_event *e)
{
	for (size_t i = 0; i < h->blocks.size; i++)
		while (h->blocks.slots[i].key && h->blocks.slots[i].key - addr < bytes)
			remove_block(h, &h->blocks.slots[i], e);
}

/* Whatever is where something new begins must have gone, in a way that was not recorded. */
static void clear(struct history *h, uint64_t addr, uint64_t bytes, const struct replay_event *e)
{
	uint64_t first;

	for (;;) {
		size_t n = count_until(h, addr + bytes - 1);
		struct history_segment *segment = n ? &h->segments[n - 1] : NULL;

		if (!segment || segment->addr + segment->bytes <= addr)
			return;
		first = segment->addr;
		if (segment->n_blocks)
			remove_blocks_in(h, first, segment->bytes, e);
		segment = find(h, first);
		if (segment)
			remove_segment(h, segment, e);
	}
}

static struct history_segment *add_segment(struct history *h, const struct history_segment *added,
	const struct replay_event *e)
{
	struct history_event event = make_event(h, e, added->pool);
	struct history_memory *memory = &h->memories[event.memory];
	size_t at;

	clear(h, added->addr, added->bytes, e);
	if (h->n_segments == h->segments_size) {
		h->segments_size = h->segments_size * 2 + 64;
		h->segments = stat_alloc(reallocarray(h->segments, h->segments_size, sizeof(*h->segments)));
	}
	at = count_until(h, added->addr);
	memmove(&h->segments[at + 1], &h->segments[at], (h->n_segments - at) * sizeof(*h->segments));
	h->segments[at] = *added;
	h->n_segments++;
	memory->reserved_bytes += added->is_own ? 0 : added->bytes;
	memory->n_segments += !added->is_own;
	event.kind = HISTORY_SEGMENT_NEW;
	event.addr = added->addr;
	event.bytes = added->bytes;
	event.is_own = added->is_own;
	tell(h, &event);
	return &h->segments[at];
}

static void add_block(struct history *h, const struct replay_event *e)
{
	uint64_t addr = e->values[0], bytes = rounded(e->values[1]);
	struct history_event event = make_event(h, e, e->pool);
	struct replay_entry *old = replay_map_find(&h->blocks, addr);
	struct history_segment own = {addr, bytes, 0, e->pool, true}, *segment;

	event.requested_bytes = e->values[1];
	if (e->values[2] || !addr) {
		event.kind = HISTORY_REFUSED;
		tell(h, &event);
		return;
	}
	if (old)
		remove_block(h, old, e);
	segment = find(h, addr);
	if (!segment || segment->is_own || segment->addr + segment->bytes - addr < bytes)
		segment = add_segment(h, &own, e);
	segment->n_blocks++;
	replay_map_put(&h->blocks, (struct replay_entry){addr, bytes, e->values[1], e->pool});
	h->memories[event.memory].used_bytes += bytes;
	h->memories[event.memory].n_blocks++;
	event.kind = HISTORY_BLOCK_NEW;
	event.addr = addr;
	event.bytes = bytes;
	tell(h, &event);
}

static void add_reserved(struct history *h, const struct replay_event *e)
{
	struct history_segment added = {e->values[0], e->values[1], 0, e->pool, false};
	struct history_event event = make_event(h, e, e->pool);
	struct history_memory *memory = &h->memories[event.memory];

	event.bytes = e->values[1];
	if (e->values[2]) {
		event.kind = HISTORY_DENIED;
		tell(h, &event);
		return;
	}
	if (!added.addr || replay_map_find(&h->handles, added.addr))
		return;
	if (h->pools[e->pool].has_places) {
		add_segment(h, &added, e);
		return;
	}
	replay_map_put(&h->handles, (struct replay_entry){added.addr, added.bytes, 0, e->pool});
	memory->reserved_bytes += added.bytes;
	memory->n_segments++;
	event.kind = HISTORY_SEGMENT_NEW;
	tell(h, &event);
}

static void remove_handle(struct history *h, struct replay_entry *handle, const struct replay_event *e)
{
	struct history_event event = make_event(h, e, handle->pool);

	event.kind = HISTORY_SEGMENT_GONE;
	event.bytes = handle->bytes;
	h->memories[event.memory].reserved_bytes -= handle->bytes;
	h->memories[event.memory].n_segments--;
	replay_map_remove(&h->handles, handle);
	tell(h, &event);
}

/* A driver that fails to take it back has not got it. */
static void remove_reserved(struct history *h, const struct replay_event *e)
{
	struct history_segment *segment = find(h, e->values[0]);
	struct replay_entry *handle = replay_map_find(&h->handles, e->values[0]);

	if (e->values[1])
		return;
	if (!h->pools[e->pool].has_places) {
		if (handle)
			remove_handle(h, handle, e);
	} else if (segment && segment->addr == e->values[0] && !segment->is_own) {
		clear(h, segment->addr, segment->bytes, e);
	}
}

static void remove_pool(struct history *h, uint32_t pool, const struct replay_event *e)
{
	for (size_t i = 0; i < h->blocks.size; i++)
		while (h->blocks.slots[i].key && h->blocks.slots[i].pool == pool)
			remove_block(h, &h->blocks.slots[i], e);
	for (size_t i = 0; i < h->handles.size; i++)
		while (h->handles.slots[i].key && h->handles.slots[i].pool == pool)
			remove_handle(h, &h->handles.slots[i], e);
	for (size_t i = h->n_segments; i--;)
		if (i < h->n_segments && h->segments[i].pool == pool)
			clear(h, h->segments[i].addr, h->segments[i].bytes, e);
}

static void add_pool(struct history *h, const struct replay_event *e)
{
	unsigned number = e->values[2] ? HISTORY_PINNED : (unsigned)(e->values[1] % HISTORY_DEVICES_MAX);
	struct history_memory *memory = &h->memories[number];

	h->pools = stat_alloc(reallocarray(h->pools, h->n_pools + 1, sizeof(*h->pools)));
	h->pools[h->n_pools++] = (struct history_pool){number, e->values[3] != KIND_VMM};
	memory->is_used = true;
	memory->capacity_bytes = h->is_text ? 0 : e->values[5];
}

static void look_at(struct history *h, const struct replay_event *e)
{
	struct replay_entry *block;

	switch (e->kind) {
	case GP_RECORD_PROCESS:
		h->pid = e->values[0];
		h->start_s = e->values[1];
		break;
	case GP_RECORD_POOL:
		add_pool(h, e);
		break;
	case GP_RECORD_ALLOC:
		add_block(h, e);
		break;
	case GP_RECORD_FREE:
		block = replay_map_find(&h->blocks, e->values[0]);
		/* Freed as the other kind of memory it is not freed. */
		if (block && (h->pools[block->pool].memory == HISTORY_PINNED) == (e->values[2] != 0))
			remove_block(h, block, e);
		break;
	case GP_RECORD_RESERVE:
		add_reserved(h, e);
		break;
	case GP_RECORD_RELEASE:
		remove_reserved(h, e);
		break;
	case GP_RECORD_DROP:
		remove_pool(h, e->pool, e);
		break;
	default:
		break;
	}
}

int history_run(struct history *h, struct replay_file *file, uint64_t n_events, char error[static REPLAY_ERROR_MAX])
{
	struct replay_event event;
	int r;

	h->is_text = replay_is_text(file);
	replay_rewind(file);
	while ((r = replay_next(file, &event, error)) > 0) {
		look_at(h, &event);
		stat_progress(event.position, n_events);
	}
	stat_progress_end();
	return r;
}

void history_deinit(struct history *h)
{
	free(h->segments);
	free(h->pools);
	replay_map_deinit(&h->blocks);
	replay_map_deinit(&h->handles);
}

static int compare_blocks(const void *a, const void *b)
{
	const struct history_block *one = a, *other = b;

	return (one->addr > other->addr) - (one->addr < other->addr);
}

size_t history_blocks(const struct history *h, struct history_block **ret_blocks)
{
	struct history_block *blocks = stat_alloc(calloc(h->blocks.n + 1, sizeof(*blocks)));
	size_t n = 0;

	for (size_t i = 0; i < h->blocks.size; i++) {
		const struct replay_entry *block = &h->blocks.slots[i];

		if (block->key)
			blocks[n++] = (struct history_block){block->key, block->bytes, block->addr, block->pool};
	}
	if (n)
		qsort(blocks, n, sizeof(*blocks), compare_blocks);
	for (size_t i = 0; i < n; i++) {
		const struct history_segment *segment = find(h, blocks[i].addr);
		uint64_t end = segment ? segment->addr + segment->bytes : UINT64_MAX;

		if (i + 1 < n && blocks[i + 1].addr < end)
			end = blocks[i + 1].addr;
		if (blocks[i].bytes > end - blocks[i].addr)
			blocks[i].bytes = end - blocks[i].addr;
		if (blocks[i].requested_bytes > blocks[i].bytes)
			blocks[i].requested_bytes = blocks[i].bytes;
	}
	*ret_blocks = blocks;
	return n;
}
