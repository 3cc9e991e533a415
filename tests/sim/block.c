/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Blocks: every live allocation that has addresses, in device memory and in host memory. */

#include <stdlib.h>
#include <sys/mman.h>

#include "ctx.h"
#include "race.h"
#include "share.h"

#define HOST_MAX ((size_t)1 << 40)

struct sim_range *sim_blocks;

struct sim_block *sim_block_enter(enum sim_block_kind kind, struct sim_ctx *ctx, uint64_t addr, size_t bytes)
{
	static uint64_t ids;
	struct sim_block *block = sim_alloc_zeroed(1, sizeof(*block));

	block->kind = kind;
	block->ctx = ctx;
	block->device = ctx ? ctx->device : NULL;
	block->id = ++ids;
	block->requested_bytes = bytes;
	block->range.lo = addr;
	block->range.hi = addr + bytes;
	sim_range_insert(&sim_blocks, &block->range);
	return block;
}

static struct sim_slab **slabs_of(struct sim_ctx *ctx, struct sim_device *device)
{
	return ctx ? &ctx->slabs : &device->pool_slabs;
}

static CUresult take_device_memory(
	struct sim_ctx *ctx, struct sim_device *device, size_t *bytes, uint64_t *addr, struct sim_slab **slab)
{
	if (*bytes <= SIM_SMALL_BYTES) {
		*bytes = sim_slab_round(*bytes);
		return sim_slab_take(slabs_of(ctx, device), device, *bytes, addr, slab);
	}
	*slab = NULL;
	return sim_device_take(device, *bytes, addr);
}

/*
 * Managed memory may exceed the host's memory, as long as it is not touched. The driver's kernel module maps pinned
 * memory so that a forked child shares it and a core dump leaves it out.
 */
static CUresult take_host_memory(enum sim_block_kind kind, size_t bytes, uint64_t *addr)
{
	int flags = MAP_ANONYMOUS | (kind == SIM_MANAGED ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED);
	void *p;

	if (bytes > HOST_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p != MAP_FAILED && kind == SIM_PINNED)
		(void)madvise(p, bytes, MADV_DONTDUMP);
	*addr = (uint64_t)(uintptr_t)p;
	return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult sim_block_new(enum sim_block_kind kind, struct sim_ctx *ctx, struct sim_device *device, size_t bytes,
	struct sim_block **block)
{
	struct sim_slab *slab = NULL;
	size_t requested = bytes;
	uint64_t addr;

	if (kind <= SIM_POOLED)
		SIM_TRY(take_device_memory(ctx, device, &bytes, &addr, &slab));
	else
		SIM_TRY(take_host_memory(kind, bytes, &addr));
	*block = sim_block_enter(kind, ctx, addr, bytes);
	(*block)->device = device;
	(*block)->slab = slab;
	(*block)->requested_bytes = requested;
	return CUDA_SUCCESS;
}

static size_t size_of(const struct sim_block *block)
{
	return block->range.hi - block->range.lo;
}

static void give_device_memory(struct sim_block *block)
{
	if (!block->slab) {
		sim_device_give(block->device, block->range.lo, size_of(block), block->dirty);
		return;
	}
	if (block->dirty)
		sim_device_scrub(block->device, block->range.lo, size_of(block));
	sim_slab_give(slabs_of(block->ctx, block->device), block->slab, block->range.lo, size_of(block));
}

void sim_block_free(struct sim_block *block)
{
	sim_range_remove(&sim_blocks, &block->range);
	sim_race_forget(block->range.lo, block->range.hi);
	if (block->exported)
		sim_share_forget(block);
	if (block->kind == SIM_MANAGED)
		sim_managed_leave(block);
	if (block->kind <= SIM_POOLED)
		give_device_memory(block);
	else if (block->kind == SIM_IMPORTED)
		sim_import_end(block);
	else if (block->kind != SIM_REGISTERED && block->kind != SIM_MAPPED)
		munmap((void *)(uintptr_t)block->range.lo, size_of(block));
	free(block);
}

struct sim_block *sim_block_at(uint64_t addr)
{
	return (struct sim_block *)sim_range_at(sim_blocks, addr);
}

struct sim_block *sim_block_exact(uint64_t addr)
{
	struct sim_block *block = sim_block_at(addr);

	return block && block->range.lo == addr && !block->freed ? block : NULL;
}

uint64_t sim_block_reach(const struct sim_block *block)
{
	const struct sim_block *next = block;

	while (next && next->kind == SIM_MAPPED) {
		block = next;
		next = sim_block_at(block->range.hi);
	}
	return block->range.hi;
}

bool sim_block_is_shared(const struct sim_block *block)
{
	return block->kind >= SIM_IMPORTED || block->exported ||
	       (block->physical && sim_physical_is_shared(block->physical));
}

void sim_blocks_close(struct sim_ctx *ctx)
{
	struct sim_block *block = (struct sim_block *)sim_range_after(sim_blocks, 0);

	while (block) {
		uint64_t next = block->range.hi;

		if (block->ctx == ctx)
			sim_block_free(block);
		block = (struct sim_block *)sim_range_after(sim_blocks, next);
	}
}
