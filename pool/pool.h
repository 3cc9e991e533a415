/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The allocator's public interface: one pool serves one kind of memory of one context. All functions are thread-safe.
 * Addresses are numbers here: nothing is ever read or written through them.
 */

#include "account.h"
#include "backend.h"
#include "budget.h"
#include "check.h"
#include "ownlock.h"
#include "pool_alloc.h"
#include "pool_control.h"
#include "pool_query.h"
#include "pool_ref.h"

enum gp_kind {
	GP_KIND_NONE,   /* no cache: every call goes to the driver */
	GP_KIND_SIMPLE, /* whole driver allocations, smallest fit */
	GP_KIND_BINNED, /* whole driver allocations, in size classes */
	GP_KIND_SPLIT,  /* large segments, split and merged */
	GP_KIND_VMM,    /* arenas of addresses, where memory is mapped as needed */
	GP_N_KINDS
};

const char *gp_kind_name(enum gp_kind kind);

struct gp_pool_options {
	enum gp_kind kind;
	struct gp_backend backend;
	struct gp_addrmap *map;           /* the process's address map; outlives the pool */
	struct gp_budget *budget;         /* shared; outlives the pool */
	struct gp_accounts *accounts;     /* likewise; or NULL */
	_Atomic uint64_t *survivor_bytes; /* likewise: bytes that stay charged for survivors of gp_pool_drop_except */
	uint64_t capacity_bytes;          /* the device's total memory: larger requests fail at once */
	uint64_t granule;                 /* large requests are rounded to this, as in the driver: a power of two */
	uint64_t page_bytes; /* large blocks begin at multiples of this: a power of two up to the granule; or 0 */
	uint64_t pending_bytes_max; /* limits of the queue of pending blocks; UINT64_MAX: none */
	uint64_t pending_count_max;
	const _Atomic unsigned *n_defers; /* while not 0 the queue is not flushed (pool_control.h); or NULL */
	uint64_t reserve_bytes;           /* while the driver has less than this left, nothing stays cached */
	uint64_t oom_wait_ns;             /* limit of round 6 */
	bool spills;                      /* round 7 moves memory to the host */
	uint64_t thread_cache_bytes;      /* limit of each thread cache (tcache.h); 0: no thread caches */
	const gp_barrier_source *barrier; /* for the locks of thread caches (ownlock.h); outlives the pool; or NULL */
	bool completion_only;             /* reuse needs completion; a GPU wait is not enough */
	struct gp_pool *sibling;          /* a pool of the same context, whose fences this one shares; or NULL */
	void *owner;                      /* the creator's data, for gp_pool_owner and gp_pool_number */
	uint32_t number;
};

/* Creates a pool. 0, -ENOMEM (host memory), or the backend's error. The caller holds the first reference. */
int gp_pool_new(const struct gp_pool_options *options, struct gp_pool **ret_pool);

/* Drops a reference; the last one frees the descriptors. The pool must have been dropped before. */
void gp_pool_put(struct gp_pool *pool);

/* Returns once every fence call that was under way has ended. */
void gp_pool_quiesce(struct gp_pool *pool);

/* Return the values from the options. */
enum gp_kind gp_pool_type(const struct gp_pool *pool);
void *gp_pool_owner(const struct gp_pool *pool);
uint32_t gp_pool_number(const struct gp_pool *pool);

/*
 * The context is gone: forgets every block without a driver call. Later calls return GP_E_DEAD. If other threads still
 * call the pools, those that share this pool's fences must be dropped first.
 */
void gp_pool_drop(struct gp_pool *pool);

/*
 * The same, but mapped memory that the program holds in stream order may survive the context, as that of the driver's
 * pools does. Calls fn for each such block, with the pool's lock held; the block survives if fn returns true. The
 * chunks in which it lies stay mapped and charged. So does the memory of such a block that is being freed, until the
 * free has ended.
 */
typedef bool gp_pool_survive_fn(void *arg, const struct gp_block_info *info);
void gp_pool_drop_except(struct gp_pool *pool, gp_pool_survive_fn *fn, void *arg);

/*
 * The program has freed a block that survived, and no work uses it any more. Gives the chunks back of which nothing
 * survives. The caller has a reference to the pool.
 */
void gp_pool_end_survivor(struct gp_pool *pool, uint64_t addr, uint64_t bytes);

/*
 * Gives mapped memory back after gp_pool_drop, once the driver has ended the context: mappings do not end with it.
 * Memory that the driver refuses to unmap even then stays mapped, and its arena of addresses is never freed.
 */
void gp_pool_unmap(struct gp_pool *pool);
