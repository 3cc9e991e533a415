/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "oom.h"

#include <errno.h>
#include <string.h>

#include "backend.h"
#include "debug.h"
#include "driver.h"
#include "origin.h"
#include "others.h"
#include "region.h"
#include "tally.h"

/* Whoever runs into one error after the other is not slowed down: many blocks are not listed for each. */
#define LIST_AGAIN_NS UINT64_C(1000000000)
enum { FEW_BLOCKS = 10000 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_oom last;	   /* under the lock */
static _Atomic uint64_t n_ooms;
static uint64_t listed_ns; /* of who is busy */

static uint64_t or_none(uint64_t limit, uint64_t charged)
{
	return limit == GP_NO_LIMIT ? GP_NO_LIMIT : limit - gp_min(charged, limit);
}

static void explain(struct gp_oom *oom)
{
	uint64_t left = or_none(oom->limit_bytes, oom->charged_bytes);
	uint64_t room = gp_min(left, oom->device_free_bytes);
	uint64_t wanted = gp_max(oom->bytes, oom->failure.bytes);
	uint64_t held = oom->stats.cached_bytes + oom->stats.pending_bytes + oom->stats.returning_bytes;
	uint64_t in_reach = room > UINT64_MAX - held ? UINT64_MAX : room + held;

	oom->missing_bytes = wanted - gp_min(wanted, in_reach);
	if (wanted > oom->limit_bytes)
		oom->cause = GP_OOM_BEYOND_LIMIT;
	else if (wanted > oom->device_total_bytes)
		oom->cause = GP_OOM_BEYOND_DEVICE;
	else if (!oom->missing_bytes && room != UINT64_MAX)
		oom->cause = GP_OOM_FRAGMENTED;
	else
		oom->cause = left < oom->device_free_bytes ? GP_OOM_LIMITED : GP_OOM_FULL;
}

/* The segments of a pool, one after the other. */
struct survey {
	struct gp_oom *oom;
	struct gp_oom_pin pin; /* the one under way; no bytes: none */
	uint64_t piece_end, piece; /* cached blocks side by side */
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

static void end_segment(struct survey *survey)
{
	struct gp_oom *oom = survey->oom;

	if (survey->pin.n_used && survey->pin.free_bytes) {
		oom->n_pinned_segments++;
		oom->pinned_free_bytes += survey->pin.free_bytes;
		insert(oom, &survey->pin);
	}
	survey->pin = (struct gp_oom_pin){0};
	survey->piece_end = survey->piece = 0;
}

static void note_used(struct gp_oom_pin *pin, const struct gp_block_info *info)
{
	if (pin->n_used < GP_OOM_PIN_BLOCKS)
		pin->blocks[pin->n_used] = (struct gp_oom_pin_block){.addr = info->addr, .bytes = info->rounded};
	pin->n_used++;
	pin->used_bytes += info->rounded;
}

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct survey *survey = arg;

	if (survey->pin.bytes && survey->pin.base != info->segment_base)
		end_segment(survey);
	survey->pin.base = info->segment_base;
	survey->pin.bytes = info->segment_size;
	if (info->is_used) {
		note_used(&survey->pin, info);
	} else if (info->is_cached) {
		survey->piece = (survey->piece_end == info->addr ? survey->piece : 0) + info->rounded;
		survey->piece_end = info->addr + info->rounded;
		survey->pin.free_bytes += info->rounded;
		survey->pin.largest_free_bytes = gp_max(survey->pin.largest_free_bytes, survey->piece);
		survey->oom->largest_free_bytes = gp_max(survey->oom->largest_free_bytes, survey->piece);
	}
	return true;
}

static void survey_pool(void *arg, struct gp_pool *pool)
{
	struct survey survey = {.oom = arg};

	gp_pool_each_block(pool, note_block, &survey);
	end_segment(&survey);
}

static void survey_context(void *arg, struct gp_context *context)
{
	const struct gp_oom *oom = arg;

	if (context->device->index == oom->device)
		gp_context_each_pool(context, survey_pool, arg);
}

/* Not of the pool that has failed alone: what lies in another region, or context, is missing here as well. */
static void find_pins(struct gp_oom *oom, struct gp_pool *pool)
{
	struct gp_origin origin;

	if (oom->what != GP_OOM_PINNED)
		gp_context_each(survey_context, oom);
	else if (pool)
		survey_pool(oom, pool);
	for (unsigned i = 0; i < oom->n_pins; i++)
		for (unsigned k = 0; k < gp_min(oom->pins[i].n_used, GP_OOM_PIN_BLOCKS); k++)
			if (gp_origin_find(gp_debug_ptr(oom->pins[i].blocks[k].addr), &origin) && !origin.is_freed)
				oom->pins[i].blocks[k].site = origin.given;
}

static void find_holders(struct gp_oom *oom)
{
	struct gp_leaks leaks;

	if (!gp_leaks_take(&leaks, 0))
		return;
	oom->n_callers = (unsigned)gp_min(leaks.n_callers, GP_OOM_HOLDERS);
	memcpy(oom->callers, leaks.callers, oom->n_callers * sizeof(*oom->callers));
	oom->n_holders = (unsigned)gp_min(leaks.n_sites, GP_OOM_HOLDERS);
	memcpy(oom->holders, leaks.sites, oom->n_holders * sizeof(*oom->holders));
	if (atomic_load(&gp_origin_mode))
		oom->without = leaks.without;
	gp_leaks_free(&leaks);
}

static void gather_device(struct gp_oom *oom)
{
	const struct gp_device *device = gp_state_device_if_used(oom->device);
	struct gp_tally tally;

	gp_tally_device(&tally, oom->device, true);
	oom->stats = tally.stats;
	oom->device_free_bytes = tally.available_bytes;
	oom->limit_bytes = oom->device_total_bytes = UINT64_MAX;
	if (!device)
		return;
	oom->limit_bytes = atomic_load(&device->budget.limit_bytes);
	oom->charged_bytes = atomic_load(&device->budget.charged_bytes);
	oom->device_total_bytes = device->total_bytes;
	oom->unpooled_bytes = atomic_load(&device->unpooled_bytes);
}

static void gather_pinned(struct gp_oom *oom)
{
	struct gp_tally tally;

	gp_tally_pinned(&tally);
	oom->stats = tally.stats;
	oom->limit_bytes = atomic_load(&gp_state.pinned_budget.limit_bytes);
	oom->charged_bytes = atomic_load(&gp_state.pinned_budget.charged_bytes);
	oom->device_free_bytes = UINT64_MAX;
	oom->device_total_bytes = gp_state_machine_bytes();
}

/* The first of all, and then twice as many. */
static bool is_told(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

static bool is_listed(const struct gp_oom *oom)
{
	return is_told(oom->n) || oom->time_ns - listed_ns > LIST_AGAIN_NS ||
	       oom->stats.n_used_blocks + oom->stats.n_free_blocks < FEW_BLOCKS;
}

static void gather(struct gp_oom *oom, struct gp_pool *pool)
{
	oom->time_ns = gp_driver_now_ns(NULL);
	oom->time = time(NULL);
	oom->site = gp_origin_of_caller();
	if (pool)
		gp_pool_last_failure(pool, &oom->failure);
	if (oom->failure.rounds[GP_ROUND_processes].count)
		oom->peers = *gp_others_answers();
	if (oom->what == GP_OOM_PINNED)
		gather_pinned(oom);
	else
		gather_device(oom);
	if (is_listed(oom)) {
		listed_ns = oom->time_ns;
		find_pins(oom, pool);
		find_holders(oom);
	}
	explain(oom);
}

static void report(enum gp_oom_what what, int device, struct gp_pool *pool, uint64_t bytes)
{
	static struct gp_oom oom; /* too large for the stacks of others */
	static _Atomic bool is_busy;
	uint64_t n = atomic_fetch_add(&n_ooms, 1) + 1;
	int saved_errno = errno;

	/* Who comes while another is at it has the same to tell. */
	if (atomic_exchange(&is_busy, true))
		return;
	oom = (struct gp_oom){.n = n, .what = what, .device = device, .bytes = bytes};
	gather(&oom, pool);
	gp_mutex_lock(&lock);
	last = oom;
	gp_mutex_unlock(&lock);
	/* Of a limit that nobody could read it has been said already. */
	if (is_told(n) && !*gp_state.config.limit_error)
		gp_oom_say(&oom);
	atomic_store(&is_busy, false);
	errno = saved_errno;
}

void gp_oom_of_device(uint64_t bytes)
{
	struct gp_context *context = gp_context_current();

	if (context)
		report(GP_OOM_DEVICE, context->device->index, gp_region_pool(context), bytes);
	gp_context_put(context);
}

void gp_oom_of_pinned(struct gp_pool *pool, uint64_t bytes)
{
	report(GP_OOM_PINNED, -1, pool, bytes);
}

void gp_oom_of_unpooled(int device, struct gp_pool *rescuer, uint64_t bytes)
{
	report(GP_OOM_UNPOOLED, device, rescuer, bytes);
}

void gp_oom_last(struct gp_oom *ret)
{
	gp_mutex_lock(&lock);
	*ret = last;
	if (ret->n)
		ret->n = atomic_load(&n_ooms);
	gp_mutex_unlock(&lock);
}
