/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "unpooled.h"

#include <errno.h>
#include <stdlib.h>

#include "shim/trace/module.h"
#include "shim/oom/oom.h"
#include "shim/oom/oom_hook.h"
#include "shim/trace/alloc_info.h"
#include "shim/driver/driver_table.h"
#include "shim/record/record.h"

enum { FIRST_BUCKETS = 256 };

struct entry {
	struct entry *next;
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	unsigned n_references;
	uint32_t module;
	struct gp_device *device;
	const struct gp_context *context; /* only compared, never dereferenced; NULL if the memory outlives it */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct entry **buckets;
static size_t n_buckets, n_entries;

static struct entry **bucket_of(uint64_t id)
{
	return &buckets[(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_buckets - 1)];
}

static void grow_locked(void)
{
	size_t n_old = n_buckets, n = n_old ? n_old * 2 : FIRST_BUCKETS;
	struct entry **old = buckets, **more = calloc(n, sizeof(*more));

	if (!more)
		return;
	buckets = more;
	n_buckets = n;
	for (size_t i = 0; i < n_old; i++) {
		for (struct entry *e = old[i], *next; e; e = next) {
			struct entry **at = bucket_of(e->id);

			next = e->next;
			e->next = *at;
			*at = e;
		}
	}
	free(old);
}

/* Returns the link to the entry, or the link where it would be inserted. */
static struct entry **find_locked(enum gp_unpooled_kind kind, uint64_t id)
{
	struct entry **at = bucket_of(id);

	while (*at && ((*at)->id != id || (*at)->kind != kind))
		at = &(*at)->next;
	return at;
}

static struct entry *take_locked(struct entry **at)
{
	struct entry *entry = *at;

	*at = entry->next;
	n_entries--;
	return entry;
}

static void account(struct gp_device *device, uint64_t added_bytes)
{
	uint64_t before = atomic_fetch_add(&device->unpooled_bytes, added_bytes);

	gp_record(NULL, UNPOOLED, (uint64_t)device->index, before + added_bytes);
}

static void uncharge(struct entry *entry)
{
	if (entry) {
		gp_budget_uncharge(&entry->device->budget, entry->bytes);
		account(entry->device, -entry->bytes);
	}
	free(entry);
}

/* Replaces an entry with the same id: the driver has freed that memory in a way that gpupool did not see. */
static bool add(struct entry *entry)
{
	struct entry **at, *gone = NULL;

	gp_mutex_lock(&lock);
	if (n_entries >= n_buckets)
		grow_locked();
	if (buckets) {
		at = find_locked(entry->kind, entry->id);
		if (*at)
			gone = take_locked(at);
		entry->next = *at;
		*at = entry;
		n_entries++;
	}
	gp_mutex_unlock(&lock);
	uncharge(gone);
	return buckets != NULL;
}

void gp_unpooled_forget(enum gp_unpooled_kind kind, uint64_t id)
{
	struct entry *gone = NULL;

	gp_mutex_lock(&lock);
	if (n_entries) {
		struct entry **at = find_locked(kind, id);

		if (*at && --(*at)->n_references == 0)
			gone = take_locked(at);
	}
	gp_mutex_unlock(&lock);
	if (gone)
		gp_alloc_info_note_free(gp_alloc_info_key(kind, id));
	uncharge(gone);
}

bool gp_unpooled_retain(enum gp_unpooled_kind kind, uint64_t id)
{
	struct entry *entry = NULL;

	gp_mutex_lock(&lock);
	if (n_entries)
		entry = *find_locked(kind, id);
	if (entry)
		entry->n_references++;
	gp_mutex_unlock(&lock);
	return entry != NULL;
}

void gp_unpooled_forget_context(const struct gp_context *context)
{
	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (struct entry **at = &buckets[i]; *at;) {
			if ((*at)->context == context)
				uncharge(take_locked(at));
			else
				at = &(*at)->next;
		}
	}
	gp_mutex_unlock(&lock);
}

size_t gp_unpooled_count(void)
{
	size_t n;

	gp_mutex_lock(&lock);
	n = n_entries;
	gp_mutex_unlock(&lock);
	return n;
}

void gp_unpooled_each(void (*fn)(void *arg, const struct gp_unpooled_info *info), void *arg)
{
	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_buckets; i++)
		for (const struct entry *e = buckets[i]; e; e = e->next)
			fn(arg, &(struct gp_unpooled_info){e->kind, e->id, e->bytes, e->device->index, e->module});
	gp_mutex_unlock(&lock);
}

struct attempt {
	const struct gp_unpooled *allocation;
	struct gp_device *device;
	struct gp_context *rescuer; /* a context with a pool on the device, which runs the rounds; holds a use */
	bool is_charged;
	uint32_t module;
	CUresult r;
	struct gp_failure failure;
};

/*
 * Charges and makes the driver's call. Without a user's limit an allocation that exceeds the budget is passed on to the
 * driver, which decides: managed memory may be larger than the device.
 */
static int attempt(void *arg)
{
	struct attempt *a = arg;
	struct gp_budget *budget = &a->device->budget;

	a->r = CUDA_ERROR_OUT_OF_MEMORY;
	a->is_charged = gp_budget_charge(budget, a->allocation->bytes);
	if (!a->is_charged && atomic_load(&budget->limit_bytes) != GP_NO_LIMIT &&
		!atomic_load(&a->device->is_limit_ours))
		return -ENOMEM;
	a->r = a->allocation->call(a->allocation->arg);
	if (a->r && a->is_charged)
		gp_budget_uncharge(budget, a->allocation->bytes);
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
	return gp_state_device(allocation->device);
}

static void use_as_rescuer(void *arg, struct gp_context *context)
{
	struct attempt *a = arg;

	if (!a->rescuer && context->device == a->device)
		a->rescuer = gp_context_use(context);
}

static void rescue(struct attempt *a, struct gp_context *context)
{
	uint64_t limit = atomic_load(&a->device->budget.limit_bytes);

	/* For a request that can never succeed the cache is not emptied. */
	if (a->allocation->bytes > gp_min(limit, a->device->total_bytes))
		return;
	if (context && !a->rescuer)
		use_as_rescuer(a, context);
	if (!a->rescuer)
		gp_context_each(use_as_rescuer, a);
	if (a->rescuer) {
		gp_record(a->rescuer->pool, RESCUE, a->allocation->bytes);
		(void)gp_pool_rescue(a->rescuer->pool, a->allocation->bytes, attempt_again, a, &a->failure);
	}
}

static void add_entry(const struct attempt *a, const struct gp_context *context)
{
	const struct gp_unpooled *allocation = a->allocation;
	struct entry *entry = malloc(sizeof(*entry));
	bool is_bound = context && (allocation->end == GP_UNPOOLED_ENDS_WITH_CONTEXT ||
					   (allocation->end == GP_UNPOOLED_ENDS_WITH_PRIMARY && context->is_primary));

	/* Must precede the program's first chance to free it. */
	account(a->device, allocation->bytes);
	gp_alloc_info_note_alloc(gp_alloc_info_key(allocation->kind, *allocation->id), allocation->bytes);
	if (entry) {
		*entry = (struct entry){
			.kind = allocation->kind,
			.id = *allocation->id,
			.bytes = allocation->bytes,
			.n_references = 1,
			.module = a->module,
			.device = a->device,
			.context = is_bound ? context : NULL,
		};
		if (add(entry))
			return;
	}
	/* Without host memory for an entry the allocation cannot be counted. */
	gp_budget_uncharge(&a->device->budget, allocation->bytes);
	account(a->device, -allocation->bytes);
	free(entry);
}

static void try(struct attempt *a, struct gp_context *context)
{
	do {
		if (attempt(a) == -ENOMEM)
			rescue(a, context);
	} while (a->r == CUDA_ERROR_OUT_OF_MEMORY &&
		 gp_oom_hook_says_again(a->rescuer ? a->rescuer->pool : NULL, a->device->index, a->allocation->bytes));
}

CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation)
{
	struct gp_context *context = gp_context_current();
	struct attempt a = {
		.allocation = allocation,
		.device = device_of(allocation, context),
		.module = gp_module_now(),
	};

	if (a.device) {
		gp_state_start();
		try(&a, context);
		if (a.r == CUDA_SUCCESS && a.is_charged)
			add_entry(&a, context);
		else if (a.r == CUDA_ERROR_OUT_OF_MEMORY)
			gp_oom_of_unpooled(a.device->index, allocation->bytes, &a.failure);
		gp_context_put(a.rescuer);
	} else {
		a.r = allocation->call(allocation->arg);
	}
	gp_context_put(context);
	return a.r;
}
