/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* From a number, not 0, to what is known of it: an open hash table. */

#include <stddef.h>
#include <stdint.h>

struct replay_entry {
	uint64_t key; /* 0: unused */
	uint64_t bytes;
	uint64_t addr; /* another address of the same */
	uint32_t pool;
};

struct replay_map {
	struct replay_entry *slots;
	size_t size, n; /* size is a power of two, or 0 */
};

void replay_map_deinit(struct replay_map *map);

/* NULL if it is not there. Valid until the next put or remove. */
struct replay_entry *replay_map_find(const struct replay_map *map, uint64_t key);

/* Replaces what was there. */
void replay_map_put(struct replay_map *map, struct replay_entry entry);

void replay_map_remove(struct replay_map *map, struct replay_entry *entry);
