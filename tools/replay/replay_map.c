/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_map.h"

#include <stdlib.h>

#include "tools/text/stat_say.h"

enum { SLAB_ENTRIES = 256 };

struct replay_slab {
	struct replay_slab *next;
	struct replay_entry entries[SLAB_ENTRIES];
};

static struct replay_entry *entry_of(struct gp_tree_node *node)
{
	return node ? gp_container_of(node, struct replay_entry, by_key) : NULL;
}

static void add_slab(struct replay_map *map)
{
	struct replay_slab *slab = stat_alloc(malloc(sizeof(*slab)));

	slab->next = map->slabs;
	map->slabs = slab;
	for (size_t i = 0; i < SLAB_ENTRIES; i++) {
		slab->entries[i].older = map->unused;
		map->unused = &slab->entries[i];
	}
}

static void link_to_pool(struct replay_map *map, struct replay_entry *entry)
{
	struct replay_entry *older;

	if (entry->pool >= map->n_pools) {
		map->newest = stat_alloc(reallocarray(map->newest, entry->pool + 1, sizeof(*map->newest)));
		for (; map->n_pools <= entry->pool; map->n_pools++)
			map->newest[map->n_pools] = NULL;
	}
	older = map->newest[entry->pool];
	entry->older = older;
	entry->newer = NULL;
	if (older)
		older->newer = entry;
	map->newest[entry->pool] = entry;
}

static void unlink_from_pool(struct replay_map *map, struct replay_entry *entry)
{
	if (entry->older)
		entry->older->newer = entry->newer;
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		map->newest[entry->pool] = entry->older;
}

void replay_map_deinit(struct replay_map *map)
{
	while (map->slabs) {
		struct replay_slab *slab = map->slabs;

		map->slabs = slab->next;
		free(slab);
	}
	free(map->newest);
	*map = (struct replay_map){0};
}

struct replay_entry *replay_map_at_least(const struct replay_map *map, uint64_t key)
{
	return entry_of(gp_tree_at_least(&map->tree, key));
}

struct replay_entry *replay_map_at_most(const struct replay_map *map, uint64_t key)
{
	return entry_of(gp_tree_at_most(&map->tree, key));
}

struct replay_entry *replay_map_find(const struct replay_map *map, uint64_t key)
{
	struct replay_entry *entry = replay_map_at_least(map, key);

	return entry && entry->key == key ? entry : NULL;
}

struct replay_entry *replay_map_next(const struct replay_map *map, const struct replay_entry *entry)
{
	return replay_map_at_least(map, entry ? entry->key + 1 : 0);
}

struct replay_entry *replay_map_of_pool(const struct replay_map *map, uint32_t pool)
{
	return pool < map->n_pools ? map->newest[pool] : NULL;
}

void replay_map_put(struct replay_map *map, struct replay_entry entry)
{
	struct replay_entry *old = replay_map_find(map, entry.key), *added;

	if (!entry.key)
		return;
	if (old)
		replay_map_remove(map, old);
	if (!map->unused)
		add_slab(map);
	added = map->unused;
	map->unused = added->older;
	*added = entry;
	added->by_key = (struct gp_tree_node){.key = entry.key};
	gp_tree_insert(&map->tree, &added->by_key);
	link_to_pool(map, added);
	map->n++;
}

void replay_map_remove(struct replay_map *map, struct replay_entry *entry)
{
	gp_tree_remove(&map->tree, &entry->by_key);
	unlink_from_pool(map, entry);
	entry->older = map->unused;
	map->unused = entry;
	map->n--;
}
