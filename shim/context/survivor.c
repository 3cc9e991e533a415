/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "survivor.h"

#include <errno.h>
#include <stdlib.h>

#include "context.h"
#include "pool/pool.h"
#include "pool/pool_ref.h"
#include "shim/base/fork.h"

struct gp_survivor {
	struct gp_tree_node node; /* by address, while the program holds the block */
	struct gp_list link;      /* likewise */
	struct gp_block_info info;
	struct gp_device *device;
	struct gp_pool *pool; /* the dropped pool, which has the chunks */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_tree by_addr;
static struct gp_list all = {&all, &all};
_Atomic unsigned gp_survivors;

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

static void add(struct gp_survivor *survivor)
{
	gp_mutex_lock(&lock);
	gp_tree_insert(&by_addr, &survivor->node);
	gp_list_append(&all, &survivor->link);
	atomic_fetch_add(&gp_survivors, 1);
	gp_mutex_unlock(&lock);
}

/* Without host memory for an entry the block ends with its context. */
static bool survive(void *arg, const struct gp_block_info *info)
{
	struct gp_pool *pool = arg;
	struct gp_survivor *survivor = malloc(sizeof(*survivor));

	if (!survivor)
		return false;
	*survivor = (struct gp_survivor){
		.node.key = info->addr,
		.info = *info,
		.device = ((struct gp_context *)gp_pool_owner(pool))->device,
		.pool = gp_pool_get(pool),
	};
	if (!info->account)
		atomic_fetch_add(&survivor->device->survivor_used_bytes, info->rounded);
	add(survivor);
	return true;
}

void gp_survivors_drop(struct gp_pool *pool)
{
	static struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	gp_pool_drop_except(pool, survive, pool);
}

static void add_highs(void *arg, struct gp_pool *pool)
{
	struct gp_stream_usage usage = gp_pool_stream_usage(pool), *sum = arg;

	sum->used_high_bytes += usage.is_any_served ? usage.used_high_bytes : 0;
	sum->total_high_bytes += usage.is_any_served ? usage.total_high_bytes : 0;
}

void gp_survivors_note_highs(struct gp_context *context)
{
	struct gp_device *device = context->device;
	uint64_t used = atomic_load(&device->survivor_used_bytes);
	struct gp_stream_usage sum = {0};

	gp_context_each_streamed(context, add_highs, &sum);
	gp_device_raise_highs(device, sum.used_high_bytes + used,
		sum.total_high_bytes + gp_max(atomic_load(&device->survivor_bytes), used));
}

static struct gp_survivor *find_locked(uint64_t addr)
{
	struct gp_tree_node *node = gp_tree_at_most(&by_addr, addr);
	struct gp_survivor *survivor = node ? gp_container_of(node, struct gp_survivor, node) : NULL;

	return survivor && addr - survivor->info.addr < survivor->info.rounded ? survivor : NULL;
}

bool gp_survivor_find_slow(uint64_t addr, struct gp_block_info *ret_info, const struct gp_device **ret_device)
{
	const struct gp_survivor *survivor;

	gp_mutex_lock(&lock);
	survivor = find_locked(addr);
	if (survivor)
		*ret_info = survivor->info;
	if (survivor && ret_device)
		*ret_device = survivor->device;
	gp_mutex_unlock(&lock);
	return survivor != NULL;
}

static void uncount(const struct gp_survivor *survivor)
{
	const struct gp_block_info *info = &survivor->info;
	struct gp_device *device = survivor->device;

	if (info->account)
		gp_account_uncharge(gp_account(&device->accounts, info->account), info->rounded);
	else
		atomic_fetch_sub(&device->survivor_used_bytes, info->rounded);
}

struct gp_survivor *gp_survivor_take(uint64_t addr)
{
	struct gp_survivor *survivor;

	if (!atomic_load_explicit(&gp_survivors, memory_order_acquire))
		return NULL;
	gp_mutex_lock(&lock);
	survivor = find_locked(addr);
	if (survivor && survivor->info.addr != addr)
		survivor = NULL;
	if (survivor) {
		gp_tree_remove(&by_addr, &survivor->node);
		gp_list_remove(&survivor->link);
		atomic_fetch_sub(&gp_survivors, 1);
	}
	gp_mutex_unlock(&lock);
	if (survivor)
		uncount(survivor);
	return survivor;
}

void gp_survivor_end(struct gp_survivor *survivor)
{
	gp_pool_end_survivor(survivor->pool, survivor->info.addr, survivor->info.rounded);
	gp_pool_put(survivor->pool);
	free(survivor);
}

const struct gp_device *gp_survivor_device(const struct gp_survivor *survivor)
{
	return survivor->device;
}

uint64_t gp_survivor_bytes(const struct gp_survivor *survivor)
{
	return survivor->info.rounded;
}

void gp_survivor_each(
	void (*fn)(void *arg, const struct gp_block_info *info, const struct gp_device *device), void *arg)
{
	struct gp_list *link;

	gp_mutex_lock(&lock);
	gp_list_each(link, &all) {
		const struct gp_survivor *survivor = gp_container_of(link, struct gp_survivor, link);

		fn(arg, &survivor->info, survivor->device);
	}
	gp_mutex_unlock(&lock);
}

/* Returns the number of pools, each with a reference, in a list that the caller frees; NULL: no host memory. */
static size_t pools_of(const struct gp_device *device, struct gp_pool ***ret_pools)
{
	struct gp_pool *last = NULL;
	struct gp_list *link;
	size_t n = 0;

	gp_mutex_lock(&lock);
	*ret_pools = calloc(atomic_load(&gp_survivors) + 1, sizeof(**ret_pools));
	gp_list_each(link, &all) {
		const struct gp_survivor *survivor = gp_container_of(link, struct gp_survivor, link);

		if (*ret_pools && survivor->device == device && survivor->pool != last)
			(*ret_pools)[n++] = last = gp_pool_get(survivor->pool);
	}
	gp_mutex_unlock(&lock);
	return n;
}

int gp_survivor_each_chunk(
	const struct gp_device *device, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg)
{
	struct gp_pool **pools;
	size_t n = pools_of(device, &pools);
	int r = pools ? 0 : -ENOMEM;

	for (size_t i = 0; i < n; i++) {
		if (gp_pool_each_chunk(pools[i], fn, arg))
			r = -ENOMEM;
		gp_pool_put(pools[i]);
	}
	free(pools);
	return r;
}
