/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A map from numbers to entries, sorted by number. The numbers of a recording are chosen by its author, who may be
 * hostile, so the map is a balanced tree: no choice of numbers makes it slow. Nothing that a caller sees depends on
 * where entries are in memory.
 */

#include <stddef.h>
#include <stdint.h>

#include "../pool/tree.h"

struct replay_entry {
	uint64_t key; /* not 0 */
	uint64_t bytes;
	uint64_t addr; /* a second number for the owner of the map: mostly another address of the same memory */
	uint32_t pool;
	bool is_own; /* see replay_history.h */

	/* Used by the map itself. */
	struct gp_tree_node by_key;
	struct replay_entry *older, *newer; /* in the same pool */
};

struct replay_map {
	size_t n;
	struct gp_tree tree;
	struct replay_entry **newest; /* by number of a pool */
	uint32_t n_pools;
	struct replay_slab *slabs;
	struct replay_entry *unused; /* linked by older */
};

void replay_map_deinit(struct replay_map *map);

/* All entries are valid until they are removed. NULL if there is none. */
struct replay_entry *replay_map_find(const struct replay_map *map, uint64_t key);

/* The entry with the smallest key that is at least the given one, and with the largest that is at most that. */
struct replay_entry *replay_map_at_least(const struct replay_map *map, uint64_t key);
struct replay_entry *replay_map_at_most(const struct replay_map *map, uint64_t key);

/* The entry of the pool that was put last. */
struct replay_entry *replay_map_of_pool(const struct replay_map *map, uint32_t pool);

/* Replaces an entry with the same key. */
void replay_map_put(struct replay_map *map, struct replay_entry entry);

void replay_map_remove(struct replay_map *map, struct replay_entry *entry);

/* The next by key after an entry, which may be NULL for the first. */
struct replay_entry *replay_map_next(const struct replay_map *map, const struct replay_entry *entry);
