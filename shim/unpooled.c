/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "unpooled.h"

#include <errno.h>
#include <stdlib.h>

#include "real.h"

enum { FIRST_BUCKETS = 256 };

struct entry {
	struct entry *next;
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	struct gp_device *device;
	const struct gp_context *context; /* compared, never followed; NULL if it outlives its context */
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

static bool add(struct entry *entry)
{
	struct entry **at;

	gp_mutex_lock(&lock);
	if (n_entries >= n_buckets)
		grow_locked();
	if (buckets) {
		at = bucket_of(entry->id);
		entry->next = *at;
		*at = entry;
		n_entries++;
	}
	gp_mutex_unlock(&lock);
	return buckets != NULL;
}

static void uncharge(struct gp_device *device, uint64_t bytes)
{
	gp_budget_uncharge(&device->budget, bytes);
	atomic_fetch_sub(&device->unpooled_bytes, bytes);
}

void gp_unpooled_forget(enum gp_unpooled_kind kind, uint64_t id)
{
	struct entry *found = NULL;

	gp_mutex_lock(&lock);
	if (n_entries) {
		struct entry **at = bucket_of(id);

		while (*at && ((*at)->id != id || (*at)->kind != kind))
			at = &(*at)->next;
		found = *at;
		if (found) {
			*at = found->next;
			n_entries--;
		}
	}
	gp_mutex_unlock(&lock);
	if (found)
		uncharge(found->device, found->bytes);
	free(found);
}

void gp_unpooled_forget_context(const struct gp_context *context)
{
	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (struct entry **at = &buckets[i]; *at;) {
			struct entry *e = *at;

			if (e->context != context) {
				at = &e->next;
				continue;
			}
			*at = e->next;
			n_entries--;
			uncharge(e->device, e->bytes);
			free(e);
		}
	}
	gp_mutex_unlock(&lock);
}

struct attempt {
	const struct gp_unpooled *allocation;
	struct gp_device *device;
	CUresult r;
};

static int attempt(void *arg)
{
	struct attempt *a = arg;

	if (!gp_budget_charge(&a->device->budget, a->allocation->bytes)) {
		a->r = CUDA_ERROR_OUT_OF_MEMORY;
		return -ENOMEM;
	}
	a->r = a->allocation->call(a->allocation->arg);
	if (a->r)
		gp_budget_uncharge(&a->device->budget, a->allocation->bytes);
	return a->r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : a->r;
}

CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation)
{
	struct gp_context *context = gp_context_current();
	struct attempt a = {.allocation = allocation};
	struct entry *entry;

	if (!context)
		return allocation->call(allocation->arg);
	gp_state_start();
	a.device = context->device;
	if (attempt(&a) == -ENOMEM)
		(void)gp_pool_rescue(context->pool, allocation->bytes, attempt, &a);
	if (a.r == CUDA_SUCCESS) {
		entry = malloc(sizeof(*entry));
		if (entry)
			*entry = (struct entry){
				.kind = allocation->kind,
				.id = *allocation->id,
				.bytes = allocation->bytes,
				.device = a.device,
				.context = allocation->is_context_bound ? context : NULL,
			};
		if (entry && add(entry)) {
			atomic_fetch_add(&a.device->unpooled_bytes, allocation->bytes);
		} else {
			/* Without host memory to remember it by it cannot be counted. */
			gp_budget_uncharge(&a.device->budget, allocation->bytes);
			free(entry);
		}
	}
	gp_context_put(context);
	return a.r;
}
