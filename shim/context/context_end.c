/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The end of contexts. If the end is certain, the pools are dropped before the driver is called. If the driver may
 * refuse, or the context has other holders, the driver is called first. Until it has answered, no call is served in the
 * context and no fence of it is used: before this thread reads the answer, another thread may have created a context
 * again, under the same handle.
 */

#include "context_end.h"

#include "capture.h"
#include "green.h"
#include "pool/pool.h"
#include "shim/driver/driver_table.h"
#include "shim/record/record.h"
#include "survivor.h"
#include "thread.h"

static void drop_pinned(void *unused, struct gp_pool *pool)
{
	gp_record(pool, DROP, 0);
	gp_pool_drop(pool);
}

static void drop_pool(struct gp_pool *pool)
{
	gp_record(pool, DROP, 0);
	gp_survivors_drop(pool);
}

/* The context's first pool owns the shared fences, so it is dropped last. */
static void drop_region_pool(void *arg, struct gp_pool *pool)
{
	const struct gp_context *context = arg;

	if (pool != context->pool)
		drop_pool(pool);
}

static void unmap_pool(void *unused, struct gp_pool *pool)
{
	gp_pool_unmap(pool);
}

/* To be called with the context's lock held exclusively. */
static void drop_locked(struct gp_context *context)
{
	atomic_fetch_or(&context->states, GP_CONTEXT_DEAD);
	/*
	 * Fence calls check the state under the lock of the fences only, so wait until those under way have ended.
	 * Other calls check the state under the context's lock, which is held here.
	 */
	gp_pool_quiesce(context->pool); /* all pools of the context share its fence */
	gp_capture_forget_context(context->handle);
	gp_survivors_note_highs(context);
	gp_context_each_pool(context, drop_region_pool, context);
	drop_pool(context->pool);
	gp_context_each_pinned(context, drop_pinned, NULL);
	gp_context_tell_end(context->handle, context);
}

/*
 * Stream-ordered memory does not end with its context, and after the end there may be no context in which it could be
 * freed. So it is freed before, but only if the driver is certain to end the context.
 */
static bool free_async_before_locked(const struct gp_context_end *end, struct gp_context *context)
{
	bool is_sure = end->when == GP_END_SURELY;

	if (end->when == GP_END_ON_SUCCESS)
		is_sure =
			context->is_primary ? !gp_green_is_on(context->device->index) : gp_context_is_current(context);
	return is_sure && gp_context_free_before_end(context);
}

/* Removes a dead context from the table. */
static void remove_dead(struct gp_context *context)
{
	gp_table_remove(context);
	gp_context_forget(context->handle);
}

bool gp_context_is_primary_active(CUdevice device)
{
	unsigned flags;
	int active = 0;

	return !gp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) && active;
}

/* True if the device's primary context is inactive, or is a new context by now: ids are never reused. */
static bool is_replaced(const struct gp_context *context)
{
	unsigned long long id = 0;

	if (!gp_context_is_primary_active(context->device->index))
		return true;
	return context->id && (gp_real.cuCtxGetId(context->handle, &id) || id != context->id);
}

static bool has_ended(const struct gp_context_end *end, const struct gp_context *context, CUresult r)
{
	if (end->when == GP_END_ON_SUCCESS && r == CUDA_SUCCESS)
		return true;
	return context->is_primary && is_replaced(context);
}

/* Returns the handle of the context that the call may end; NULL if gpupool has not seen it. */
static CUcontext handle_of(const struct gp_context_end *end)
{
	return end->handle ? end->handle : gp_context_seen_as_primary(end->device);
}

/* Ends a context that has no pool. At most its handle is known. */
static CUresult end_unknown(const struct gp_context_end *end)
{
	CUcontext handle = handle_of(end);
	CUresult r = end->driver(end);
	bool is_end = end->when == GP_END_ON_SUCCESS ? !r : !end->handle && !gp_context_is_primary_active(end->device);

	if (handle && is_end) {
		gp_capture_forget_context(handle);
		gp_context_tell_end(handle, NULL);
		gp_context_forget(handle);
	}
	return r;
}

static void reclaim_pool(void *unused, struct gp_pool *pool)
{
	gp_record(pool, RECLAIM, 0);
	(void)gp_pool_reclaim(pool);
}

static CUresult end_perhaps(const struct gp_context_end *end)
{
	struct gp_context *context = gp_table_find(end->handle, end->device);
	bool is_empty;
	CUresult r;

	if (!context)
		return end_unknown(end);
	/*
	 * It is unknown whether the context ends here. If it does, used memory outlives it, but unused memory need not.
	 */
	if (end->when == GP_END_PERHAPS && gp_context_backend_is(context, GP_CONFIG_BACKEND_ASYNC))
		gp_context_each_pool(context, reclaim_pool, NULL);
	gp_rwlock_lock(&context->life);
	atomic_fetch_or(&context->states, GP_CONTEXT_ENDING);
	gp_pool_quiesce(context->pool);
	is_empty = free_async_before_locked(end, context);
	r = end->driver(end);
	if (has_ended(end, context, r) || is_empty)
		drop_locked(context);
	atomic_fetch_and(&context->states, ~(unsigned)GP_CONTEXT_ENDING);
	gp_rwlock_unlock(&context->life);
	if (gp_context_is(context, GP_CONTEXT_DEAD)) {
		remove_dead(context);
		gp_context_each_pool(context, unmap_pool, NULL);
		gp_context_tell_after_end(context);
	}
	gp_context_put(context);
	return r;
}

/* Drops the pools first. Mapped memory stays mapped until the driver has ended the context: work may access it. */
static CUresult end_surely(const struct gp_context_end *end)
{
	struct gp_context *context, *ended = NULL;
	CUresult r;

	while ((context = gp_table_find(end->handle, end->device))) {
		gp_rwlock_lock(&context->life);
		(void)free_async_before_locked(end, context);
		drop_locked(context);
		gp_rwlock_unlock(&context->life);
		remove_dead(context);
		context->next_ended = ended;
		ended = context;
	}
	gp_capture_forget_context(end->handle);
	gp_context_tell_end(end->handle, NULL);
	r = end->driver(end);
	gp_context_forget(end->handle);
	while ((context = ended)) {
		ended = context->next_ended;
		gp_context_each_pool(context, unmap_pool, NULL);
		gp_context_tell_after_end(context);
		gp_context_put(context);
	}
	return r;
}

/*
 * Returns false if the context is dead. Waits for an end under way: the ending thread holds the context's lock until
 * the context is known to live, or its memory has left the address maps.
 */
static bool survives(struct gp_context *context)
{
	if (!gp_context_enter(context))
		return false;
	gp_context_leave(context);
	return true;
}

void gp_context_settle_slow(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);

	if (pool)
		(void)survives(gp_pool_owner(pool));
	gp_pool_put(pool);
}

void gp_context_make_room(struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	bool is_taken = atomic_load(&gp_contexts_ending);

	while (is_taken) {
		struct gp_pool *pool = gp_addrmap_pool_in(map, addr, bytes);

		is_taken = pool && !survives(gp_pool_owner(pool));
		gp_pool_put(pool);
	}
}

static void note_streamed(void *arg, struct gp_pool *pool)
{
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	*(bool *)arg |= stats.stream_bytes != 0;
}

bool gp_context_end_may_leave_survivors(const struct gp_context_end *end, CUdevice *ret_device)
{
	struct gp_context *context = gp_table_find(end->handle, end->device);
	bool may = false;

	if (context) {
		*ret_device = context->device->index;
		gp_context_each_streamed(context, note_streamed, &may);
	}
	gp_context_put(context);
	return may;
}

CUresult gp_context_end(const struct gp_context_end *end)
{
	CUresult r;

	gp_thread_forget_current();
	gp_table_close();
	gp_context_await_adoption();
	gp_stream_forget(); /* streams end with their context */
	r = end->when == GP_END_SURELY ? end_surely(end) : end_perhaps(end);
	gp_stream_forget();
	gp_table_open();
	gp_thread_forget_current(); /* a callback of the program may have stored the current context meanwhile */
	return r;
}
