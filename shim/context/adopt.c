/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A thread that ends a context first counts its end, and then waits until no thread adopts. A thread that adopts first
 * counts itself, and then looks for ends. So no call is made in a context that has ended.
 */

#include "adopt.h"

#include "driver_call.h"

static bool adopt(CUcontext handle)
{
	struct gp_driver_scope scope;
	struct gp_context *context;

	if (atomic_load(&gp_contexts_ending) || !gp_context_is_seen(handle) || gp_driver_enter(&scope, handle))
		return false;
	context = gp_context_current();
	gp_driver_leave(&scope);
	gp_context_put(context);
	return context != NULL;
}

bool gp_context_adopt(CUcontext handle)
{
	struct gp_context *context = gp_table_find(handle, 0);
	bool is_known = context != NULL;

	gp_context_put(context);
	if (is_known)
		return true;
	atomic_fetch_add(&gp_contexts_adopting, 1);
	is_known = adopt(handle);
	atomic_fetch_sub(&gp_contexts_adopting, 1);
	return is_known;
}
