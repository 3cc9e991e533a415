/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "spill.h"

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "chunk.h"
#include "cold.h"
#include "pool/pool_query.h"

enum { UNMAPS_MAX = 3 };

/* A chunk that may move. */
struct piece {
	struct gp_pool *pool;
	struct gp_chunk *chunk;
	bool is_cold;
};

struct pieces {
	struct piece *list;
	unsigned n, room;
	uint64_t bytes;
};

static const struct gp_spill_ops *ops_of(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->spill;
}

static const struct gp_mapping_ops *mapping_of(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->mapping;
}

static void *arg_of(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->arg;
}

static struct gp_chunk *chunk_of(struct gp_list *link)
{
	return gp_container_of(link, struct gp_chunk, link);
}

/* Takes memory on the side to which a chunk is to move. */
static int take(struct gp_pool *pool, uint64_t bytes, bool is_out, uint64_t *ret_handle)
{
	int r;

	if (is_out)
		return ops_of(pool)->create(arg_of(pool), bytes, ret_handle);
	if (!gp_budget_charge(pool->options.budget, bytes))
		return -ENOMEM;
	r = mapping_of(pool)->create(arg_of(pool), bytes, ret_handle);
	if (r)
		gp_budget_uncharge(pool->options.budget, bytes);
	return r;
}

/* Gives it back unused. */
static void give(struct gp_pool *pool, uint64_t bytes, bool is_out, uint64_t handle)
{
	if (is_out) {
		ops_of(pool)->release(arg_of(pool), handle, bytes);
		return;
	}
	mapping_of(pool)->release(arg_of(pool), handle, bytes);
	gp_budget_uncharge(pool->options.budget, bytes);
}

/* The driver has no reason to refuse this, so a refusal may pass. */
static int unmap_spare(struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = be->ops->mapping->unmap(be->arg, addr, bytes);

	for (unsigned attempt = 0; r && attempt < UNMAPS_MAX; attempt++) {
		be->ops->pause(be->arg, attempt);
		r = be->ops->mapping->unmap(be->arg, addr, bytes);
	}
	return r;
}

/*
 * Copies the content of a chunk into new memory, which is mapped at spare addresses for that time. If the driver does
 * not unmap it there, these addresses are lost, and the new memory with them.
 */
static int copy_content(struct gp_pool *pool, const struct gp_chunk *chunk, uint64_t handle)
{
	const struct gp_mapping_ops *mapping = mapping_of(pool);
	bool is_stuck = false, is_mapped;
	uint64_t addr;
	int r = mapping->address_reserve(arg_of(pool), chunk->size, &addr), undone = 0;

	if (r)
		return r;
	r = mapping->map(arg_of(pool), addr, chunk->size, handle, &is_stuck);
	is_mapped = !r || is_stuck;
	if (!r)
		r = ops_of(pool)->copy(arg_of(pool), addr, chunk->addr, chunk->size);
	if (is_mapped)
		undone = unmap_spare(pool, addr, chunk->size);
	if (!undone)
		mapping->address_free(arg_of(pool), addr, chunk->size);
	return r ? r : undone;
}

static int map_at(struct gp_pool *pool, struct gp_chunk *chunk, uint64_t handle)
{
	const struct gp_mapping_ops *mapping = mapping_of(pool);
	bool is_stuck = false;
	int r = 0;

	/* An earlier attempt left memory there that cannot be used. */
	if (chunk->is_mapped)
		r = mapping->unmap(arg_of(pool), chunk->addr, chunk->size);
	if (r)
		return r;
	r = mapping->map(arg_of(pool), chunk->addr, chunk->size, handle, &is_stuck);
	chunk->is_mapped = !r || is_stuck;
	return r;
}

/*
 * Maps the new memory in place of the old memory. After an error the old memory is there again: the program's content
 * has to be somewhere, so both are tried until one can be mapped, or the context is lost and nothing can use either.
 */
static int exchange(struct gp_pool *pool, struct gp_chunk *chunk, uint64_t handle)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	int r = be->ops->mapping->unmap(be->arg, chunk->addr, chunk->size), error;

	if (r)
		return r;
	chunk->is_mapped = false;
	r = map_at(pool, chunk, handle);
	for (unsigned attempt = 0; r; attempt++) {
		error = map_at(pool, chunk, chunk->handle);
		if (!error || gp_flag_is_set(&pool->dead) || ops_of(pool)->is_lost(be->arg, error))
			return r;
		be->ops->pause(be->arg, attempt);
		error = map_at(pool, chunk, handle);
		if (!error)
			return 0;
	}
	return 0;
}

/* Books the move, and gives the old memory back. */
static void settle(struct gp_pool *pool, struct gp_chunk *chunk, uint64_t handle, bool is_out)
{
	const struct gp_chunk before = *chunk;
	struct gp_stats *stats = &pool->stats;
	bool is_alive;

	gp_mutex_lock(&pool->lock);
	is_alive = !gp_flag_is_set(&pool->dead);
	chunk->handle = handle;
	chunk->is_spilled = is_out;
	if (is_alive && is_out) {
		stats->spilled_bytes += chunk->size;
		stats->spills++;
	} else if (is_alive) {
		stats->spilled_bytes -= chunk->size;
		stats->spill_returns++;
	}
	gp_mutex_unlock(&pool->lock);
	gp_chunk_release_memory(pool, &before);
	/* A dead pool has been taken off the budget, as it was when it died. */
	if (is_alive == is_out)
		gp_budget_uncharge(pool->options.budget, chunk->size);
	if (is_alive && is_out)
		atomic_fetch_add(&pool->first->n_arrivals, 1);
}

static int move(struct gp_pool *pool, struct gp_chunk *chunk, bool is_out)
{
	uint64_t handle;
	int r = gp_flag_is_set(&pool->dead) ? GP_E_DEAD : take(pool, chunk->size, is_out, &handle);

	if (r)
		return r;
	r = copy_content(pool, chunk, handle);
	if (!r)
		r = exchange(pool, chunk, handle);
	if (r)
		give(pool, chunk->size, is_out, handle);
	else
		settle(pool, chunk, handle, is_out);
	return r;
}

static bool may_move(const struct gp_chunk *chunk, bool is_out)
{
	return chunk->is_spilled != is_out && chunk->is_mapped && !chunk->is_asleep && !chunk->is_stuck &&
	       !chunk->is_retired && !chunk->n_pins;
}

/* Returns the bytes of a chunk that are not free. */
static uint64_t content_locked(const struct gp_pool *pool, const struct gp_chunk *chunk)
{
	const struct gp_block *b = gp_arena_block_of_locked(pool, chunk);
	uint64_t bytes = 0;

	for (; b && b->addr < chunk->addr + chunk->size; b = b->next) {
		uint64_t from = gp_max(b->addr, chunk->addr), to = gp_min(b->addr + b->size, chunk->addr + chunk->size);

		if (gp_block_state(b) != GP_BLOCK_CACHED)
			bytes += to - from;
	}
	return bytes;
}

static unsigned count_chunks(struct gp_pool *pool)
{
	struct gp_list *link;
	unsigned n = 0;

	gp_list_each(link, &pool->cache.vm->chunks)
		n++;
	return n;
}

/* Lists the chunks of a pool that may move. A free chunk has nothing that would have to go to the host. */
static void list_pool(struct pieces *pieces, struct gp_pool *pool, bool is_out)
{
	struct gp_list *link;

	gp_mutex_lock(&pool->lock);
	gp_list_each(link, &pool->cache.vm->chunks) {
		struct gp_chunk *chunk = chunk_of(link);
		uint64_t content;

		if (gp_flag_is_set(&pool->dead) || !may_move(chunk, is_out))
			continue;
		content = content_locked(pool, chunk);
		if (!content && is_out)
			continue;
		pieces->list[pieces->n++] = (struct piece){pool, chunk, gp_cold_is_locked(pool, chunk, content)};
		pieces->bytes += chunk->size;
	}
	gp_mutex_unlock(&pool->lock);
}

/* Orders cold chunks before others, and larger ones before smaller ones. */
static int compare(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;

	if (a->is_cold != b->is_cold)
		return a->is_cold ? -1 : 1;
	if (a->chunk->size != b->chunk->size)
		return a->chunk->size > b->chunk->size ? -1 : 1;
	return a->chunk->addr < b->chunk->addr ? -1 : 1;
}

static bool list(struct pieces *pieces, struct gp_pool *const *pools, unsigned n_pools, bool is_out)
{
	*pieces = (struct pieces){0};
	for (unsigned i = 0; i < n_pools; i++)
		pieces->room += count_chunks(pools[i]);
	pieces->list = calloc((size_t)pieces->room + 1, sizeof(*pieces->list));
	if (!pieces->list)
		return false;
	for (unsigned i = 0; i < n_pools; i++)
		list_pool(pieces, pools[i], is_out);
	qsort(pieces->list, pieces->n, sizeof(*pieces->list), compare);
	return true;
}

/*
 * Chooses the next chunk of those that have not moved. The last one to move need not be the largest: of the equally
 * cold chunks that are large enough, it is the smallest.
 */
static struct piece *next_out(const struct pieces *pieces, uint64_t wanted, uint64_t most)
{
	struct piece *best = NULL;

	for (unsigned i = 0; i < pieces->n; i++) {
		struct piece *piece = &pieces->list[i];

		if (!piece->chunk || piece->chunk->size > most)
			continue;
		if (!best || (best->is_cold == piece->is_cold && piece->chunk->size >= wanted))
			best = piece;
	}
	return best;
}

/* Returns how many bytes would go, without moving any. */
static uint64_t plan_out(const struct pieces *pieces, uint64_t bytes, uint64_t most)
{
	struct pieces left = *pieces;
	uint64_t moved = 0;
	struct piece *piece;

	left.list = malloc((pieces->n + 1) * sizeof(*left.list));
	if (!left.list)
		return 0;
	for (unsigned i = 0; i < pieces->n; i++)
		left.list[i] = pieces->list[i];
	while (moved < bytes && (piece = next_out(&left, bytes - moved, most - moved))) {
		moved += piece->chunk->size;
		piece->chunk = NULL;
	}
	free(left.list);
	return moved;
}

uint64_t gp_spill_out(struct gp_pool *const *pools, unsigned n_pools, uint64_t bytes, uint64_t most, int *ret_error)
{
	struct pieces pieces;
	uint64_t moved = 0;
	struct piece *piece;
	int r = 0;

	*ret_error = -ENOMEM;
	if (!list(&pieces, pools, n_pools, true))
		return 0;
	if (pieces.bytes < bytes || plan_out(&pieces, bytes, most) < bytes)
		pieces.n = 0;
	while (!r && moved < bytes && (piece = next_out(&pieces, bytes - moved, most - moved))) {
		uint64_t size = piece->chunk->size;

		r = move(piece->pool, piece->chunk, true);
		moved += r ? 0 : size;
		piece->chunk = NULL;
	}
	free(pieces.list);
	*ret_error = moved < bytes && !r ? -ENOMEM : r;
	return moved;
}

uint64_t gp_spill_in(struct gp_pool *const *pools, unsigned n_pools, uint64_t most, uint64_t part, int *ret_error)
{
	struct pieces pieces;
	uint64_t back = 0;
	int r = 0;

	*ret_error = -ENOMEM;
	if (!list(&pieces, pools, n_pools, false))
		return 0;
	for (unsigned i = pieces.n; !r && back < part && i-- > 0;) {
		uint64_t size = pieces.list[i].chunk->size;

		if (size > most - back)
			continue;
		r = move(pieces.list[i].pool, pieces.list[i].chunk, false);
		back += r ? 0 : size;
	}
	free(pieces.list);
	*ret_error = r;
	return back;
}

/* Returns the arena and the extent of the block at an address. False if it is none of a pool of the kind vmm. */
static const struct gp_block *mapped_block_locked(struct gp_pool *pool, uint64_t addr)
{
	const struct gp_block *b = gp_flag_is_set(&pool->dead) ? NULL : gp_pool_block_at_locked(pool, addr);

	return b && b->segment->arena && gp_block_state(b) != GP_BLOCK_UNMAPPED ? b : NULL;
}

static struct gp_chunk *spilled_locked(struct gp_pool *pool, uint64_t addr)
{
	const struct gp_block *b = mapped_block_locked(pool, addr);

	if (!b)
		return NULL;
	for (uint64_t at = b->addr; at < b->addr + b->size;) {
		struct gp_chunk *chunk = gp_arena_granule_at(b->segment->arena, at)->chunk;

		if (!chunk)
			return NULL;
		if (chunk->is_spilled)
			return chunk;
		at = chunk->addr + chunk->size;
	}
	return NULL;
}

int gp_spill_in_block(struct gp_pool *pool, uint64_t addr)
{
	int r = 0;

	while (!r) {
		struct gp_chunk *chunk;

		gp_mutex_lock(&pool->lock);
		chunk = spilled_locked(pool, addr);
		gp_mutex_unlock(&pool->lock);
		if (!chunk)
			return 0;
		r = may_move(chunk, false) ? move(pool, chunk, false) : -EBUSY;
	}
	return r;
}

bool gp_spill_has(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	bool has = false;

	if (!pool)
		return false;
	gp_mutex_lock(&pool->lock);
	if (pool->stats.spilled_bytes)
		has = spilled_locked(pool, addr) != NULL;
	gp_mutex_unlock(&pool->lock);
	gp_pool_put(pool);
	return has;
}

bool gp_spill_is_at(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	const struct gp_block *b;
	bool is_spilled = false;

	if (!pool)
		return false;
	gp_mutex_lock(&pool->lock);
	b = pool->stats.spilled_bytes ? mapped_block_locked(pool, addr) : NULL;
	if (b && gp_arena_granule_at(b->segment->arena, addr)->chunk)
		is_spilled = gp_arena_granule_at(b->segment->arena, addr)->chunk->is_spilled;
	gp_mutex_unlock(&pool->lock);
	gp_pool_put(pool);
	return is_spilled;
}
