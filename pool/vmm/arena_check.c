/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Checks every invariant of the arenas, as check.c does for those of all kinds. */

#include "arena_check.h"

#define EXPECT(cond, what)           \
	do {                         \
		if (!(cond))         \
			return what; \
	} while (0)

/* Checks that each byte of a block has memory, and no byte of an unmapped gap. */
static const char *check_memory(const struct gp_arena *arena, const struct gp_block *b)
{
	uint64_t granule = gp_arena_granule(arena);

	for (uint64_t at = b->addr & ~(granule - 1); at < b->addr + b->size; at += granule) {
		const struct gp_chunk *chunk = gp_arena_granule_at(arena, at)->chunk;

		EXPECT(gp_block_is_unmapped(b) == !chunk, "an unmapped gap has memory, or a block has none");
		EXPECT(!chunk || (at >= chunk->addr && at < chunk->addr + chunk->size),
			"a granule refers to a chunk that does not cover it");
	}
	return NULL;
}

static const char *check_arena(const struct gp_arena *arena)
{
	uint64_t n_gaps = 0;
	struct gp_list *link;

	for (const struct gp_block *b = arena->segment->first; b; b = b->next) {
		const char *broken = check_memory(arena, b);

		if (broken)
			return broken;
		EXPECT(gp_arena_block_at_locked(arena, b->addr + b->size - 1) == b, "the arena does not find a block");
		EXPECT(!gp_block_is_unmapped(b) || !gp_block_is_unmapped(b->prev), "two unmapped gaps were not merged");
		n_gaps += gp_block_is_unmapped(b);
	}
	gp_list_each(link, &arena->unmapped)
		n_gaps--;
	EXPECT(!n_gaps, "the list does not have exactly the unmapped gaps");
	return NULL;
}

const char *gp_arena_check_locked(const struct gp_pool *pool)
{
	const struct gp_vm *vm = pool->cache.vm;
	uint64_t total = 0, spilled = 0;
	struct gp_list *link;

	if (gp_flag_is_set(&pool->dead))
		return NULL;
	gp_list_each(link, &vm->chunks) {
		const struct gp_chunk *chunk = gp_container_of(link, struct gp_chunk, link);

		total += chunk->size;
		spilled += chunk->is_spilled ? chunk->size : 0;
	}
	EXPECT(total == pool->stats.total_bytes, "the sizes of the chunks do not add up to the total");
	EXPECT(spilled == pool->stats.spilled_bytes, "what was spilled is miscounted");
	for (int i = 0; i < GP_N_ARENAS; i++) {
		const char *broken = check_arena(&vm->arenas[i]);

		if (broken)
			return broken;
	}
	return NULL;
}
