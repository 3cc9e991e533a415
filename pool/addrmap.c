/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Blocks are in a hash table with shards, chained through the descriptors, so that an insertion allocates nothing. (A
 * shard's table grows when it can, and gets slower when it cannot.) A block enters the map when it is first handed out
 * and stays until it is merged or given back, whatever its state. A freed address that is not in the table is looked up
 * among the segments, so it never reaches the driver if it belongs to a pool.
 *
 * A pool that a lookup finds cannot go away meanwhile: blocks and segments leave the map, under its locks, before their
 * pool drops its own reference, and the lookup takes one under the same lock.
 *
 * Most frees need neither a lock nor a reference (gp_addrmap_try_claim). The thread's cache has a reference to the only
 * pool that it looks for, and walks the chain as it is at that moment. A block on the way may have left the map, stand
 * for another address, or belong to another pool. The walk makes a single write, the claim, and that fails then, for
 * these reasons:
 *
 *   - A word that says USED also counts the block's hand-outs, so two hand-outs never have the same word. From the
 *     hand-out to the claim a block keeps its address and its segment, and the segment its pool. So if the word is read
 *     first and these after it, and the claim replaces exactly that word, they belonged together all the time. (A
 *     thread cache that claims a block and finds that it must not keep it puts the old word back; no other thread has
 *     touched the block by then.)
 *   - A block is in the map before it is USED, and leaves it only when it is not. Code that takes away what the program
 *     still holds, as gp_pool_drop does, first claims it by the same exchange, and one of the two threads succeeds. If
 *     that is the free, it came before the end of the pool, and learns that the pool is dead when it goes on.
 *   - Memory that holds descriptors or tables keeps its type until the map ends: batches of descriptors go from pool to
 *     pool, and outgrown tables stay, which together are as large as the present one. Links and tables are published by
 *     release, so whatever is reached has been written.
 *
 * Chains change during such a walk, so it may miss its block or get from one chain into another. It gives up after some
 * steps, and a block that it did not find may still be there.
 */

#include "addrmap.h"

#include <errno.h>
#include <stdlib.h>

#include "pool_impl.h"
#include "tuning.h"

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

/* May be called with or without the lock. */
static struct gp_block **bucket_of(struct gp_addrmap_shard *shard, uint64_t addr)
{
	return bucket_in(atomic_load_explicit(&shard->table, memory_order_acquire), addr);
}

/* Writes a bucket or a block's hash_next. Links are written with the lock, but read without. */
static void set_link(struct gp_block **link, struct gp_block *block)
{
	__atomic_store_n(link, block, __ATOMIC_RELEASE);
}

static struct gp_block *load_link(struct gp_block *const *link)
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
	atomic_init(&map->lowest, UINT64_MAX);
	atomic_init(&map->highest, 0);
	gp_list_init(&map->in_flight);
	gp_mutex_init(&map->batches_lock, GP_RANK_LEAF);
	for (int i = 0; i < GP_N_DESCRIPTORS; i++)
		map->batches[i] = NULL;
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
	struct gp_descriptor_batch *batch;

	gp_assert(!map->segments.root && gp_list_is_empty(&map->in_flight));
	for (int i = 0; i < GP_ADDRMAP_SHARDS; i++)
		deinit_shard(&map->shards[i]);
	for (int i = 0; i < GP_N_DESCRIPTORS; i++)
		while ((batch = gp_addrmap_take_batch(map, (enum gp_descriptor)i)))
			free(batch->memory);
	gp_mutex_deinit(&map->batches_lock);
	gp_mutex_deinit(&map->segments_lock);
}

void gp_addrmap_keep_batches(struct gp_addrmap *map, enum gp_descriptor descriptor, struct gp_descriptor_batch *batches)
{
	gp_mutex_lock(&map->batches_lock);
	for (struct gp_descriptor_batch *batch = batches, *next; batch; batch = next) {
		next = batch->next;
		batch->next = map->batches[descriptor];
		map->batches[descriptor] = batch;
	}
	gp_mutex_unlock(&map->batches_lock);
}

struct gp_descriptor_batch *gp_addrmap_take_batch(struct gp_addrmap *map, enum gp_descriptor descriptor)
{
	struct gp_descriptor_batch *batch;

	gp_mutex_lock(&map->batches_lock);
	batch = map->batches[descriptor];
	if (batch)
		map->batches[descriptor] = batch->next;
	gp_mutex_unlock(&map->batches_lock);
	return batch;
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

/* Doubles the table. Without host memory the old one stays. */
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
	if (segment->base < atomic_load_explicit(&map->lowest, memory_order_relaxed))
		atomic_store_explicit(&map->lowest, segment->base, memory_order_relaxed);
	if (segment->base + segment->size > atomic_load_explicit(&map->highest, memory_order_relaxed))
		atomic_store_explicit(&map->highest, segment->base + segment->size, memory_order_relaxed);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_remove_segment(struct gp_addrmap *map, struct gp_segment *segment)
{
	gp_mutex_lock(&map->segments_lock);
	gp_tree_remove(&map->segments, &segment->by_addr);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_release_begin(struct gp_addrmap *map, struct gp_segment *segment, struct gp_release *in_flight)
{
	struct gp_tree_node *twin;

	in_flight->base = segment->base;
	in_flight->size = segment->size;
	gp_mutex_lock(&map->segments_lock);
	gp_tree_remove(&map->segments, &segment->by_addr);
	/*
	 * The driver has handed this address out again, since the program freed it without the pool (with a pointer
	 * that a reset had ended, say). Of two such segments the driver must be called for one only.
	 */
	twin = gp_tree_at_least(&map->segments, segment->base);
	in_flight->is_superseded = twin && twin->key == segment->base;
	gp_list_append(&map->in_flight, &in_flight->link);
	gp_mutex_unlock(&map->segments_lock);
}

void gp_addrmap_release_end(struct gp_addrmap *map, struct gp_release *in_flight)
{
	gp_mutex_lock(&map->segments_lock);
	gp_list_remove(&in_flight->link);
	gp_mutex_unlock(&map->segments_lock);
}

static bool is_release_in_flight(struct gp_addrmap *map, uint64_t addr)
{
	bool is_found = false;
	struct gp_list *link;

	gp_mutex_lock(&map->segments_lock);
	gp_list_each(link, &map->in_flight) {
		struct gp_release *in_flight = gp_container_of(link, struct gp_release, link);

		is_found = is_found || addr - in_flight->base < in_flight->size;
	}
	gp_mutex_unlock(&map->segments_lock);
	return is_found;
}

/*
 * Returns the segment that overlaps the range, or NULL. Segments do not overlap, so it is the last that begins in or
 * before it.
 */
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

/*
 * True if the range lies beyond all segments. The segment of a block is added before the program gets the block, so no
 * lock is needed.
 */
static bool is_outside(const struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	return addr >= atomic_load_explicit(&map->highest, memory_order_relaxed) ||
	       addr + bytes <= atomic_load_explicit(&map->lowest, memory_order_relaxed);
}

struct gp_pool *gp_addrmap_pool_in(struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	struct gp_segment *segment;
	struct gp_pool *pool = NULL;

	if (is_outside(map, addr, bytes))
		return NULL;
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

static enum gp_claim claim_now(
	struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool, struct gp_block **ret_block)
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

static void run_before_claim(void)
{
#ifdef GP_DEBUG
	if (gp_addrmap_before_claim)
		gp_addrmap_before_claim();
#endif
}

/* True if a block whose word says USED seems to be the pool's. The claim fails if it is not. */
static bool may_belong_to(const struct gp_block *b, const struct gp_pool *pool)
{
	const struct gp_segment *segment = __atomic_load_n(&b->segment, __ATOMIC_RELAXED);

	return __atomic_load_n(&segment->pool, __ATOMIC_RELAXED) == pool;
}

static bool claim_if_belongs(struct gp_block *b, uint64_t word, const struct gp_pool *pool)
{
	if ((word & 0xff) != GP_BLOCK_USED || !may_belong_to(b, pool))
		return false;
	run_before_claim();
	return gp_block_claim(b, word);
}

struct gp_block *gp_addrmap_try_claim(struct gp_addrmap *map, uint64_t addr, const struct gp_pool *pool)
{
	struct gp_block *b = load_link(bucket_of(shard_of(map, addr), addr));

	for (int i = 0; b && i < GP_CHAIN_STEPS_MAX; i++) {
		/* Read first: if the claim finds this word unchanged, everything read after it is as old. */
		uint64_t word = atomic_load_explicit(&b->word, memory_order_acquire);

		if (__atomic_load_n(&b->addr, __ATOMIC_RELAXED) == addr)
			return claim_if_belongs(b, word, pool) ? b : NULL;
		b = load_link(&b->hash_next);
	}
	return NULL;
}

bool gp_addrmap_is_seen(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_block *b = load_link(bucket_of(shard_of(map, addr), addr));

	for (int i = 0; b && i < GP_CHAIN_STEPS_MAX; i++) {
		if (__atomic_load_n(&b->addr, __ATOMIC_RELAXED) == addr)
			return true;
		b = load_link(&b->hash_next);
	}
	return false;
}

enum gp_claim gp_addrmap_claim(
	struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool, struct gp_block **ret_block)
{
	enum gp_claim claim = claim_now(map, addr, ret_pool, ret_block);

	/* Once the driver has been called, the address may belong to a pool again. */
	for (unsigned i = 0; gp_unlikely(claim == GP_CLAIM_FOREIGN && is_release_in_flight(map, addr)); i++) {
		gp_yield(i);
		claim = claim_now(map, addr, ret_pool, ret_block);
	}
	return claim;
}
