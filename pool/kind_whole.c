/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The three kinds that hand out whole driver allocations: every block is its segment. They differ in what they keep and
 * how they find it. Since blocks share nothing, a block's address can be exported, and its address range is that of the
 * driver allocation.
 */

#include "kind_whole.h"

#include "segment.h"
#include "tuning.h"

static struct gp_block *cut_nothing(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	return block;
}

static uint64_t segment_is_block(const struct gp_pool *pool, uint64_t size)
{
	return size;
}

static uint64_t part_is_block(const struct gp_pool *pool, uint64_t size)
{
	return size;
}

/* Rounds small requests to the alignment, and others to what the driver uses anyway. */
static uint64_t round_whole(const struct gp_pool *pool, uint64_t bytes)
{
	uint64_t multiple = bytes <= pool->options.granule / 2 ? GP_ALIGN : pool->options.granule;

	return gp_round_up(gp_max(bytes, 1), multiple);
}

/* none: every free goes to the queue and from there to the driver. */

static void none_init(struct gp_pool *pool)
{
}

static uint64_t none_round(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_up(gp_max(bytes, 1), GP_ALIGN);
}

static struct gp_block *none_take(struct gp_pool *pool, uint64_t size)
{
	return NULL;
}

static void none_put(struct gp_pool *pool, struct gp_block *block)
{
	gp_cached_add(pool, block);
	gp_segment_set_idle_locked(pool, block->segment);
}

static void none_unlink(struct gp_pool *pool, struct gp_block *block)
{
}

static uint64_t none_largest_fit(const struct gp_pool *pool, uint64_t size)
{
	return 0;
}

static uint64_t none_count(const struct gp_pool *pool)
{
	return 0;
}

const struct gp_kind_ops gp_kind_none = {
	.name = "none",
	.skips = GP_SKIP(stream) | GP_SKIP(part) | GP_SKIP(pool) | GP_SKIP(poll) | GP_SKIP(gpuwait) | GP_SKIP(flush) |
		 GP_SKIP(hostwait) | GP_SKIP(least),
	.init = none_init,
	.round = none_round,
	.take = none_take,
	.cut = cut_nothing,
	.put = none_put,
	.unlink = none_unlink,
	.segment_bytes = segment_is_block,
	.largest_fit = none_largest_fit,
	.smallest_part = part_is_block,
	.count = none_count,
};

/* Blocks that are found by size: all of simple, and the undersized ones of binned, whose sizes are in no class. */

static struct gp_block *take_from_tree(struct gp_pool *pool, uint64_t size, uint64_t largest)
{
	struct gp_tree_node *node = gp_tree_at_least(&pool->cache.whole, size);
	struct gp_block *b;

	if (!node || node->key > largest)
		return NULL;
	b = gp_container_of(node, struct gp_block, by_size);
	gp_tree_remove(&pool->cache.whole, node);
	gp_segment_set_busy_locked(b->segment);
	gp_cached_sub(pool, b);
	return b;
}

static void put_in_tree(struct gp_pool *pool, struct gp_block *block)
{
	block->by_size.key = block->size;
	block->by_size.tie = block->addr;
	gp_tree_insert(&pool->cache.whole, &block->by_size);
}

/* No size of the kind lies between the two, so a block between them was made for such a request. */
static struct gp_block *take_undersized(struct gp_pool *pool, uint64_t least, uint64_t size)
{
	return take_from_tree(pool, least, size - 1);
}

/*
 * simple: hands out the smallest cached block that is not much too large. The limit exists because a small request in a
 * huge block would pin all of it.
 */

static void simple_init(struct gp_pool *pool)
{
	pool->cache.whole.root = NULL;
}

static uint64_t simple_largest_fit(const struct gp_pool *pool, uint64_t size)
{
	return size + gp_max(size / GP_SIMPLE_FIT_SHARE, gp_min(size, pool->options.granule / 2));
}

static struct gp_block *simple_take(struct gp_pool *pool, uint64_t size)
{
	return take_from_tree(pool, size, simple_largest_fit(pool, size));
}

static void simple_put(struct gp_pool *pool, struct gp_block *block)
{
	gp_cached_add(pool, block);
	gp_segment_set_idle_locked(pool, block->segment);
	if (!block->segment->is_retired)
		put_in_tree(pool, block);
}

static void simple_unlink(struct gp_pool *pool, struct gp_block *block)
{
	if (!block->segment->is_retired)
		gp_tree_remove(&pool->cache.whole, &block->by_size);
}

static uint64_t simple_count(const struct gp_pool *pool)
{
	return gp_tree_count(&pool->cache.whole);
}

const struct gp_kind_ops gp_kind_simple = {
	.name = "simple",
	.skips = GP_SKIP(hostwait) | GP_SKIP(least),
	.init = simple_init,
	.round = round_whole,
	.take = simple_take,
	.take_undersized = take_undersized,
	.cut = cut_nothing,
	.put = simple_put,
	.unlink = simple_unlink,
	.segment_bytes = segment_is_block,
	.largest_fit = simple_largest_fit,
	.smallest_part = part_is_block,
	.count = simple_count,
};

/* binned: one list per size class, last in first out; and a tree of the undersized blocks. */

static void binned_init(struct gp_pool *pool)
{
	pool->cache.whole.root = NULL;
	for (int i = 0; i < GP_N_BINS; i++)
		gp_list_init(&pool->cache.bins[i]);
}

static uint64_t binned_round(const struct gp_pool *pool, uint64_t bytes)
{
	uint64_t size;

	if (bytes > GP_CLASS_MAX)
		return gp_round_up(bytes, pool->options.granule);
	size = gp_sizeclass_bytes(gp_sizeclass_index(bytes));
	return size <= pool->options.granule / 2 ? size : gp_round_up(size, pool->options.granule);
}

static uint64_t binned_largest_fit(const struct gp_pool *pool, uint64_t size)
{
	return size;
}

static struct gp_list *bin_of(struct gp_pool *pool, uint64_t size)
{
	return &pool->cache.bins[gp_sizeclass_index(size)];
}

/* Sizes that are rounded to the granule may share a bin with neighbours, so the size is compared. */
static struct gp_block *binned_take(struct gp_pool *pool, uint64_t size)
{
	struct gp_list *bin = bin_of(pool, size), *link;

	gp_list_each(link, bin) {
		struct gp_block *b = gp_container_of(link, struct gp_block, link);

		if (b->size != size)
			continue;
		gp_list_remove(link);
		gp_segment_set_busy_locked(b->segment);
		gp_cached_sub(pool, b);
		return b;
	}
	return NULL;
}

static void binned_put(struct gp_pool *pool, struct gp_block *block)
{
	gp_cached_add(pool, block);
	gp_segment_set_idle_locked(pool, block->segment);
	if (block->segment->is_retired)
		return;
	if (gp_unlikely(block->segment->is_undersized))
		put_in_tree(pool, block);
	else
		gp_list_prepend(bin_of(pool, block->size), &block->link);
}

static void binned_unlink(struct gp_pool *pool, struct gp_block *block)
{
	if (block->segment->is_retired)
		return;
	if (gp_unlikely(block->segment->is_undersized))
		gp_tree_remove(&pool->cache.whole, &block->by_size);
	else
		gp_list_remove(&block->link);
}

static uint64_t binned_count(const struct gp_pool *pool)
{
	uint64_t n = gp_tree_count(&pool->cache.whole);

	for (int i = 0; i < GP_N_BINS; i++) {
		const struct gp_list *link;

		gp_list_each(link, &pool->cache.bins[i])
			n++;
	}
	return n;
}

const struct gp_kind_ops gp_kind_binned = {
	.name = "binned",
	.skips = GP_SKIP(hostwait) | GP_SKIP(least),
	.init = binned_init,
	.round = binned_round,
	.take = binned_take,
	.take_undersized = take_undersized,
	.cut = cut_nothing,
	.put = binned_put,
	.unlink = binned_unlink,
	.segment_bytes = segment_is_block,
	.largest_fit = binned_largest_fit,
	.smallest_part = part_is_block,
	.count = binned_count,
};
