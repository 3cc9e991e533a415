/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first.h"

#include "arena.h"

uint64_t gp_pool_first_chunk(const struct gp_pool *pool, uint64_t bytes, uint64_t *ret_addr)
{
	uint64_t size = pool->first_kind->round(pool, gp_max(bytes, 1));
	const struct gp_arena *arena = gp_arena_for(pool, size);

	*ret_addr = arena->base;
	return gp_min(gp_round_up(size, pool->options.granule), gp_arena_chunk_max(arena, size));
}
