/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "oom.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "oom_cause.h"
#include "oom_file.h"
#include "oom_say.h"
#include "oom_survey.h"
#include "shim/base/clock.h"
#include "shim/context/context.h"
#include "shim/reclaim/reclaim.h"
#include "shim/trace/alloc_info.h"
#include "shim/usage/counter_page.h"
#include "shim/usage/own_summary.h"
#include "shim/usage/totals.h"

/*
 * A program that fails again and again must not be slowed down. So a large number of blocks is listed at most once in
 * LIST_AGAIN_NS, and the report is written to its file at most once in SAVE_AGAIN_NS, except for logged errors.
 */
#define LIST_AGAIN_NS UINT64_C(1000000000)
#define SAVE_AGAIN_NS UINT64_C(10000000)
enum { FEW_BLOCKS = 10000 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_oom last; /* guarded by lock */
static _Atomic uint64_t n_ooms;
static uint64_t listed_ns, saved_ns; /* only for the thread that is in report() */

static void find_holders(struct gp_oom *oom)
{
	struct gp_leaks leaks;

	if (!gp_leaks_take_of(&leaks, oom->device))
		return;
	oom->n_callers = (unsigned)gp_min(leaks.n_callers, GP_OOM_HOLDERS);
	memcpy(oom->callers, leaks.callers, oom->n_callers * sizeof(*oom->callers));
	oom->n_holders = (unsigned)gp_min(leaks.n_sites, GP_OOM_HOLDERS);
	memcpy(oom->holders, leaks.sites, oom->n_holders * sizeof(*oom->holders));
	if (atomic_load(&gp_alloc_info_mode))
		oom->without = leaks.without;
	gp_leaks_free(&leaks);
}

static void gather_device(struct gp_oom *oom)
{
	const struct gp_device *device = gp_device_if_used(oom->device);
	struct gp_totals totals;

	gp_totals_device(&totals, oom->device, true);
	oom->stats = totals.stats;
	oom->kind = device ? atomic_load(&device->kind) : gp_state_kind();
	if (oom->failure.is_mapped)
		oom->kind = GP_KIND_VMM;
	oom->device_free_bytes = totals.available_bytes;
	oom->limit_bytes = oom->device_total_bytes = UINT64_MAX;
	if (!device)
		return;
	oom->limit_bytes = atomic_load(&device->budget.limit_bytes);
	oom->charged_bytes = atomic_load(&device->budget.charged_bytes);
	oom->device_total_bytes = device->total_bytes;
	oom->unpooled_bytes = gp_device_unpooled_bytes(device);
	gp_group_report(device, &oom->group);
	gp_oom_find_granule(oom);
}

static void gather_pinned(struct gp_oom *oom)
{
	struct gp_totals totals;

	gp_totals_pinned(&totals);
	oom->kind = GP_KIND_BINNED;
	oom->stats = totals.stats;
	oom->limit_bytes = atomic_load(&gp_state.pinned_budget.limit_bytes);
	oom->charged_bytes = atomic_load(&gp_state.pinned_budget.charged_bytes);
	oom->device_free_bytes = UINT64_MAX;
	oom->device_total_bytes = gp_state_machine_bytes();
}

/* True for error 1, 2, 4, 8 and so on. */
static bool is_logged(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

static bool should_list(const struct gp_oom *oom)
{
	return is_logged(oom->n) || oom->time_ns - listed_ns > LIST_AGAIN_NS ||
	       oom->stats.n_used_blocks + oom->stats.n_cached_blocks < FEW_BLOCKS;
}

static bool should_save(const struct gp_oom *oom)
{
	if (!is_logged(oom->n) && oom->time_ns - saved_ns < SAVE_AGAIN_NS)
		return false;
	saved_ns = oom->time_ns;
	return true;
}

static void gather(struct gp_oom *oom)
{
	oom->time_ns = gp_clock_now_ns(NULL);
	oom->time = time(NULL);
	oom->site = gp_alloc_info_current_site();
	if (oom->failure.rounds[GP_ROUND_processes].count)
		oom->processes = *gp_reclaim_last_answers();
	if (oom->what == GP_OOM_PINNED)
		gather_pinned(oom);
	else
		gather_device(oom);
	oom->least_bytes = oom->stats.requested_bytes; /* the survey replaces it by an exact number */
	if (should_list(oom)) {
		listed_ns = oom->time_ns;
		gp_oom_survey(oom);
		find_holders(oom);
	}
	gp_oom_explain(oom);
}

/*
 * Several threads may run out of memory at once: each reports its own error, one after the other. Cancellation is
 * disabled, because a thread that is cancelled here would never release the lock.
 */
static void report(enum gp_oom_what what, int device, uint64_t bytes, const struct gp_failure *failure)
{
	static struct gp_mutex reporting = GP_MUTEX_INIT(GP_RANK_REPORT);
	static struct gp_oom oom; /* too large for the stack of a thread of the program */
	uint64_t n = atomic_fetch_add(&n_ooms, 1) + 1;
	int saved_errno = errno, cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_counter_page_note_oom(device, bytes);
	gp_mutex_lock(&reporting);
	oom = (struct gp_oom){.n = n, .what = what, .device = device, .bytes = bytes};
	if (failure->bytes)
		oom.failure = *failure;
	gather(&oom);
	gp_own_summary_note_oom(oom.is_vmm_better);
	gp_mutex_lock(&lock);
	last = oom;
	gp_mutex_unlock(&lock);
	if (should_save(&oom))
		gp_oom_save(&oom);
	/* An invalid limit, which makes allocations fail, has been logged at start-up. */
	if (is_logged(n) && !*gp_state.config.limit_error && !*gp_state.config.group_error)
		gp_oom_say(&oom);
	gp_mutex_unlock(&reporting);
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
}

void gp_oom_on_device(int device, uint64_t bytes, const struct gp_failure *failure)
{
	report(GP_OOM_DEVICE, device, bytes, failure);
}

void gp_oom_of_device(uint64_t bytes, const struct gp_failure *failure)
{
	struct gp_context *context = gp_context_current();

	if (context)
		gp_oom_on_device(context->device->index, bytes, failure);
	gp_context_put(context);
}

void gp_oom_of_pinned(uint64_t bytes, const struct gp_failure *failure)
{
	report(GP_OOM_PINNED, -1, bytes, failure);
}

void gp_oom_of_unpooled(int device, uint64_t bytes, const struct gp_failure *failure)
{
	report(GP_OOM_UNPOOLED, device, bytes, failure);
}

void gp_oom_last(struct gp_oom *ret)
{
	gp_mutex_lock(&lock);
	*ret = last;
	if (ret->n)
		ret->n = atomic_load(&n_ooms);
	gp_mutex_unlock(&lock);
}
