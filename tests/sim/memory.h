/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Simulated memory. Device addresses lie in reserved ranges that the host cannot touch. The simulator
 * accesses the bytes through a second, sparse mapping. Physical memory is counted in chunks of 2 MiB.
 */

#include <sys/types.h>

#include "range.h"
#include "sim.h"

struct sim_ctx;
struct sim_stream;

enum sim_block_kind {
	SIM_DEVICE,
	SIM_POOLED,
	SIM_MAPPED,   /* physical memory that is mapped at reserved addresses */
	SIM_IMPORTED, /* memory of another process */
	SIM_MANAGED,
	SIM_PINNED,
	SIM_REGISTERED
};

struct sim_block {
	struct sim_range range; /* must be first: the range set finds blocks through it */
	enum sim_block_kind kind;
	struct sim_ctx *ctx; /* owner; NULL for pooled and mapped memory, which belongs to the device */
	struct sim_device *device;
	uint64_t id;
	size_t requested_bytes;
	bool freed;    /* a free was called: a second free is an error */
	bool released; /* the stream has reached the free: a use is an error */
	bool dirty, sync_memops, of_graph;
	unsigned n_graphs; /* graphs and executable graphs that allocate it */
	bool exported;
	struct sim_import *import; /* of imported memory: its mapping */
	unsigned host_flags;
	struct sim_slab *slab;         /* of small blocks: the chunk that they share */
	struct sim_pool *pool;         /* of pooled memory */
	struct sim_physical *physical; /* of mapped memory */
	unsigned access;               /* of mapped memory: a bit for each device that may touch it */
	size_t resident_bytes;         /* of managed memory: the part on the device */
	uint64_t touched;              /* of managed memory: number of the last touch by work */
	struct sim_block *next;
};

struct sim_pool {
	struct sim_block *cached; /* free blocks, which still count as used device memory */
	uint64_t threshold, used_bytes, used_high, reserved_bytes, reserved_high;
	struct sim_device *device;
	unsigned access;       /* a bit for each other device that may touch its memory */
	struct sim_pool *next; /* in the list of pools that the program created */
	bool is_destroyed;     /* it ends once none of its memory is used any more */
};

struct sim_device {
	int ordinal;
	size_t capacity, used;
	size_t resident; /* managed memory among the used bytes, which leaves for other allocations */
	uint64_t base;   /* start of the addresses */
	char *bytes;     /* start of the second mapping */
	size_t span;
	int fd;
	unsigned n_chunks, first_free;
	unsigned char *taken; /* per chunk */
	struct sim_ctx *primary;
	struct sim_pool pool, *current_pool; /* the default pool; the pool that cuMemAllocAsync uses */
	struct sim_slab *pool_slabs;
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];

/* device.c */
/* Reserves addresses, from SIMGPU_ADDRESSES on if that is set. Returns NULL if the process has none left. */
void *sim_reserve(size_t bytes);

CUresult sim_devices_init(void);
CUresult sim_device_of(CUdevice ordinal, struct sim_device **device);
CUresult sim_device_charge(struct sim_device *device, size_t bytes);
void sim_device_discharge(struct sim_device *device, size_t bytes);
CUresult sim_device_reserve(struct sim_device *device, size_t bytes, uint64_t *addr);
void sim_device_unreserve(struct sim_device *device, uint64_t addr, size_t bytes);
CUresult sim_device_take(struct sim_device *device, size_t bytes, uint64_t *addr);
void sim_device_give(struct sim_device *device, uint64_t addr, size_t bytes, bool dirty);
void sim_device_scrub(struct sim_device *device, uint64_t addr, size_t bytes); /* zeroes the bytes */
char *sim_bytes_at(uint64_t addr); /* the simulator's own mapping of an address */

/* block.c */
extern struct sim_range *sim_blocks;
CUresult sim_block_new(enum sim_block_kind kind, struct sim_ctx *ctx, struct sim_device *device, size_t bytes,
	struct sim_block **block);
struct sim_block *sim_block_enter(enum sim_block_kind kind, struct sim_ctx *ctx, uint64_t addr, size_t bytes);
void sim_block_free(struct sim_block *block);
struct sim_block *sim_block_at(uint64_t addr);
struct sim_block *sim_block_exact(uint64_t addr);        /* NULL unless a live block begins at addr */
uint64_t sim_block_reach(const struct sim_block *block); /* its end, or that of adjacent mappings */
bool sim_block_is_shared(const struct sim_block *block); /* with the host, or other processes */
void sim_blocks_close(struct sim_ctx *ctx);

/* slab.c: small blocks in units of 512 bytes. Their chunks belong to one context, or to the pools of one device. */
#define SIM_SMALL_BYTES SIM_MIB
CUresult sim_slab_take(
	struct sim_slab **slabs, struct sim_device *device, size_t bytes, uint64_t *addr, struct sim_slab **slab);
void sim_slab_give(struct sim_slab **slabs, struct sim_slab *slab, uint64_t addr, size_t bytes);
size_t sim_slab_round(size_t bytes);

/* physical.c */
struct sim_physical;
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
size_t sim_physical_bytes(const struct sim_physical *physical);
struct sim_device *sim_physical_device(const struct sim_physical *physical); /* NULL: the host */
int sim_physical_fd(const struct sim_physical *physical);                    /* the file that holds it */
off_t sim_physical_offset(const struct sim_physical *physical);              /* in that file */
bool sim_physical_is_shared(const struct sim_physical *physical);            /* with other processes, perhaps */
bool *sim_physical_dirty(struct sim_physical *physical);
const CUmemAllocationProp *sim_physical_properties(const struct sim_physical *physical);
CUmemGenericAllocationHandle sim_physical_retain(struct sim_physical *physical);
void sim_physical_map(struct sim_physical *physical);
void sim_physical_unmap(struct sim_physical *physical);
void sim_arrays_close(const struct sim_ctx *ctx);

/*
 * managed.c: memory that work touches moves to the device, and the least recently used memory leaves.
 * sim_managed_bring returns the time that the move takes in ns. sim_managed_make_room spares the block `spared`,
 * which may be NULL.
 */
uint64_t sim_managed_bring(struct sim_device *device, struct sim_block *block, size_t bytes);
bool sim_managed_make_room(struct sim_device *device, size_t bytes, const struct sim_block *spared);
void sim_managed_leave(struct sim_block *block);

/* virtual.c */
char *sim_virtual_bytes(uint64_t addr);                           /* NULL if the address is not reserved */
CUresult sim_physical_moved(const struct sim_physical *physical); /* its mappings follow it to its new file */

/* alloc.c */
CUresult sim_free_waiting(struct sim_block *block);

/* mempool.c */
void sim_pools_init(struct sim_device *device);
void sim_pools_trim(const struct sim_device *device); /* each pool to its release threshold */
void sim_pool_take_back(struct sim_block *block);
bool sim_address_is_device(uint64_t addr);
void sim_stream_release_freed(struct sim_stream *stream); /* call this after the stream was synchronised */
