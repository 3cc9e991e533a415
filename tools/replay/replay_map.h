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

#include "pool/tree.h"

struct replay_entry {
	uint64_t key; /* not 0 */
	uint64_t bytes;
	uint64_t addr; /* a second number, for the owner of the map: usually another address of the same memory */
	uint32_t pool;
	uint32_t stack; /* of the allocation, for the owner of the map; 0: unknown */
	bool is_own;    /* see replay_history.h */

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

/* Returns the entry with the key, or NULL. Here and below, pointers to an entry are valid until it is removed. */
struct replay_entry *replay_map_find(const struct replay_map *map, uint64_t key);

/* Return the entry with the smallest key that is at least key, and with the largest that is at most key, or NULL. */
struct replay_entry *replay_map_at_least(const struct replay_map *map, uint64_t key);
struct replay_entry *replay_map_at_most(const struct replay_map *map, uint64_t key);

/* Returns the entry of a pool that was put last, or NULL. */
struct replay_entry *replay_map_of_pool(const struct replay_map *map, uint32_t pool);

/* Adds an entry, or replaces that with the same key. An entry with the key 0 is ignored. */
void replay_map_put(struct replay_map *map, struct replay_entry entry);

void replay_map_remove(struct replay_map *map, struct replay_entry *entry);

/* Returns the next entry by key after the given one, or the first if that is NULL; NULL after the last. */
struct replay_entry *replay_map_next(const struct replay_map *map, const struct replay_entry *entry);
