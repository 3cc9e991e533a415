/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The answer lists every block of every pool, segment by segment, in address order within a segment. The blocks are
 * copied while the pool's lock is held, up to BLOCKS_MAX, and written after it is released. Further blocks are only
 * counted. A segment is a driver allocation or, with the kind vmm, a contiguous range of addresses that have memory.
 */

#include "map.h"

#include <stdlib.h>
#include <unistd.h>

#include "shim/context/context.h"
#include "shim/context/region.h"
#include "shim/debug/debug.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/stack_json.h"

enum {
	BLOCKS_MAX = 20000,
	POOLS_MAX = 256,
	SITES_MAX = 128,
	BLOCK_JSON_BYTES = 96,
	SEGMENT_JSON_BYTES = 160,
	POOL_JSON_BYTES = 320 + GP_REGION_NAME_MAX,
	END_JSON_BYTES = (512 << 10) + SITES_MAX * GP_STACK_JSON_BYTES,
};

enum state { USED, CACHED, PENDING };

struct block {
	uint64_t addr, bytes, requested;
	uint32_t site;
	uint8_t state;
	bool begins; /* true if it begins a segment */
};

struct pool {
	int device; /* -1: pinned */
	int region;
	bool is_streamed; /* for allocations in stream order */
	size_t first, n;
	uint64_t n_blocks, n_segments;
	uint64_t largest_cached; /* bytes of the largest run of cached blocks */
	uint64_t largest_unused; /* bytes of the largest run of cached and pending blocks */
	/* Only while the blocks are copied: the current runs, the end of the last block, and its segment. */
	uint64_t cached_run, free_run, end, segment;
};

struct map {
	struct block *blocks;
	size_t n_blocks;
	struct pool *pools;
	size_t n_pools;
	int device;
	struct gp_context *context; /* owner of the device pools that are being copied; NULL for pinned pools */
	bool is_truncated;
};

static enum state state_of(const struct gp_block_info *info)
{
	if (info->is_used)
		return USED;
	return info->is_cached ? CACHED : PENDING;
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct map *map = arg;
	struct pool *pool = &map->pools[map->n_pools];
	bool begins = pool->end != info->addr || (pool->segment != info->segment_base && !info->is_mapped);
	enum state state = state_of(info);
	struct gp_block_info known = *info;

	gp_debug_adjust(&known);
	pool->cached_run = state == CACHED ? (begins ? 0 : pool->cached_run) + info->rounded : 0;
	pool->free_run = state != USED ? (begins ? 0 : pool->free_run) + info->rounded : 0;
	pool->largest_cached = gp_max(pool->largest_cached, pool->cached_run);
	pool->largest_unused = gp_max(pool->largest_unused, pool->free_run);
	pool->end = info->addr + info->rounded;
	pool->segment = info->segment_base;
	pool->n_segments += begins;
	pool->n_blocks++;
	if (map->n_blocks == BLOCKS_MAX)
		return true;
	map->blocks[map->n_blocks++] = (struct block){
		.addr = info->addr,
		.bytes = info->rounded,
		.requested = known.size,
		.state = (uint8_t)state,
		.begins = begins,
	};
	pool->n++;
	return true;
}

static void note_pool(void *arg, struct gp_pool *gp)
{
	struct map *map = arg;

	if (map->n_pools == POOLS_MAX) {
		map->is_truncated = true;
		return;
	}
	map->pools[map->n_pools] = (struct pool){.device = map->device, .first = map->n_blocks, .end = UINT64_MAX};
	if (map->context) {
		map->pools[map->n_pools].region = gp_region_of(map->context, gp);
		map->pools[map->n_pools].is_streamed = gp_region_is_streamed(map->context, gp);
	}
	gp_pool_each_block(gp, note_block, map);
	map->is_truncated = map->is_truncated || map->pools[map->n_pools].n < map->pools[map->n_pools].n_blocks;
	map->n_pools += map->pools[map->n_pools].n_blocks > 0;
}

static void note_context(void *arg, struct gp_context *context)
{
	struct map *map = arg;

	map->device = context->device->index;
	map->context = context;
	gp_context_each_pool(context, note_pool, map);
	map->context = NULL;
	map->device = -1;
	gp_context_each_pinned(context, note_pool, map);
}

/*
 * Allocation records are guarded by locks of their own, so this runs after the pools' locks are released. A block that
 * was freed in between gets no site.
 */
static void find_sites(struct map *map)
{
	struct gp_alloc_info record;

	if (!atomic_load(&gp_alloc_info_mode))
		return;
	for (size_t i = 0; i < map->n_blocks; i++) {
		struct block *block = &map->blocks[i];

		if (block->state == USED && gp_alloc_info_find(gp_debug_ptr(block->addr), &record) && !record.is_freed)
			block->site = record.given;
	}
}

struct sites {
	uint32_t list[SITES_MAX];
	unsigned n;
};

/* Returns the site's index in the list, and adds it if needed. Returns -1 for no site, or if the list is full. */
static int index_of(struct sites *sites, uint32_t site)
{
	unsigned i = 0;

	if (!site)
		return -1;
	while (i < sites->n && sites->list[i] != site)
		i++;
	if (i == SITES_MAX)
		return -1;
	sites->list[i] = site;
	sites->n = gp_max(sites->n, i + 1);
	return (int)i;
}

static void write_block(struct gp_json *out, const struct block *block, struct sites *sites)
{
	static const char *const names[] = {"used", "cached", "pending"};
	int site = index_of(sites, block->site);

	gp_json_array_begin(out, NULL);
	gp_json_u64(out, NULL, block->bytes);
	gp_json_string(out, NULL, names[block->state]);
	if (block->state == USED)
		gp_json_u64(out, NULL, block->requested);
	if (site >= 0)
		gp_json_i64(out, NULL, site);
	gp_json_array_end(out);
}

/* Writes blocks up to the first one of the next segment, or until there is no room. Returns their number. */
static size_t write_segment(struct gp_json *out, const struct block *blocks, size_t n, struct sites *sites)
{
	size_t i = 0;

	gp_json_object_begin(out, NULL);
	gp_json_address(out, "address", blocks[0].addr);
	gp_json_array_begin(out, "blocks");
	do
		write_block(out, &blocks[i++], sites);
	while (i < n && !blocks[i].begins && gp_json_room(out) > END_JSON_BYTES + BLOCK_JSON_BYTES);
	gp_json_array_end(out);
	gp_json_object_end(out);
	return i;
}

static void write_pool(struct gp_json *out, struct map *map, const struct pool *pool, struct sites *sites)
{
	size_t i = 0;

	gp_json_object_begin(out, NULL);
	gp_json_device(out, "device", pool->device);
	gp_json_string(out, "kind", pool->device < 0 ? "pinned" : "device");
	gp_json_string(out, "region", pool->region ? gp_region_name(pool->region) : NULL);
	gp_json_bool(out, "in_stream_order", pool->is_streamed);
	gp_json_u64(out, "n_segments", pool->n_segments);
	gp_json_u64(out, "n_blocks", pool->n_blocks);
	gp_json_u64(out, "largest_cached_bytes", pool->largest_cached);
	gp_json_u64(out, "largest_unused_bytes", pool->largest_unused);
	gp_json_array_begin(out, "segments");
	while (i < pool->n && gp_json_room(out) > END_JSON_BYTES + SEGMENT_JSON_BYTES + BLOCK_JSON_BYTES)
		i += write_segment(out, &map->blocks[pool->first + i], pool->n - i, sites);
	map->is_truncated = map->is_truncated || i < pool->n;
	gp_json_array_end(out);
	gp_json_object_end(out);
}

static void write_map(struct gp_json *out, struct map *map, struct gp_stack_json *stacks)
{
	struct sites sites = {.n = 0};

	gp_ctl_answer_begin(out, GP_CTL_map);
	gp_json_i64(out, "pid", getpid());
	gp_json_array_begin(out, "pools");
	for (size_t i = 0; i < map->n_pools; i++) {
		if (gp_json_room(out) > END_JSON_BYTES + POOL_JSON_BYTES)
			write_pool(out, map, &map->pools[i], &sites);
		else
			map->is_truncated = true;
	}
	gp_json_array_end(out);
	gp_json_bool(out, "truncated", map->is_truncated);
	gp_json_array_begin(out, "sites");
	for (unsigned i = 0; i < sites.n; i++) {
		gp_json_object_begin(out, NULL);
		gp_stack_json_site(out, stacks, "frames", sites.list[i]);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_stack_json_objects(out, stacks);
	gp_json_object_end(out);
}

int gp_map_answer(int argc, char **argv, struct gp_json *out)
{
	struct map map = {
		.blocks = calloc(BLOCKS_MAX, sizeof(*map.blocks)),
		.pools = calloc(POOLS_MAX + 1, sizeof(*map.pools)),
	};
	struct gp_stack_json stacks;
	bool has_memory = map.blocks && map.pools && gp_stack_json_init(&stacks);

	if (has_memory) {
		gp_context_each(note_context, &map);
		find_sites(&map);
		write_map(out, &map, &stacks);
		gp_stack_json_deinit(&stacks);
	}
	free(map.blocks);
	free(map.pools);
	return has_memory ? 0 : gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the map");
}
