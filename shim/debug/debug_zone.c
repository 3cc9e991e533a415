/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug_zone.h"

#include <stdlib.h>

struct gp_mutex gp_zones_lock = GP_MUTEX_INIT(GP_RANK_ZONES);

static struct gp_tree zones;

static struct gp_zone *zone_of(struct gp_tree_node *node)
{
	return node ? gp_container_of(node, struct gp_zone, by_addr) : NULL;
}

struct gp_zone *gp_zone_new(struct gp_context *context)
{
	struct gp_zone *zone = calloc(1, sizeof(*zone));

	if (!zone)
		return NULL;
	gp_context_ref(context);
	zone->block.context = context;
	return zone;
}

void gp_zone_free(struct gp_zone *zone)
{
	if (!zone)
		return;
	gp_context_unref(zone->block.context);
	free(zone);
}

static void insert(struct gp_zone *zone)
{
	zone->by_addr = (struct gp_tree_node){.key = zone->addr};
	gp_tree_insert(&zones, &zone->by_addr);
}

/* A context is marked dead before its zones are freed, so no zone of a dead context can stay in the tree. */
bool gp_zone_insert_locked(struct gp_zone *zone)
{
	if (gp_context_is(zone->block.context, GP_CONTEXT_DEAD))
		return false;
	insert(zone);
	return true;
}

void gp_zone_remove_locked(struct gp_zone *zone)
{
	gp_tree_remove(&zones, &zone->by_addr);
}

static void move_out(struct gp_zone *zone, struct gp_zone **list)
{
	gp_zone_remove_locked(zone);
	zone->is_out = true;
	if (zone->is_new)
		return;
	zone->next = *list;
	*list = zone;
}

struct gp_zone *gp_zone_find_locked(uint64_t addr)
{
	struct gp_zone *zone = zone_of(gp_tree_at_most(&zones, addr));

	return zone && addr - zone->addr < zone->bytes ? zone : NULL;
}

struct gp_zone *gp_zone_next_locked(uint64_t addr)
{
	return zone_of(gp_tree_at_least(&zones, addr));
}

/*
 * Cuts a zone at an address, and inserts a new zone for the bytes behind it. Returns the new zone; NULL if the zone
 * ends before the address, or without host memory.
 */
static struct gp_zone *split(struct gp_zone *zone, uint64_t addr)
{
	uint64_t left = addr - zone->addr;
	struct gp_zone *right;

	if (left >= zone->bytes)
		return NULL;
	right = gp_zone_new(zone->block.context);
	if (right) {
		right->block = zone->block;
		right->addr = addr;
		right->bytes = zone->bytes - left;
		insert(right);
	}
	zone->bytes = left;
	return right;
}

struct gp_zone *gp_zones_take_locked(uint64_t addr, uint64_t bytes)
{
	struct gp_zone *zone = gp_zone_find_locked(addr), *list = NULL;

	if (zone && zone->addr < addr)
		zone = split(zone, addr);
	while ((zone = gp_zone_next_locked(addr)) && zone->addr - addr < bytes) {
		(void)split(zone, addr + bytes);
		move_out(zone, &list);
	}
	return list;
}

struct gp_zone *gp_zones_take_segment_locked(uint64_t segment)
{
	struct gp_zone *zone, *list = NULL;

	while ((zone = gp_zone_next_locked(segment)) && zone->block.segment == segment)
		move_out(zone, &list);
	return list;
}

void gp_zones_forget_context(const struct gp_context *context)
{
	struct gp_zone *zone, *removed = NULL;
	uint64_t at = 0;

	gp_mutex_lock(&gp_zones_lock);
	while ((zone = gp_zone_next_locked(at))) {
		at = zone->addr + 1;
		if (zone->block.context == context)
			move_out(zone, &removed);
	}
	gp_mutex_unlock(&gp_zones_lock);
	while ((zone = removed)) {
		removed = zone->next;
		gp_zone_free(zone);
	}
}

void gp_zones_count(struct gp_zones_count *ret)
{
	struct gp_zone *zone;
	uint64_t at = 0;

	*ret = (struct gp_zones_count){0};
	gp_mutex_lock(&gp_zones_lock);
	while ((zone = gp_zone_next_locked(at))) {
		at = zone->addr + 1;
		ret->n_held += !zone->block.is_freed;
		ret->n_guarded += !zone->block.is_freed && zone->block.is_guarded;
		ret->n_filled += zone->block.is_filled;
		ret->filled_bytes += zone->block.is_filled ? zone->bytes : 0;
	}
	gp_mutex_unlock(&gp_zones_lock);
}
