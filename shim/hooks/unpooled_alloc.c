/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "unpooled_alloc.h"

#include <errno.h>

#include "hook_memory.h"
#include "shim/backend/foreign_free.h"
#include "shim/context/kept.h"
#include "shim/driver/submit.h"
#include "shim/oom/oom.h"
#include "shim/oom/oom_hook.h"
#include "shim/process.h"
#include "shim/record/record.h"
#include "shim/trace/module.h"

enum { KEPT_TRIES_MAX = 64 };

struct attempt {
	const struct gp_unpooled *allocation;
	struct gp_device *device;
	const struct gp_context *ends_with; /* only compared; or NULL */
	struct gp_context *rescuer; /* a context on the device whose pool runs the retry rounds; to be put at the end */
	bool is_charged;
	uint64_t n_kept_ended; /* before the driver's call */
	uint32_t module;
	CUresult r;
	struct gp_failure failure;
};

/*
 * Charges the allocation to the budget and makes the driver's call. An allocation that exceeds the budget fails if the
 * user has set the limit. Otherwise it goes to the driver uncharged, since managed memory may exceed the device.
 */
static int attempt(void *arg)
{
	struct attempt *a = arg;
	struct gp_budget *budget = &a->device->budget;

	a->r = CUDA_ERROR_OUT_OF_MEMORY;
	a->n_kept_ended = gp_kept_n_ended();
	a->is_charged = gp_budget_charge(budget, a->allocation->bytes);
	if (!a->is_charged && (budget->group || (atomic_load(&budget->limit_bytes) != GP_NO_LIMIT &&
							!atomic_load(&a->device->is_limit_ours))))
		return -ENOMEM;
	a->r = a->allocation->call(a->allocation->arg);
	if (a->r && a->is_charged)
		gp_budget_uncharge(budget, a->allocation->bytes);
	else if (a->is_charged)
		gp_device_note_growth(a->device);
	return a->r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : a->r;
}

static int attempt_again(void *arg)
{
	struct attempt *a = arg;
	int r = attempt(a);

	gp_record(a->rescuer->pool, ATTEMPT, (uint64_t)r);
	return r;
}

static struct gp_device *device_of(const struct gp_unpooled *allocation, const struct gp_context *context)
{
	if (!allocation->bytes || allocation->device == GP_UNPOOLED_HOST)
		return NULL;
	if (allocation->device == GP_UNPOOLED_CURRENT)
		return context ? context->device : NULL;
	return gp_device_get(allocation->device);
}

/*
 * Tries again while unused mappings go back. Another thread may take the memory that they had, and leave its own
 * mapping behind. So this ends once no mapping has ended since the last try.
 */
static bool is_rescued_from_kept(struct attempt *a)
{
	for (unsigned i = 0; i < KEPT_TRIES_MAX; i++) {
		if (!gp_kept_trim(a->device->index, a->allocation->bytes) && gp_kept_n_ended() == a->n_kept_ended)
			return false;
		if (attempt(a) != -ENOMEM)
			return true;
	}
	return false;
}

static void rescue(struct attempt *a)
{
	uint64_t limit = atomic_load(&a->device->budget.limit_bytes);

	/* The cache is not emptied for a request that can never succeed. */
	if (a->allocation->bytes > gp_min(limit, a->device->total_bytes))
		return;
	if (is_rescued_from_kept(a))
		return;
	if (!a->rescuer)
		a->rescuer = gp_context_use_on(a->device);
	if (a->rescuer) {
		gp_record(a->rescuer->pool, RESCUE, a->allocation->bytes);
		(void)gp_pool_rescue(a->rescuer->pool, a->allocation->bytes, attempt_again, a, &a->failure);
	}
}

static void add_entry(const struct attempt *a)
{
	const struct gp_unpooled *allocation = a->allocation;
	const struct gp_unpooled_info info = {
		.kind = allocation->kind,
		.id = *allocation->id,
		.bytes = allocation->bytes,
		.module = a->module,
	};

	gp_unpooled_add(a->device, &info, a->ends_with);
}

static bool is_worth_again(const struct attempt *a, unsigned attempt)
{
	int device = a->device->index;

	return (attempt < GP_FOREIGN_AWAITS_MAX && gp_foreign_await(device, a->allocation->bytes)) ||
	       gp_oom_hook_says_again(a->rescuer ? a->rescuer->pool : NULL, device, a->allocation->bytes);
}

static void try(struct attempt *a)
{
	unsigned n = 0;

	do {
		if (attempt(a) == -ENOMEM)
			rescue(a);
	} while (a->r == CUDA_ERROR_OUT_OF_MEMORY && is_worth_again(a, n++));
}

/* Returns the current context if the thread's cache is for it, which keeps it; or NULL. */
static const struct gp_context *cached_current(void)
{
	const struct gp_thread_cache *slot = gp_memory_current_cache(GP_SLOW_PATH_TO_ALLOC);
	struct gp_thread *self = gp_thread_self;
	CUcontext handle;

	if (gp_likely(slot))
		return slot->context;
	handle = self && self->caches[0].handle ? gp_thread_ask_current() : NULL;
	if (!handle || !gp_thread_is_usable(&self->caches[0], handle))
		return NULL;
	self->current = handle;
	return self->caches[0].context;
}

/* Finds the device and the context of the memory. */
static void find_place(struct attempt *a)
{
	const struct gp_context *cached = cached_current();
	struct gp_context *used = cached ? NULL : gp_context_current();
	const struct gp_context *context = cached ? cached : used;

	a->device = device_of(a->allocation, context);
	if (a->allocation->end == GP_UNPOOLED_ENDS_WITH_CONTEXT)
		a->ends_with = context;
	gp_context_put(used);
}

CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation)
{
	struct attempt a = {.allocation = allocation, .module = gp_module_now()};

	gp_foreign_poll();
	find_place(&a);
	if (a.device) {
		gp_process_start();
		/* As in gp_memory_alloc: the process would lack the memory to wake. */
		gp_submit_await();
		try(&a);
		if (a.r == CUDA_SUCCESS && a.is_charged)
			add_entry(&a);
		else if (a.r == CUDA_ERROR_OUT_OF_MEMORY)
			gp_oom_of_unpooled(a.device->index, allocation->bytes, &a.failure);
		gp_context_put(a.rescuer);
	} else {
		a.r = allocation->call(allocation->arg);
	}
	return a.r;
}
