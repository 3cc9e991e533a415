/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Descriptors come in batches, of blocks or of segments, and are recycled through a list of spares. So a hit allocates
 * no host memory, and memory that held a descriptor always holds one of the same kind. Batches outlive their pool: its
 * address map passes them to the next pool, since a lookup without a lock may still read them. Fields that such a
 * lookup reads are never reset, only overwritten; above all a block's word keeps counting hand-outs.
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

/* `owned` is owned by the pool, or by the map. */
struct block_batch {
	struct gp_descriptor_batch owned;
	struct gp_block blocks[BLOCKS_PER_BATCH];
};

struct segment_batch {
	struct gp_descriptor_batch owned;
	struct gp_segment segments[SEGMENTS_PER_BATCH];
};

/* Both begin with `owned`, and a block is aligned to a cache line. */
enum { BATCH_ALIGN = _Alignof(struct block_batch) };

/*
 * Gives the pool a batch from an earlier pool, or a new one of that many bytes. NULL: host memory is short.
 */
static struct gp_descriptor_batch *add_batch_locked(struct gp_pool *pool, enum gp_descriptor descriptor, size_t bytes)
{
	struct gp_descriptor_batch *batch = gp_addrmap_take_batch(pool->options.map, descriptor);
	void *memory;

	if (!batch) {
		batch = gp_calloc_aligned(bytes, BATCH_ALIGN, &memory);
		if (!batch)
			return NULL;
		batch->memory = memory;
	}
	batch->next = pool->batches[descriptor];
	pool->batches[descriptor] = batch;
	return batch;
}

static int add_blocks_locked(struct gp_pool *pool)
{
	struct gp_descriptor_batch *owned = add_batch_locked(pool, GP_DESCRIPTOR_BLOCK, sizeof(struct block_batch));
	struct block_batch *batch;

	if (!owned)
		return -ENOBUFS;
	batch = gp_container_of(owned, struct block_batch, owned);
	for (int i = 0; i < BLOCKS_PER_BATCH; i++)
		gp_block_spare_locked(pool, &batch->blocks[i]);
	return 0;
}

static int add_segments_locked(struct gp_pool *pool)
{
	struct gp_descriptor_batch *owned = add_batch_locked(pool, GP_DESCRIPTOR_SEGMENT, sizeof(struct segment_batch));
	struct segment_batch *batch;

	if (!owned)
		return -ENOBUFS;
	batch = gp_container_of(owned, struct segment_batch, owned);
	for (int i = 0; i < SEGMENTS_PER_BATCH; i++) {
		__atomic_store_n(&batch->segments[i].pool, pool, __ATOMIC_RELAXED);
		gp_list_append(&pool->spare_segments, &batch->segments[i].link);
	}
	return 0;
}

int gp_descriptors_ensure_locked(struct gp_pool *pool)
{
	int r = 0;

	if (gp_unlikely(pool->n_spare_blocks < ENSURED))
		r = add_blocks_locked(pool);
	if (gp_unlikely(!r && gp_list_is_empty(&pool->spare_segments)))
		r = add_segments_locked(pool);
	return r;
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
	gp_block_set_address(rest, block->segment, block->addr + size);
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
	for (int i = 0; i < GP_N_DESCRIPTORS; i++)
		gp_addrmap_keep_batches(pool->options.map, (enum gp_descriptor)i, pool->batches[i]);
}
