/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Blocks: a hash table in shards, chained through the blocks themselves, so that an insertion allocates nothing
 * (a shard's table grows when it can and gets slower when it cannot). A block enters the map when it is first
 * handed out and stays until it is merged or given back, whatever its state. A free of an address that is not in the
 * map is looked up among the segments, so it never reaches the driver if it is ours.
 *
 * A pool that a lookup finds cannot go away meanwhile: blocks and segments leave the map, under its locks, before
 * their pool drops its own reference, and the lookup takes one under the same lock.
 */

#include "addrmap.h"

#include <errno.h>
#include <stdlib.h>

#include "pool_impl.h"

static uint64_t hash(uint64_t addr)
{
	return (addr / GP_ALIGN) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct gp_addrmap_shard *shard_of(struct gp_addrmap *map, uint64_t addr)
{
	return &map->shards[hash(addr) >> 58];
}

static struct gp_block **bucket_of(struct gp_addrmap_shard *shard, uint64_t addr)
{
	return &shard->buckets[(hash(addr) >> 26) & (shard->n_buckets - 1)];
}

void gp_addrmap_init(struct gp_addrmap *map)
{
	_Static_assert(GP_ADDRMAP_SHARDS == 64, "hash() >> 58 names the shard");
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++) {
		map->shards[i] = (struct gp_addrmap_shard){.n_buckets = GP_ADDRMAP_FIRST_BUCKETS};
		map->shards[i].buckets = map->shards[i].first_buckets;
		gp_mutex_init(&map->shards[i].lock, GP_RANK_ADDRMAP);
	}
	gp_mutex_init(&map->segments_lock, GP_RANK_SEGMENT_TREE);
	map->segments.root = NULL;
	gp_list_init(&map->departures);
	atomic_init(&map->serial, 0);
}

void gp_addrmap_deinit(struct gp_addrmap *map)
{
	gp_assert(!map->segments.root && gp_list_is_empty(&map->departures));
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++) {
		gp_assert(map->shards[i].n_blocks == 0);
		if (map->shards[i].buckets != map->shards[i].first_buckets)
			free(map->shards[i].buckets);
		gp_mutex_deinit(&map->shards[i].lock);
	}
	gp_mutex_deinit(&map->segments_lock);
}

/* Doubles the table; without memory for it the old one stays. */
static void grow_locked(struct gp_addrmap_shard *shard)
{
	size_t n_old = shard->n_buckets;
	struct gp_block **old = shard->buckets, **buckets = calloc(n_old * 2, sizeof(struct gp_block *));

	if (!buckets)
		return;
	shard->buckets = buckets;
	shard->n_buckets = n_old * 2;
	for (size_t i = 0; i < n_old; i++) {
		for (struct gp_block *b = old[i], *next; b; b = next) {
			struct gp_block **at = bucket_of(shard, b->addr);

			next = b->hash_next;
			b->hash_next = *at;
			*at = b;
		}
	}
	if (old != shard->first_buckets)
		free(old);
}

void gp_addrmap_add_block(struct gp_addrmap *map, struct gp_block *block)
{
	struct gp_addrmap_shard *shard = shard_of(map, block->addr);
	struct gp_block **at;

	gp_mutex_lock(&shard->lock);
	if (shard->n_blocks >= shard->n_buckets)
		grow_locked(shard);
	at = bucket_of(shard, block->addr);
	block->hash_next = *at;
	*at = block;
	shard->n_blocks++;
	gp_mutex_unlock(&shard->lock);
}

void gp_addrmap_remove_block(struct gp_addrmap *map, struct gp_block *block)
{
	struct gp_addrmap_shard *shard = shard_of(map, block->addr);
	struct gp_block **at;

	gp_mutex_lock(&shard->lock);
	at = bucket_of(shard, block->addr);
	while (*at != block)
		at = &(*at)->hash_next;
	*at = block->hash_next;
	shard->n_blocks--;
	gp_mutex_unlock(&shard->lock);
}

void gp_addrmap_add_segment(struct gp_addrmap *map, struct gp_segment *segment)
{
	gp_mutex_lock(&map->segments_lock);
	segment->by_addr.key = segment->base;
	segment->by_addr.tie = 0;
	gp_tree_insert(&map->segments, &segment->by_addr);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_remove_segment(struct gp_addrmap *map, struct gp_segment *segment)
{
	gp_mutex_lock(&map->segments_lock);
	gp_tree_remove(&map->segments, &segment->by_addr);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_depart(struct gp_addrmap *map, struct gp_segment *segment, struct gp_departure *departure)
{
	struct gp_tree_node *twin;

	departure->base = segment->base;
	departure->size = segment->size;
	gp_mutex_lock(&map->segments_lock);
	gp_tree_remove(&map->segments, &segment->by_addr);
	/*
	 * The program freed it past us, and somebody has it anew: with a pointer that a reset had ended, say. Of such
	 * twins the driver hears once.
	 */
	twin = gp_tree_at_least(&map->segments, segment->base);
	departure->is_superseded = twin && twin->key == segment->base;
	gp_list_append(&map->departures, &departure->link);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_departed(struct gp_addrmap *map, struct gp_departure *departure)
{
	gp_mutex_lock(&map->segments_lock);
	gp_list_remove(&departure->link);
	gp_mutex_unlock(&map->segments_lock);
}

static bool is_departing(struct gp_addrmap *map, uint64_t addr)
{
	bool is_found = false;
	struct gp_list *link;

	gp_mutex_lock(&map->segments_lock);
	gp_list_each(link, &map->departures) {
		struct gp_departure *departure = gp_container_of(link, struct gp_departure, link);

		is_found = is_found || addr - departure->base < departure->size;
	}
	gp_mutex_unlock(&map->segments_lock);
	return is_found;
}

/* Segments do not overlap: the last that begins in the range, or before it, is the one. */
static struct gp_segment *segment_in_locked(struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	struct gp_tree_node *node = gp_tree_at_most(&map->segments, addr + bytes - 1);
	struct gp_segment *segment;

	if (!node)
		return NULL;
	segment = gp_container_of(node, struct gp_segment, by_addr);
	return segment->base >= addr || addr - segment->base < segment->size ? segment : NULL;
}

static struct gp_segment *segment_of_locked(struct gp_addrmap *map, uint64_t addr)
{
	return segment_in_locked(map, addr, 1);
}

struct gp_segment *gp_addrmap_segment_of(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_segment *segment;

	gp_mutex_lock(&map->segments_lock);
	segment = segment_of_locked(map, addr);
	gp_mutex_unlock(&map->segments_lock);
	return segment;
}

struct gp_pool *gp_addrmap_pool_in(struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	struct gp_segment *segment;
	struct gp_pool *pool = NULL;

	gp_mutex_lock(&map->segments_lock);
	segment = segment_in_locked(map, addr, bytes);
	if (segment)
		pool = gp_pool_get(segment->pool);
	gp_mutex_unlock(&map->segments_lock);
	return pool;
}

struct gp_pool *gp_addrmap_pool_of(struct gp_addrmap *map, uint64_t addr)
{
	return gp_addrmap_pool_in(map, addr, 1);
}

static enum gp_claim claim_now(struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool,
			       struct gp_block **ret_block)
{
	struct gp_addrmap_shard *shard = shard_of(map, addr);
	struct gp_block *b;
	enum gp_claim claim = GP_CLAIM_NOT_USED;

	gp_mutex_lock(&shard->lock);
	for (b = *bucket_of(shard, addr); b && b->addr != addr; b = b->hash_next)
		;
	if (gp_likely(b != NULL)) {
		*ret_pool = gp_pool_get(b->segment->pool);
		if (gp_likely(gp_block_claim(b, atomic_load_explicit(&b->word, memory_order_relaxed)))) {
			*ret_block = b;
			claim = GP_CLAIM_OK;
		}
	}
	gp_mutex_unlock(&shard->lock);
	if (gp_likely(b != NULL))
		return claim;
	*ret_pool = gp_addrmap_pool_of(map, addr);
	return *ret_pool ? GP_CLAIM_INTERIOR : GP_CLAIM_FOREIGN;
}

enum gp_claim gp_addrmap_claim(struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool,
			       struct gp_block **ret_block)
{
	enum gp_claim claim = claim_now(map, addr, ret_pool, ret_block);

	/* Once the driver has been told, the address may be ours anew. */
	while (gp_unlikely(claim == GP_CLAIM_FOREIGN && is_departing(map, addr))) {
		gp_yield();
		claim = claim_now(map, addr, ret_pool, ret_block);
	}
	return claim;
}
