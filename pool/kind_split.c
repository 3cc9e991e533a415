/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * split: blocks are cut from large segments, best fit, and merge with their free neighbours when they come back. Small
 * blocks live in slabs of their own, so that a small block that lives long never pins a large segment.
 *
 * The first bytes of a shared segment are a guard: a block that is never handed out.
 *
 *   - So no block's address is a segment's base. A free that reaches the driver without the pool then fails, instead of
 *     freeing the neighbours as well.
 *   - A block that is a whole segment has no guard, so a legacy IPC handle can be obtained for it.
 *   - Cutting a whole segment creates the guard. It goes when all the rest is merged again.
 *   - The guard is a page if the first block behind it consists of whole pages. So large blocks begin at pages
 *     (gp_round_cut), and small blocks do while all small requests of the program are multiples of a page, as with the
 *     driver.
 *
 * Invariant: no two neighbours are cached, except a guard and the block behind it.
 */

#include "descriptor.h"
#include "kind_split.h"

#include "segment.h"
#include "tuning.h"

static void split_init(struct gp_pool *pool)
{
	pool->cache.split.small.root = pool->cache.split.large.root = NULL;
}

static uint64_t split_round(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_cut(pool, bytes);
}

static struct gp_tree *tree_of(struct gp_pool *pool, const struct gp_segment *segment)
{
	return segment->is_small ? &pool->cache.split.small : &pool->cache.split.large;
}

static void index_add(struct gp_pool *pool, struct gp_block *block)
{
	if (block->segment->is_retired)
		return;
	block->by_size.key = block->size;
	block->by_size.tie = block->addr;
	gp_tree_insert(tree_of(pool, block->segment), &block->by_size);
}

static void split_unlink(struct gp_pool *pool, struct gp_block *block)
{
	if (!block->segment->is_retired && !(block->flags & GP_BLOCK_GUARD))
		gp_tree_remove(tree_of(pool, block->segment), &block->by_size);
}

/* Returns the smallest block that fits, and of equals the one with the lowest address. */
static struct gp_block *find(const struct gp_pool *pool, uint64_t size)
{
	bool is_small = size <= GP_SMALL_MAX;
	struct gp_tree_node *node =
		gp_tree_at_least(is_small ? &pool->cache.split.small : &pool->cache.split.large, size);

	return node ? gp_container_of(node, struct gp_block, by_size) : NULL;
}

/* A whole segment is neither cut nor merged. */
static bool split_has_good_fit(const struct gp_pool *pool, uint64_t size)
{
	struct gp_block *b = find(pool, size);

	return b && b->size == size && gp_block_is_whole(b);
}

static struct gp_block *split_take(struct gp_pool *pool, uint64_t size)
{
	struct gp_block *b = find(pool, size);

	if (!b)
		return NULL;
	split_unlink(pool, b);
	if (gp_block_is_whole(b))
		gp_segment_set_busy_locked(b->segment);
	gp_cached_sub(pool, b);
	return b;
}

/*
 * Returns the size of the guard in a segment that is cut for this size. A slab whose blocks are not whole pages has no
 * use for a guard of a page.
 */
static uint64_t guard_bytes(const struct gp_pool *pool, uint64_t size)
{
	return size % pool->options.page_bytes ? GP_ALIGN : pool->options.page_bytes;
}

/* Makes the first bytes of a whole segment a guard, and returns the rest. size: of the block that is cut next. */
static struct gp_block *cut_guard(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	struct gp_block *rest = gp_block_cut_locked(pool, block, guard_bytes(pool, size));

	block->flags |= GP_BLOCK_GUARD;
	gp_cached_add(pool, block);
	return rest;
}

static struct gp_block *split_cut(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	struct gp_block *rest;

	if (block->size == size)
		return block;
	if (gp_block_is_whole(block)) {
		/* Memory was too short for a slab when the segment was obtained. */
		if (block->size < guard_bytes(pool, size) + size)
			return block;
		block = cut_guard(pool, block, size);
		if (block->size == size)
			return block;
	}
	rest = gp_block_cut_locked(pool, block, size);
	gp_cached_add(pool, rest);
	index_add(pool, rest);
	return block;
}

static struct gp_block *split_divide(
	struct gp_pool *pool, struct gp_block *block, uint64_t size, struct gp_block **ret_rest)
{
	uint64_t guard = gp_block_is_whole(block) ? guard_bytes(pool, size) : 0;

	if (block->segment->is_small != (size <= GP_SMALL_MAX) || block->size < guard + size)
		return NULL;
	if (guard)
		block = cut_guard(pool, block, size);
	*ret_rest = block->size > size ? gp_block_cut_locked(pool, block, size) : NULL;
	return block;
}

static void merge(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind)
{
	gp_block_join_locked(pool, block, behind);
	pool->stats.n_cached_blocks--;
}

static bool is_cached(const struct gp_block *block)
{
	return block && gp_block_state(block) == GP_BLOCK_CACHED;
}

static void split_put(struct gp_pool *pool, struct gp_block *block)
{
	gp_cached_add(pool, block);
	if (is_cached(block->next)) {
		split_unlink(pool, block->next);
		merge(pool, block, block->next);
	}
	if (is_cached(block->prev) && !(block->prev->flags & GP_BLOCK_GUARD)) {
		block = block->prev;
		split_unlink(pool, block);
		merge(pool, block, block->next);
	}
	if (block->prev && (block->prev->flags & GP_BLOCK_GUARD) && !block->next) {
		block = block->prev;
		block->flags &= (uint8_t)~GP_BLOCK_GUARD;
		merge(pool, block, block->next);
	}
	index_add(pool, block);
	if (gp_block_is_whole(block))
		gp_segment_set_idle_locked(pool, block->segment);
}

static uint64_t split_segment_bytes(const struct gp_pool *pool, uint64_t size)
{
	uint64_t share = gp_round_up(pool->stats.total_bytes / GP_SEGMENT_SHARE, pool->options.granule);
	uint64_t segment = gp_min(gp_max(share, GP_SEGMENT_MIN), GP_SEGMENT_MAX);

	if (size <= GP_SMALL_MAX)
		return gp_round_up(guard_bytes(pool, size) + GP_SLAB_BLOCKS_MIN * size, GP_SLAB_MULTIPLE);
	/* The guard is added on top, so that blocks of a power of two still fill the segment. */
	if (size <= segment / GP_SEGMENT_PART)
		return segment + pool->options.granule;
	return gp_round_up(size, pool->options.granule);
}

static uint64_t split_largest_fit(const struct gp_pool *pool, uint64_t size)
{
	return size <= GP_SMALL_MAX ? GP_SMALL_MAX : UINT64_MAX;
}

/* Small blocks are in slabs and do not merge with large ones. */
static uint64_t split_smallest_part(const struct gp_pool *pool, uint64_t size)
{
	return size <= GP_SMALL_MAX ? GP_ALIGN : GP_SMALL_MAX + pool->options.page_bytes;
}

static uint64_t split_count(const struct gp_pool *pool)
{
	return gp_tree_count(&pool->cache.split.small) + gp_tree_count(&pool->cache.split.large);
}

const struct gp_kind_ops gp_kind_split = {
	.name = "split",
	.init = split_init,
	.round = split_round,
	.is_cut = true,
	.take = split_take,
	.has_good_fit = split_has_good_fit,
	.cut = split_cut,
	.divide = split_divide,
	.put = split_put,
	.unlink = split_unlink,
	.stale_after = GP_STALE_GROWTHS,
	.swaps = true,
	.n_waits = GP_PEAK_WAITS_MAX,
	.segment_bytes = split_segment_bytes,
	.largest_fit = split_largest_fit,
	.smallest_part = split_smallest_part,
	.count = split_count,
};
