/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Simulated memory. Device addresses lie in reserved ranges that the host cannot touch; the
 * simulator reaches the bytes through a second, sparse mapping. Physical memory is counted in
 * chunks of 2 MiB.
 */

#include <sys/types.h>

#include "range.h"
#include "sim.h"

struct sim_ctx;
struct sim_stream;

enum sim_block_kind {
	SIM_DEVICE,
	SIM_POOLED,
	SIM_MAPPED, /* physical memory, at addresses that were reserved */
	SIM_IMPORTED, /* of another process */
	SIM_MANAGED,
	SIM_PINNED,
	SIM_REGISTERED
};

struct sim_block {
	struct sim_range range; /* first: the range set finds blocks through it */
	enum sim_block_kind kind;
	struct sim_ctx *ctx; /* owner; NULL for what belongs to the device: pooled and mapped memory */
	struct sim_device *device;
	uint64_t id;
	size_t requested_bytes;
	bool freed;    /* cuMemFreeAsync was called: a second free is an error */
	bool released; /* and its turn in the stream has come: a use is an error */
	bool dirty, sync_memops, of_graph;
	unsigned n_graphs; /* and launchable ones, that allocate it */
	bool exported;
	struct sim_import *import; /* how an imported one is mapped */
	unsigned host_flags;
	struct sim_slab *slab; /* small blocks share a chunk */
	struct sim_pool *pool; /* of pooled memory */
	struct sim_physical *physical; /* of mapped memory */
	unsigned access;               /* devices that may touch it: a bit each */
	size_t resident_bytes;         /* of managed memory: on the device */
	uint64_t touched;              /* the last time that work touched managed memory; counted */
	struct sim_block *next;
};

struct sim_pool {
	struct sim_block *cached; /* free, still charged */
	uint64_t threshold, used_bytes, used_high, reserved_bytes, reserved_high;
	struct sim_device *device;
	unsigned access;       /* other devices that may touch it: a bit each */
	struct sim_pool *next; /* of those that the program made */
	bool is_destroyed;     /* and goes when nothing of it is used any more */
};

struct sim_device {
	int ordinal;
	size_t capacity, used;
	size_t resident; /* of that, managed memory: makes way for all else */
	uint64_t base; /* of the addresses */
	char *bytes;   /* of the second mapping */
	size_t span;
	int fd;
	unsigned n_chunks, first_free;
	unsigned char *taken; /* per chunk */
	struct sim_ctx *primary;
	struct sim_pool pool, *current_pool; /* the default one; of cuMemAllocAsync */
	struct sim_slab *pool_slabs;
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];

/* device.c */
CUresult sim_devices_init(void);
CUresult sim_device_of(CUdevice ordinal, struct sim_device **device);
CUresult sim_device_charge(struct sim_device *device, size_t bytes);
void sim_device_discharge(struct sim_device *device, size_t bytes);
CUresult sim_device_reserve(struct sim_device *device, size_t bytes, uint64_t *addr);
void sim_device_unreserve(struct sim_device *device, uint64_t addr, size_t bytes);
CUresult sim_device_take(struct sim_device *device, size_t bytes, uint64_t *addr);
void sim_device_give(struct sim_device *device, uint64_t addr, size_t bytes, bool dirty);
void sim_device_scrub(struct sim_device *device, uint64_t addr, size_t bytes); /* zeros again */
char *sim_bytes_at(uint64_t addr); /* where the simulator reads and writes an address */

/* block.c */
extern struct sim_range *sim_blocks;
CUresult sim_block_new(enum sim_block_kind kind, struct sim_ctx *ctx, struct sim_device *device,
	size_t bytes, struct sim_block **block);
struct sim_block *sim_block_enter(
	enum sim_block_kind kind, struct sim_ctx *ctx, uint64_t addr, size_t bytes);
void sim_block_free(struct sim_block *block);
struct sim_block *sim_block_at(uint64_t addr);
struct sim_block *sim_block_exact(uint64_t addr); /* only for the block's own first address */
uint64_t sim_block_reach(const struct sim_block *block); /* with the mappings right behind it */
bool sim_block_is_shared(const struct sim_block *block); /* with the host, or other processes */
void sim_blocks_close(struct sim_ctx *ctx);

/*
 * slab.c: small blocks, at a stride of 512 bytes, out of chunks that a context (or a pool) has to
 * itself.
 */
#define SIM_SMALL_BYTES SIM_MIB
CUresult sim_slab_take(struct sim_slab **slabs, struct sim_device *device, size_t bytes,
	uint64_t *addr, struct sim_slab **slab);
void sim_slab_give(struct sim_slab **slabs, struct sim_slab *slab, uint64_t addr, size_t bytes);
size_t sim_slab_round(size_t bytes);

/* physical.c */
struct sim_physical;
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
size_t sim_physical_bytes(const struct sim_physical *physical);
struct sim_device *sim_physical_device(const struct sim_physical *physical); /* NULL: the host */
off_t sim_physical_offset(const struct sim_physical *physical); /* in the device's file */
bool *sim_physical_dirty(struct sim_physical *physical);
const CUmemAllocationProp *sim_physical_properties(const struct sim_physical *physical);
CUmemGenericAllocationHandle sim_physical_retain(struct sim_physical *physical);
void sim_physical_map(struct sim_physical *physical);
void sim_physical_unmap(struct sim_physical *physical);
void sim_arrays_close(const struct sim_ctx *ctx);

/* managed.c: what work touches comes to the device, and what was not touched for longest leaves. */
uint64_t sim_managed_bring(struct sim_device *device, struct sim_block *block, size_t bytes); /* takes so many ns */
bool sim_managed_make_room(struct sim_device *device, size_t bytes, const struct sim_block *but); /* or NULL */
void sim_managed_leave(struct sim_block *block);

/* virtual.c */
char *sim_virtual_bytes(uint64_t addr); /* NULL: not a reserved address */

/* alloc.c */
CUresult sim_free_waiting(struct sim_block *block);

/* mempool.c */
void sim_pools_init(struct sim_device *device);
void sim_pools_trim(const struct sim_device *device); /* to what each pool may keep */
void sim_pool_take_back(struct sim_block *block);
bool sim_address_is_device(uint64_t addr);
void sim_stream_give_back(struct sim_stream *stream); /* the stream has been synchronised */
