/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "oom.h"

#include <errno.h>
#include <string.h>

#include "context.h"
#include "driver.h"
#include "oom_file.h"
#include "origin.h"
#include "others.h"
#include "region.h"
#include "tally.h"

/* Whoever runs into one error after the other is not slowed down: many blocks are not listed for each. */
#define LIST_AGAIN_NS UINT64_C(1000000000)
#define SAVE_AGAIN_NS UINT64_C(10000000)
enum { FEW_BLOCKS = 10000 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_oom last;	   /* under the lock */
static _Atomic uint64_t n_ooms;
static uint64_t listed_ns, saved_ns; /* of who is busy */

static void find_holders(struct gp_oom *oom)
{
	struct gp_leaks leaks;

	if (!gp_leaks_take_of(&leaks, oom->device))
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
	oom->kind = gp_state_kind();
	oom->device_free_bytes = tally.available_bytes;
	oom->limit_bytes = oom->device_total_bytes = UINT64_MAX;
	if (!device)
		return;
	oom->limit_bytes = atomic_load(&device->budget.limit_bytes);
	oom->charged_bytes = atomic_load(&device->budget.charged_bytes);
	oom->device_total_bytes = device->total_bytes;
	oom->unpooled_bytes = atomic_load(&device->unpooled_bytes);
	gp_oom_find_granule(oom);
}

static void gather_pinned(struct gp_oom *oom)
{
	struct gp_tally tally;

	gp_tally_pinned(&tally);
	oom->kind = GP_KIND_BINNED;
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

/* A program that runs out of memory over and over does not pay for a file each time. */
static bool is_saved(const struct gp_oom *oom)
{
	if (!is_told(oom->n) && oom->time_ns - saved_ns < SAVE_AGAIN_NS)
		return false;
	saved_ns = oom->time_ns;
	return true;
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
	oom->least_bytes = oom->stats.requested_bytes; /* unless each block is looked at */
	if (is_listed(oom)) {
		listed_ns = oom->time_ns;
		gp_oom_survey(oom);
		find_holders(oom);
	}
	gp_oom_explain(oom);
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
	if (is_saved(&oom))
		gp_oom_save(&oom);
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
