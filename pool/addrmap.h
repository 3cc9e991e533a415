/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * From an address to the block that starts there, for all pools of the process: O(1), no global lock, and for who has a
 * pool's reference nearly always none at all. And from any address inside a segment to that segment, for the rare
 * questions about interior pointers.
 */

#include "block.h"
#include "lock.h"

enum { GP_ADDRMAP_SHARDS = 64, GP_ADDRMAP_FIRST_BUCKETS = 64 };

struct gp_addrmap_table {
	struct gp_addrmap_table *older; /* which this one grew out of: who looks without a lock may still be there */
	size_t n_buckets;		/* a power of two */
	struct gp_block **buckets;
};

/* Host memory of a pool's descriptors: begins with this. */
struct gp_addrmap_chunk {
	struct gp_addrmap_chunk *next;
	void *memory; /* that it lies in, for free */
};

struct gp_addrmap {
	struct gp_addrmap_shard {
		struct gp_mutex lock;
		size_t n_blocks;
		/* Not on the line of the lock: looking without it shall not wait for who has it. */
		_Atomic(struct gp_addrmap_table *) table __attribute__((aligned(64)));
		struct gp_addrmap_table first;
		struct gp_block *first_buckets[GP_ADDRMAP_FIRST_BUCKETS];
	} __attribute__((aligned(64))) shards[GP_ADDRMAP_SHARDS];
	struct gp_mutex segments_lock;
	struct gp_tree segments;
	struct gp_list departures;
	struct gp_mutex chunks_lock;
	struct gp_addrmap_chunk *chunks; /* of pools that are gone */
	_Atomic uint64_t serial; /* of the last block handed out by any pool */
};

/* A segment that has left the map and of which the driver has not heard yet. */
struct gp_departure {
	struct gp_list link;
	uint64_t base, size; /* bytes */
	bool is_superseded;  /* the driver has handed the address out again: this is no more its to take back */
};

enum gp_claim {
	GP_CLAIM_OK,	   /* was USED, is FREEING now and the caller's */
	GP_CLAIM_NOT_USED, /* starts a block that the program does not hold: a double free */
	GP_CLAIM_INTERIOR, /* inside one of our segments, but no block that was handed out starts there */
	GP_CLAIM_FOREIGN,  /* not ours */
};

void gp_addrmap_init(struct gp_addrmap *map);

/* The map must be empty. */
void gp_addrmap_deinit(struct gp_addrmap *map);

/* Cannot fail: without memory for a larger table lookups get slower. */
void gp_addrmap_add_block(struct gp_addrmap *map, struct gp_block *block);
void gp_addrmap_remove_block(struct gp_addrmap *map, struct gp_block *block);

void gp_addrmap_add_segment(struct gp_addrmap *map, struct gp_segment *segment);
void gp_addrmap_remove_segment(struct gp_addrmap *map, struct gp_segment *segment);

/*
 * The same for a segment that goes back to the driver: who frees its address meanwhile waits until the driver has been
 * told, or a second free would get there before the first.
 */
void gp_addrmap_depart(struct gp_addrmap *map, struct gp_segment *segment, struct gp_departure *departure);
void gp_addrmap_departed(struct gp_addrmap *map, struct gp_departure *departure);

/*
 * Takes a block out of the program's hands. Of two threads that free one address, one gets it. For every result
 * but FOREIGN, *ret_pool is the pool with a reference that the caller must put; ret_block is set on OK only.
 */
enum gp_claim gp_addrmap_claim(struct gp_addrmap *map, uint64_t addr, struct gp_pool **ret_pool,
			       struct gp_block **ret_block);

/*
 * The same without a lock, for who has a reference to the pool (which is why none comes with the block): NULL unless
 * the block is that pool's and all is as hoped, and then nothing was done, and nothing is known: gp_addrmap_claim has
 * to say what is what. May run while anything else here does, but init and deinit.
 */
struct gp_block *gp_addrmap_try_claim(struct gp_addrmap *map, uint64_t addr, const struct gp_pool *pool);

#ifdef GP_DEBUG
/* For tests: what happens between the thread's look at a block that may be it and its claim. NULL: nothing. */
extern _Thread_local void (*gp_addrmap_before_claim)(void);
#endif

/* The chunks of a pool that ends, for others; and one of those, or NULL. */
void gp_addrmap_keep_chunks(struct gp_addrmap *map, struct gp_addrmap_chunk *chunks);
struct gp_addrmap_chunk *gp_addrmap_take_chunk(struct gp_addrmap *map);

/* The pool whose segment holds the address, or any of the bytes from there, with a reference, or NULL. */
struct gp_pool *gp_addrmap_pool_of(struct gp_addrmap *map, uint64_t addr);
struct gp_pool *gp_addrmap_pool_in(struct gp_addrmap *map, uint64_t addr, uint64_t bytes);

/* The segment that holds the address, or NULL. The caller holds the lock of the segment's pool. */
struct gp_segment *gp_addrmap_segment_of(struct gp_addrmap *map, uint64_t addr);
