/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat map: prints an answer as rows of cells, and the blocks that keep segments in use. */

#include "stat_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/answer/stat_map.h"
#include "tools/answer/stat_stack.h"
#include "tools/text/stat_text.h"

enum {
	WIDTH = 80, /* without a terminal */
	WIDTH_MAX = 240,
	HEAD = 27, /* columns left of the cells */
	CELLS_MIN = 8,
	LINES = 4,       /* of a segment at most */
	ROWS = 24,       /* segments shown of a pool */
	PARTLY_USED = 8, /* segments whose blocks are shown, unless -n is given */
	HOLDERS = 3,     /* blocks shown of each of them */
};

static size_t cells_in_a_line(void)
{
	size_t width = stat_width();

	width = width ? width : WIDTH;
	width = width < WIDTH_MAX ? width : WIDTH_MAX;
	return width > HEAD + CELLS_MIN ? width - HEAD : CELLS_MIN;
}

static void print_legend(struct stat_look look, uint64_t cell_bytes)
{
	char bytes[STAT_TEXT_MAX], text[256];

	stat_bytes(bytes, cell_bytes);
	snprintf(text, sizeof(text),
		"one cell is %s: %s used, %s to %s partly used, %s used, with over a quarter lost to rounding, "
		"%s pending, %s cached",
		bytes, stat_look_level(look, 8), stat_look_level(look, 1), stat_look_level(look, 7),
		stat_look_glyph(look, STAT_PART_WASTE), stat_look_glyph(look, STAT_PART_PENDING),
		stat_look_glyph(look, STAT_PART_FREE));
	stat_print_lines(text, stat_width());
}

static void print_cells(const struct stat_cell *cells, size_t n, struct stat_look look)
{
	for (size_t i = 0; i < n; i++) {
		bool is_first = !i || cells[i].part != cells[i - 1].part;

		if (is_first)
			stat_look_begin(look, cells[i].part);
		fputs(stat_map_cell_glyph(look, &cells[i]), stdout);
		if (i + 1 == n || cells[i + 1].part != cells[i].part)
			stat_look_end(look);
	}
	putchar('\n');
}

static void print_segment(
	const struct stat_segment *segment, uint64_t cell_bytes, size_t columns, struct stat_look look)
{
	size_t max = columns * LINES, n;
	struct stat_cell *cells = stat_alloc(calloc(max, sizeof(*cells)));
	char size[STAT_TEXT_MAX];

	stat_bytes(size, segment->size_bytes);
	n = stat_map_cells(segment, cell_bytes, cells, max);
	printf("0x%-14" PRIx64 "%9s  ", segment->address, size);
	for (size_t i = 0; i < n || !i; i += columns) {
		if (i)
			printf("%*s", HEAD, "");
		print_cells(cells + i, n - i < columns ? n - i : columns, look);
	}
	free(cells);
}

/* Writes "used 768 MiB (8.00 MiB lost to rounding); cached 462 MiB, pending 2.00 MiB". */
static void write_sum(char *text, size_t size, const struct stat_segment *sum)
{
	uint64_t asked = sum->requested_bytes < sum->used_bytes ? sum->requested_bytes : sum->used_bytes;
	char used[STAT_TEXT_MAX], waste[STAT_TEXT_MAX], cached[STAT_TEXT_MAX], pending[STAT_TEXT_MAX];

	stat_bytes(used, sum->used_bytes);
	stat_bytes(waste, sum->used_bytes - asked);
	stat_bytes(cached, sum->cached_bytes);
	stat_bytes(pending, sum->pending_bytes);
	snprintf(text, size, "used %s (%s lost to rounding); cached %s, pending %s", used, waste, cached, pending);
}

static void print_title(const struct stat_map_pool *pool)
{
	char name[STAT_MAP_NAME_MAX], bytes[STAT_TEXT_MAX], sum[8 * STAT_TEXT_MAX], text[512];

	stat_map_name(name, pool);
	stat_bytes(bytes, pool->sum.size_bytes);
	write_sum(sum, sizeof(sum), &pool->sum);
	snprintf(text, sizeof(text), "%s: %s in %" PRIu64 " segment%s; %s", name, bytes, pool->n_segments,
		pool->n_segments == 1 ? "" : "s", sum);
	stat_print_lines(text, stat_width());
}

static void print_rest(const struct stat_segment *segments, size_t n)
{
	uint64_t size = 0, used = 0;
	char size_text[STAT_TEXT_MAX], used_text[STAT_TEXT_MAX];

	for (size_t i = 0; i < n; i++) {
		size = size > UINT64_MAX - segments[i].size_bytes ? UINT64_MAX : size + segments[i].size_bytes;
		used = used > UINT64_MAX - segments[i].used_bytes ? UINT64_MAX : used + segments[i].used_bytes;
	}
	stat_bytes(size_text, size);
	stat_bytes(used_text, used);
	if (n)
		printf("and %zu more segment%s: %s, of which %s are used\n", n, n == 1 ? "" : "s", size_text,
			used_text);
}

static void print_largest(const struct stat_map_pool *pool)
{
	char now[STAT_TEXT_MAX], later[STAT_TEXT_MAX], text[256];
	bool is_more_later = pool->largest_unused_bytes > pool->largest_cached_bytes;

	stat_bytes(now, pool->largest_cached_bytes);
	stat_bytes(later, pool->largest_unused_bytes);
	if (pool->largest_unused_bytes)
		snprintf(text, sizeof(text), "largest unused block %s%s%s: a larger request goes to the driver", now,
			is_more_later ? ", or once no memory is pending " : "", is_more_later ? later : "");
	else
		snprintf(text, sizeof(text), "no memory is unused: every request goes to the driver");
	stat_print_lines(text, stat_width());
}

static uint64_t unused_bytes(const struct stat_segment *segment)
{
	return segment->size_bytes - segment->used_bytes;
}

static bool is_partly_used(const struct stat_segment *segment)
{
	return segment->n_used && unused_bytes(segment);
}

static int compare_unused(const void *a, const void *b)
{
	const struct stat_segment *one = *(const struct stat_segment *const *)a;
	const struct stat_segment *other = *(const struct stat_segment *const *)b;

	if (unused_bytes(one) != unused_bytes(other))
		return unused_bytes(one) < unused_bytes(other) ? 1 : -1;
	return (one->address > other->address) - (one->address < other->address);
}

/* Takes ownership of where. */
static void add_holder(struct stat_table *table, const struct stat_segment *segment, const struct stat_map_block *block,
	char *where, bool is_first)
{
	char address[STAT_TEXT_MAX], size[STAT_TEXT_MAX], unused[STAT_TEXT_MAX], n[STAT_TEXT_MAX];
	char holder[STAT_TEXT_MAX], bytes[STAT_TEXT_MAX];
	const char *cells[] = {is_first ? address : "", is_first ? size : "", is_first ? unused : "", is_first ? n : "",
		holder, bytes, where ? where : "-"};

	snprintf(address, sizeof(address), "0x%" PRIx64, segment->address);
	stat_bytes(size, segment->size_bytes);
	stat_bytes(unused, unused_bytes(segment));
	snprintf(n, sizeof(n), "%" PRIu64, segment->n_used);
	snprintf(holder, sizeof(holder), "0x%" PRIx64, segment->address + block->offset);
	stat_bytes(bytes, block->bytes);
	stat_table_add(table, cells);
	free(where);
}

static void add_holders(struct stat_table *table, const struct stat_map *map, const struct stat_segment *segment,
	struct stat_stacks *stacks)
{
	const json_t *sites = json_object_get(map->reply, "sites"), *item;
	uint64_t offset = 0;
	size_t i, n = 0;

	json_array_foreach(segment->blocks, i, item) {
		struct stat_map_block block;
		const json_t *frames;
		char *where;

		if (!stat_map_block(item, offset, &block))
			continue;
		offset += block.bytes;
		if (block.part != STAT_PART_USED || n == HOLDERS)
			continue;
		frames = json_object_get(json_array_get(sites, (size_t)block.site), "frames");
		where = json_array_size(frames) ? stat_stacks_text(stacks, frames) : NULL;
		add_holder(table, segment, &block, where, n++ == 0);
	}
}

/* Prints the segments that are partly in use, with the blocks that hold them; the most unused bytes come first. */
static void print_partly_used(const struct stat_map *map, const struct stat_map_pool *pool, struct stat_stacks *stacks,
	const struct stat_options *options)
{
	static const char *const headings[] = {
		"<SEGMENT", ">SIZE", ">UNUSED", ">BLOCKS", "<HELD BY", ">SIZE", "<WHERE"};
	const struct stat_segment **partly_used = stat_alloc(calloc(pool->n + 1, sizeof(*partly_used)));
	struct stat_table *table = stat_table_new(headings, 7);
	uint64_t bytes = 0, rest = 0, max = options->max_blocks == UINT64_MAX ? PARTLY_USED : options->max_blocks;
	char text[STAT_TEXT_MAX], line[128];
	size_t n = 0;

	for (size_t i = 0; i < pool->n; i++) {
		const struct stat_segment *segment = &map->segments[pool->first + i];

		if (!is_partly_used(segment))
			continue;
		partly_used[n++] = segment;
		bytes += unused_bytes(segment) < UINT64_MAX - bytes ? unused_bytes(segment) : 0;
	}
	qsort(partly_used, n, sizeof(const struct stat_segment *), compare_unused);
	for (size_t i = 0; i < n; i++)
		if (i < max)
			add_holders(table, map, partly_used[i], stacks);
		else
			rest += unused_bytes(partly_used[i]) < UINT64_MAX - rest ? unused_bytes(partly_used[i]) : 0;
	stat_bytes(text, bytes);
	if (n) {
		snprintf(line, sizeof(line), "%s are unused in %zu segment%s in which the program holds blocks:", text,
			n, n == 1 ? "" : "s");
		stat_print_lines(line, stat_width());
		stat_table_print(table, stat_width());
	}
	stat_bytes(text, rest);
	if (n > max)
		printf("and %zu more segment%s, in which %s are unused\n", n - (size_t)max,
			n - (size_t)max == 1 ? "" : "s", text);
	stat_table_free(table);
	free(partly_used);
}

static void print_pool(const struct stat_map *map, const struct stat_map_pool *pool, uint64_t cell_bytes,
	const struct stat_options *options)
{
	size_t columns = cells_in_a_line();
	uint64_t max = options->max_blocks == UINT64_MAX ? ROWS : options->max_blocks;
	size_t n = pool->n < max ? pool->n : (size_t)max;

	print_title(pool);
	for (size_t i = 0; i < n; i++)
		print_segment(&map->segments[pool->first + i], cell_bytes, columns, stat_look_of(options));
	print_rest(map->segments + pool->first + n, pool->n - n);
	print_largest(pool);
}

void stat_map_show(const struct stat_process *process, const struct stat_options *options)
{
	struct stat_stacks *stacks = stat_stacks_new(process->reply, process->pid, process->uid);
	struct stat_map map;
	uint64_t cell_bytes;

	stat_map_make(&map, process->reply);
	cell_bytes = stat_map_cell_bytes(&map, cells_in_a_line() * LINES / 2);
	if (!map.n_pools)
		puts("gpupool holds no memory");
	else
		print_legend(stat_look_of(options), cell_bytes);
	for (size_t i = 0; i < map.n_pools; i++) {
		putchar('\n');
		print_pool(&map, &map.pools[i], cell_bytes, options);
		print_partly_used(&map, &map.pools[i], stacks, options);
	}
	if (map.is_truncated)
		puts("\nThe answer had no room for all blocks: some are not shown.");
	stat_map_free(&map);
	stat_stacks_free(stacks);
}
