/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The pools of a context: the main pool, and one for each region in which a thread has allocated. */

#include "region_pool.h"

#include "pool/pool.h"
#include "pool/vmm/cold.h"
#include "region.h"
#include "shim/base/log.h"
#include "shim/record/record.h"

static struct gp_pool *region_pool(struct gp_context *context, int id)
{
	return atomic_load_explicit(&context->regions.pools[id - 1], memory_order_acquire);
}

/*
 * Publishes a new pool, unless another thread has published one or the context is dead. Returns the published pool, or
 * NULL. A thread that ends a context marks it dead before it visits the pools, so it finds every published pool.
 */
static struct gp_pool *publish(struct gp_context *context, int id, struct gp_pool *pool)
{
	struct gp_pool *published;

	gp_mutex_lock(&context->regions.lock);
	published = region_pool(context, id);
	if (!published && !gp_context_is(context, GP_CONTEXT_DEAD)) {
		published = pool;
		atomic_store_explicit(&context->regions.pools[id - 1], pool, memory_order_release);
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

/* Creates the region's pool. Returns the main pool if the context has ended or no pool can be created. */
static struct gp_pool *create_pool(struct gp_context *context, int id)
{
	struct gp_pool *pool, *published;

	if (atomic_load(&context->regions.is_full))
		return context->pool;
	if (gp_context_sibling_new(context, &pool)) {
		if (!atomic_exchange(&context->regions.is_full, true))
			gp_log(GP_LOG_WARN,
				"cannot create a cache for region '%s' on device %d: it shares the cache for code "
				"outside regions",
				gp_region_name(id), context->device->index);
		return context->pool;
	}
	gp_cold_set_all(pool, gp_config_regions_is_cold(&gp_state.config.regions, gp_region_name(id)));
	published = publish(context, id, pool);
	if (published != pool) {
		discard(pool);
	} else {
		gp_context_catch_up(context, pool);
		if (atomic_load(&context->regions.overlap))
			set_overlap(NULL, pool);
	}
	return published ? published : context->pool;
}

struct gp_pool *gp_region_pool_slow(struct gp_context *context, int id)
{
	struct gp_pool *pool = region_pool(context, id);

	return gp_likely(pool != NULL) ? pool : create_pool(context, id);
}

int gp_region_of(struct gp_context *context, const struct gp_pool *pool)
{
	int id = gp_region_count();

	while (id && region_pool(context, id) != pool)
		id--;
	return id;
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
	for (int id = gp_region_count(); id; id--)
		if (region_pool(context, id))
			fn(arg, region_pool(context, id));
}

void gp_context_set_overlap(struct gp_context *context)
{
	atomic_store(&context->regions.overlap, true);
	gp_context_each_pool(context, set_overlap, NULL);
}

bool gp_context_has_regions(struct gp_context *context)
{
	int id = gp_region_count();

	while (id && !region_pool(context, id))
		id--;
	return id != 0;
}

struct region_totals {
	int id, device;
	unsigned n;
	struct gp_stats *stats;
};

static void add_context(void *arg, struct gp_context *context)
{
	struct region_totals *totals = arg;
	struct gp_pool *pool = region_pool(context, totals->id);
	struct gp_stats stats;

	if (context->device->index != totals->device || !pool)
		return;
	gp_pool_stats(pool, &stats);
	gp_stats_add(totals->stats, &stats);
	totals->n++;
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

static void invalidate_context(void *arg, struct gp_context *context)
{
	struct invalidation *invalidation = arg;
	struct gp_pool *pool = region_pool(context, invalidation->id);
	struct gp_invalidated count;

	if (!pool)
		return;
	gp_record(pool, RECLAIM, 1);
	invalidation->released_bytes += gp_pool_invalidate(pool, &count);
	invalidation->sum->busy_blocks += count.busy_blocks;
	invalidation->sum->busy_bytes += count.busy_bytes;
}

uint64_t gp_region_invalidate(int id, struct gp_invalidated *ret_invalidated)
{
	struct invalidation invalidation = {.id = id, .sum = ret_invalidated};

	*ret_invalidated = (struct gp_invalidated){0};
	gp_context_each(invalidate_context, &invalidation);
	return invalidation.released_bytes;
}
