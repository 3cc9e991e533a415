/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The table of contexts. It is short, since a process has few contexts. A lookup compares handles under a shared lock.
 *
 * A context has two counts, because pools and contexts refer to each other. While `users` is above 0, the pools may be
 * used; at 0 the pools are put. `refs` keeps the structure itself until the last pool has dropped its reference.
 */

#include "context.h"
#include "pool/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "green.h"
#include "pool/pool_control.h"
#include "serial.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/driver/driver_table.h"
#include "shim/record/record.h"

enum { CONTEXTS_MAX = 64 };

static struct gp_rwlock table_lock;
static struct gp_context *table[CONTEXTS_MAX];
static unsigned n_table;
static uint64_t n_ends;              /* number of ends that have begun so far */
_Atomic unsigned gp_contexts_ending; /* changes under table_lock */
_Atomic unsigned gp_contexts_adopting;

/* Both are set before there is a context. */
static const struct gp_context_backend *backend;
static struct gp_context_watcher *watchers;

static void reset_in_child(void)
{
	atomic_store(&table_lock.holders, 0);
	atomic_store(&gp_contexts_ending, 0);
	atomic_store(&gp_contexts_adopting, 0);
	gp_context_seen_reset();
}

void gp_contexts_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
}

void gp_context_set_backend(const struct gp_context_backend *own)
{
	backend = own;
}

void gp_context_watch(struct gp_context_watcher *watcher)
{
	watcher->next = watchers;
	watchers = watcher;
}

void gp_context_tell_end(CUcontext handle, struct gp_context *context)
{
	for (const struct gp_context_watcher *watcher = watchers; watcher; watcher = watcher->next)
		if (watcher->ended)
			watcher->ended(handle, context);
}

void gp_context_tell_after_end(struct gp_context *context)
{
	for (const struct gp_context_watcher *watcher = watchers; watcher; watcher = watcher->next)
		if (watcher->after_end)
			watcher->after_end(context);
}

int gp_context_sibling_new(struct gp_context *context, bool is_streamed, struct gp_pool **ret_pool)
{
	return backend->sibling_new(context, is_streamed, ret_pool);
}

bool gp_context_free_before_end(struct gp_context *context)
{
	return backend->free_before_end(context);
}

void gp_context_ref(struct gp_context *context)
{
	atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
}

__attribute__((cold)) static void destroy(struct gp_context *context)
{
	gp_mutex_deinit(&context->pinned_lock);
	gp_mutex_deinit(&context->undue_lock);
	gp_mutex_deinit(&context->regions.lock);
	gp_mutex_deinit(&context->regions.streamed_lock);
	for (const struct gp_context_watcher *watcher = watchers; watcher; watcher = watcher->next)
		if (watcher->freed)
			watcher->freed(context);
	free(context);
}

static void put_pool(void *unused, struct gp_pool *pool)
{
	gp_pool_put(pool);
}

void gp_context_unref(struct gp_context *context)
{
	if (atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) == 1)
		destroy(context);
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
	gp_context_each_pool(context, put_pool, NULL);
	for (int i = 0; i < GP_PINNED_KINDS; i++)
		gp_pool_put(context->pinned[i]);
	gp_context_unref(context);
}

bool gp_context_enter(struct gp_context *context)
{
	gp_rwlock_lock_shared(&context->life);
	if (gp_likely(!gp_context_is(context, GP_CONTEXT_DEAD)))
		return true;
	gp_rwlock_unlock_shared(&context->life);
	return false;
}

int gp_context_try_enter(struct gp_context *context)
{
	if (!gp_rwlock_try_shared(&context->life))
		return gp_context_is(context, GP_CONTEXT_DEAD) ? 0 : -1;
	if (!gp_context_is(context, GP_CONTEXT_DEAD))
		return 1;
	gp_rwlock_unlock_shared(&context->life);
	return 0;
}

void gp_context_leave(struct gp_context *context)
{
	gp_rwlock_unlock_shared(&context->life);
}

static bool is_alive(const struct gp_context *context)
{
	return !gp_context_is(context, GP_CONTEXT_DEAD);
}

/* Finds a context that is alive, or that may be ending. */
static struct gp_context *find_locked(CUcontext handle)
{
	for (unsigned i = 0; i < n_table; i++)
		if (table[i]->handle == handle && (is_alive(table[i]) || gp_context_is(table[i], GP_CONTEXT_ENDING)))
			return table[i];
	return NULL;
}

/* Gets the id of a live context, or 0 if the driver has no ids. Returns false if the context has ended. */
static bool identify(CUcontext handle, unsigned long long *id)
{
	CUresult r = gp_real.cuCtxGetId ? gp_real.cuCtxGetId(handle, id) : CUDA_ERROR_NOT_FOUND;

	if (r)
		*id = 0;
	return r != CUDA_ERROR_CONTEXT_IS_DESTROYED && r != CUDA_ERROR_INVALID_CONTEXT;
}

/* Creates the structure and the first pool of a context. The context, or a green context of it, must be current. */
static struct gp_context *make(CUcontext handle)
{
	struct gp_context *context;
	unsigned long long id = 0;
	CUdevice device;

	/* The driver returns the device even if the context has ended, so the id is checked, too. */
	if (gp_real.cuCtxGetDevice(&device) || !identify(handle, &id))
		return NULL;
	context = calloc(1, sizeof(*context));
	if (!context)
		return NULL;
	context->handle = handle;
	context->id = id;
	context->device = gp_device_get(device);
	context->is_primary = gp_context_primary(device) == handle;
	atomic_init(&context->export_result, GP_EXPORT_UNTRIED);
	atomic_init(&context->users, 1);
	atomic_init(&context->refs, 1);
	gp_mutex_init(&context->pinned_lock, GP_RANK_LEAF);
	gp_mutex_init(&context->undue_lock, GP_RANK_LEAF);
	gp_mutex_init(&context->regions.lock, GP_RANK_LEAF);
	gp_mutex_init(&context->regions.streamed_lock, GP_RANK_STREAMED);
	if (context->device && backend->pool_new(context, &context->pool) == 0) {
		bool is_serial;

		gp_serial_end_if_early();
		is_serial = gp_serial_is_on();
		gp_record(context->pool, IN_ORDER, is_serial);
		gp_pool_set_serial(context->pool, is_serial);
		gp_record(context->pool, OVERLAP, gp_green_is_on(device));
		gp_pool_set_overlap(context->pool, gp_green_is_on(device));
		atomic_store(&context->regions.overlap, gp_green_is_on(device));
		return context;
	}
	destroy(context);
	return NULL;
}

/*
 * Adds a context to the table. Does not add it if another thread added it first, or if an end has begun since `ends`
 * was read: then `context` may describe a context that has ended. Returns the context in the table, with a use, or
 * NULL.
 */
static struct gp_context *add_to_table(struct gp_context *context, uint64_t ends)
{
	struct gp_context *other;

	gp_rwlock_lock(&table_lock);
	other = find_locked(context->handle);
	if (!other && n_table < CONTEXTS_MAX && !gp_contexts_ending && n_ends == ends) {
		/*
		 * If serial mode ends after this, the thread that ends it finds the pool in the table. If serial mode
		 * ended before, the pool is set here.
		 */
		if (!gp_serial_is_on())
			gp_pool_set_serial(context->pool, false);
		other = table[n_table++] = context;
	}
	if (other)
		gp_context_use(other);
	gp_rwlock_unlock(&table_lock);
	if (other != context) {
		gp_record(context->pool, DROP, 0);
		gp_pool_drop(context->pool);
		gp_pool_unmap(context->pool);
		gp_context_put(context);
	} else {
		gp_context_catch_up(context, context->pool);
	}
	return other;
}

/*
 * Returns the context with that handle, with a use; NULL if it is not in the table. *is_ending: an end is under way, so
 * nothing may be added to the table. *ends is for add_to_table.
 */
static struct gp_context *look_up(CUcontext handle, bool *is_ending, uint64_t *ends)
{
	struct gp_context *context;

	gp_rwlock_lock_shared(&table_lock);
	context = find_locked(handle);
	if (gp_likely(context != NULL))
		gp_context_use(context);
	*is_ending = gp_contexts_ending != 0;
	*ends = n_ends;
	gp_rwlock_unlock_shared(&table_lock);
	return context;
}

/* Like look_up, but first waits while the context may be ending. After that the handle may be that of a new context. */
static struct gp_context *look_up_settled(CUcontext handle, bool *is_ending, uint64_t *ends)
{
	struct gp_context *context;

	while ((context = look_up(handle, is_ending, ends)) && gp_context_is(context, GP_CONTEXT_ENDING)) {
		if (gp_context_enter(context))
			gp_context_leave(context);
		gp_context_put(context);
	}
	return context;
}

/* Finds or creates the context of a handle that is not in the table, may be ending, or belongs to a green context. */
static struct gp_context *find_or_make(CUcontext handle)
{
	CUcontext primary = gp_green_find(handle);
	struct gp_context *context;
	bool is_ending;
	uint64_t ends;

	gp_context_seen(handle);
	handle = primary ? primary : handle;
	context = look_up_settled(handle, &is_ending, &ends);
	if (context)
		return context;
	context = is_ending ? NULL : make(handle);
	return context ? add_to_table(context, ends) : NULL;
}

struct gp_context *gp_context_current(void)
{
	struct gp_context *context;
	CUcontext handle = NULL;
	bool is_ending;
	uint64_t ends;

	if (gp_unlikely(gp_real.cuCtxGetCurrent(&handle) || !handle))
		return NULL;
	context = look_up(handle, &is_ending, &ends);
	if (gp_likely(context && !gp_context_is(context, GP_CONTEXT_ENDING)))
		return context;
	gp_context_put(context);
	return find_or_make(handle);
}

void gp_context_await_adoption(void)
{
	for (unsigned attempt = 0; atomic_load(&gp_contexts_adopting); attempt++)
		gp_yield(attempt);
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

struct found {
	const struct gp_device *device;
	struct gp_context *context;
};

static void use_if_on(void *arg, struct gp_context *context)
{
	struct found *found = arg;

	if (!found->context && context->device == found->device)
		found->context = gp_context_use(context);
}

struct gp_context *gp_context_use_on(const struct gp_device *device)
{
	struct found found = {.device = device, .context = gp_context_current()};

	if (found.context && found.context->device == device)
		return found.context;
	gp_context_put(found.context);
	found.context = NULL;
	gp_context_each(use_if_on, &found);
	return found.context;
}

/* The table's lock is held, so the context keeps its pools. */
static bool try_pools_of(struct gp_context *context, bool (*fn)(void *arg, struct gp_pool *pool, int device), void *arg)
{
	struct gp_pool *pinned[GP_PINNED_KINDS];

	if (!gp_mutex_try(&context->pinned_lock))
		return false;
	memcpy(pinned, context->pinned, sizeof(pinned));
	gp_mutex_unlock(&context->pinned_lock);
	for (int i = 0; i < GP_PINNED_KINDS; i++)
		if (pinned[i] && !fn(arg, pinned[i], -1))
			return false;
	for (int i = 0; i < GP_REGIONS_MAX; i++) {
		struct gp_pool *pool = atomic_load(&context->regions.pools[i]);

		if (pool && !fn(arg, pool, context->device->index))
			return false;
	}
	for (int i = 0; i <= GP_REGIONS_MAX; i++) {
		struct gp_pool *pool = atomic_load(&context->regions.streamed[i]);

		if (pool && !fn(arg, pool, context->device->index))
			return false;
	}
	return fn(arg, context->pool, context->device->index);
}

bool gp_context_try_each_pool(bool (*fn)(void *arg, struct gp_pool *pool, int device), void *arg)
{
	bool is_complete = gp_rwlock_try_shared(&table_lock);

	if (!is_complete)
		return false;
	for (unsigned i = 0; i < n_table && is_complete; i++)
		if (is_alive(table[i]))
			is_complete = try_pools_of(table[i], fn, arg);
	gp_rwlock_unlock_shared(&table_lock);
	return is_complete;
}

bool gp_context_is_current(const struct gp_context *context)
{
	CUcontext current = NULL;

	(void)gp_real.cuCtxGetCurrent(&current);
	return gp_likely(current == context->handle) || (current && gp_green_primary(current) == context->handle);
}

bool gp_context_is_current_gone_slow(void)
{
	struct gp_context *context;
	CUcontext current = NULL;
	size_t available, total;
	bool is_ending;
	uint64_t ends;

	if (gp_real.cuCtxGetCurrent(&current) || !current || gp_green_primary(current))
		return false;
	context = look_up(current, &is_ending, &ends);
	gp_context_put(context);
	return !context && gp_real.cuMemGetInfo_v2(&available, &total) == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void gp_context_each_pinned(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg)
{
	for (int i = 0; i < GP_PINNED_KINDS; i++) {
		struct gp_pool *pool = NULL;

		gp_mutex_lock(&context->pinned_lock);
		if (context->pinned[i])
			pool = gp_pool_get(context->pinned[i]);
		gp_mutex_unlock(&context->pinned_lock);
		if (pool)
			fn(arg, pool);
		gp_pool_put(pool);
	}
}

void gp_table_close(void)
{
	gp_rwlock_lock(&table_lock);
	gp_contexts_ending++;
	n_ends++;
	gp_rwlock_unlock(&table_lock);
}

void gp_table_open(void)
{
	gp_rwlock_lock(&table_lock);
	gp_contexts_ending--;
	gp_rwlock_unlock(&table_lock);
}

struct gp_context *gp_table_find(CUcontext handle, CUdevice device)
{
	struct gp_context *found = NULL;

	gp_rwlock_lock_shared(&table_lock);
	for (unsigned i = 0; i < n_table && !found; i++) {
		struct gp_context *context = table[i];
		bool fits =
			handle ? context->handle == handle : context->is_primary && context->device->index == device;

		if (fits && !gp_context_is(context, GP_CONTEXT_DEAD))
			found = gp_context_use(context);
	}
	gp_rwlock_unlock_shared(&table_lock);
	return found;
}

void gp_table_remove(struct gp_context *context)
{
	bool found = false;

	gp_rwlock_lock(&table_lock);
	for (unsigned i = 0; i < n_table && !found; i++) {
		found = table[i] == context;
		if (found)
			table[i] = table[--n_table];
	}
	gp_rwlock_unlock(&table_lock);
	if (found)
		gp_context_put(context);
}

/* Because of a capture, a pool could not wait for blocks that were reused without completion. */
static _Atomic bool is_wait_deferred;

static void require_completion_of(void *unused, struct gp_pool *pool)
{
	gp_record(pool, COMPLETION, 0);
	if (gp_pool_require_completion(pool) == -EBUSY)
		atomic_store(&is_wait_deferred, true);
}

static void require_completion(void *unused, struct gp_context *context)
{
	gp_context_each_pool(context, require_completion_of, NULL);
}

void gp_context_settle_completion(void)
{
	if (gp_unlikely(atomic_load_explicit(&is_wait_deferred, memory_order_relaxed)) &&
		atomic_exchange(&is_wait_deferred, false))
		gp_context_each(require_completion, NULL);
}

static _Atomic(const char *) why_shared;

const char *gp_context_why_shared(void)
{
	return atomic_load(&why_shared);
}

static void need_completion(const char *why)
{
	if (!gp_state_heeds_completion() || atomic_exchange(&gp_state.needs_completion, true))
		return;
	gp_log(GP_LOG_INFO, "from now on freed memory is reused only after the GPU has finished with it: %s", why);
	/* Other threads may use the pools while this thread waits for blocks that were reused before. */
	gp_serial_end(why);
	gp_context_each(require_completion, NULL);
}

void gp_context_need_completion(const char *why)
{
	const char *none = NULL;

	(void)atomic_compare_exchange_strong(&why_shared, &none, why);
	need_completion(why);
}

void gp_context_are_several(void)
{
	need_completion("the process works in more than one context");
}

static void set_whole_of(void *unused, struct gp_pool *pool)
{
	gp_record(pool, WHOLE, 0);
	gp_pool_set_whole(pool);
}

/* The driver exports no memory of the other backends, so whole blocks would not help there. */
static void set_whole(void *unused, struct gp_context *context)
{
	if (gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE))
		gp_context_each_pool(context, set_whole_of, NULL);
}

void gp_context_need_whole(const char *why)
{
	/*
	 * In the kind vmm a block cannot be a whole driver allocation. Only legacy IPC handles need whole ones. With
	 * GPUPOOL_POOL=auto some contexts may have the kind split.
	 */
	if (gp_state_kind() == GP_KIND_VMM && gp_state.config.pool != GP_CONFIG_POOL_AUTO)
		return;
	if (atomic_exchange(&gp_state.needs_whole, true))
		return;
	if (gp_state_kind() == GP_KIND_SPLIT && gp_state.config.backend == GP_CONFIG_BACKEND_DEVICE)
		gp_log(GP_LOG_INFO, "from now on every new block is a separate driver allocation: %s", why);
	gp_context_each(set_whole, NULL);
}

void gp_context_catch_up(struct gp_context *context, struct gp_pool *pool)
{
	const struct gp_device *device = context->device;

	gp_pool_set_pending_max(pool, gp_state_pending_max(device->total_bytes, &device->budget));
	if (!gp_serial_is_on()) {
		gp_record(pool, IN_ORDER, false);
		gp_pool_set_serial(pool, false);
	}
	if (atomic_load(&gp_state.needs_completion))
		require_completion_of(NULL, pool);
	if (atomic_load(&gp_state.needs_whole) && gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE))
		set_whole_of(NULL, pool);
}
