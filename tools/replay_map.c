/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_map.h"

#include <stdbool.h>
#include <stdlib.h>

#include "stat_say.h"

enum { FIRST_SIZE = 1024 };

static size_t home_of(const struct replay_map *map, uint64_t key)
{
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (map->size - 1);
}

/* Where the key is, or would be. */
static struct replay_entry *slot_of(const struct replay_map *map, uint64_t key)
{
	size_t i = home_of(map, key);

	while (map->slots[i].key && map->slots[i].key != key)
		i = (i + 1) & (map->size - 1);
	return &map->slots[i];
}

static void grow(struct replay_map *map)
{
	struct replay_map larger = {.size = map->size ? map->size * 2 : FIRST_SIZE, .n = map->n};

	larger.slots = stat_alloc(calloc(larger.size, sizeof(*larger.slots)));
	for (size_t i = 0; i < map->size; i++)
		if (map->slots[i].key)
			*slot_of(&larger, map->slots[i].key) = map->slots[i];
	free(map->slots);
	*map = larger;
}

void replay_map_deinit(struct replay_map *map)
{
	free(map->slots);
}

struct replay_entry *replay_map_find(const struct replay_map *map, uint64_t key)
{
	struct replay_entry *entry = map->size ? slot_of(map, key) : NULL;

	return entry && entry->key && key ? entry : NULL;
}

void replay_map_put(struct replay_map *map, struct replay_entry entry)
{
	struct replay_entry *slot;

	if (!entry.key)
		return;
	if (map->n * 2 >= map->size)
		grow(map);
	slot = slot_of(map, entry.key);
	map->n += !slot->key;
	*slot = entry;
}

/* Those behind move up, so that no search ends early. */
void replay_map_remove(struct replay_map *map, struct replay_entry *entry)
{
	size_t hole = (size_t)(entry - map->slots), mask = map->size - 1;

	for (size_t i = (hole + 1) & mask; map->slots[i].key; i = (i + 1) & mask) {
		size_t home = home_of(map, map->slots[i].key);
		bool is_between = ((i - home) & mask) >= ((i - hole) & mask);

		if (!is_between)
			continue;
		map->slots[hole] = map->slots[i];
		hole = i;
	}
	map->slots[hole].key = 0;
	map->n--;
}
