/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "tally.h"

#include "backend.h"

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct gp_tally *tally = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	gp_stats_add(&tally->stats, &stats);
}

static void add_broken(struct gp_tally *tally, const struct gp_context *context)
{
	if (!gp_context_is(context, GP_CONTEXT_BROKEN))
		return;
	tally->n_broken++;
	tally->broken_by = atomic_load(&context->lost_to);
}

static void add_context(void *arg, struct gp_context *context)
{
	struct gp_tally *tally = arg;

	if (tally->device < 0) {
		gp_pinned_each(context, add_pool, tally);
	} else if (context->device->index == tally->device) {
		gp_context_each_pool(context, add_pool, tally);
		tally->n_contexts++;
		add_broken(tally, context);
		if (tally->asks_driver && tally->available_bytes == UINT64_MAX &&
			!gp_context_is(context, GP_CONTEXT_BROKEN))
			tally->available_bytes = gp_device_available(context);
	}
}

void gp_tally_device(struct gp_tally *tally, int device, bool asks_driver)
{
	*tally = (struct gp_tally){.device = device, .asks_driver = asks_driver, .available_bytes = UINT64_MAX};
	gp_context_each(add_context, tally);
}

void gp_tally_pinned(struct gp_tally *tally)
{
	*tally = (struct gp_tally){.device = -1, .available_bytes = UINT64_MAX};
	gp_context_each(add_context, tally);
}
