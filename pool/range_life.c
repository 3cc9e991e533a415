/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Ranges come with their pool, and go when its context has ended and nobody maps or unmaps any more. */

#include <errno.h>
#include <stdlib.h>

#include "descriptor.h"
#include "mapped.h"
#include "range.h"

/*
 * Addresses of a range per byte of the device: what is moved leaves holes, and they shall not exhaust it. Where so many
 * are not to be had (a limit on address space, say), fewer will do.
 */
enum { SPACE_FACTOR = 4 };
#define SPACE_MAX (UINT64_C(1) << 44)

static const struct gp_mapping_ops *mapping_of(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->mapping;
}

static int reserve(struct gp_pool *pool, struct gp_range *range)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	uint64_t granule = pool->options.granule;
	uint64_t capacity = gp_round_up(gp_max(gp_min(pool->options.capacity_bytes, SPACE_MAX), granule), granule);
	int r = -ENOTSUP;

	range->granule_log2 = gp_log2(granule);
	for (uint64_t factor = SPACE_FACTOR; factor && r; factor /= 2) {
		range->size = gp_max(gp_min(capacity * factor, SPACE_MAX), granule);
		r = be->ops->mapping->address_reserve(be->arg, range->size, &range->base);
	}
	if (r)
		return r;
	range->granules = calloc(range->size / granule, sizeof(*range->granules));
	return range->granules ? 0 : -ENOMEM;
}

/* All of it is a hole at first. */
static void make_segment(struct gp_pool *pool, struct gp_range *range)
{
	struct gp_segment *segment = gp_segment_new_locked(pool);
	struct gp_block *block = gp_block_new_locked(pool);

	segment->base = range->base;
	segment->size = block->size = range->size;
	segment->kind = &gp_kind_vmm;
	segment->first = block;
	segment->range = range;
	range->segment = segment;
	gp_block_set_place(block, segment, range->base);
	range->granules[0].start = block;
	gp_range_make_hole_locked(pool, block);
	gp_list_append(&pool->segments, &segment->link);
	gp_addrmap_add_segment(pool->options.map, segment);
}

static bool has_pieces(const struct gp_vm *vm, const struct gp_range *range)
{
	struct gp_list *link;

	gp_list_each(link, &vm->pieces)
		if (gp_container_of(link, struct gp_piece, link)->addr - range->base < range->size)
			return true;
	return false;
}

/* But for those of a range where something is still mapped: whoever got them next would find memory there. */
static void give_addresses_back(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	for (int i = 0; i < GP_N_RANGES; i++) {
		struct gp_range *range = &pool->cache.vm->ranges[i];

		if (range->base && !has_pieces(pool->cache.vm, range))
			be->ops->mapping->address_free(be->arg, range->base, range->size);
	}
}

int gp_range_open(struct gp_pool *pool)
{
	struct gp_vm *vm;
	int r = 0;

	if (!mapping_of(pool))
		return -ENOTSUP;
	vm = pool->cache.vm = calloc(1, sizeof(*vm));
	if (!vm)
		return -ENOMEM;
	gp_list_init(&vm->pieces);
	gp_range_forget_locked(pool);
	if (gp_descriptors_ensure_locked(pool))
		return -ENOMEM;
	for (int i = 0; i < GP_N_RANGES && !r; i++)
		r = reserve(pool, &vm->ranges[i]);
	if (r) {
		give_addresses_back(pool);
		return r;
	}
	for (int i = 0; i < GP_N_RANGES; i++)
		make_segment(pool, &vm->ranges[i]);
	return 0;
}

void gp_range_close(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	struct gp_list *link, *tmp;

	if (!vm)
		return;
	gp_list_each_safe(link, tmp, &vm->pieces)
		free(gp_container_of(link, struct gp_piece, link));
	for (int i = 0; i < GP_N_RANGES; i++)
		free(vm->ranges[i].granules);
	free(vm);
}

/*
 * With nobody left who maps or unmaps: everything goes, and then the addresses. What the driver does not unmap even now
 * is released, too, and would go if it ever were; it stays in the list.
 */
static void unmap_all(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	struct gp_list *link, *tmp;

	gp_list_each_safe(link, tmp, &pool->cache.vm->pieces) {
		struct gp_piece *piece = gp_container_of(link, struct gp_piece, link);

		if (piece->is_mapped)
			piece->is_mapped = be->ops->mapping->unmap(be->arg, piece->addr, piece->size) != 0;
		be->ops->mapping->release(be->arg, piece->handle, piece->size);
		if (piece->is_mapped)
			continue;
		gp_list_remove(link);
		free(piece);
	}
	give_addresses_back(pool);
}

bool gp_range_enter_locked(struct gp_pool *pool)
{
	if (gp_pool_is_flag(&pool->dead))
		return false;
	pool->cache.vm->n_busy++;
	return true;
}

void gp_range_leave(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	bool is_last;

	gp_mutex_lock(&pool->lock);
	is_last = --vm->n_busy == 0 && vm->is_over;
	gp_mutex_unlock(&pool->lock);
	if (is_last)
		unmap_all(pool);
}

void gp_pool_unmap(struct gp_pool *pool)
{
	struct gp_vm *vm = pool->cache.vm;
	bool is_last;

	if (!vm)
		return;
	gp_mutex_lock(&pool->lock);
	is_last = !vm->is_over && vm->n_busy == 0;
	vm->is_over = true;
	gp_mutex_unlock(&pool->lock);
	if (is_last)
		unmap_all(pool);
}
