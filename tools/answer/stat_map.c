/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_reply.h"

enum { CELL_BYTES_MIN = 512 };

/* Adds up to UINT64_MAX at most: a process may answer with any numbers. */
static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t number(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

bool stat_map_block(const json_t *block, uint64_t offset, struct stat_map_block *ret)
{
	static const enum stat_part states[] = {STAT_PART_USED, STAT_PART_CACHED, STAT_PART_PENDING};
	const char *state = json_string_value(json_array_get(block, 1));
	const json_t *site = json_array_get(block, 3);
	size_t i = 0;

	*ret = (struct stat_map_block){
		.offset = offset,
		.bytes = number(json_array_get(block, 0)),
		.requested = number(json_array_get(block, 2)),
		.site = json_is_integer(site) ? json_integer_value(site) : -1,
	};
	while (i < 3 && state && strcmp(stat_look_name(states[i]), state) != 0)
		i++;
	if (!state || i == 3 || !ret->bytes)
		return false;
	ret->part = states[i];
	return true;
}

static void add_segment(struct stat_segment *sum, const struct stat_segment *segment)
{
	sum->size_bytes = add_saturating(sum->size_bytes, segment->size_bytes);
	sum->used_bytes = add_saturating(sum->used_bytes, segment->used_bytes);
	sum->requested_bytes = add_saturating(sum->requested_bytes, segment->requested_bytes);
	sum->cached_bytes = add_saturating(sum->cached_bytes, segment->cached_bytes);
	sum->pending_bytes = add_saturating(sum->pending_bytes, segment->pending_bytes);
	sum->n_used += segment->n_used;
}

static void read_segment(struct stat_segment *segment, const json_t *text)
{
	const json_t *blocks = json_object_get(text, "blocks"), *item;
	size_t i;

	segment->address = strtoull(stat_reply_text(text, "address"), NULL, 16);
	segment->blocks = blocks;
	json_array_foreach(blocks, i, item) {
		struct stat_map_block block;
		struct stat_segment part = {0};

		if (!stat_map_block(item, segment->size_bytes, &block))
			continue;
		part.size_bytes = block.bytes;
		part.used_bytes = block.part == STAT_PART_USED ? block.bytes : 0;
		part.requested_bytes = block.part == STAT_PART_USED ? block.requested : 0;
		part.cached_bytes = block.part == STAT_PART_CACHED ? block.bytes : 0;
		part.pending_bytes = block.part == STAT_PART_PENDING ? block.bytes : 0;
		part.n_used = block.part == STAT_PART_USED;
		add_segment(segment, &part);
	}
}

static int compare(const void *a, const void *b)
{
	const struct stat_segment *one = a, *other = b;

	if (one->size_bytes != other->size_bytes)
		return one->size_bytes < other->size_bytes ? 1 : -1;
	return (one->address > other->address) - (one->address < other->address);
}

static void read_pool(struct stat_map *map, const json_t *text)
{
	const json_t *segments = json_object_get(text, "segments"), *segment;
	struct stat_map_pool *pool = &map->pools[map->n_pools];
	uint64_t device;
	size_t i;

	*pool = (struct stat_map_pool){
		.device = stat_reply_u64(text, "device", &device) ? (int64_t)device : -1,
		.region = json_is_string(json_object_get(text, "region")) ? stat_reply_text(text, "region") : "",
		.is_streamed = json_is_true(json_object_get(text, "in_stream_order")),
		.first = map->n_segments,
		.n = json_array_size(segments),
		.n_segments = stat_reply_u64_or_0(text, "n_segments"),
		.largest_cached_bytes = stat_reply_u64_or_0(text, "largest_cached_bytes"),
		.largest_unused_bytes = stat_reply_u64_or_0(text, "largest_unused_bytes"),
	};
	map->segments = stat_alloc(reallocarray(map->segments, map->n_segments + pool->n + 1, sizeof(*map->segments)));
	json_array_foreach(segments, i, segment) {
		struct stat_segment *read = &map->segments[map->n_segments++];

		*read = (struct stat_segment){.pool = map->n_pools};
		read_segment(read, segment);
		add_segment(&pool->sum, read);
	}
	qsort(map->segments + pool->first, pool->n, sizeof(*map->segments), compare);
	map->n_pools++;
}

void stat_map_make(struct stat_map *map, const json_t *reply)
{
	const json_t *pools = json_object_get(reply, "pools"), *pool;
	size_t i;

	*map = (struct stat_map){.reply = reply};
	map->is_truncated = json_is_true(json_object_get(reply, "truncated"));
	map->pools = stat_alloc(calloc(json_array_size(pools) + 1, sizeof(*map->pools)));
	json_array_foreach(pools, i, pool)
		read_pool(map, pool);
}

void stat_map_free(struct stat_map *map)
{
	free(map->segments);
	free(map->pools);
	*map = (struct stat_map){0};
}

uint64_t stat_map_cell_bytes(const struct stat_map *map, size_t cells_max)
{
	uint64_t largest = 0, bytes = CELL_BYTES_MIN;

	for (size_t i = 0; i < map->n_segments; i++)
		if (map->segments[i].size_bytes > largest)
			largest = map->segments[i].size_bytes;
	while (bytes < UINT64_C(1) << 62 && largest / bytes >= cells_max)
		bytes *= 2;
	return bytes;
}

/* The bytes in one cell. */
struct content {
	uint64_t used, requested, cached, pending;
};

static void add_to_cell(struct content *content, const struct stat_map_block *block, uint64_t bytes)
{
	if (block->part == STAT_PART_CACHED)
		content->cached += bytes;
	else if (block->part == STAT_PART_PENDING)
		content->pending += bytes;
	else
		content->used += bytes;
	if (block->part == STAT_PART_USED && block->requested)
		content->requested += (uint64_t)((double)bytes * (double)block->requested / (double)block->bytes);
}

static struct stat_cell cell_of(const struct content *content)
{
	uint64_t all = content->used + content->cached + content->pending;
	struct stat_cell cell = {.part = content->pending > content->cached ? STAT_PART_PENDING : STAT_PART_CACHED};

	if (!content->used)
		return cell;
	cell.part = content->requested < content->used - content->used / 4 ? STAT_PART_WASTE : STAT_PART_USED;
	cell.level = (unsigned)(8.0 * (double)content->used / (double)all);
	/* A small free part, such as the guard of a segment, does not count as a gap. */
	if (all - content->used <= all / 64)
		cell.level = 8;
	cell.level = cell.level ? cell.level : 1;
	return cell;
}

size_t stat_map_cells(const struct stat_segment *segment, uint64_t cell_bytes, struct stat_cell *cells, size_t n)
{
	uint64_t end = cell_bytes, at = 0;
	struct content content = {0};
	const json_t *item;
	size_t i, n_cells = 0;

	json_array_foreach(segment->blocks, i, item) {
		struct stat_map_block block;

		if (!stat_map_block(item, at, &block))
			continue;
		for (uint64_t left = block.bytes, part; left && n_cells < n; left -= part) {
			part = left < end - at ? left : end - at;
			add_to_cell(&content, &block, part);
			at += part;
			if (at < end)
				continue;
			cells[n_cells++] = cell_of(&content);
			content = (struct content){0};
			end += cell_bytes;
		}
	}
	if (n_cells < n && content.used + content.cached + content.pending)
		cells[n_cells++] = cell_of(&content);
	return n_cells;
}

void stat_map_name(char name[static STAT_MAP_NAME_MAX], const struct stat_map_pool *pool)
{
	char region[STAT_MAP_NAME_MAX / 2 + 1];

	stat_clean(region, sizeof(region), pool->region);
	if (pool->device < 0)
		snprintf(name, STAT_MAP_NAME_MAX, "pinned memory");
	else
		snprintf(name, STAT_MAP_NAME_MAX, "device %" PRId64 "%s%s%s", pool->device,
			pool->is_streamed ? ", in stream order" : "", *region ? ", region " : "", region);
}

const char *stat_map_cell_glyph(struct stat_look look, const struct stat_cell *cell)
{
	if (cell->part == STAT_PART_USED)
		return stat_look_level(look, cell->level);
	return cell->part == STAT_PART_CACHED ? stat_look_glyph(look, STAT_PART_FREE)
					      : stat_look_glyph(look, cell->part);
}
