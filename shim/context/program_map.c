/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "program_map.h"

#include "pool/lock.h"
#include "shim/base/fork.h"

enum { BUCKETS_BITS = 10, PAGE_BITS = 16 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_program_map *buckets[1 << BUCKETS_BITS];
_Atomic unsigned gp_program_map_n_ids;

static struct gp_program_map **bucket_of(CUdeviceptr addr)
{
	return &buckets[((addr >> PAGE_BITS) * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - BUCKETS_BITS)];
}

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

void gp_program_maps_start(void)
{
	static struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
}

void gp_program_map_add(struct gp_program_map *map)
{
	struct gp_program_map **bucket = bucket_of(map->addr);

	gp_mutex_lock(&lock);
	map->next = *bucket;
	*bucket = map;
	atomic_fetch_add(&gp_program_map_n_ids, map->buffer_id != 0);
	gp_mutex_unlock(&lock);
}

struct gp_program_map *gp_program_map_take(CUdeviceptr addr)
{
	struct gp_program_map **at = bucket_of(addr), *found;

	gp_mutex_lock(&lock);
	while (*at && (*at)->addr != addr)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		atomic_fetch_sub(&gp_program_map_n_ids, found->buffer_id != 0);
	}
	gp_mutex_unlock(&lock);
	return found;
}

/* Such mappings are rare, so a question about one searches them all. */
uint64_t gp_program_map_buffer_id(CUdeviceptr addr)
{
	uint64_t id = 0;

	if (!gp_program_map_is_any_id())
		return 0;
	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < 1u << BUCKETS_BITS && !id; i++)
		for (const struct gp_program_map *map = buckets[i]; map && !id; map = map->next)
			if (addr - map->addr < map->bytes)
				id = map->buffer_id;
	gp_mutex_unlock(&lock);
	return id;
}
