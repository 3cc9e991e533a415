/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "grace.h"

#include "context.h"
#include "shim/driver/driver_table.h"

void gp_grace_forget(struct gp_grace *grace)
{
	while (grace->n)
		gp_context_unref(grace->of[--grace->n].context);
}

struct begin {
	struct gp_grace *grace;
	bool is_refused;
};

static void begin_for(void *arg, struct gp_context *context)
{
	struct begin *begin = arg;
	struct gp_grace *grace = begin->grace;

	if (gp_context_is(context, GP_CONTEXT_BROKEN))
		return; /* its work has ended */
	if (grace->n == GP_GRACE_CONTEXTS_MAX || gp_pool_grace_begin(context->pool, &grace->of[grace->n].seq)) {
		begin->is_refused = true;
		return;
	}
	gp_context_ref(context);
	grace->of[grace->n++].context = context;
}

/* The program may have made a context current again that had ended. */
static bool has_ended(CUcontext handle)
{
	unsigned long long id;
	CUresult r = gp_real.cuCtxGetId ? gp_real.cuCtxGetId(handle, &id) : CUDA_SUCCESS;

	return r == CUDA_ERROR_CONTEXT_IS_DESTROYED || r == CUDA_ERROR_INVALID_CONTEXT;
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

		is_unknown = !context &&
			     (!gp_context_is_seen_primary(seen[i]) ||
				     gp_context_seen_as_primary(device->index) == seen[i]) &&
			     !has_ended(seen[i]);
		gp_context_put(context);
	}
	return is_unknown;
}

bool gp_grace_begin(struct gp_grace *grace, const struct gp_device *device)
{
	struct begin begin = {.grace = grace};

	gp_grace_forget(grace);
	if (is_any_unknown(device))
		return false;
	gp_context_each(begin_for, &begin);
	/* A context that has left the table meanwhile counts as ending until its work is over. */
	return !begin.is_refused && !atomic_load(&gp_contexts_ending);
}

struct ask {
	const struct gp_grace *grace;
	unsigned n_alive, n_over;
};

static void ask_context(void *arg, struct gp_context *context)
{
	struct ask *ask = arg;

	for (unsigned i = 0; i < ask->grace->n; i++) {
		if (ask->grace->of[i].context != context || gp_context_is(context, GP_CONTEXT_BROKEN))
			continue;
		ask->n_alive++;
		ask->n_over += gp_pool_grace_is_over(context->pool, ask->grace->of[i].seq);
	}
}

enum gp_grace_state gp_grace_ask(const struct gp_grace *grace)
{
	struct ask ask = {.grace = grace};

	gp_context_each(ask_context, &ask);
	/* A context leaves the table before the driver has waited for its work. */
	if (ask.n_over < ask.n_alive || (ask.n_alive < grace->n && atomic_load(&gp_contexts_ending)))
		return GP_GRACE_RUNS;
	return ask.n_alive < grace->n ? GP_GRACE_LOST : GP_GRACE_OVER;
}
