/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "kept_grace.h"

#include "context.h"

void gp_kept_grace_forget(struct gp_kept *kept)
{
	while (kept->n_periods)
		gp_context_unref(kept->periods[--kept->n_periods].context);
}

struct begin {
	struct gp_kept *kept;
	bool is_refused;
};

static void begin_period(void *arg, struct gp_context *context)
{
	struct begin *begin = arg;
	struct gp_kept *kept = begin->kept;
	struct gp_kept_period *period = &kept->periods[kept->n_periods];

	if (kept->n_periods == GP_KEPT_PERIODS_MAX || gp_context_is(context, GP_CONTEXT_BROKEN) ||
		gp_pool_grace_begin(context->pool, &period->seq)) {
		begin->is_refused = true;
		return;
	}
	gp_context_ref(context);
	period->context = context;
	kept->n_periods++;
}

/*
 * True if the process may work in a context on the device whose work gpupool cannot ask for. Work on other devices is
 * left out, as it is for blocks: the driver's own free does not wait for it either.
 */
static bool is_any_unknown(const struct gp_device *device)
{
	CUcontext seen[GP_CONTEXTS_SEEN_MAX];
	unsigned n = gp_context_seen_all(seen);
	bool is_unknown = !n;

	for (unsigned i = 0; i < n && !is_unknown; i++) {
		struct gp_context *context = gp_table_find(seen[i], 0);

		is_unknown = !context && (!gp_context_is_seen_primary(seen[i]) ||
						 gp_context_seen_as_primary(device->index) == seen[i]);
		gp_context_put(context);
	}
	return is_unknown;
}

bool gp_kept_grace_begin(struct gp_kept *kept)
{
	struct begin begin = {.kept = kept};

	gp_kept_grace_forget(kept);
	if (is_any_unknown(kept->device))
		return false;
	gp_context_each(begin_period, &begin);
	return !begin.is_refused;
}

struct ask {
	const struct gp_kept *kept;
	unsigned n_alive, n_over;
};

static void ask_period(void *arg, struct gp_context *context)
{
	struct ask *ask = arg;

	for (unsigned i = 0; i < ask->kept->n_periods; i++) {
		const struct gp_kept_period *period = &ask->kept->periods[i];

		if (period->context != context || gp_context_is(context, GP_CONTEXT_BROKEN))
			continue;
		ask->n_alive++;
		ask->n_over += gp_pool_grace_is_over(context->pool, period->seq);
	}
}

enum gp_kept_grace gp_kept_grace_of(const struct gp_kept *kept)
{
	struct ask ask = {.kept = kept};

	gp_context_each(ask_period, &ask);
	if (ask.n_alive < kept->n_periods)
		return GP_KEPT_GRACE_LOST;
	return ask.n_over == kept->n_periods ? GP_KEPT_GRACE_OVER : GP_KEPT_GRACE_RUNS;
}
