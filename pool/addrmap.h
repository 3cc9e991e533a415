/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The map from an address to the block that starts there, for all pools of the process. A lookup takes constant time
 * and no global lock, and with a reference to the pool nearly always no lock at all. The map also finds the segment
 * around any address, for the rare questions about interior pointers.
 */

#include "block.h"
#include "lock.h"

enum { GP_ADDRMAP_SHARDS = 64, GP_ADDRMAP_FIRST_BUCKETS = 64 };

struct gp_addrmap_table {
	struct gp_addrmap_table *older; /* the table before this one grew: a lookup without a lock may still use it */
	size_t n_buckets;               /* a power of two */
	struct gp_block **buckets;
};

/* Blocks and segments have batches of their own, since a pool may need many of one and few of the other. */
enum gp_descriptor { GP_DESCRIPTOR_BLOCK, GP_DESCRIPTOR_SEGMENT, GP_N_DESCRIPTORS };

/* A batch of descriptors of a pool begins with this. */
struct gp_descriptor_batch {
	struct gp_descriptor_batch *next;
	void *memory; /* the allocation, for free() */
};

struct gp_addrmap {
	struct gp_addrmap_shard {
		struct gp_mutex lock;
		size_t n_blocks;
		/* On its own cache line, so that a lookup without the lock is not slowed by its holder. */
		_Atomic(struct gp_addrmap_table *) table __attribute__((aligned(64)));
		struct gp_addrmap_table first;
		struct gp_block *first_buckets[GP_ADDRMAP_FIRST_BUCKETS];
	} __attribute__((aligned(64))) shards[GP_ADDRMAP_SHARDS];
	struct gp_mutex segments_lock;
	struct gp_tree segments;
	/* No segment has ever reached beyond these. Written with the lock. */
	_Atomic uint64_t lowest, highest;
	struct gp_list in_flight;
	struct gp_mutex batches_lock;
	struct gp_descriptor_batch *batches[GP_N_DESCRIPTORS]; /* from pools that are gone */
	_Atomic uint64_t serial; /* serial number of the last block handed out by any pool */
};

/* A release in flight: a segment that has left the map before the driver is called to free it. */
struct gp_release {
	struct gp_list link;
	uint64_t base, size; /* bytes */
	bool is_superseded;  /* the driver has handed the address out again, so it must not be freed */
};

enum gp_claim {
	GP_CLAIM_OK,       /* was USED, is now FREEING and owned by the caller */
	GP_CLAIM_NOT_USED, /* a block that the program does not hold starts there: a double free */
	GP_CLAIM_INTERIOR, /* inside a segment of a pool, but no block that was handed out starts there */
	GP_CLAIM_FOREIGN,  /* in no pool */
};

void gp_addrmap_init(struct gp_addrmap *map);

/* The map must be empty. */
void gp_addrmap_deinit(struct gp_addrmap *map);

/* Cannot fail: without host memory for a larger table, lookups get slower. */
void gp_addrmap_add_block(struct gp_addrmap *map, struct gp_block *block);
void gp_addrmap_remove_block(struct gp_addrmap *map, struct gp_block *block);

void gp_addrmap_add_segment(struct gp_addrmap *map, struct gp_segment *segment);
void gp_addrmap_remove_segment(struct gp_addrmap *map, struct gp_segment *segment);

/*
 * Remove a segment that goes back to the driver. A thread that frees its address meanwhile waits until the driver
 * has been called; otherwise a second free could reach the driver before the first.
 */
void gp_addrmap_release_begin(struct gp_addrmap *map, struct gp_segment *segment, struct gp_release *in_flight);
void gp_addrmap_release_end(struct gp_addrmap *map, struct gp_release *in_flight);

/*
 * Takes a block from the program. If two threads free one address, one gets it. *ret_pool is set for every result but
 * FOREIGN, with a reference that the caller must put; *ret_block is set on OK only.
 */
enum gp_claim gp_addrmap_claim(
	struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool, struct gp_block **ret_block);

/*
 * As gp_addrmap_claim, but without a lock, for a caller that has a reference to `pool`, so the block comes without one.
 * NULL means that nothing was done and nothing is known: call gp_addrmap_claim then. May run concurrently with every
 * other function of the map except init and deinit.
 */
struct gp_block *gp_addrmap_try_claim(struct gp_addrmap *map, uint64_t addr, const struct gp_pool *pool);

/*
 * True if a look without a lock finds a block that starts at the address, in whatever state and of whichever pool. Most
 * addresses that are not the pools' are known by that. After false, gp_addrmap_claim may still find one.
 */
bool gp_addrmap_is_seen(struct gp_addrmap *map, uint64_t addr);

#ifdef GP_DEBUG
/* For tests: called between the look at a candidate block and its claim. NULL: nothing is called. */
extern _Thread_local void (*gp_addrmap_before_claim)(void);
#endif

/*
 * gp_addrmap_keep_batches keeps the batches of one kind of a pool that ends. gp_addrmap_take_batch returns one of them,
 * or NULL.
 */
void gp_addrmap_keep_batches(
	struct gp_addrmap *map, enum gp_descriptor descriptor, struct gp_descriptor_batch *batches);
struct gp_descriptor_batch *gp_addrmap_take_batch(struct gp_addrmap *map, enum gp_descriptor descriptor);

/* Returns the pool whose segment holds the address, or any byte of the range, with a reference; or NULL. */
struct gp_pool *gp_addrmap_pool_of(struct gp_addrmap *map, uint64_t addr);
struct gp_pool *gp_addrmap_pool_in(struct gp_addrmap *map, uint64_t addr, uint64_t bytes);

/* Returns the segment that holds the address, or NULL. The caller holds the lock of the segment's pool. */
struct gp_segment *gp_addrmap_segment_of(struct gp_addrmap *map, uint64_t addr);
