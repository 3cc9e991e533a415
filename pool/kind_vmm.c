/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * vmm: as split, but all small blocks are cut from one arena of addresses and all large ones from another, best fit
 * over the whole arena. Memory is mapped there as it is needed, and free memory elsewhere is moved before more is taken
 * from the driver (grow.c). So there are no segments whose ends stay empty, and no guards either: the driver's
 * own free refuses such addresses.
 *
 * Invariant: no two neighbours are cached unless one is exported, and no two neighbours are unmapped gaps.
 */

#include "kind_vmm.h"

#include "pool/vmm/chunk.h"
#include "pool/vmm/grow.h"
#include "pool/vmm/arena_life.h"
#include "tuning.h"

static void vmm_init(struct gp_pool *pool)
{
	if (pool->cache.vm)
		gp_arena_forget_locked(pool);
}

static uint64_t vmm_round(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_cut(pool, bytes);
}

/* Returns the smallest block that fits, and of equals the one with the lowest address. */
static struct gp_block *find(const struct gp_pool *pool, uint64_t size)
{
	struct gp_tree_node *node = gp_tree_at_least(&gp_arena_for(pool, size)->free, size);

	return node ? gp_container_of(node, struct gp_block, by_size) : NULL;
}

/*
 * For a request of whole granules: a block that begins at a granule and has that size or a multiple of it. Its rest is
 * whole granules, which can be moved. A multiple may be several such blocks that have merged, but no more than can take
 * turns: a larger block should stay whole.
 */
static bool vmm_has_good_fit(const struct gp_pool *pool, uint64_t size)
{
	struct gp_block *b = size % pool->options.granule == 0 ? find(pool, size) : NULL;

	return b && b->addr % pool->options.granule == 0 && b->size % size == 0 && b->size / size <= GP_OVERLAP_TURNS;
}

static struct gp_block *vmm_take(struct gp_pool *pool, uint64_t size)
{
	struct gp_block *b = find(pool, size);

	if (!b)
		return NULL;
	gp_arena_unlink_locked(pool, b);
	gp_cached_sub(pool, b);
	gp_block_set_state(b, GP_BLOCK_MOVING); /* otherwise it would merge again with what is cut from it */
	return b;
}

static struct gp_block *vmm_cut(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	if (block->size != size)
		gp_arena_cache_locked(pool, gp_arena_cut_locked(pool, block, size));
	return block;
}

static struct gp_block *vmm_divide(
	struct gp_pool *pool, struct gp_block *block, uint64_t size, struct gp_block **ret_rest)
{
	if (block->segment->arena != gp_arena_for(pool, size))
		return NULL;
	*ret_rest = block->size > size ? gp_arena_cut_locked(pool, block, size) : NULL;
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

	for (int i = 0; i < GP_N_ARENAS; i++)
		n += gp_tree_count(&pool->cache.vm->arenas[i].free);
	return n;
}

const struct gp_kind_ops gp_kind_vmm = {
	.name = "vmm",
	.init = vmm_init,
	.open = gp_arena_open,
	.close = gp_arena_close,
	.round = vmm_round,
	.is_cut = true,
	.wants_merged = true,
	.take = vmm_take,
	.has_good_fit = vmm_has_good_fit,
	.cut = vmm_cut,
	.divide = vmm_divide,
	.put = gp_arena_cache_locked,
	.unlink = gp_arena_unlink_locked,
	.n_waits = GP_PEAK_WAITS_MAX,
	.grow = gp_arena_grow,
	.give_back = gp_arena_give_back,
	.segment_bytes = vmm_segment_bytes,
	.largest_fit = vmm_largest_fit,
	.smallest_part = vmm_smallest_part,
	.count = vmm_count,
};
