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
 *
 * Most frees need neither lock nor reference (gp_addrmap_try_claim): the thread's cache has a reference to the one pool
 * that is worth looking for, and goes through the chain as it is at that moment. A block that it comes to may have left
 * the map meanwhile, stand for another address, or be one of another pool's; all that counts is that the one write
 * which it makes, the claim, fails then:
 *
 *   - A word that says USED counts the block's hand-outs, so it is never the same for two of them. From the hand-out to
 *     the claim a block keeps its address and its segment, and its segment the pool. So if the word is read first,
 *     then these, and the claim replaces that very word, they belonged together all the time. (A thread's cache that
 *     takes a block and finds that it may not puts the old word back; nobody else has touched the block by then.)
 *   - A block is in the map before it is USED, and leaves it only when it is not: whoever has to take away what the
 *     program still holds, as the pool's end does, takes it by the same exchange first (gp_pool_drop), and one of the
 *     two gets it. If that is the free, it came before the end, and is told that the pool is dead when it goes on.
 *   - Memory that holds descriptors or tables stays what it is until the map ends: chunks of descriptors go from pool
 *     to pool, and the tables that were outgrown are together as large as the present one. Links and tables are
 *     published by release, so that whatever is reached has been written.
 *
 * Chains change under such a walk, so it may miss its block, or get from one chain into another; it gives up after some
 * steps, and what it did not find may be there all the same.
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

static struct gp_block **bucket_in(const struct gp_addrmap_table *table, uint64_t addr)
{
	return &table->buckets[(hash(addr) >> 26) & (table->n_buckets - 1)];
}

/* With the lock or without. */
static struct gp_block **bucket_of(struct gp_addrmap_shard *shard, uint64_t addr)
{
	return bucket_in(atomic_load_explicit(&shard->table, memory_order_acquire), addr);
}

/* A bucket, or a block's hash_next: written with the lock, but read without. */
static void set_link(struct gp_block **link, struct gp_block *block)
{
	__atomic_store_n(link, block, __ATOMIC_RELEASE);
}

static struct gp_block *follow(struct gp_block *const *link)
{
	return __atomic_load_n(link, __ATOMIC_ACQUIRE);
}

static void push(struct gp_block **bucket, struct gp_block *block)
{
	set_link(&block->hash_next, *bucket);
	set_link(bucket, block);
}

void gp_addrmap_init(struct gp_addrmap *map)
{
	_Static_assert(GP_ADDRMAP_SHARDS == 64, "hash() >> 58 names the shard");
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++) {
		struct gp_addrmap_shard *shard = &map->shards[i];

		*shard = (struct gp_addrmap_shard){.first.n_buckets = GP_ADDRMAP_FIRST_BUCKETS};
		shard->first.buckets = shard->first_buckets;
		atomic_init(&shard->table, &shard->first);
		gp_mutex_init(&shard->lock, GP_RANK_ADDRMAP);
	}
	gp_mutex_init(&map->segments_lock, GP_RANK_SEGMENT_TREE);
	map->segments.root = NULL;
	gp_list_init(&map->departures);
	gp_mutex_init(&map->chunks_lock, GP_RANK_LEAF);
	map->chunks = NULL;
	atomic_init(&map->serial, 0);
}

static void deinit_shard(struct gp_addrmap_shard *shard)
{
	struct gp_addrmap_table *table = atomic_load(&shard->table), *older;

	gp_assert(shard->n_blocks == 0);
	for (; table != &shard->first; table = older) {
		older = table->older;
		free(table);
	}
	gp_mutex_deinit(&shard->lock);
}

void gp_addrmap_deinit(struct gp_addrmap *map)
{
	struct gp_addrmap_chunk *chunk;

	gp_assert(!map->segments.root && gp_list_is_empty(&map->departures));
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++)
		deinit_shard(&map->shards[i]);
	while ((chunk = gp_addrmap_take_chunk(map)))
		free(chunk->memory);
	gp_mutex_deinit(&map->chunks_lock);
	gp_mutex_deinit(&map->segments_lock);
}

void gp_addrmap_keep_chunks(struct gp_addrmap *map, struct gp_addrmap_chunk *chunks)
{
	gp_mutex_lock(&map->chunks_lock);
	for (struct gp_addrmap_chunk *chunk = chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		chunk->next = map->chunks;
		map->chunks = chunk;
	}
	gp_mutex_unlock(&map->chunks_lock);
}

struct gp_addrmap_chunk *gp_addrmap_take_chunk(struct gp_addrmap *map)
{
	struct gp_addrmap_chunk *chunk;

	gp_mutex_lock(&map->chunks_lock);
	chunk = map->chunks;
	if (chunk)
		map->chunks = chunk->next;
	gp_mutex_unlock(&map->chunks_lock);
	return chunk;
}

static struct gp_addrmap_table *new_table(size_t n_buckets)
{
	struct gp_addrmap_table *table = calloc(1, sizeof(*table) + n_buckets * sizeof(*table->buckets));

	if (!table)
		return NULL;
	table->n_buckets = n_buckets;
	table->buckets = (struct gp_block **)(table + 1);
	return table;
}

/* Doubles the table; without memory for it the old one stays. */
static void grow_locked(struct gp_addrmap_shard *shard)
{
	struct gp_addrmap_table *old = atomic_load_explicit(&shard->table, memory_order_relaxed);
	struct gp_addrmap_table *table = new_table(old->n_buckets * 2);

	if (!table)
		return;
	table->older = old;
	for (size_t i = 0; i < old->n_buckets; i++) {
		for (struct gp_block *b = old->buckets[i], *next; b; b = next) {
			next = b->hash_next;
			push(bucket_in(table, b->addr), b);
		}
	}
	atomic_store_explicit(&shard->table, table, memory_order_release);
}

void gp_addrmap_add_block(struct gp_addrmap *map, struct gp_block *block)
{
	struct gp_addrmap_shard *shard = shard_of(map, block->addr);

	gp_mutex_lock(&shard->lock);
	if (shard->n_blocks >= atomic_load_explicit(&shard->table, memory_order_relaxed)->n_buckets)
		grow_locked(shard);
	push(bucket_of(shard, block->addr), block);
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
	set_link(at, block->hash_next);
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

#ifdef GP_DEBUG
_Thread_local void (*gp_addrmap_before_claim)(void);
#endif

static void let_others_go_first(void)
{
#ifdef GP_DEBUG
	if (gp_addrmap_before_claim)
		gp_addrmap_before_claim();
#endif
}

/* So many blocks are looked at without a lock. Buckets hold far fewer, but a walk that lost its way has to end. */
enum { STEPS_MAX = 16 };

/* Whether a block whose word says USED is the pool's, as far as one can tell. */
static bool is_of(const struct gp_block *b, const struct gp_pool *pool)
{
	const struct gp_segment *segment = __atomic_load_n(&b->segment, __ATOMIC_RELAXED);

	return __atomic_load_n(&segment->pool, __ATOMIC_RELAXED) == pool;
}

static bool claim_if_of(struct gp_block *b, uint64_t word, const struct gp_pool *pool)
{
	if ((word & 0xff) != GP_BLOCK_USED || !is_of(b, pool))
		return false;
	let_others_go_first();
	return gp_block_claim(b, word);
}

struct gp_block *gp_addrmap_try_claim(struct gp_addrmap *map, uint64_t addr, const struct gp_pool *pool)
{
	struct gp_block *b = follow(bucket_of(shard_of(map, addr), addr));

	for (int i = 0; b && i < STEPS_MAX; i++) {
		/* First: what is read after it is as old as it is, if it is still there in the end. */
		uint64_t word = atomic_load_explicit(&b->word, memory_order_acquire);

		if (__atomic_load_n(&b->addr, __ATOMIC_RELAXED) == addr)
			return claim_if_of(b, word, pool) ? b : NULL;
		b = follow(&b->hash_next);
	}
	return NULL;
}

enum gp_claim gp_addrmap_claim(struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool,
			       struct gp_block **ret_block)
{
	enum gp_claim claim = claim_now(map, addr, ret_pool, ret_block);

	/* Once the driver has been told, the address may be ours anew. */
	for (unsigned i = 0; gp_unlikely(claim == GP_CLAIM_FOREIGN && is_departing(map, addr)); i++) {
		gp_yield(i);
		claim = claim_now(map, addr, ret_pool, ret_block);
	}
	return claim;
}
