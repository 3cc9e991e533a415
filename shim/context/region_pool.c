/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The pools of a context: the main pool, one for each region in which a thread has allocated, and those of streams. */

#include "region_pool.h"

#include <pthread.h>

#include "pool/pool.h"
#include "pool/vmm/cold.h"
#include "region.h"
#include "shim/base/log.h"
#include "shim/record/record.h"

typedef _Atomic(struct gp_pool *) place;

static struct gp_pool *pool_at(const place *at)
{
	return atomic_load_explicit(at, memory_order_acquire);
}

/* Return the place of a region's pool, and of the one for allocations in stream order. */
static place *place_of(struct gp_context *context, int id)
{
	return &context->regions.pools[id - 1];
}

static place *streamed_place_of(struct gp_context *context, int id)
{
	return &context->regions.streamed[id];
}

/*
 * Publishes a new pool, unless another thread has published one or the context is dead. Returns the published pool, or
 * NULL. A thread that ends a context marks it dead before it visits the pools, so it finds every published pool.
 */
static struct gp_pool *publish(struct gp_context *context, place *at, struct gp_pool *pool)
{
	struct gp_pool *published;

	gp_mutex_lock(&context->regions.lock);
	published = pool_at(at);
	if (!published && !gp_context_is(context, GP_CONTEXT_DEAD)) {
		published = pool;
		atomic_store_explicit(at, pool, memory_order_release);
	}
	gp_mutex_unlock(&context->regions.lock);
	return published;
}

static void discard(struct gp_pool *pool)
{
	gp_record(pool, DROP, 0);
	gp_pool_drop(pool);
	gp_pool_unmap(pool);
	gp_pool_put(pool);
}

static void set_overlap(void *unused, struct gp_pool *pool)
{
	gp_record(pool, OVERLAP, true);
	gp_pool_set_overlap(pool, true);
}

/* Publishes a new pool, or discards it. Returns the published pool, or NULL. */
static struct gp_pool *settle(struct gp_context *context, int id, place *at, struct gp_pool *pool)
{
	struct gp_pool *published;

	gp_cold_set_all(pool, id && gp_config_regions_is_cold(&gp_state.config.regions, gp_region_name(id)));
	published = publish(context, at, pool);
	if (published != pool) {
		discard(pool);
	} else {
		gp_context_catch_up(context, pool);
		if (atomic_load(&context->regions.overlap))
			set_overlap(NULL, pool);
	}
	return published;
}

/* Creates the region's pool. Returns the main pool if the context has ended or no pool can be created. */
static struct gp_pool *create_pool(struct gp_context *context, int id)
{
	struct gp_pool *pool, *published;

	if (atomic_load(&context->regions.is_full))
		return context->pool;
	if (gp_context_sibling_new(context, false, &pool)) {
		if (!atomic_exchange(&context->regions.is_full, true))
			gp_log(GP_LOG_WARN,
				"cannot create a cache for region '%s' on device %d: it shares the cache for code "
				"outside regions",
				gp_region_name(id), context->device->index);
		return context->pool;
	}
	published = settle(context, id, place_of(context, id), pool);
	return published ? published : context->pool;
}

struct gp_pool *gp_region_pool_slow(struct gp_context *context, int id)
{
	struct gp_pool *pool = pool_at(place_of(context, id));

	return gp_likely(pool != NULL) ? pool : create_pool(context, id);
}

/* Returns the first one that there is, or NULL. */
static struct gp_pool *any_streamed(struct gp_context *context)
{
	struct gp_pool *pool = NULL;

	for (int id = GP_REGION_NONE; !pool && id <= gp_region_count(); id++)
		pool = pool_at(streamed_place_of(context, id));
	return pool;
}

/*
 * If no such pool can be created, the driver serves all allocations in stream order from now on: perhaps it cannot map
 * memory. If only no further one can, the places to come share one that there is. Returns NULL if there is none.
 */
static struct gp_pool *create_streamed_locked(struct gp_context *context, int id)
{
	place *at = streamed_place_of(context, id);
	struct gp_pool *pool = pool_at(at);

	if (pool || !atomic_load(&context->regions.are_streams_apart))
		return pool;
	if (!context->regions.is_streamed_full && !gp_context_sibling_new(context, true, &pool))
		return settle(context, id, at, pool);
	pool = any_streamed(context);
	if (!pool) {
		atomic_store(&context->regions.are_streams_apart, false);
	} else if (!context->regions.is_streamed_full) {
		context->regions.is_streamed_full = true;
		gp_log(GP_LOG_WARN, "cannot create a further cache in stream order on device %d: regions share one",
			context->device->index);
	}
	return pool;
}

/* The thread would keep the lock if it were cancelled in the driver. */
static struct gp_pool *create_streamed(struct gp_context *context, int id)
{
	struct gp_pool *pool;
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_mutex_lock(&context->regions.streamed_lock);
	pool = create_streamed_locked(context, id);
	gp_mutex_unlock(&context->regions.streamed_lock);
	pthread_setcancelstate(cancel_state, NULL);
	return pool;
}

struct gp_pool *gp_region_streamed_slow(struct gp_context *context, int id)
{
	struct gp_pool *pool = pool_at(streamed_place_of(context, id));

	return gp_likely(pool != NULL) ? pool : create_streamed(context, id);
}

int gp_region_of(struct gp_context *context, const struct gp_pool *pool)
{
	int id = gp_region_count();

	while (id && pool_at(place_of(context, id)) != pool && pool_at(streamed_place_of(context, id)) != pool)
		id--;
	return id;
}

bool gp_region_is_streamed(const struct gp_context *context, const struct gp_pool *pool)
{
	return gp_pool_type(pool) != context->regions.kind;
}

static void visit(place *at, void (*fn)(void *arg, struct gp_pool *pool), void *arg)
{
	struct gp_pool *pool = pool_at(at);

	if (pool)
		fn(arg, pool);
}

void gp_context_each_pool(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg)
{
	fn(arg, context->pool);
	/*
	 * Waits for a publish() that is under way. If the context is dead, every later publish() sees that and
	 * publishes nothing, so the loop below finds all pools.
	 */
	gp_mutex_lock(&context->regions.lock);
	gp_mutex_unlock(&context->regions.lock);
	for (int id = gp_region_count(); id; id--) {
		visit(place_of(context, id), fn, arg);
		visit(streamed_place_of(context, id), fn, arg);
	}
	visit(streamed_place_of(context, GP_REGION_NONE), fn, arg);
}

void gp_context_each_streamed(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg)
{
	if (context->regions.kind == GP_KIND_VMM) {
		gp_context_each_pool(context, fn, arg);
		return;
	}
	gp_mutex_lock(&context->regions.lock); /* as above */
	gp_mutex_unlock(&context->regions.lock);
	for (int id = gp_region_count(); id >= GP_REGION_NONE; id--)
		visit(streamed_place_of(context, id), fn, arg);
}

void gp_context_set_overlap(struct gp_context *context)
{
	atomic_store(&context->regions.overlap, true);
	gp_context_each_pool(context, set_overlap, NULL);
}

static void count_pool(void *arg, struct gp_pool *pool)
{
	*(unsigned *)arg += 1;
}

bool gp_context_has_siblings(struct gp_context *context)
{
	unsigned n = 0;

	gp_context_each_pool(context, count_pool, &n);
	return n > 1;
}

struct region_totals {
	int id, device;
	unsigned n;
	struct gp_stats *stats;
};

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct region_totals *totals = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	gp_stats_add(totals->stats, &stats);
}

static void add_context(void *arg, struct gp_context *context)
{
	struct region_totals *totals = arg;
	place *plain = place_of(context, totals->id), *streamed = streamed_place_of(context, totals->id);

	if (context->device->index != totals->device)
		return;
	totals->n += pool_at(plain) || pool_at(streamed);
	visit(plain, add_pool, totals);
	visit(streamed, add_pool, totals);
}

unsigned gp_region_totals(int id, int device, struct gp_stats *ret_stats)
{
	struct region_totals totals = {.id = id, .device = device, .stats = ret_stats};

	*ret_stats = (struct gp_stats){0};
	gp_context_each(add_context, &totals);
	return totals.n;
}

struct invalidation {
	int id;
	uint64_t released_bytes;
	struct gp_invalidated *sum;
};

static void invalidate_pool(void *arg, struct gp_pool *pool)
{
	struct invalidation *invalidation = arg;
	struct gp_invalidated count;

	gp_record(pool, RECLAIM, 1);
	invalidation->released_bytes += gp_pool_invalidate(pool, &count);
	invalidation->sum->busy_blocks += count.busy_blocks;
	invalidation->sum->busy_bytes += count.busy_bytes;
}

static void invalidate_context(void *arg, struct gp_context *context)
{
	const struct invalidation *invalidation = arg;

	visit(place_of(context, invalidation->id), invalidate_pool, arg);
	visit(streamed_place_of(context, invalidation->id), invalidate_pool, arg);
}

uint64_t gp_region_invalidate(int id, struct gp_invalidated *ret_invalidated)
{
	struct invalidation invalidation = {.id = id, .sum = ret_invalidated};

	*ret_invalidated = (struct gp_invalidated){0};
	gp_context_each(invalidate_context, &invalidation);
	return invalidation.released_bytes;
}
