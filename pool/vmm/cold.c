/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "cold.h"

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "chunk.h"
#include "pool/pool_query.h"

static bool is_current_locked(struct gp_pool *pool, const struct gp_cold *cold)
{
	const struct gp_block *b = gp_pool_block_at_locked(pool, cold->addr);

	return b && gp_block_state(b) == GP_BLOCK_USED &&
	       atomic_load_explicit(&b->serial, memory_order_relaxed) == cold->serial;
}

static uint64_t overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	uint64_t from = gp_max(a, b), to = gp_min(a + a_bytes, b + b_bytes);

	return to > from ? to - from : 0;
}

bool gp_cold_is_locked(struct gp_pool *pool, const struct gp_chunk *chunk, uint64_t content)
{
	const struct gp_vm *vm = pool->cache.vm;
	struct gp_list *link;
	uint64_t bytes = 0;

	if (vm->is_cold)
		return true;
	gp_list_each(link, &vm->cold) {
		const struct gp_cold *cold = gp_container_of(link, struct gp_cold, link);
		uint64_t n = overlap(cold->addr, cold->bytes, chunk->addr, chunk->size);

		if (n && is_current_locked(pool, cold))
			bytes += n;
	}
	return bytes && bytes >= content / 2;
}

/* Drops the ranges whose blocks were freed, and those that the new one covers. */
static void prune_locked(struct gp_pool *pool, uint64_t addr, uint64_t bytes)
{
	struct gp_list *link, *tmp;

	gp_list_each_safe(link, tmp, &pool->cache.vm->cold) {
		struct gp_cold *cold = gp_container_of(link, struct gp_cold, link);

		if (is_current_locked(pool, cold) && overlap(addr, bytes, cold->addr, cold->bytes) < cold->bytes)
			continue;
		gp_list_remove(link);
		free(cold);
	}
}

static int note_cold_locked(struct gp_pool *pool, uint64_t addr, uint64_t bytes, struct gp_cold *cold)
{
	const struct gp_block *b = gp_flag_is_set(&pool->dead) ? NULL : gp_pool_block_at_locked(pool, addr);
	uint64_t left;

	if (!b || gp_block_state(b) != GP_BLOCK_USED)
		return GP_E_FOREIGN;
	left = b->addr + b->size - addr;
	if (bytes > left)
		return GP_E_FOREIGN;
	if (!b->segment->arena)
		return -ENOTSUP;
	*cold = (struct gp_cold){
		.addr = addr,
		.bytes = bytes ? bytes : left,
		.serial = atomic_load_explicit(&b->serial, memory_order_relaxed),
	};
	prune_locked(pool, cold->addr, cold->bytes);
	gp_list_append(&pool->cache.vm->cold, &cold->link);
	return 0;
}

int gp_cold_note(struct gp_addrmap *map, uint64_t addr, uint64_t bytes)
{
	struct gp_pool *pool = gp_addrmap_pool_of(map, addr);
	struct gp_cold *cold = malloc(sizeof(*cold));
	int r = cold ? GP_E_FOREIGN : -ENOMEM;

	if (pool && cold) {
		gp_mutex_lock(&pool->lock);
		r = note_cold_locked(pool, addr, bytes, cold);
		gp_mutex_unlock(&pool->lock);
	}
	if (r)
		free(cold);
	gp_pool_put(pool);
	return r;
}

void gp_cold_set_all(struct gp_pool *pool, bool is_cold)
{
	gp_mutex_lock(&pool->lock);
	if (pool->options.kind == GP_KIND_VMM && pool->cache.vm)
		pool->cache.vm->is_cold = is_cold;
	gp_mutex_unlock(&pool->lock);
}
