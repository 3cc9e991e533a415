/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "block_info.h"

#include "pool/vmm/arena.h"

struct gp_block_info gp_block_describe(const struct gp_block *b)
{
	bool is_used = gp_block_state(b) == GP_BLOCK_USED;
	const struct gp_arena *arena = b->segment->arena;
	const struct gp_chunk *chunk = arena ? gp_arena_granule_at(arena, b->addr)->chunk : NULL;

	return (struct gp_block_info){
		.addr = b->addr,
		.size = is_used ? gp_block_requested(b) : b->size,
		.rounded = b->size,
		.serial = atomic_load_explicit(&b->serial, memory_order_relaxed),
		.segment_base = chunk ? chunk->addr : b->segment->base,
		.segment_size = chunk ? chunk->size : b->segment->size,
		.module = is_used ? atomic_load_explicit(&b->module, memory_order_relaxed) : 0,
		.is_used = is_used,
		.is_whole = gp_block_is_whole(b),
		.is_retired = gp_block_is_retired(b),
		.is_cached = gp_block_state(b) == GP_BLOCK_CACHED,
		.is_mapped = arena != NULL,
		.is_guard = b->flags & GP_BLOCK_GUARD,
		.is_of_stream = is_used && (b->flags & GP_BLOCK_STREAM),
		.account = is_used ? gp_block_account(b) : GP_ACCOUNT_NONE,
	};
}
