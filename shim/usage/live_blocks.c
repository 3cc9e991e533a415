/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "live_blocks.h"

#include <sys/mman.h>

#include "shim/backend/unpooled.h"
#include "shim/base/reserve.h"
#include "shim/context/context.h"
#include "shim/context/survivor.h"
#include "shim/debug/debug.h"
#include "shim/trace/alloc_info.h"

/* Room in the list for blocks that are allocated after the blocks have been counted. */
enum { SLACK = 1024 };

static void count_pool(void *arg, struct gp_pool *pool)
{
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	*(uint64_t *)arg += stats.n_used_blocks;
}

static void count_context(void *arg, struct gp_context *context)
{
	gp_context_each_pool(context, count_pool, arg);
	gp_context_each_pinned(context, count_pool, arg);
}

static void add(struct gp_live_blocks *live, const struct gp_holding *holding)
{
	if (live->n < live->room)
		live->list[live->n++] = *holding;
	live->n_all++;
	live->bytes += holding->bytes;
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct gp_live_blocks *live = arg;
	struct gp_block_info known = *info;

	gp_debug_adjust(&known);
	add(live, &(struct gp_holding){
			  .key = known.addr,
			  .module = info->module,
			  .bytes = info->rounded,
			  .requested = known.size,
			  .device = live->device,
			  .kind = live->kind,
		  });
	return true;
}

static void note_pool(void *arg, struct gp_pool *pool)
{
	gp_pool_each_used(pool, note_block, arg);
}

static void note_context(void *arg, struct gp_context *context)
{
	struct gp_live_blocks *live = arg;

	live->device = context->device->index;
	live->kind = GP_HOLDING_DEVICE;
	gp_context_each_pool(context, note_pool, live);
	live->kind = GP_HOLDING_PINNED;
	gp_context_each_pinned(context, note_pool, live);
}

static void note_unpooled(void *arg, const struct gp_unpooled_info *info)
{
	add(arg, &(struct gp_holding){
			 .key = gp_alloc_info_key(info->kind, info->id),
			 .module = info->module,
			 .bytes = info->bytes,
			 .requested = info->bytes,
			 .device = info->device,
			 .kind = GP_HOLDING_UNPOOLED,
		 });
}

static void note_survivor(void *arg, const struct gp_block_info *info, const struct gp_device *device)
{
	add(arg, &(struct gp_holding){
			 .key = info->addr,
			 .module = info->module,
			 .bytes = info->rounded,
			 .requested = info->size,
			 .device = device->index,
			 .kind = GP_HOLDING_UNPOOLED,
		 });
}

bool gp_live_blocks_take(struct gp_live_blocks *live)
{
	uint64_t n = gp_unpooled_count() + atomic_load(&gp_survivors) + SLACK;

	*live = (struct gp_live_blocks){0};
	gp_context_each(count_context, &n);
	live->mapped_bytes = n * sizeof(*live->list);
	live->list = gp_reserve(live->mapped_bytes);
	if (!live->list)
		return false;
	live->room = n;
	gp_context_each(note_context, live);
	gp_unpooled_each(note_unpooled, live);
	gp_survivor_each(note_survivor, live);
	return true;
}

void gp_live_blocks_free(struct gp_live_blocks *live)
{
	munmap(live->list, live->mapped_bytes);
}
