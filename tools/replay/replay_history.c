/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_history.h"

#include <stdlib.h>

#include "tools/text/stat_progress.h"
#include "tools/text/stat_say.h"

#define BLOCK_ALIGN UINT64_C(512)

enum { KIND_VMM = 4 };

static struct replay_entry *find(const struct history *h, uint64_t addr)
{
	struct replay_entry *segment = replay_map_at_most(&h->segments, addr);

	return segment && addr - segment->key < segment->bytes ? segment : NULL;
}

static bool fill_segment(const struct replay_entry *entry, struct history_segment *ret_segment)
{
	if (entry)
		*ret_segment =
			(struct history_segment){entry->key, entry->bytes, entry->addr, entry->pool, entry->is_own};
	return entry != NULL;
}

bool history_find(const struct history *h, uint64_t addr, struct history_segment *ret_segment)
{
	return fill_segment(find(h, addr), ret_segment);
}

bool history_next(const struct history *h, struct history_segment *segment)
{
	return fill_segment(replay_map_at_least(&h->segments, segment->bytes ? segment->addr + 1 : 0), segment);
}

static void emit_event(struct history *h, const struct history_event *event)
{
	h->on_change(h->arg, h, event);
}

/* Returns an event with its position, time, thread and memory set, and nothing else. */
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

static void remove_segment(struct history *h, struct replay_entry *segment, const struct replay_event *e)
{
	struct history_event event = make_event(h, e, segment->pool);
	struct history_memory *memory = &h->memories[event.memory];

	event.kind = HISTORY_SEGMENT_RELEASED;
	event.addr = segment->key;
	event.bytes = segment->bytes;
	event.is_own = segment->is_own;
	memory->total_bytes -= segment->is_own ? 0 : segment->bytes;
	memory->n_segments -= !segment->is_own;
	replay_map_remove(&h->segments, segment);
	emit_event(h, &event);
}

static void remove_block(struct history *h, struct replay_entry *block, const struct replay_event *e)
{
	struct replay_entry *segment = find(h, block->key);
	struct history_event event = make_event(h, e, block->pool);
	struct history_memory *memory = &h->memories[event.memory];

	event.kind = HISTORY_BLOCK_FREED;
	event.addr = block->key;
	event.bytes = block->bytes;
	event.requested_bytes = block->addr;
	event.stack = block->stack;
	event.stream = e->kind == GP_RECORD_FREE ? e->values[4] : 0;
	memory->used_bytes -= block->bytes;
	memory->n_blocks--;
	if (segment)
		segment->addr--;
	replay_map_remove(&h->blocks, block);
	emit_event(h, &event);
	if (segment && segment->is_own)
		remove_segment(h, segment, e);
}

/* Removes a segment, and before it the blocks in it, whose frees were not recorded. */
static void remove_with_blocks(struct history *h, struct replay_entry *segment, const struct replay_event *e)
{
	uint64_t addr = segment->key, bytes = segment->bytes;
	struct replay_entry *block;

	while ((block = replay_map_at_least(&h->blocks, addr)) && block->key - addr < bytes)
		remove_block(h, block, e);
	segment = find(h, addr);
	if (segment)
		remove_segment(h, segment, e);
}

/* Removes every segment that overlaps a new one: it must have been released without a record. */
static void remove_overlaps(struct history *h, uint64_t addr, uint64_t bytes, const struct replay_event *e)
{
	struct replay_entry *segment;

	while ((segment = replay_map_at_most(&h->segments, addr + bytes - 1)) && segment->key + segment->bytes > addr)
		remove_with_blocks(h, segment, e);
}

static struct replay_entry *add_segment(
	struct history *h, const struct replay_entry *added, const struct replay_event *e)
{
	struct history_event event = make_event(h, e, added->pool);
	struct history_memory *memory = &h->memories[event.memory];

	remove_overlaps(h, added->key, added->bytes, e);
	replay_map_put(&h->segments, *added);
	memory->total_bytes += added->is_own ? 0 : added->bytes;
	memory->n_segments += !added->is_own;
	event.kind = HISTORY_SEGMENT_NEW;
	event.addr = added->key;
	event.bytes = added->bytes;
	event.is_own = added->is_own;
	emit_event(h, &event);
	return find(h, added->key);
}

static void add_block(struct history *h, const struct replay_event *e)
{
	uint64_t addr = e->values[0], bytes = rounded(e->values[1]);
	struct history_event event = make_event(h, e, e->pool);
	struct replay_entry *old = replay_map_find(&h->blocks, addr);
	struct replay_entry own = {addr, bytes, 0, e->pool, .is_own = true}, *segment;

	event.requested_bytes = e->values[1];
	event.stack = (uint32_t)gp_min(e->values[4], UINT32_MAX);
	event.stream = e->values[5];
	if (e->values[2] || !addr) {
		event.kind = HISTORY_REFUSED;
		emit_event(h, &event);
		return;
	}
	if (old)
		remove_block(h, old, e);
	segment = find(h, addr);
	if (!segment || segment->is_own || segment->key + segment->bytes - addr < bytes)
		segment = add_segment(h, &own, e);
	segment->addr++;
	replay_map_put(&h->blocks, (struct replay_entry){addr, bytes, e->values[1], e->pool, event.stack});
	h->memories[event.memory].used_bytes += bytes;
	h->memories[event.memory].n_blocks++;
	event.kind = HISTORY_BLOCK_NEW;
	event.addr = addr;
	event.bytes = bytes;
	emit_event(h, &event);
}

static void add_reserved(struct history *h, const struct replay_event *e)
{
	struct replay_entry added = {e->values[0], e->values[1], 0, e->pool};
	struct history_event event = make_event(h, e, e->pool);
	struct history_memory *memory = &h->memories[event.memory];

	event.bytes = e->values[1];
	if (e->values[2]) {
		event.kind = HISTORY_DENIED;
		emit_event(h, &event);
		return;
	}
	memory->n_driver_allocs++;
	if (!added.key || replay_map_find(&h->handles, added.key))
		return;
	if (h->pools[e->pool].has_addresses) {
		add_segment(h, &added, e);
		return;
	}
	replay_map_put(&h->handles, added);
	memory->total_bytes += added.bytes;
	memory->n_segments++;
	event.kind = HISTORY_SEGMENT_NEW;
	emit_event(h, &event);
}

static void remove_handle(struct history *h, struct replay_entry *handle, const struct replay_event *e)
{
	struct history_event event = make_event(h, e, handle->pool);

	event.kind = HISTORY_SEGMENT_RELEASED;
	event.bytes = handle->bytes;
	h->memories[event.memory].total_bytes -= handle->bytes;
	h->memories[event.memory].n_segments--;
	replay_map_remove(&h->handles, handle);
	emit_event(h, &event);
}

/* Removes memory that went back to the driver. If the release failed, the process still has it. */
static void remove_reserved(struct history *h, const struct replay_event *e)
{
	struct replay_entry *segment = find(h, e->values[0]);
	struct replay_entry *handle = replay_map_find(&h->handles, e->values[0]);

	if (e->values[1])
		return;
	h->memories[h->pools[e->pool].memory].n_driver_frees++;
	if (!h->pools[e->pool].has_addresses) {
		if (handle)
			remove_handle(h, handle, e);
	} else if (segment && segment->key == e->values[0] && !segment->is_own) {
		remove_with_blocks(h, segment, e);
	}
}

static void remove_pool(struct history *h, uint32_t pool, const struct replay_event *e)
{
	struct replay_entry *entry;

	while ((entry = replay_map_of_pool(&h->blocks, pool)))
		remove_block(h, entry, e);
	while ((entry = replay_map_of_pool(&h->handles, pool)))
		remove_handle(h, entry, e);
	while ((entry = replay_map_of_pool(&h->segments, pool)))
		remove_with_blocks(h, entry, e);
}

static void set_limit(struct history *h, unsigned memory, uint64_t limit, const struct replay_event *e)
{
	struct history_event event = {
		.kind = HISTORY_LIMIT, .position = e->position, .ns = e->ns, .thread = e->thread, .memory = memory};

	if (h->memories[memory].limit_bytes == limit)
		return;
	h->memories[memory].limit_bytes = limit;
	emit_event(h, &event);
}

static void add_pool(struct history *h, const struct replay_event *e)
{
	unsigned number = e->values[2] ? HISTORY_PINNED : (unsigned)(e->values[1] % HISTORY_DEVICES_MAX);
	struct history_memory *memory = &h->memories[number];

	h->pools = stat_alloc(reallocarray(h->pools, h->n_pools + 1, sizeof(*h->pools)));
	h->pools[h->n_pools++] = (struct history_pool){number, e->values[3] != KIND_VMM};
	if (!memory->is_used)
		memory->limit_bytes = UINT64_MAX;
	memory->is_used = true;
	memory->capacity_bytes = h->is_text ? 0 : e->values[5];
	set_limit(h, number, e->values[6], e);
}

static void apply_event(struct history *h, const struct replay_event *e)
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
		/* A free of device memory by the call for pinned memory, or the other way round, has no effect. */
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
	case GP_RECORD_LIMIT:
		set_limit(h, h->pools[e->pool].memory, e->values[0], e);
		break;
	case GP_RECORD_UNPOOLED:
		h->memories[e->values[0] % HISTORY_DEVICES_MAX].unpooled_bytes = e->values[1];
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
		apply_event(h, &event);
		stat_progress(event.position, n_events);
	}
	stat_progress_end();
	return r;
}

void history_deinit(struct history *h)
{
	free(h->pools);
	replay_map_deinit(&h->segments);
	replay_map_deinit(&h->blocks);
	replay_map_deinit(&h->handles);
}

/* Cuts a block off where its segment ends, or where the next block begins. */
static void cut(const struct history *h, struct history_block *block, const struct replay_entry *next)
{
	const struct replay_entry *segment = find(h, block->addr);
	uint64_t end = segment ? segment->key + segment->bytes : UINT64_MAX;

	if (next && next->key < end)
		end = next->key;
	block->bytes = gp_min(block->bytes, end - block->addr);
	block->requested_bytes = gp_min(block->requested_bytes, block->bytes);
}

size_t history_blocks(const struct history *h, struct history_block **ret_blocks)
{
	struct history_block *blocks = stat_alloc(calloc(h->blocks.n + 1, sizeof(*blocks)));
	struct replay_entry *block = replay_map_next(&h->blocks, NULL), *next;
	size_t n = 0;

	for (; block; block = next) {
		next = replay_map_next(&h->blocks, block);
		blocks[n] = (struct history_block){block->key, block->bytes, block->addr, block->pool};
		cut(h, &blocks[n++], next);
	}
	*ret_blocks = blocks;
	return n;
}
