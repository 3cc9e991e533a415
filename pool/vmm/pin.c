/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pin.h"

#include "arena.h"
#include "arena_life.h"
#include "chunk.h"
#include "pool/pool_query.h"

static struct gp_chunk *chunk_at(const struct gp_arena *arena, uint64_t addr)
{
	return gp_arena_granule_at(arena, addr)->chunk;
}

/* Returns the block if the program holds it under that serial number, or NULL. */
static const struct gp_block *find_locked(struct gp_pool *pool, uint64_t addr, uint64_t serial)
{
	const struct gp_block *b = gp_pool_block_at_locked(pool, addr);

	if (!b || !b->segment->arena || gp_block_state(b) != GP_BLOCK_USED)
		return NULL;
	return atomic_load_explicit(&b->serial, memory_order_relaxed) == serial ? b : NULL;
}

/* Counts as a thread that maps, so that the end of the context does not release the chunk. */
static int pin_locked(struct gp_pool *pool, uint64_t addr, uint64_t serial, uint64_t at, struct gp_pin *pin)
{
	const struct gp_block *b;
	const struct gp_chunk *first, *last;

	if (gp_flag_is_set(&pool->dead))
		return GP_E_FOREIGN;
	b = find_locked(pool, addr, serial);
	if (!b)
		return GP_E_FOREIGN;
	first = chunk_at(b->segment->arena, b->addr);
	last = chunk_at(b->segment->arena, b->addr + b->size - 1);
	pin->span_bytes = last->addr + last->size - first->addr;
	pin->offset = addr - first->addr;
	if (at >= pin->span_bytes || !gp_arena_enter_locked(pool))
		return GP_E_FOREIGN;
	pin->chunk = chunk_at(b->segment->arena, first->addr + at);
	if (pin->chunk->is_asleep) {
		pool->cache.vm->n_busy--;
		return GP_E_FOREIGN;
	}
	pin->chunk->n_pins++;
	pin->handle = pin->chunk->handle;
	pin->bytes = pin->chunk->size;
	return 0;
}

int gp_pool_pin(struct gp_addrmap *map, uint64_t addr, uint64_t serial, uint64_t at, struct gp_pin *ret_pin)
{
	struct gp_pin pin = {.pool = gp_addrmap_pool_of(map, addr)};
	int r;

	if (!pin.pool)
		return GP_E_FOREIGN;
	gp_mutex_lock(&pin.pool->lock);
	r = pin_locked(pin.pool, addr, serial, at, &pin);
	gp_mutex_unlock(&pin.pool->lock);
	if (r)
		gp_pool_put(pin.pool);
	else
		*ret_pin = pin;
	return r;
}

void gp_pool_unpin(const struct gp_pin *pin)
{
	gp_mutex_lock(&pin->pool->lock);
	pin->chunk->n_pins--;
	gp_mutex_unlock(&pin->pool->lock);
	gp_arena_leave(pin->pool);
	gp_pool_put(pin->pool);
}
