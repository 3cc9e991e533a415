/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Every invariant of the ranges, as check.c does for what all kinds have. */

#include "range.h"

#define EXPECT(cond, what)                                                                                             \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			return what;                                                                                   \
	} while (0)

/* A block has memory under each of its bytes, and a hole under none. */
static const char *check_memory(const struct gp_range *range, const struct gp_block *b)
{
	uint64_t granule = gp_range_granule(range);

	for (uint64_t at = b->addr & ~(granule - 1); at < b->addr + b->size; at += granule) {
		const struct gp_piece *piece = gp_range_granule_at(range, at)->piece;

		EXPECT(gp_block_is_hole(b) == !piece, "a hole has memory, or a block none");
		EXPECT(!piece || (at >= piece->addr && at < piece->addr + piece->size), "a piece is not where it is");
	}
	return NULL;
}

static const char *check_range(const struct gp_range *range)
{
	uint64_t n_holes = 0;
	struct gp_list *link;

	for (const struct gp_block *b = range->segment->first; b; b = b->next) {
		const char *broken = check_memory(range, b);

		if (broken)
			return broken;
		EXPECT(gp_range_block_at_locked(range, b->addr + b->size - 1) == b, "a block is not found");
		EXPECT(!gp_block_is_hole(b) || !gp_block_is_hole(b->prev), "two holes were not merged");
		n_holes += gp_block_is_hole(b);
	}
	gp_list_each(link, &range->holes)
		n_holes--;
	EXPECT(!n_holes, "a hole is not in the list");
	return NULL;
}

const char *gp_range_check_locked(const struct gp_pool *pool)
{
	const struct gp_vm *vm = pool->cache.vm;
	uint64_t total = 0;
	struct gp_list *link;

	if (gp_pool_is_flag(&pool->dead))
		return NULL;
	gp_list_each(link, &vm->pieces)
		total += gp_container_of(link, struct gp_piece, link)->size;
	EXPECT(total == pool->stats.total_bytes, "the pieces are not what the pool has");
	for (int i = 0; i < GP_N_RANGES; i++) {
		const char *broken = check_range(&vm->ranges[i]);

		if (broken)
			return broken;
	}
	return NULL;
}
