/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "scope.h"

#include "context.h"
#include "pool/pool_control.h"
#include "shim/record/record.h"
#include "thread.h"

_Atomic unsigned gp_scope_defers;
_Thread_local unsigned gp_scope_no_caches __attribute__((tls_model("initial-exec")));

static _Atomic unsigned n_by_program;    /* defer scopes of the program, which cannot end that of gpupool-stat */
static _Atomic bool is_deferred_by_stat; /* gpupool-stat has begun a defer scope */

static void flush_pool(void *arg, struct gp_pool *pool)
{
	const bool *may_wait = arg;

	gp_pool_flush(pool, *may_wait);
}

static void flush_context(void *arg, struct gp_context *context)
{
	gp_context_each_pool(context, flush_pool, arg);
	gp_context_each_pinned(context, flush_pool, arg);
}

static void defer_begin(void)
{
	unsigned n = atomic_fetch_add(&gp_scope_defers, 1) + 1;

	gp_record(NULL, DEFER, n);
}

static void defer_end(bool may_wait)
{
	unsigned n = atomic_fetch_sub(&gp_scope_defers, 1) - 1;

	gp_record(NULL, DEFER, n, may_wait);
	if (!n)
		gp_context_each(flush_context, &may_wait);
}

/* n_by_program is increased last and decreased first, so that it never exceeds gp_scope_defers. */
void gp_scope_defer_begin(void)
{
	defer_begin();
	atomic_fetch_add(&n_by_program, 1);
}

bool gp_scope_defer_end(bool may_wait)
{
	unsigned n = atomic_load(&n_by_program);

	do {
		if (!n)
			return false;
	} while (!atomic_compare_exchange_weak(&n_by_program, &n, n - 1));
	defer_end(may_wait);
	return true;
}

void gp_scope_defer_explicitly(bool is_on)
{
	if (atomic_exchange(&is_deferred_by_stat, is_on) == is_on)
		return;
	if (is_on)
		defer_begin();
	else
		defer_end(false);
}

/* A thread's caches would keep the memory that it frees, so a thread has no caches inside the scope. */
void gp_scope_no_cache_begin(void)
{
	if (!gp_scope_no_caches++)
		gp_thread_close_caches();
}

bool gp_scope_no_cache_end(void)
{
	if (!gp_scope_no_caches)
		return false;
	gp_scope_no_caches--;
	return true;
}
