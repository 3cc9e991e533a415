/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Writes a memory snapshot of a running process: its present segments and blocks, with stacks if it takes them. */

#include <stdlib.h>

#include "common/size.h"
#include "tools/answer/stat_map.h"
#include "convert_formats.h"
#include "convert_snapshot.h"

#define ADDRESS_END (UINT64_C(1) << 59)

struct live {
	struct pickle pickle;
	struct stat_map map;
	struct stat_sites sites;
	unsigned n_devices;
};

static int compare(const void *a, const void *b)
{
	const struct stat_segment *one = *(const struct stat_segment *const *)a;
	const struct stat_segment *other = *(const struct stat_segment *const *)b;

	return (one->address > other->address) - (one->address < other->address);
}

static void add_block(struct live *live, struct snapshot_segment *segment, const struct stat_map_block *block)
{
	bool is_known = block->site >= 0 && (uint64_t)block->site < live->sites.n;

	if (block->part != STAT_PART_CACHED)
		segment->blocks[segment->n_blocks++] = (struct snapshot_block){
			.addr = segment->addr + block->offset,
			.bytes = block->bytes,
			.requested_bytes = block->requested < block->bytes ? block->requested : block->bytes,
			.state = block->part == STAT_PART_PENDING ? SNAPSHOT_PENDING : SNAPSHOT_USED,
			.site = is_known ? &live->sites.list[block->site] : NULL,
		};
}

static void put_segment(struct live *live, const struct stat_segment *s, unsigned device)
{
	struct snapshot_segment segment = {.addr = s->address, .bytes = s->size_bytes, .device = device};
	uint64_t offset = 0;
	const json_t *item;
	size_t i;

	segment.blocks = stat_alloc(calloc(json_array_size(s->blocks) + 1, sizeof(*segment.blocks)));
	json_array_foreach(s->blocks, i, item) {
		struct stat_map_block block;

		if (!stat_map_block(item, offset, &block))
			continue;
		add_block(live, &segment, &block);
		offset += block.bytes;
	}
	snapshot_put_segment(&live->pickle, &segment);
	free(segment.blocks);
}

/*
 * Writes the segments, sorted by address. The process is not trusted: a segment is left out if it overlaps another, or
 * lies outside the address space.
 */
static void put_segments(struct live *live)
{
	size_t n = live->map.n_segments;
	const struct stat_segment **list = stat_alloc(calloc(n + 1, sizeof(*list)));
	struct pickle_list segments;
	uint64_t end = 0;

	for (size_t i = 0; i < n; i++)
		list[i] = &live->map.segments[i];
	qsort(list, n, sizeof(*list), compare);
	pickle_list_begin(&live->pickle, &segments);
	for (size_t i = 0; i < n; i++) {
		const struct stat_segment *s = list[i];
		int64_t device = live->map.pools[s->pool].device;

		if (device < 0 || device >= GP_LIMIT_DEVICES_MAX || s->address < end || s->address >= ADDRESS_END ||
			!s->size_bytes || s->size_bytes >= ADDRESS_END)
			continue;
		end = s->address + s->size_bytes;
		if ((unsigned)device >= live->n_devices)
			live->n_devices = (unsigned)device + 1;
		pickle_list_next(&live->pickle, &segments);
		put_segment(live, s, (unsigned)device);
	}
	pickle_list_end(&live->pickle, &segments);
	free(list);
}

static void put_traces(struct live *live)
{
	struct pickle_list traces, none;

	pickle_list_begin(&live->pickle, &traces);
	for (unsigned i = 0; i < live->n_devices; i++) {
		pickle_list_next(&live->pickle, &traces);
		pickle_list_begin(&live->pickle, &none);
		pickle_list_end(&live->pickle, &none);
	}
	pickle_list_end(&live->pickle, &traces);
}

enum stat_exit convert_torch_process(FILE *out, const struct stat_source *source)
{
	enum stat_exit result;
	json_t *reply = stat_source_ask(source, "map", &result);
	struct live live = {.n_devices = 1};

	if (!reply)
		return result;
	stat_map_make(&live.map, reply);
	stat_sites_make(&live.sites, reply, source->pid, source->uid);
	snapshot_begin(&live.pickle, out);
	put_segments(&live);
	snapshot_traces(&live.pickle);
	put_traces(&live);
	snapshot_end(&live.pickle);
	stat_sites_free(&live.sites);
	stat_map_free(&live.map);
	json_decref(reply);
	return STAT_OK;
}
