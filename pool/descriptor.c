/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Descriptors of blocks and segments come in batches and are recycled through a list of spares. So a hit allocates no
 * host memory, and memory that held a descriptor always holds one. Batches outlive their pool: its address map passes
 * them to the next pool, since a lookup without a lock may still read them. Fields that such a lookup reads are never
 * reset, only overwritten; above all a block's word keeps counting hand-outs.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "descriptor.h"

enum {
	BLOCKS_PER_BATCH = 64,
	SEGMENTS_PER_BATCH = 16,
	ENSURED = 4, /* a cut needs two blocks, a new segment one */
};

struct batch {
	struct gp_descriptor_batch owned; /* owned by the pool, or by the map */
	struct gp_block blocks[BLOCKS_PER_BATCH];
	struct gp_segment segments[SEGMENTS_PER_BATCH];
};

static struct batch *new_batch(void)
{
	void *memory;
	struct batch *batch = gp_calloc_aligned(sizeof(*batch), _Alignof(struct batch), &memory);

	if (batch)
		batch->owned.memory = memory;
	return batch;
}

/* Returns a batch from an earlier pool, or a new one. NULL: host memory is short. */
static struct batch *find_batch(struct gp_addrmap *map)
{
	struct gp_descriptor_batch *left = gp_addrmap_take_batch(map);

	return left ? gp_container_of(left, struct batch, owned) : new_batch();
}

int gp_descriptors_ensure_locked(struct gp_pool *pool)
{
	struct batch *batch;

	if (gp_likely(pool->n_spare_blocks >= ENSURED && !gp_list_is_empty(&pool->spare_segments)))
		return 0;
	batch = find_batch(pool->options.map);
	if (!batch)
		return -ENOBUFS;
	batch->owned.next = pool->batches;
	pool->batches = &batch->owned;
	for (int i = 0; i < BLOCKS_PER_BATCH; i++)
		gp_block_spare_locked(pool, &batch->blocks[i]);
	for (int i = 0; i < SEGMENTS_PER_BATCH; i++) {
		__atomic_store_n(&batch->segments[i].pool, pool, __ATOMIC_RELAXED);
		gp_list_append(&pool->spare_segments, &batch->segments[i].link);
	}
	return 0;
}

struct gp_block *gp_block_new_locked(struct gp_pool *pool)
{
	struct gp_block *b = gp_container_of(pool->spare_blocks.next, struct gp_block, link);

	gp_assert(!gp_list_is_empty(&pool->spare_blocks));
	gp_list_remove(&b->link);
	pool->n_spare_blocks--;
	b->size = b->seq = 0;
	atomic_store_explicit(&b->requested, 0, memory_order_relaxed);
	atomic_store_explicit(&b->serial, 0, memory_order_relaxed);
	b->prev = b->next = NULL;
	b->flags = 0;
	atomic_store_explicit(&b->is_exported, false, memory_order_relaxed);
	return b;
}

void gp_block_spare_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_set_state(block, GP_BLOCK_UNUSED);
	gp_list_prepend(&pool->spare_blocks, &block->link);
	pool->n_spare_blocks++;
}

struct gp_block *gp_block_cut_locked(struct gp_pool *pool, struct gp_block *block, uint64_t size)
{
	struct gp_block *rest = gp_block_new_locked(pool);

	gp_assert(size < block->size);
	gp_block_set_place(rest, block->segment, block->addr + size);
	rest->size = block->size - size;
	rest->seq = block->seq;
	rest->prev = block;
	rest->next = block->next;
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->size = size;
	return rest;
}

void gp_block_join_locked(struct gp_pool *pool, struct gp_block *block, struct gp_block *behind)
{
	gp_block_unmap_locked(pool, behind);
	block->size += behind->size;
	block->seq = gp_max(block->seq, behind->seq);
	block->next = behind->next;
	if (block->next)
		block->next->prev = block;
	gp_block_spare_locked(pool, behind);
}

struct gp_segment *gp_segment_new_locked(struct gp_pool *pool)
{
	struct gp_segment *segment = gp_container_of(pool->spare_segments.next, struct gp_segment, link);

	gp_assert(!gp_list_is_empty(&pool->spare_segments));
	gp_list_remove(&segment->link);
	memset(&segment->base, 0, sizeof(*segment) - offsetof(struct gp_segment, base));
	gp_list_init(&segment->link);
	gp_list_init(&segment->idle_link);
	return segment;
}

void gp_segment_spare_locked(struct gp_pool *pool, struct gp_segment *segment)
{
	gp_list_prepend(&pool->spare_segments, &segment->link);
}

void gp_descriptors_free(struct gp_pool *pool)
{
	gp_addrmap_keep_batches(pool->options.map, pool->batches);
}
