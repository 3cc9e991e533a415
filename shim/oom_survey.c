/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * What lies where when memory has run out: the driver allocations that cannot go back, since the program holds a part
 * of them, and how much of what is free there a pool of the type vmm could have moved.
 *
 * That is an estimate, for vmm would have placed the blocks elsewhere:
 *
 *	a gap between small blocks	its whole granules
 *	a gap between large blocks	all of it if it begins and ends at granules; else what does not share a piece
 *					of memory with a block beside it
 *	a gap at an end			all of it if it is smaller than the block beside it, for then no block fitted
 *					there, and vmm has no such ends; else what does not share a piece
 */

#include "backend.h"
#include "debug.h"
#include "oom.h"
#include "origin.h"
#include "region.h"

/* vmm takes memory in pieces as large as the block that they are for, up to this (pool/range_fill.c). */
#define PIECE_MAX (20 * GP_MIB)

/* The driver allocations of a pool, one after the other. */
struct survey {
	struct gp_oom *oom;
	struct gp_oom_pin pin;		/* the one under way; no bytes: none */
	uint64_t gap_begin, gap_end;	/* cached blocks side by side in it */
	uint64_t before_bytes;		/* size of the used block before */
};

static void insert(struct gp_oom *oom, const struct gp_oom_pin *pin)
{
	unsigned i = oom->n_pins < GP_OOM_PINS ? oom->n_pins++ : GP_OOM_PINS;

	for (; i && oom->pins[i - 1].free_bytes < pin->free_bytes; i--)
		if (i < GP_OOM_PINS)
			oom->pins[i] = oom->pins[i - 1];
	if (i < GP_OOM_PINS)
		oom->pins[i] = *pin;
}

static bool is_aligned(const struct survey *survey, uint64_t addr)
{
	uint64_t offset = addr - survey->pin.base;

	return offset < survey->oom->granule || (offset - GP_ALIGN) % survey->oom->granule == 0;
}

/* How much of a gap vmm could move: not what shares a piece of memory with the blocks around. */
static uint64_t movable_of(const struct survey *survey, uint64_t around_bytes)
{
	uint64_t bytes = survey->gap_end - survey->gap_begin, granule = survey->oom->granule;
	bool is_first = survey->gap_begin == survey->pin.base;
	bool is_last = survey->gap_end == survey->pin.base + survey->pin.bytes;
	uint64_t shared = gp_min(gp_round_up(around_bytes, granule), PIECE_MAX);

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
		survey->oom->movable_bytes += movable_of(survey, gp_max(survey->before_bytes, next_bytes));
	survey->gap_begin = survey->gap_end = 0;
}

static void end_segment(struct survey *survey)
{
	struct gp_oom *oom = survey->oom;

	end_gap(survey, 0);
	if (survey->pin.n_used && survey->pin.free_bytes) {
		oom->n_pinned_segments++;
		oom->pinned_free_bytes += survey->pin.free_bytes;
		insert(oom, &survey->pin);
	}
	*survey = (struct survey){.oom = oom};
}

static void note_used(struct survey *survey, const struct gp_block_info *info)
{
	struct gp_oom_pin *pin = &survey->pin;

	end_gap(survey, info->rounded);
	survey->before_bytes = info->rounded;
	if (pin->n_used < GP_OOM_PIN_BLOCKS)
		pin->blocks[pin->n_used] = (struct gp_oom_pin_block){.addr = info->addr, .bytes = info->rounded};
	pin->n_used++;
	pin->used_bytes += info->rounded;
	survey->oom->least_bytes += gp_min(info->rounded, gp_round_up(info->size, GP_ALIGN));
}

static void note_cached(struct survey *survey, const struct gp_block_info *info)
{
	if (survey->gap_end != info->addr) {
		end_gap(survey, survey->before_bytes);
		survey->gap_begin = info->addr;
	}
	survey->gap_end = info->addr + info->rounded;
	survey->pin.free_bytes += info->rounded;
	survey->pin.largest_free_bytes =
		gp_max(survey->pin.largest_free_bytes, survey->gap_end - survey->gap_begin);
	survey->oom->largest_free_bytes =
		gp_max(survey->oom->largest_free_bytes, survey->gap_end - survey->gap_begin);
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct survey *survey = arg;

	if (survey->pin.bytes && survey->pin.base != info->segment_base)
		end_segment(survey);
	survey->pin.base = info->segment_base;
	survey->pin.bytes = info->segment_size;
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

/* Memory that is to be exported has to be a whole driver allocation, whatever the pool type. */
static bool can_be_mapped(struct gp_context *context)
{
	return gp_backend_is(context, GP_CONFIG_BACKEND_DEVICE) && !atomic_load(&gp_state.needs_whole);
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
	gp_pinned_each(context, survey_pool, arg);
}

/* Not of the pool that has failed alone: what lies in another region, or context, is missing here as well. */
void gp_oom_survey(struct gp_oom *oom)
{
	struct gp_origin origin;

	oom->least_bytes = 0;
	gp_context_each(oom->what == GP_OOM_PINNED ? survey_pinned : survey_context, oom);
	for (unsigned i = 0; i < oom->n_pins; i++)
		for (unsigned k = 0; k < gp_min(oom->pins[i].n_used, GP_OOM_PIN_BLOCKS); k++)
			if (gp_origin_find(gp_debug_ptr(oom->pins[i].blocks[k].addr), &origin) && !origin.is_freed)
				oom->pins[i].blocks[k].site = origin.given;
}
