/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "driver_pool.h"

#include "pool/pool_control.h"
#include "shim/context/context.h"

struct walk {
	const struct gp_device *device;
	struct gp_driver_pool_usage usage;
	bool is_any_served; /* the pools have served an allocation in stream order */
	bool restarts_used, restarts_reserved;
	uint64_t want;
	void (*fn)(void *arg, struct gp_pool *pool);
};

static void walk_context(void *arg, struct gp_context *context)
{
	const struct walk *walk = arg;

	if (context->device == walk->device)
		gp_context_each_streamed(context, walk->fn, arg);
}

static void add_usage(void *arg, struct gp_pool *pool)
{
	struct gp_stream_usage usage = gp_pool_stream_usage(pool);
	struct walk *walk = arg;

	walk->is_any_served |= usage.is_any_served;
	walk->usage.used_bytes += usage.used_bytes;
	walk->usage.used_high_bytes += usage.used_high_bytes;
	walk->usage.reserved_bytes += usage.total_bytes;
	walk->usage.reserved_high_bytes += usage.total_high_bytes;
}

/* Adds blocks that have outlived earlier contexts. Memory in the host is not charged, but reserved for the program. */
static void add_survivors(struct walk *walk)
{
	uint64_t used = atomic_load(&walk->device->survivor_used_bytes);
	uint64_t reserved = gp_max(atomic_load(&walk->device->survivor_bytes), used);
	uint64_t used_high = atomic_load(&walk->device->ended_used_high);
	struct gp_driver_pool_usage *usage = &walk->usage;

	walk->is_any_served |= used || used_high;
	usage->used_bytes += used;
	usage->used_high_bytes = gp_max(usage->used_high_bytes + used, used_high);
	usage->reserved_bytes += reserved;
	usage->reserved_high_bytes =
		gp_max(usage->reserved_high_bytes + reserved, atomic_load(&walk->device->ended_reserved_high));
}

struct gp_driver_pool_usage gp_driver_pool_usage(struct gp_device *device, unsigned number)
{
	const struct gp_account *account = number ? gp_account(&device->accounts, number) : NULL;
	struct walk walk = {.device = device, .fn = add_usage};

	gp_context_each(walk_context, &walk);
	add_survivors(&walk);
	if (account) {
		walk.usage.used_bytes = atomic_load(&account->used_bytes);
		walk.usage.used_high_bytes = gp_max(atomic_load(&account->high_bytes), walk.usage.used_bytes);
	}
	return walk.is_any_served || account ? walk.usage : (struct gp_driver_pool_usage){0};
}

void gp_driver_pool_keep_highs(struct gp_device *device)
{
	struct gp_driver_pool_usage usage = gp_driver_pool_usage(device, GP_ACCOUNT_NONE);

	/* During an end, blocks may have been counted in their pool and after it. The end notes the marks itself. */
	if (atomic_load(&gp_contexts_ending))
		return;
	gp_device_raise_highs(device, usage.used_high_bytes, usage.reserved_high_bytes);
}

static void restart_highs(void *arg, struct gp_pool *pool)
{
	const struct walk *walk = arg;

	gp_pool_restart_highs(pool, walk->restarts_used, walk->restarts_reserved);
}

void gp_driver_pool_restart_highs(struct gp_device *device, unsigned number, bool restarts_used, bool restarts_reserved)
{
	struct gp_account *account = number ? gp_account(&device->accounts, number) : NULL;
	struct walk walk = {
		.device = device,
		.restarts_used = restarts_used && !account,
		.restarts_reserved = restarts_reserved,
		.fn = restart_highs,
	};

	if (restarts_used && account)
		gp_account_restart_high(account);
	if (walk.restarts_used)
		atomic_store(&device->ended_used_high, 0);
	if (restarts_reserved)
		atomic_store(&device->ended_reserved_high, 0);
	gp_context_each(walk_context, &walk);
}

static void trim(void *arg, struct gp_pool *pool)
{
	struct walk *walk = arg;

	if (walk->want)
		walk->want -= gp_min(walk->want, gp_pool_trim(pool, walk->want));
}

void gp_driver_pool_trim(const struct gp_device *device, uint64_t want)
{
	struct walk walk = {.device = device, .want = want, .fn = trim};

	gp_context_each(walk_context, &walk);
}
