/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "program_map.h"

#include "pool/lock.h"
#include "shim/base/fork.h"

enum { BUCKETS_BITS = 10, PAGE_BITS = 16 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_program_map *buckets[1 << BUCKETS_BITS];

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
	gp_mutex_unlock(&lock);
}

struct gp_program_map *gp_program_map_take(CUdeviceptr addr)
{
	struct gp_program_map **at = bucket_of(addr), *found;

	gp_mutex_lock(&lock);
	while (*at && (*at)->addr != addr)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	gp_mutex_unlock(&lock);
	return found;
}
