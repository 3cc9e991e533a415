/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The table of contexts. Short: processes have one or a few; a lookup compares handles under a shared lock.
 *
 * Two counts, because pools and contexts point at each other: users may use the pools, and when the last is gone the
 * pools are put; refs keep the structure itself until the last pool has let go of it.
 */

#include "context.h"

#include <errno.h>
#include <stdlib.h>

#include "backend.h"
#include "capture.h"
#include "driver.h"
#include "ipc.h"
#include "log.h"
#include "real.h"
#include "unpooled.h"

enum { CONTEXTS_MAX = 64 };

static struct gp_rwlock table_lock;
static struct gp_context *table[CONTEXTS_MAX];
static unsigned n_table;
static unsigned n_ending; /* ends under way: nobody enters the table meanwhile */
static uint64_t n_ends;	  /* that began */

static struct gp_rwlock seen_lock;
static CUcontext seen[CONTEXTS_MAX], green[CONTEXTS_MAX];
static _Atomic(CUcontext) primaries[GP_DEVICES_MAX]; /* as the program was given them; they outlive a reset */
static unsigned n_seen, n_green;
static _Atomic(CUcontext) last_seen;

void gp_context_ref(struct gp_context *context)
{
	atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
}

void gp_context_unref(struct gp_context *context)
{
	if (atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) != 1)
		return;
	gp_mutex_deinit(&context->pinned_lock);
	free(context);
}

struct gp_context *gp_context_use(struct gp_context *context)
{
	atomic_fetch_add_explicit(&context->users, 1, memory_order_relaxed);
	return context;
}

void gp_context_put(struct gp_context *context)
{
	if (!context || atomic_fetch_sub_explicit(&context->users, 1, memory_order_acq_rel) != 1)
		return;
	gp_pool_put(context->pool);
	for (int i = 0; i < GP_PINNED_KINDS; i++)
		if (context->pinned[i])
			gp_pool_put(gp_pinned_pool(context->pinned[i]));
	gp_context_unref(context);
}

bool gp_context_enter(struct gp_context *context)
{
	gp_rwlock_lock_shared(&context->life);
	if (gp_likely(!atomic_load_explicit(&context->is_dead, memory_order_relaxed)))
		return true;
	gp_rwlock_unlock_shared(&context->life);
	return false;
}

int gp_context_try_enter(struct gp_context *context)
{
	if (!gp_rwlock_try_shared(&context->life))
		return atomic_load(&context->is_dead) ? 0 : -1;
	if (!atomic_load_explicit(&context->is_dead, memory_order_relaxed))
		return 1;
	gp_rwlock_unlock_shared(&context->life);
	return 0;
}

void gp_context_leave(struct gp_context *context)
{
	gp_rwlock_unlock_shared(&context->life);
}

static struct gp_context *find_locked(CUcontext handle)
{
	for (unsigned i = 0; i < n_table; i++)
		if (table[i]->handle == handle && !atomic_load_explicit(&table[i]->is_dead, memory_order_relaxed))
			return table[i];
	return NULL;
}

static bool is_in(const CUcontext *list, unsigned n, CUcontext handle)
{
	for (unsigned i = 0; i < n; i++)
		if (list[i] == handle)
			return true;
	return false;
}

static bool is_green(CUcontext handle)
{
	bool found;

	gp_rwlock_lock_shared(&seen_lock);
	found = is_in(green, n_green, handle);
	gp_rwlock_unlock_shared(&seen_lock);
	return found;
}

/*
 * The primary context is the one that a retain gives. A retain of ours is the last resort, for who got it past us: only
 * while the context is active, since it would make it, and an end meanwhile would be upset by our release.
 */
static bool is_primary(CUcontext handle, CUdevice device)
{
	CUcontext primary = device < GP_DEVICES_MAX ? atomic_load(&primaries[device]) : NULL;
	unsigned flags;
	int active = 0;

	if (gp_likely(primary != NULL))
		return primary == handle;
	if (gp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) || !active)
		return false;
	if (gp_real.cuDevicePrimaryCtxRetain(&primary, device))
		return false;
	(void)gp_real.cuDevicePrimaryCtxRelease(device);
	return primary == handle;
}

static struct gp_context *make(CUcontext handle)
{
	struct gp_context *context;
	CUdevice device;

	if (is_green(handle) || gp_real.cuCtxGetDevice(&device))
		return NULL;
	context = calloc(1, sizeof(*context));
	if (!context)
		return NULL;
	context->handle = handle;
	context->device = gp_state_device(device);
	context->is_primary = is_primary(handle, device);
	if (gp_real.cuCtxGetId)
		(void)gp_real.cuCtxGetId(handle, &context->id);
	atomic_init(&context->users, 1);
	atomic_init(&context->refs, 1);
	gp_mutex_init(&context->pinned_lock, GP_RANK_LEAF);
	if (context->device && gp_device_pool_new(context, &context->pool) == 0)
		return context;
	gp_mutex_deinit(&context->pinned_lock);
	free(context);
	return NULL;
}

static void catch_up(struct gp_context *context);

/*
 * Puts a context into the table, unless another thread was first, or an end has begun since: what was learnt about the
 * handle may be about a context that is gone. Returns the one to use, with a use, or NULL.
 */
static struct gp_context *enlist(struct gp_context *context, uint64_t ends)
{
	struct gp_context *other;

	gp_rwlock_lock(&table_lock);
	other = find_locked(context->handle);
	if (!other && n_table < CONTEXTS_MAX && !n_ending && n_ends == ends)
		other = table[n_table++] = context;
	if (other)
		gp_context_use(other);
	gp_rwlock_unlock(&table_lock);
	if (other != context) {
		gp_pool_drop(context->pool);
		gp_context_put(context);
	} else {
		catch_up(context);
	}
	return other;
}

struct gp_context *gp_context_current(void)
{
	struct gp_context *context;
	CUcontext handle = NULL;
	bool is_ending;
	uint64_t ends;

	if (gp_unlikely(gp_real.cuCtxGetCurrent(&handle) || !handle))
		return NULL;
	gp_rwlock_lock_shared(&table_lock);
	context = find_locked(handle);
	if (gp_likely(context != NULL))
		gp_context_use(context);
	is_ending = n_ending != 0;
	ends = n_ends;
	gp_rwlock_unlock_shared(&table_lock);
	if (gp_likely(context != NULL))
		return context;
	gp_context_seen(handle);
	context = is_ending ? NULL : make(handle);
	return context ? enlist(context, ends) : NULL;
}

void gp_context_each(void (*fn)(void *arg, struct gp_context *context), void *arg)
{
	struct gp_context *all[CONTEXTS_MAX];
	unsigned n;

	gp_rwlock_lock_shared(&table_lock);
	n = n_table;
	for (unsigned i = 0; i < n; i++)
		all[i] = gp_context_use(table[i]);
	gp_rwlock_unlock_shared(&table_lock);
	for (unsigned i = 0; i < n; i++) {
		fn(arg, all[i]);
		gp_context_put(all[i]);
	}
}

static void forget_seen(CUcontext handle)
{
	gp_rwlock_lock(&seen_lock);
	for (unsigned i = n_seen; i-- > 0;)
		if (seen[i] == handle)
			seen[i] = seen[--n_seen];
	for (unsigned i = n_green; i-- > 0;)
		if (green[i] == handle)
			green[i] = green[--n_green];
	atomic_store(&last_seen, NULL);
	gp_rwlock_unlock(&seen_lock);
}

/* With the context's lock held alone. */
static void drop_locked(struct gp_context *context)
{
	atomic_store(&context->is_dead, true);
	/* Fence calls look at that under their lock alone; the others under the context's, which is held here. */
	gp_pool_quiesce(context->pool);
	gp_capture_forget_context(context->handle);
	gp_unpooled_forget_context(context);
	gp_ipc_forget_context(context->handle);
	gp_pool_drop(context->pool);
	for (int i = 0; i < GP_PINNED_KINDS; i++)
		if (context->pinned[i])
			gp_pool_drop(gp_pinned_pool(context->pinned[i]));
}

static bool is_ended(const struct gp_context_end *end, const struct gp_context *context)
{
	if (atomic_load(&context->is_dead))
		return false;
	if (end->handle)
		return context->handle == end->handle;
	return context->is_primary && context->device->index == end->device;
}

/* A context that is to end, with a use; NULL if gpupool has none. */
static struct gp_context *find_ending(const struct gp_context_end *end)
{
	struct gp_context *found = NULL;

	gp_rwlock_lock_shared(&table_lock);
	for (unsigned i = 0; i < n_table && !found; i++)
		if (is_ended(end, table[i]))
			found = gp_context_use(table[i]);
	gp_rwlock_unlock_shared(&table_lock);
	return found;
}

/* A dead context leaves the table, which puts its use. */
static void delist(struct gp_context *context)
{
	bool found = false;

	gp_rwlock_lock(&table_lock);
	for (unsigned i = 0; i < n_table && !found; i++) {
		found = table[i] == context;
		if (found)
			table[i] = table[--n_table];
	}
	gp_rwlock_unlock(&table_lock);
	forget_seen(context->handle);
	if (found)
		gp_context_put(context);
}

static bool is_still_active(CUdevice device)
{
	unsigned flags;
	int active = 0;

	return !gp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) && active;
}

static void drop_all(const struct gp_context_end *end)
{
	struct gp_context *context;

	while ((context = find_ending(end))) {
		gp_rwlock_lock(&context->life);
		drop_locked(context);
		gp_rwlock_unlock(&context->life);
		delist(context);
		gp_context_put(context);
	}
}

/* Captures in a context of which gpupool knows no more than its handle. */
static void forget_captures(const struct gp_context_end *end)
{
	CUcontext handle = end->handle;

	if (!handle && end->device >= 0 && end->device < GP_DEVICES_MAX)
		handle = atomic_load(&primaries[end->device]);
	if (handle)
		gp_capture_forget_context(handle);
}

static CUresult end_unknown(const struct gp_context_end *end)
{
	CUresult r = end->driver(end);

	if (!is_still_active(end->device))
		forget_captures(end);
	return r;
}

static CUresult end_perhaps(const struct gp_context_end *end)
{
	struct gp_context *context = find_ending(end);
	CUresult r;

	if (!context)
		return end_unknown(end);
	gp_rwlock_lock(&context->life);
	r = end->driver(end);
	if (!is_still_active(end->device))
		drop_locked(context);
	gp_rwlock_unlock(&context->life);
	if (atomic_load(&context->is_dead))
		delist(context);
	gp_context_put(context);
	return r;
}

static CUresult end_surely(const struct gp_context_end *end)
{
	CUresult r;

	drop_all(end);
	forget_captures(end);
	r = end->driver(end);
	if (end->handle)
		forget_seen(end->handle);
	return r;
}

CUresult gp_context_end(const struct gp_context_end *end)
{
	CUresult r;

	gp_rwlock_lock(&table_lock);
	n_ending++;
	n_ends++;
	gp_rwlock_unlock(&table_lock);
	r = end->is_certain ? end_surely(end) : end_perhaps(end);
	gp_rwlock_lock(&table_lock);
	n_ending--;
	gp_rwlock_unlock(&table_lock);
	return r;
}

static _Atomic bool is_wait_owed; /* a capture forbade the wait for what was handed out on order alone */

static void require_completion(void *unused, struct gp_context *context)
{
	if (gp_pool_require_completion(context->pool) == -EBUSY)
		atomic_store(&is_wait_owed, true);
}

void gp_state_settle_completion(void)
{
	if (gp_unlikely(atomic_load_explicit(&is_wait_owed, memory_order_relaxed)) &&
		atomic_exchange(&is_wait_owed, false))
		gp_context_each(require_completion, NULL);
}

void gp_state_need_completion(const char *why)
{
	if (gp_state.config.reuse == GP_CONFIG_REUSE_ORDERED || atomic_exchange(&gp_state.needs_completion, true))
		return;
	gp_log(GP_LOG_INFO, "freed memory is reused on completion only from now on: %s", why);
	gp_context_each(require_completion, NULL);
}

static void set_whole(void *unused, struct gp_context *context)
{
	gp_pool_set_whole(context->pool);
}

void gp_state_need_whole(const char *why)
{
	if (atomic_exchange(&gp_state.needs_whole, true))
		return;
	if (gp_state_kind() == GP_KIND_SPLIT)
		gp_log(GP_LOG_INFO, "every new block is a driver allocation of its own from now on: %s", why);
	gp_context_each(set_whole, NULL);
}

/* What was asked of all contexts while this one was not in the table yet. */
static void catch_up(struct gp_context *context)
{
	if (atomic_load(&gp_state.needs_completion))
		require_completion(NULL, context);
	if (atomic_load(&gp_state.needs_whole))
		set_whole(NULL, context);
}

/* Returns how many there are now. */
static unsigned note(CUcontext handle, CUcontext *list, unsigned *n)
{
	unsigned n_now;

	gp_rwlock_lock(&seen_lock);
	if (!is_in(list, *n, handle) && *n < CONTEXTS_MAX)
		list[(*n)++] = handle;
	n_now = *n;
	gp_rwlock_unlock(&seen_lock);
	return n_now;
}

void gp_context_seen(CUcontext handle)
{
	unsigned n;

	if (!handle || atomic_load_explicit(&last_seen, memory_order_relaxed) == handle)
		return;
	n = note(handle, seen, &n_seen);
	atomic_store_explicit(&last_seen, handle, memory_order_relaxed);
	if (n > 1)
		gp_state_need_completion("the process works in more than one context");
}

void gp_context_seen_primary(CUcontext handle, CUdevice device)
{
	if (device >= 0 && device < GP_DEVICES_MAX)
		atomic_store(&primaries[device], handle);
	gp_context_seen(handle);
}

void gp_context_seen_green(CUcontext handle)
{
	note(handle, green, &n_green);
	gp_context_seen(handle);
}
