/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleepers.h"

#include <errno.h>

#include "backend_device.h"
#include "pointer_answers.h"
#include "pool/pool_control.h"
#include "shim/base/clock.h"
#include "shim/context/driver_call.h"
#include "shim/context/region.h"

/* The driver's tables for pinned memory take 2 MiB for each GiB, and a sleep may pin as much as this wake lacks. */
#define LEFT_FREE (256 * GP_MIB)
enum { LEFT_SHARE = 256 };

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct gp_sleepers *sleepers = arg;

	if (sleepers->n_pools == GP_SLEEPERS_POOLS_MAX) {
		sleepers->is_too_many = true;
		return;
	}
	sleepers->pools[sleepers->n_pools++] = (struct gp_sleeper){
		.pool = gp_pool_get(pool),
		.context = sleepers->contexts[sleepers->n_contexts - 1],
	};
}

static void add_context(void *arg, struct gp_context *context)
{
	struct gp_sleepers *sleepers = arg;

	if (gp_context_is(context, GP_CONTEXT_DEAD))
		return;
	if (sleepers->n_contexts == GP_SLEEPERS_CONTEXTS_MAX) {
		sleepers->is_too_many = true;
		return;
	}
	sleepers->contexts[sleepers->n_contexts++] = gp_context_use(context);
	gp_context_each_pool(context, add_pool, sleepers);
}

void gp_sleepers_collect(struct gp_sleepers *sleepers)
{
	sleepers->n_contexts = sleepers->n_pools = 0;
	sleepers->is_too_many = false;
	gp_context_each(add_context, sleepers);
}

void gp_sleepers_put(struct gp_sleepers *sleepers)
{
	while (sleepers->n_pools)
		gp_pool_put(sleepers->pools[--sleepers->n_pools].pool);
	while (sleepers->n_contexts)
		gp_context_put(sleepers->contexts[--sleepers->n_contexts]);
}

int gp_sleepers_enter(struct gp_sleepers *sleepers, uint64_t end_ns)
{
	for (unsigned i = 0; i < sleepers->n_pools; i++) {
		struct gp_sleeper *sleeper = &sleepers->pools[i];
		uint64_t now_ns = gp_clock_now_ns(NULL);
		int r;

		if (gp_pool_type(sleeper->pool) != GP_KIND_VMM || gp_sleepers_is_lost(sleeper->context))
			continue;
		r = gp_pool_sleep_enter(sleeper->pool, now_ns < end_ns ? end_ns - now_ns : 0);
		if (r)
			return r;
		sleeper->is_entered = true;
	}
	return 0;
}

void gp_sleepers_leave(struct gp_sleepers *sleepers)
{
	for (unsigned i = 0; i < sleepers->n_pools; i++) {
		if (sleepers->pools[i].is_entered)
			gp_pool_sleep_leave(sleepers->pools[i].pool);
		sleepers->pools[i].is_entered = false;
	}
}

#define each_entered(i, sleepers)                          \
	for (unsigned i = 0; i < (sleepers)->n_pools; i++) \
		if (!(sleepers)->pools[i].is_entered)      \
			continue;                          \
		else

static bool is_dropped(const struct gp_sleeper *sleeper, const struct gp_sleepers_drops *drops)
{
	int id = gp_region_of(sleeper->context, sleeper->pool);

	_Static_assert(GP_REGIONS_MAX <= 64, "one bit for each region");
	return drops->is_all || (id != GP_REGION_NONE && drops->regions & GP_SLEEPERS_REGION(id));
}

int gp_sleepers_survey(
	struct gp_sleepers *sleepers, const struct gp_sleepers_drops *drops, struct gp_sleep_bytes *ret_bytes)
{
	struct gp_sleep_bytes all = {0};

	each_entered(i, sleepers)
	{
		struct gp_sleeper *sleeper = &sleepers->pools[i];
		struct gp_sleep_bytes bytes;
		int r;

		sleeper->drops = is_dropped(sleeper, drops);
		r = gp_pool_sleep_survey(sleeper->pool, sleeper->drops, &bytes);
		if (r)
			return r;
		all.device_bytes += bytes.device_bytes;
		all.dropped_bytes += bytes.dropped_bytes;
		all.host_bytes += bytes.host_bytes;
		all.mapped_bytes += bytes.mapped_bytes;
		all.shared_bytes += bytes.shared_bytes;
		all.stuck_bytes += bytes.stuck_bytes;
	}
	*ret_bytes = all;
	return 0;
}

void gp_sleepers_learn(struct gp_sleepers *sleepers)
{
	each_entered(i, sleepers)
	{
		uint64_t addr = gp_pool_sleep_address(sleepers->pools[i].pool);

		if (addr)
			gp_pointer_answers_learn(sleepers->pools[i].context, addr);
	}
}

/* The driver's error may be one after which the context is lost. */
static int result_in(const struct gp_sleeper *sleeper, int r)
{
	if (r > 0 && r < GP_E_FOREIGN)
		(void)gp_driver_result(sleeper->context, (CUresult)r);
	return r;
}

int gp_sleepers_take_host(struct gp_sleepers *sleepers, bool (*must_stop)(void *arg), void *arg)
{
	int r = 0;

	each_entered(i, sleepers) if (!r) r =
		result_in(&sleepers->pools[i], gp_pool_sleep_take_host(sleepers->pools[i].pool, must_stop, arg));
	return r;
}

bool gp_sleepers_unpin(struct gp_sleepers *sleepers)
{
	each_entered(i, sleepers) if (gp_pool_sleep_unpin(sleepers->pools[i].pool)) return true;
	return false;
}

int gp_sleepers_move_out(struct gp_sleepers *sleepers, bool (*must_stop)(void *arg), void *arg)
{
	int r = 0;

	each_entered(i, sleepers)
	{
		struct gp_sleeper *sleeper = &sleepers->pools[i];

		if (!r && !sleeper->drops)
			r = result_in(sleeper, gp_pool_sleep_move_out(sleeper->pool, must_stop, arg));
	}
	if (!r && must_stop(arg))
		r = -ECANCELED;
	each_entered(i, sleepers)
	{
		struct gp_sleeper *sleeper = &sleepers->pools[i];

		if (!r && sleeper->drops)
			r = result_in(sleeper, gp_pool_sleep_move_out(sleeper->pool, NULL, NULL));
	}
	return r;
}

int gp_sleepers_take_device(struct gp_sleepers *sleepers)
{
	int r = 0;

	each_entered(i, sleepers) if (!r) r =
		result_in(&sleepers->pools[i], gp_pool_sleep_take_device(sleepers->pools[i].pool));
	return r;
}

/* Returns what lacks device memory of all that is asleep. */
static uint64_t lacking_on(const struct gp_sleepers *sleepers, const struct gp_device *device)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sleepers->n_pools; i++) {
		struct gp_sleep_bytes asleep = gp_pool_asleep(sleepers->pools[i].pool);

		if (sleepers->pools[i].context->device == device && !gp_sleepers_is_lost(sleepers->pools[i].context))
			bytes += asleep.device_bytes - asleep.taken_bytes;
	}
	return bytes;
}

static uint64_t may_take(const struct gp_sleepers *sleepers, struct gp_context *context)
{
	uint64_t available = gp_device_available(context), lacking = lacking_on(sleepers, context->device);

	if (available >= lacking)
		return UINT64_MAX;
	return available - gp_min(available, LEFT_FREE + lacking / LEFT_SHARE);
}

int gp_sleepers_take_some(struct gp_sleepers *sleepers, uint64_t *ret_taken, bool *ret_is_all)
{
	int r = 0;

	*ret_taken = 0;
	*ret_is_all = true;
	each_entered(i, sleepers)
	{
		struct gp_sleeper *sleeper = &sleepers->pools[i];
		bool is_all = false;

		if (!r)
			r = result_in(sleeper, gp_pool_sleep_take_some(sleeper->pool,
						       may_take(sleepers, sleeper->context), ret_taken, &is_all));
		*ret_is_all = *ret_is_all && is_all;
	}
	return r;
}

int gp_sleepers_move_in(struct gp_sleepers *sleepers)
{
	int r = 0;

	each_entered(i, sleepers) if (!r) r =
		result_in(&sleepers->pools[i], gp_pool_sleep_move_in(sleepers->pools[i].pool));
	return r;
}

void gp_sleepers_return_device(struct gp_sleepers *sleepers)
{
	each_entered(i, sleepers) gp_pool_sleep_return_device(sleepers->pools[i].pool);
}

static uint64_t asleep_on(const struct gp_sleepers *sleepers, const struct gp_device *device)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sleepers->n_pools; i++)
		if (sleepers->pools[i].context->device == device && !gp_sleepers_is_lost(sleepers->pools[i].context))
			bytes += gp_pool_asleep(sleepers->pools[i].pool).device_bytes;
	return bytes;
}

bool gp_sleepers_are_short(const struct gp_sleepers *sleepers)
{
	const struct gp_device *asked = NULL;

	for (unsigned i = 0; i < sleepers->n_contexts; i++) {
		struct gp_context *context = sleepers->contexts[i];

		if (context->device == asked || gp_sleepers_is_lost(context))
			continue;
		asked = context->device;
		if (gp_device_available(context) < asleep_on(sleepers, asked))
			return true;
	}
	return false;
}

/* The first pool of each context asks for all of them. */
bool gp_sleepers_ask(struct gp_sleepers *sleepers, bool is_for_all)
{
	bool is_any_coming = false;
	uint64_t bytes = 0;

	for (unsigned i = sleepers->n_pools; i-- > 0;) {
		const struct gp_sleeper *sleeper = &sleepers->pools[i];

		bytes += gp_pool_asleep(sleeper->pool).device_bytes;
		if (i && sleepers->pools[i - 1].context == sleeper->context)
			continue;
		if (bytes && !gp_sleepers_is_lost(sleeper->context))
			is_any_coming |= gp_pool_sleep_ask(sleeper->pool, bytes, is_for_all);
		bytes = 0;
	}
	return is_any_coming;
}

unsigned gp_sleepers_lost(const struct gp_sleepers *sleepers)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sleepers->n_contexts; i++)
		n += gp_sleepers_is_lost(sleepers->contexts[i]);
	return n;
}

uint64_t gp_sleepers_lost_bytes(const struct gp_sleepers *sleepers)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sleepers->n_pools; i++)
		if (gp_sleepers_is_lost(sleepers->pools[i].context))
			bytes += gp_pool_asleep(sleepers->pools[i].pool).device_bytes;
	return bytes;
}

bool gp_sleepers_have_dropped(const struct gp_sleepers *sleepers)
{
	for (unsigned i = 0; i < sleepers->n_pools; i++)
		if (gp_pool_asleep(sleepers->pools[i].pool).dropped_bytes)
			return true;
	return false;
}

struct sum {
	int device;
	struct gp_sleep_bytes bytes;
};

static void add_asleep_of(void *arg, struct gp_pool *pool)
{
	struct gp_sleep_bytes bytes = gp_pool_asleep(pool);
	struct sum *sum = arg;

	sum->bytes.device_bytes += bytes.device_bytes;
	sum->bytes.taken_bytes += bytes.taken_bytes;
	sum->bytes.dropped_bytes += bytes.dropped_bytes;
	sum->bytes.host_bytes += bytes.host_bytes;
}

static void add_asleep(void *arg, struct gp_context *context)
{
	const struct sum *sum = arg;

	if (sum->device == -1 || context->device->index == sum->device)
		gp_context_each_pool(context, add_asleep_of, arg);
}

struct gp_sleep_bytes gp_sleepers_asleep(int device)
{
	struct sum sum = {.device = device};

	gp_context_each(add_asleep, &sum);
	return sum.bytes;
}
