/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The cause of an out-of-memory error is whatever would have let the request succeed. The first case that applies
 * counts:
 *
 *   1. The request is larger than the limit, that of the group, or the device: nothing could have helped.
 *   2. The program itself holds over 95 % of what the process may use: the memory is full, and no pool type could serve
 *      much more. If the device sets the bound, and other processes and CUDA hold more of it than the program, they are
 *      the cause.
 *   3. The driver and the limit have room, and the driver refused nevertheless.
 *   4. The cached memory would have been enough if it were contiguous: fragmentation.
 *   5. The memory that the program has freed would have been enough, but the GPU may still be using it.
 *   6. The bytes that the pool adds to sizes would have been enough: rounding.
 *   7. Otherwise the limit or that of the group is reached, or the device is full, as in case 2.
 *
 * The program's own share counts each block in multiples of GP_ALIGN, the least that every pool type takes for it.
 *
 * A pool type is recommended in one case only: fragmentation under the type split, if by the estimate of oom_survey.c
 * vmm could have put enough memory together, with a margin. The other types are never recommended: a program gets
 * further with them only because they leave small blocks to the driver, whose overhead for these no limit counts.
 */

#include "oom_cause.h"

/*
 * A program that holds more than FULL_PERCENT of the usable memory is itself the cause. The margin of the estimate is
 * the usable memory divided by MARGIN_SHARE: a smaller margin gives more wrong recommendations, a larger one misses
 * good ones.
 */
enum { FULL_PERCENT = 95, MARGIN_SHARE = 32 };

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t left_of_limit(const struct gp_oom *oom)
{
	if (oom->limit_bytes == GP_NO_LIMIT)
		return GP_NO_LIMIT;
	return oom->limit_bytes - gp_min(oom->charged_bytes, oom->limit_bytes);
}

static uint64_t left_of_group(const struct gp_oom *oom)
{
	const struct gp_group_view *view = &oom->group.view;

	if (!oom->group.is_on)
		return GP_NO_LIMIT;
	return oom->group.problem ? 0 : view->limit_bytes - gp_min(view->reserved_bytes, view->limit_bytes);
}

/* Returns the bytes that the process could still take from the driver. */
static uint64_t room_of(const struct gp_oom *oom)
{
	return gp_min(gp_min(left_of_limit(oom), left_of_group(oom)), oom->device_free_bytes);
}

/*
 * Returns the bytes that the request takes from the driver if no cached memory serves it. With vmm these are whole
 * granules, and one granule more because the block need not begin at a granule.
 */
static uint64_t needed_from_driver(const struct gp_oom *oom, uint64_t wanted)
{
	if (oom->kind != GP_KIND_VMM || !oom->granule)
		return wanted;
	return gp_round_up(wanted, oom->granule) + oom->granule;
}

static enum gp_oom_cause cause_of_shortage(const struct gp_oom *oom)
{
	uint64_t others = gp_oom_other_processes_bytes(oom);

	if (left_of_group(oom) < gp_min(left_of_limit(oom), oom->device_free_bytes))
		return GP_OOM_GROUP;
	if (left_of_limit(oom) < oom->device_free_bytes)
		return GP_OOM_LIMITED;
	if (oom->device_free_bytes != UINT64_MAX && others > oom->held_bytes && others >= oom->missing_bytes)
		return GP_OOM_OTHERS;
	return GP_OOM_FULL;
}

static enum gp_oom_cause cause_of(const struct gp_oom *oom, uint64_t wanted, uint64_t room)
{
	uint64_t rounding = oom->stats.used_bytes - gp_min(oom->least_bytes, oom->stats.used_bytes);

	if (wanted > oom->limit_bytes)
		return GP_OOM_BEYOND_LIMIT;
	if (oom->group.is_on && (oom->group.problem || wanted > oom->group.view.limit_bytes))
		return GP_OOM_GROUP;
	if (wanted > oom->device_total_bytes)
		return GP_OOM_BEYOND_DEVICE;
	if (gp_oom_is_full(oom) || room == UINT64_MAX)
		return cause_of_shortage(oom);
	if (room >= needed_from_driver(oom, wanted))
		return GP_OOM_REFUSED;
	if (!oom->missing_bytes)
		return GP_OOM_FRAGMENTED;
	if (oom->missing_bytes <= oom->stats.pending_bytes)
		return GP_OOM_PENDING;
	if (oom->missing_bytes <= sum(rounding, oom->stats.pending_bytes))
		return GP_OOM_ROUNDED;
	return cause_of_shortage(oom);
}

bool gp_oom_is_full(const struct gp_oom *oom)
{
	return oom->usable_bytes != UINT64_MAX && oom->held_bytes > oom->usable_bytes / 100 * FULL_PERCENT;
}

uint64_t gp_oom_other_processes_bytes(const struct gp_oom *oom)
{
	uint64_t taken = oom->device_total_bytes - gp_min(oom->device_free_bytes, oom->device_total_bytes);

	return taken - gp_min(oom->charged_bytes, taken);
}

void gp_oom_explain(struct gp_oom *oom)
{
	uint64_t room = room_of(oom);
	uint64_t wanted = gp_round_up(gp_min(oom->bytes, UINT64_MAX - GP_ALIGN), GP_ALIGN);
	uint64_t in_reach = sum(room, oom->stats.cached_bytes + oom->stats.returning_bytes);

	/* Memory in the host takes none of the memory that the process may use. */
	oom->held_bytes = sum(oom->least_bytes, oom->unpooled_bytes);
	oom->held_bytes -= gp_min(oom->stats.spilled_bytes, oom->held_bytes);
	oom->usable_bytes = gp_min(oom->limit_bytes, sum(oom->charged_bytes, oom->device_free_bytes));
	oom->usable_bytes = gp_min(oom->usable_bytes, sum(oom->charged_bytes, left_of_group(oom)));
	oom->missing_bytes = wanted - gp_min(wanted, in_reach);
	oom->cause = cause_of(oom, wanted, room);
	oom->is_vmm_better = oom->cause == GP_OOM_FRAGMENTED && oom->kind == GP_KIND_SPLIT && oom->granule &&
			     sum(room, oom->movable_bytes) >= sum(wanted, oom->usable_bytes / MARGIN_SHARE);
}
