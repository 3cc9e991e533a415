/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Surveys the blocks when memory has run out. It finds the driver allocations that cannot be given back because the
 * program holds a part of them, and estimates how much of the free memory in them a pool of the type vmm could have
 * moved.
 *
 * It is an estimate because vmm would have placed the blocks elsewhere. A gap is a run of adjacent cached blocks. The
 * bytes of a gap that count as movable depend on its neighbours:
 *
 *	between small blocks	its whole granules
 *	between large blocks	all of it if it begins and ends at granules; otherwise the part that does not share a
 *				chunk with a block beside it
 *	at an end		all of it if it is smaller than the block beside it: then no such block fitted there,
 *				and vmm has no such ends; otherwise the part that does not share a chunk
 */

#include "oom_survey.h"

#include "shim/backend/mapping_setup.h"
#include "shim/debug/debug.h"
#include "shim/trace/alloc_info.h"

/* vmm takes memory in chunks as large as the block that they are for, but seldom above this size (pool/vmm/grow.c). */
#define CHUNK_MAX (20 * GP_MIB)

/* State of a walk over the driver allocations of a pool. */
struct survey {
	struct gp_oom *oom;
	struct gp_oom_segment segment; /* the current driver allocation; 0 bytes: none */
	uint64_t guard_bytes;          /* of the guard at its beginning */
	uint64_t gap_begin, gap_end;   /* the current run of adjacent cached blocks */
	uint64_t before_bytes;         /* size of the used block before it */
};

static void insert(struct gp_oom *oom, const struct gp_oom_segment *segment)
{
	unsigned i = oom->n_segments < GP_OOM_SEGMENTS ? oom->n_segments++ : GP_OOM_SEGMENTS;

	for (; i && oom->segments[i - 1].unused_bytes < segment->unused_bytes; i--)
		if (i < GP_OOM_SEGMENTS)
			oom->segments[i] = oom->segments[i - 1];
	if (i < GP_OOM_SEGMENTS)
		oom->segments[i] = *segment;
}

/* True if a granule of vmm could begin at the address. */
static bool is_aligned(const struct survey *survey, uint64_t addr)
{
	uint64_t offset = addr - survey->segment.base;

	return offset < survey->oom->granule || (offset - survey->guard_bytes) % survey->oom->granule == 0;
}

/* Returns how much of the gap vmm could move. around_bytes: size of the larger of the blocks beside it. */
static uint64_t movable_bytes_of(const struct survey *survey, uint64_t around_bytes)
{
	uint64_t bytes = survey->gap_end - survey->gap_begin, granule = survey->oom->granule;
	bool is_first = survey->gap_begin == survey->segment.base;
	bool is_last = survey->gap_end == survey->segment.base + survey->segment.bytes;
	uint64_t shared = gp_min(gp_round_up(around_bytes, granule), CHUNK_MAX);

	if (!granule || !around_bytes)
		return granule ? bytes : 0;
	if (around_bytes <= GP_SMALL_MAX)
		return bytes / granule * granule;
	if (is_first || is_last)
		return bytes < around_bytes ? bytes : bytes - gp_min(bytes, shared);
	if (is_aligned(survey, survey->gap_begin) && is_aligned(survey, survey->gap_end))
		return bytes;
	return bytes - gp_min(bytes, shared);
}

static void end_gap(struct survey *survey, uint64_t next_bytes)
{
	if (survey->gap_end)
		survey->oom->movable_bytes += movable_bytes_of(survey, gp_max(survey->before_bytes, next_bytes));
	survey->gap_begin = survey->gap_end = 0;
}

static void end_segment(struct survey *survey)
{
	struct gp_oom *oom = survey->oom;

	end_gap(survey, 0);
	if (survey->segment.n_used && survey->segment.unused_bytes) {
		oom->n_partly_used++;
		oom->partly_used_unused_bytes += survey->segment.unused_bytes;
		insert(oom, &survey->segment);
	}
	*survey = (struct survey){.oom = oom};
}

static void note_used(struct survey *survey, const struct gp_block_info *info)
{
	struct gp_oom_segment *segment = &survey->segment;

	end_gap(survey, info->rounded);
	survey->before_bytes = info->rounded;
	if (segment->n_used < GP_OOM_SEGMENT_BLOCKS)
		segment->blocks[segment->n_used] =
			(struct gp_oom_segment_block){.addr = info->addr, .bytes = info->rounded};
	segment->n_used++;
	segment->used_bytes += info->rounded;
	survey->oom->least_bytes += gp_min(info->rounded, gp_round_up(info->size, GP_ALIGN));
}

static void note_cached(struct survey *survey, const struct gp_block_info *info)
{
	if (survey->gap_end != info->addr) {
		end_gap(survey, survey->before_bytes);
		survey->gap_begin = info->addr;
	}
	survey->gap_end = info->addr + info->rounded;
	survey->segment.unused_bytes += info->rounded;
	survey->segment.largest_unused_bytes =
		gp_max(survey->segment.largest_unused_bytes, survey->gap_end - survey->gap_begin);
	survey->oom->largest_unused_bytes =
		gp_max(survey->oom->largest_unused_bytes, survey->gap_end - survey->gap_begin);
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct survey *survey = arg;

	if (survey->segment.bytes && survey->segment.base != info->segment_base)
		end_segment(survey);
	survey->segment.base = info->segment_base;
	survey->segment.bytes = info->segment_size;
	if (info->is_guard)
		survey->guard_bytes = info->rounded;
	if (info->is_used)
		note_used(survey, info);
	else if (info->is_cached)
		note_cached(survey, info);
	return true;
}

static void survey_pool(void *arg, struct gp_pool *pool)
{
	struct survey survey = {.oom = arg};

	gp_pool_each_block(pool, note_block, &survey);
	end_segment(&survey);
}

/* False if blocks are exported: these have to be whole driver allocations, whatever the pool type. */
static bool can_be_mapped(struct gp_context *context)
{
	return gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE) && !atomic_load(&gp_state.needs_whole);
}

static void find_granule(void *arg, struct gp_context *context)
{
	struct gp_oom *oom = arg;

	if (context->device->index == oom->device && !oom->granule && can_be_mapped(context) &&
		gp_mapping_granule(context, &oom->granule))
		oom->granule = 0;
}

void gp_oom_find_granule(struct gp_oom *oom)
{
	gp_context_each(find_granule, oom);
}

static void survey_context(void *arg, struct gp_context *context)
{
	struct gp_oom *oom = arg;

	if (context->device->index == oom->device)
		gp_context_each_pool(context, survey_pool, oom);
}

static void survey_pinned(void *arg, struct gp_context *context)
{
	gp_context_each_pinned(context, survey_pool, arg);
}

/* Surveys all pools of the device, or all pools of pinned memory: the other regions and contexts use it, too. */
void gp_oom_survey(struct gp_oom *oom)
{
	struct gp_alloc_info record;

	oom->least_bytes = 0;
	gp_context_each(oom->what == GP_OOM_PINNED ? survey_pinned : survey_context, oom);
	for (unsigned i = 0; i < oom->n_segments; i++)
		for (unsigned k = 0; k < gp_min(oom->segments[i].n_used, GP_OOM_SEGMENT_BLOCKS); k++)
			if (gp_alloc_info_find(gp_debug_ptr(oom->segments[i].blocks[k].addr), &record) &&
				!record.is_freed)
				oom->segments[i].blocks[k].site = record.given;
}
