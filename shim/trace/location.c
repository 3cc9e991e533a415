/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Two hash tables that only grow, like that of call_site.c: lookups take no lock and find only complete entries. */

#include "location.h"

#include <stdatomic.h>
#include <string.h>

#include "pool/lock.h"
#include "shim/base/reserve.h"

enum {
	BUCKET_BITS = 14,
	BUCKETS = 1 << BUCKET_BITS,
	FUNCTIONS_MAX = 1 << 14,
	TEXT_BYTES = 4 << 20,
};

struct function {
	struct gp_function identity;
	uint32_t next;       /* in its bucket; 0: none */
	uint32_t file, name; /* offsets in table.text */
};

struct location {
	uint32_t next, function, at, line;
};

struct table {
	_Atomic uint32_t function_buckets[BUCKETS], location_buckets[BUCKETS];
	struct function functions[FUNCTIONS_MAX + 1]; /* entry 0 is unused, as in locations */
	struct location locations[GP_LOCATIONS_MAX + 1];
	char text[TEXT_BYTES];
};

static _Atomic(void *) table;
static struct gp_spinlock lock; /* taken to add an entry */
static uint32_t n_functions, n_text;
static _Atomic uint32_t n_locations;

int gp_location_init(void)
{
	return gp_reserve_once(&table, sizeof(struct table));
}

static uint32_t bucket_of(uint64_t value)
{
	return (uint32_t)((value * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - BUCKET_BITS));
}

static uint32_t find_function(struct table *t, const struct gp_function *wanted)
{
	uint32_t i = atomic_load_explicit(&t->function_buckets[bucket_of(wanted->identity[0])], memory_order_acquire);

	while (i && memcmp(&t->functions[i].identity, wanted, sizeof(*wanted)) != 0)
		i = t->functions[i].next;
	return i;
}

uint32_t gp_function_find(const struct gp_function *function)
{
	return find_function(atomic_load(&table), function);
}

/* Copies a text into the table. Returns its offset; if there is no room, 0, where the text is empty. */
static uint32_t add_text_locked(struct table *t, const char *text)
{
	size_t bytes = strlen(text) + 1;
	uint32_t at = n_text + 1;

	if (at + bytes > TEXT_BYTES)
		return 0;
	memcpy(&t->text[at], text, bytes);
	n_text += (uint32_t)bytes;
	return at;
}

uint32_t gp_function_add(const struct gp_function *function, const char *file, const char *name)
{
	struct table *t = atomic_load(&table);
	_Atomic uint32_t *bucket = &t->function_buckets[bucket_of(function->identity[0])];
	uint32_t i;

	gp_spin_lock(&lock);
	i = find_function(t, function);
	if (!i && n_functions < FUNCTIONS_MAX) {
		i = ++n_functions;
		t->functions[i] = (struct function){
			.identity = *function,
			.next = atomic_load_explicit(bucket, memory_order_relaxed),
			.file = add_text_locked(t, file),
			.name = add_text_locked(t, name),
		};
		atomic_store_explicit(bucket, i, memory_order_release);
	}
	gp_spin_unlock(&lock);
	return i;
}

static uint64_t key_of(uint32_t function, uint32_t at)
{
	return (uint64_t)function << 32 | at;
}

static uint32_t find_location(struct table *t, uint32_t function, uint32_t at)
{
	uint32_t i = atomic_load_explicit(&t->location_buckets[bucket_of(key_of(function, at))], memory_order_acquire);

	while (i && !(t->locations[i].function == function && t->locations[i].at == at))
		i = t->locations[i].next;
	return i;
}

uintptr_t gp_location_find(uint32_t function, uint32_t at)
{
	uint32_t i = find_location(atomic_load(&table), function, at);

	return i ? GP_LOCATION_BIT | i : 0;
}

uintptr_t gp_location_add(uint32_t function, uint32_t at, unsigned line)
{
	struct table *t = atomic_load(&table);
	_Atomic uint32_t *bucket = &t->location_buckets[bucket_of(key_of(function, at))];
	uint32_t i;

	gp_spin_lock(&lock);
	i = find_location(t, function, at);
	if (!i && gp_locations_count() < GP_LOCATIONS_MAX) {
		i = gp_locations_count() + 1;
		t->locations[i] = (struct location){
			.next = atomic_load_explicit(bucket, memory_order_relaxed),
			.function = function,
			.at = at,
			.line = line,
		};
		atomic_store_explicit(bucket, i, memory_order_release);
		atomic_store_explicit(&n_locations, i, memory_order_release);
	}
	gp_spin_unlock(&lock);
	return i ? GP_LOCATION_BIT | i : 0;
}

void gp_location_info(uintptr_t location, struct gp_location_info *ret)
{
	struct table *t = atomic_load(&table);
	const struct location *p = &t->locations[gp_location_number(location)];
	const struct function *f = &t->functions[p->function];

	*ret = (struct gp_location_info){.file = &t->text[f->file], .name = &t->text[f->name], .line = p->line};
}

uint32_t gp_locations_count(void)
{
	return atomic_load_explicit(&n_locations, memory_order_acquire);
}
