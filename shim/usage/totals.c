/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "totals.h"

#include "shim/backend/backend_device.h"
#include "shim/backend/deep.h"

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct gp_totals *totals = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	gp_stats_add(&totals->stats, &stats);
}

static void add_broken(struct gp_totals *totals, const struct gp_context *context)
{
	if (!gp_context_is(context, GP_CONTEXT_BROKEN))
		return;
	totals->n_broken++;
	totals->broken_by = atomic_load(&context->lost_to);
}

static void add_context(void *arg, struct gp_context *context)
{
	struct gp_totals *totals = arg;

	if (totals->device < 0) {
		gp_context_each_pinned(context, add_pool, totals);
	} else if (context->device->index == totals->device) {
		gp_context_each_pool(context, add_pool, totals);
		totals->n_contexts++;
		add_broken(totals, context);
		if (totals->asks_driver && totals->available_bytes == UINT64_MAX &&
			!gp_context_is(context, GP_CONTEXT_BROKEN))
			totals->available_bytes = gp_device_available(context);
	}
}

void gp_totals_device(struct gp_totals *totals, int device, bool asks_driver)
{
	*totals = (struct gp_totals){
		.device = device, .asks_driver = asks_driver && !gp_deep_is(), .available_bytes = UINT64_MAX};
	gp_context_each(add_context, totals);
}

void gp_totals_pinned(struct gp_totals *totals)
{
	*totals = (struct gp_totals){.device = -1, .available_bytes = UINT64_MAX};
	gp_context_each(add_context, totals);
}
