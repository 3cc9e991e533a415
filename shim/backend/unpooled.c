/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "unpooled.h"

#include <stdlib.h>

#include "shim/record/record.h"
#include "shim/trace/alloc_info.h"

enum { FIRST_BUCKETS = 256 };

struct gp_unpooled_entry {
	struct gp_unpooled_entry *next;
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	unsigned n_references;
	uint32_t module;
	struct gp_device *device;
	const struct gp_context *context; /* only compared, never dereferenced; NULL if the memory outlives it */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_unpooled_entry **buckets;
static size_t n_buckets, n_entries;

static struct gp_unpooled_entry **bucket_of(uint64_t id)
{
	return &buckets[(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_buckets - 1)];
}

static void grow_locked(void)
{
	size_t n_old = n_buckets, n = n_old ? n_old * 2 : FIRST_BUCKETS;
	struct gp_unpooled_entry **old = buckets, **more = calloc(n, sizeof(*more));

	if (!more)
		return;
	buckets = more;
	n_buckets = n;
	for (size_t i = 0; i < n_old; i++) {
		for (struct gp_unpooled_entry *e = old[i], *next; e; e = next) {
			struct gp_unpooled_entry **at = bucket_of(e->id);

			next = e->next;
			e->next = *at;
			*at = e;
		}
	}
	free(old);
}

/* Returns the link to the entry, or the link where it would be inserted. */
static struct gp_unpooled_entry **find_locked(enum gp_unpooled_kind kind, uint64_t id)
{
	struct gp_unpooled_entry **at = bucket_of(id);

	while (*at && ((*at)->id != id || (*at)->kind != kind))
		at = &(*at)->next;
	return at;
}

static struct gp_unpooled_entry *take_locked(struct gp_unpooled_entry **at)
{
	struct gp_unpooled_entry *entry = *at;

	*at = entry->next;
	n_entries--;
	return entry;
}

static void account(struct gp_device *device, uint64_t added_bytes)
{
	uint64_t before = atomic_fetch_add(&device->unpooled_bytes, added_bytes);

	gp_record(NULL, UNPOOLED, (uint64_t)device->index, before + added_bytes);
}

static void uncharge(struct gp_unpooled_entry *entry)
{
	if (entry) {
		gp_budget_uncharge(&entry->device->budget, entry->bytes);
		account(entry->device, -entry->bytes);
	}
	free(entry);
}

/* Replaces an entry with the same id: the driver has freed that memory in a way that gpupool did not see. */
static bool add(struct gp_unpooled_entry *entry)
{
	struct gp_unpooled_entry **at, *removed = NULL;

	gp_mutex_lock(&lock);
	if (n_entries >= n_buckets)
		grow_locked();
	if (buckets) {
		at = find_locked(entry->kind, entry->id);
		if (*at)
			removed = take_locked(at);
		entry->next = *at;
		*at = entry;
		n_entries++;
	}
	gp_mutex_unlock(&lock);
	uncharge(removed);
	return buckets != NULL;
}

void gp_unpooled_add(struct gp_device *device, const struct gp_unpooled_info *info, const struct gp_context *ends_with)
{
	struct gp_unpooled_entry *entry = malloc(sizeof(*entry));

	/* These must precede the return to the program, which may free the memory at once. */
	account(device, info->bytes);
	gp_alloc_info_note_alloc(gp_alloc_info_key(info->kind, info->id), info->bytes);
	if (entry) {
		*entry = (struct gp_unpooled_entry){
			.kind = info->kind,
			.id = info->id,
			.bytes = info->bytes,
			.n_references = 1,
			.module = info->module,
			.device = device,
			.context = ends_with,
		};
		if (add(entry))
			return;
	}
	/* Without host memory for an entry the allocation cannot be counted. */
	gp_budget_uncharge(&device->budget, info->bytes);
	account(device, -info->bytes);
	free(entry);
}

struct gp_unpooled_drop gp_unpooled_begin_drop(enum gp_unpooled_kind kind, uint64_t id)
{
	struct gp_unpooled_drop drop = {.kind = kind, .id = id};

	gp_mutex_lock(&lock);
	if (n_entries) {
		struct gp_unpooled_entry **at = find_locked(kind, id);

		drop.is_known = *at;
		if (*at && --(*at)->n_references == 0)
			drop.last = take_locked(at);
	}
	gp_mutex_unlock(&lock);
	if (drop.last)
		gp_alloc_info_note_free(gp_alloc_info_key(kind, id));
	return drop;
}

void gp_unpooled_end_drop(struct gp_unpooled_drop drop, bool is_freed)
{
	if (is_freed) {
		uncharge(drop.last);
	} else if (drop.last) {
		drop.last->n_references = 1;
		gp_alloc_info_undo_free(gp_alloc_info_key(drop.kind, drop.id));
		(void)add(drop.last);
	} else if (drop.is_known) {
		(void)gp_unpooled_retain(drop.kind, drop.id);
	}
}

void gp_unpooled_end_drop_charged(struct gp_unpooled_drop drop)
{
	if (drop.last)
		account(drop.last->device, -drop.last->bytes);
	free(drop.last);
}

bool gp_unpooled_is_known(enum gp_unpooled_kind kind, uint64_t id)
{
	bool is_known;

	gp_mutex_lock(&lock);
	is_known = n_entries && *find_locked(kind, id);
	gp_mutex_unlock(&lock);
	return is_known;
}

bool gp_unpooled_retain(enum gp_unpooled_kind kind, uint64_t id)
{
	struct gp_unpooled_entry *entry = NULL;

	gp_mutex_lock(&lock);
	if (n_entries)
		entry = *find_locked(kind, id);
	if (entry)
		entry->n_references++;
	gp_mutex_unlock(&lock);
	return entry != NULL;
}

static void forget_context(CUcontext handle, struct gp_context *context)
{
	if (!context)
		return;
	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (struct gp_unpooled_entry **at = &buckets[i]; *at;) {
			if ((*at)->context == context)
				uncharge(take_locked(at));
			else
				at = &(*at)->next;
		}
	}
	gp_mutex_unlock(&lock);
}

void gp_unpooled_start(void)
{
	static struct gp_context_watcher watcher = {.ended = forget_context};

	gp_context_watch(&watcher);
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
		for (const struct gp_unpooled_entry *e = buckets[i]; e; e = e->next)
			fn(arg, &(struct gp_unpooled_info){e->kind, e->id, e->bytes, e->device->index, e->module});
	gp_mutex_unlock(&lock);
}
