/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * vmm: as split, but all blocks of a size are cut from one range of addresses, best fit over all of it, and memory is
 * mapped there as it is needed. What lies free elsewhere is moved before more is asked for (range_fill.c). So there are
 * no segments whose ends stay empty, and no guards either: the driver's own free refuses such addresses.
 *
 * Invariant: no two cached neighbours, but those that were exported; no two holes.
 */

#include "range.h"

/* Only completed pieces can be moved. */
#define WAITS 8

static void vmm_init(struct gp_pool *pool)
{
	if (pool->cache.vm)
		gp_range_forget_locked(pool);
}

static uint64_t vmm_round(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_cut(pool, bytes);
}

static struct gp_block *vmm_take(struct gp_pool *pool, uint64_t size)
{
	struct gp_tree_node *node = gp_tree_at_least(&gp_range_for(pool, size)->free, size);
	struct gp_block *b;

	if (!node)
		return NULL;
	b = gp_container_of(node, struct gp_block, by_size);
	gp_range_unlink_locked(pool, b);
	gp_cached_sub(pool, b);
	gp_block_set_state(b, GP_BLOCK_MOVING); /* or what is cut from it would merge with it again */
	return b;
}

static struct gp_block *vmm_cut(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	if (block->size != size)
		gp_range_cache_locked(pool, gp_range_cut_locked(pool, block, size));
	return block;
}

static uint64_t vmm_segment_bytes(const struct gp_pool *pool, uint64_t size)
{
	return gp_round_up(size, pool->options.granule);
}

static uint64_t vmm_largest_fit(const struct gp_pool *pool, uint64_t size)
{
	return size <= GP_SMALL_MAX ? GP_SMALL_MAX : UINT64_MAX;
}

static uint64_t vmm_smallest_part(const struct gp_pool *pool, uint64_t size)
{
	return size <= GP_SMALL_MAX ? GP_ALIGN : GP_SMALL_MAX + pool->options.page_bytes;
}

static uint64_t vmm_count(const struct gp_pool *pool)
{
	uint64_t n = 0;

	for (int i = 0; i < GP_N_RANGES; i++)
		n += gp_tree_count(&pool->cache.vm->ranges[i].free);
	return n;
}

const struct gp_kind_ops gp_kind_vmm = {
	.name = "vmm",
	.init = vmm_init,
	.open = gp_range_open,
	.close = gp_range_close,
	.round = vmm_round,
	.is_cut = true,
	.wants_merged = true,
	.take = vmm_take,
	.cut = vmm_cut,
	.put = gp_range_cache_locked,
	.unlink = gp_range_unlink_locked,
	.n_waits = WAITS,
	.grow = gp_range_grow,
	.give_back = gp_range_give_back,
	.segment_bytes = vmm_segment_bytes,
	.largest_fit = vmm_largest_fit,
	.smallest_part = vmm_smallest_part,
	.count = vmm_count,
};
