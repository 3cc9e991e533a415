/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state of a pool, which all files of the pool share. */

#include "claim.h"
#include "pool.h"
#include "fence.h"
#include "thrash.h"
#include "pending.h"

enum { GP_N_BINS = GP_N_CLASSES };

struct gp_vm;

/* The calls of the pool into a cache in front of it (caches.h). */
struct gp_cache;

struct gp_cache_ops {
	/*
	 * Moves all blocks into the pool's queue; returns their number. Sets *ret_is_any_unfenced if one is unfenced.
	 */
	uint64_t (*flush_locked)(struct gp_cache *cache, bool *ret_is_any_unfenced);

	/* Corrects a snapshot of the pool's counters by what the cache holds. */
	void (*count_locked)(struct gp_cache *cache, struct gp_stats *stats);

	/* Forgets all blocks, because the pool is dropped. */
	void (*drop_locked)(struct gp_cache *cache);
};

struct gp_cache {
	struct gp_ownlock lock; /* the owner's */
	/*
	 * Bytes held in small and in large blocks, and in blocks freed in stream order, without and with an account:
	 * written by the owner, or with the cache closed; read by any thread.
	 */
	_Atomic uint64_t bytes, large_bytes, stream_bytes, account_bytes;
	const struct gp_cache_ops *ops;
	struct gp_list link; /* pool->caches */
};

struct gp_pool {
	struct gp_pool_options options;
	_Atomic(const struct gp_kind_ops *) kind; /* of new blocks: changes once, in gp_pool_set_whole */
	const struct gp_kind_ops *first_kind;     /* options.kind's */
	struct gp_pool *first;                    /* the first pool of the context, which may be this one */
	struct gp_fence *fence;                   /* the first pool's */
	_Atomic bool overlap, completion_only, dead;
	_Atomic bool rounds_busy;           /* one thread runs the rounds, the others wait for it and search again */
	_Atomic bool is_pressed;            /* memory is short, here or elsewhere: nothing stays cached; first pool's */
	_Atomic bool is_full;               /* the driver refused even a small request when it was last asked for one */
	bool can_release_behind;            /* the backend's answer, which never changes */
	bool is_first_release_slow;         /* likewise */
	_Atomic uint64_t pending_bytes_max; /* changes in gp_pool_set_pending_max */

	char apart[GP_LINES_APART]; /* what comes before is read by every allocation and free, and rarely changes */
	_Atomic unsigned refs;
	_Atomic uint64_t n_arrivals; /* times that the driver got memory back: worth another attempt; first pool's */
	_Atomic unsigned
		n_own_frees; /* segment.c: releases before the first release_begin, or the maximum; first pool's */
	_Atomic unsigned n_poll_chances; /* reuse.c: allocations that could have polled the GPU */
	_Atomic uint64_t n_misses, step_ns[GP_N_STEPS], step_fastest_ns[GP_N_STEPS]; /* for the statistics */
	_Atomic uint64_t begun_bytes;   /* bytes of all releases begun; written with the lock */
	_Atomic uint64_t arrived_bytes; /* of these, bytes that are back in the driver; likewise */

	/* of the thread that runs the rounds: allocations in a row that no member of the group helped; the last one */
	unsigned n_futile_asks;
	uint64_t futile_ask_ns;

	struct gp_event rounds_done;
	struct gp_mutex lock;    /* guards everything below; threads spin on this cache line */
	struct gp_thrash thrash; /* thrash detector: requests for which memory was moved or given back */
	struct gp_stats stats;
	uint64_t stream_high_bytes, total_high_bytes; /* high-water marks (pool_query.h) */
	bool is_stream_served;                        /* a request in stream order that names no account */
	uint64_t accounted_bytes; /* of stats.stream_bytes, those of blocks with an account, cached ones too */
	uint64_t n_grows;         /* times that a large segment was asked for: the clock for idle segments */
	uint64_t wait_level;      /* peak of total_bytes when waits were last counted anew */
	unsigned n_waits;         /* since then: see reuse.c */
	unsigned wait_backoff, n_waits_to_skip; /* short waits: how many to skip after a failure, and how many still */
	uint64_t n_handed_out;                  /* blocks: another thread may have got what this one waited for */
	uint64_t debt_bytes;                    /* debt, kind vmm: bytes that go back as soon as they can */
	uint64_t n_undersized;                  /* undersized segments */
	struct gp_pending pending;
	struct gp_list retained; /* blocks that wait for the end of captured graphs (retain.h) */
	uint64_t n_ended_seen;   /* the retainers' n_ended when `retained` was last looked through */
	struct gp_list segments; /* all */
	struct gp_list idle;     /* wholly cached segments, least recently used first */
	struct gp_list leaving;  /* wholly cached, too, but given back as soon as their work is completed */
	struct gp_list caches;   /* caches of the threads */
	unsigned n_caches, n_flushes;
	uint64_t flushes_since_ns; /* time of the first of these n_flushes */
	uint64_t unrecorded_seq;   /* fence sequence of the newest unfenced block that came from a thread cache */
	struct gp_list spare_blocks, spare_segments;
	unsigned n_spare_blocks;
	struct gp_descriptor_batch *batches[GP_N_DESCRIPTORS];
	struct {
		struct gp_tree whole;           /* simple: all blocks; binned: undersized ones */
		struct gp_list bins[GP_N_BINS]; /* binned: all other blocks */
		struct {
			struct gp_tree small, large;
		} split;
		struct gp_vm *vm; /* vmm */
	} cache;                  /* of the kind at the start, and of binned after gp_pool_set_whole */
	struct gp_fence own_fence;
};

/* Removes a block from the address map, because it ceases to exist or leaves the pool. It must not be USED any more. */
static inline void gp_block_unmap_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_assert(gp_block_state(block) != GP_BLOCK_USED);
	if (block->flags & GP_BLOCK_IN_MAP)
		gp_addrmap_remove_block(pool->options.map, block);
	block->flags &= (uint8_t)~GP_BLOCK_IN_MAP;
}

static inline const struct gp_backend *gp_pool_backend(const struct gp_pool *pool)
{
	return &pool->options.backend;
}

/* Returns the backend for the moves of a sleep, which are not recorded. */
static inline const struct gp_backend *gp_pool_mover(const struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	return be->ops->recorder ? be->ops->recorder->beneath(be->arg) : be;
}

static inline uint64_t gp_pool_now_ns(const struct gp_pool *pool)
{
	return gp_pool_backend(pool)->ops->now_ns(gp_pool_backend(pool)->arg);
}

static inline const struct gp_kind_ops *gp_pool_kind(const struct gp_pool *pool)
{
	return atomic_load_explicit(&pool->kind, memory_order_relaxed);
}

/*
 * Rounds the size of a block that is cut from a larger one. Large blocks have only large neighbours and consist of
 * whole pages, so that each begins at a page: the driver exports nothing else as a dma-buf. Small blocks would lose too
 * much memory that way.
 */
static inline uint64_t gp_round_cut(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_up(gp_max(bytes, 1), bytes <= GP_SMALL_MAX ? GP_ALIGN : pool->options.page_bytes);
}

static inline unsigned gp_block_account(const struct gp_block *block)
{
	return atomic_load_explicit(&block->account, memory_order_relaxed);
}

/* Charge and uncharge the account of a block, if it has one: when the program gets the block, and when it frees it. */
static inline void gp_pool_charge_account(struct gp_pool *pool, const struct gp_block *block)
{
	unsigned account = gp_block_account(block);

	if (gp_unlikely(account))
		gp_account_charge(gp_account(pool->options.accounts, account), block->size);
}

static inline void gp_pool_uncharge_account(struct gp_pool *pool, const struct gp_block *block)
{
	unsigned account = gp_block_account(block);

	if (gp_unlikely(account))
		gp_account_uncharge(gp_account(pool->options.accounts, account), block->size);
}

/* Count the cache's content; called by the kinds. */
static inline void gp_cached_add(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_set_state(block, GP_BLOCK_CACHED);
	pool->stats.cached_bytes += block->size;
	pool->stats.n_cached_blocks++;
}

static inline void gp_cached_sub(struct gp_pool *pool, struct gp_block *block)
{
	pool->stats.cached_bytes -= block->size;
	pool->stats.n_cached_blocks--;
}

/* True if any thread cache holds a block. A block that another thread is putting into its cache may be missed. */
static inline bool gp_pool_is_any_in_caches_locked(const struct gp_pool *pool)
{
	const struct gp_list *link;

	gp_list_each(link, &pool->caches) {
		const struct gp_cache *cache = gp_container_of(link, struct gp_cache, link);

		if (atomic_load_explicit(&cache->bytes, memory_order_relaxed) ||
			atomic_load_explicit(&cache->large_bytes, memory_order_relaxed) ||
			atomic_load_explicit(&cache->stream_bytes, memory_order_relaxed) ||
			atomic_load_explicit(&cache->account_bytes, memory_order_relaxed))
			return true;
	}
	return false;
}

/* True if a defer scope holds flushes back. */
static inline bool gp_pool_is_deferring(const struct gp_pool *pool)
{
	const _Atomic unsigned *n = pool->options.n_defers;

	return n && gp_unlikely(atomic_load_explicit(n, memory_order_relaxed) != 0);
}

static inline uint64_t gp_pool_pending_max(const struct gp_pool *pool)
{
	return atomic_load_explicit(&pool->pending_bytes_max, memory_order_relaxed);
}

static inline bool gp_flag_is_set(const _Atomic bool *flag)
{
	return atomic_load_explicit(flag, memory_order_relaxed);
}

static inline bool gp_pool_is_pressed(const struct gp_pool *pool)
{
	return gp_flag_is_set(&pool->first->is_pressed);
}
