/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "census.h"

#include <sys/mman.h>

#include "backend.h"
#include "debug.h"
#include "origin.h"
#include "reserve.h"
#include "unpooled.h"

/* More may have come until they are listed. */
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
	gp_pinned_each(context, count_pool, arg);
}

static void add(struct gp_census *census, const struct gp_holding *holding)
{
	if (census->n < census->room)
		census->list[census->n++] = *holding;
	census->n_all++;
	census->bytes += holding->bytes;
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct gp_census *census = arg;
	struct gp_block_info known = *info;

	gp_debug_adjust(&known);
	add(census, &(struct gp_holding){
			    .key = known.addr,
			    .caller = info->caller,
			    .bytes = info->rounded,
			    .requested = known.size,
			    .device = census->device,
			    .kind = census->kind,
		    });
	return true;
}

static void note_pool(void *arg, struct gp_pool *pool)
{
	gp_pool_each_used(pool, note_block, arg);
}

static void note_context(void *arg, struct gp_context *context)
{
	struct gp_census *census = arg;

	census->device = context->device->index;
	census->kind = GP_HOLDING_DEVICE;
	gp_context_each_pool(context, note_pool, census);
	census->kind = GP_HOLDING_PINNED;
	gp_pinned_each(context, note_pool, census);
}

static void note_unpooled(void *arg, const struct gp_unpooled_info *info)
{
	add(arg, &(struct gp_holding){
			 .key = gp_origin_key(info->kind, info->id),
			 .caller = info->caller,
			 .bytes = info->bytes,
			 .requested = info->bytes,
			 .device = info->device,
			 .kind = GP_HOLDING_UNPOOLED,
		 });
}

bool gp_census_take(struct gp_census *census)
{
	uint64_t n = gp_unpooled_count() + SLACK;

	*census = (struct gp_census){0};
	gp_context_each(count_context, &n);
	census->mapped_bytes = n * sizeof(*census->list);
	census->list = gp_reserve(census->mapped_bytes);
	if (!census->list)
		return false;
	census->room = n;
	gp_context_each(note_context, census);
	gp_unpooled_each(note_unpooled, census);
	return true;
}

void gp_census_free(struct gp_census *census)
{
	munmap(census->list, census->mapped_bytes);
}
