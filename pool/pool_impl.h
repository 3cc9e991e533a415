/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the files of the pool share: its state. */

#include "handout.h"
#include "failure.h"
#include "fence.h"
#include "marks.h"
#include "pending.h"
#include "pool.h"

enum { GP_N_BINS = GP_N_CLASSES };

struct gp_vm;

struct gp_pool {
	struct gp_pool_options options;
	_Atomic(const struct gp_kind_ops *) kind; /* of new blocks: changes once, in gp_pool_set_whole */
	struct gp_pool *first;	/* of siblings; or the pool itself */
	struct gp_fence *fence; /* that one's */
	_Atomic bool overlap, completion_only, dead;
	_Atomic bool rounds_busy; /* one thread runs the rounds, the others wait for it and search again */
	_Atomic bool is_pressed; /* the driver is nearly empty: nothing stays cached; of the first, for all of them */
	_Atomic bool is_full; /* the driver had not even little for the pool the last time that it was asked for that */
	bool can_release_behind;	    /* the backend's answer: it stays */
	_Atomic uint64_t pending_bytes_max; /* changes in gp_pool_set_pending_max */

	char apart[GP_LINES_APART]; /* what comes before is read by each allocation and free, and hardly ever changes */
	_Atomic unsigned refs;
	_Atomic uint64_t n_arrivals; /* times that the driver got anything back: worth another attempt; of the first */
	_Atomic unsigned n_refreshes; /* reuse.c: allocations for which the GPU might have been asked */

	struct gp_mutex lock; /* guards everything below */
	pthread_cond_t rounds_done;
	struct gp_stats stats;
	uint64_t n_grows;	/* times that a large segment was asked for: the clock of idleness */
	struct gp_marks marks;	/* what was done for the sake of memory */
	uint64_t wait_level;	/* peak of total_bytes when waits were last counted anew */
	unsigned n_waits;	/* since then: see reuse.c */
	unsigned n_vain, n_to_skip; /* short waits: a measure of those in vain, and orders until the next one */
	uint64_t begun_bytes;	/* of release_begin since the start */
	uint64_t arrived_bytes; /* of these, back in the driver */
	uint64_t n_handed_out;	/* blocks: somebody else may have what one waited for */
	uint64_t owed_bytes;	/* kind vmm: to go back as soon as they can */
	uint64_t n_odd;		/* segments that are */
	struct gp_pending pending;
	struct gp_list segments; /* all */
	struct gp_list idle;	 /* those wholly cached, least recently used first */
	struct gp_list leaving;	 /* wholly cached too, but to be given back as soon as their work is completed */
	struct gp_list tcaches;	 /* of the threads */
	unsigned n_tcaches, n_recalls;
	uint64_t recalls_since_ns; /* the first of these n_recalls */
	struct gp_failure failure; /* the last one */
	uint64_t unrecorded_stamp; /* the last of late blocks that came from there */
	struct gp_list spare_blocks, spare_segments;
	unsigned n_spare_blocks;
	struct gp_addrmap_chunk *chunks; /* where descriptors come from */
	struct {
		struct gp_tree whole;		/* simple: all; binned: the odd ones */
		struct gp_list bins[GP_N_BINS]; /* binned: the others */
		struct {
			struct gp_tree small, large;
		} split;
		struct gp_vm *vm; /* vmm */
	} cache; /* of the kind at the start, and of binned after gp_pool_set_whole */
	struct gp_fence own_fence;
};

/* pool.c: gp_pool_alloc, for who wants the descriptor. ret_handed->block is NULL unless it returns 0. */
struct gp_request;
int gp_pool_alloc_block(struct gp_pool *pool, struct gp_request *request, struct gp_handed *ret_handed);

/* A block whose stamp is set leaves the program's account and enters the queue. */
void gp_pool_queue_locked(struct gp_pool *pool, struct gp_block *block, bool is_late);

/* pool_query.c: whether the address lies in memory of the pool's that the program does not hold. */
bool gp_pool_is_free_at_locked(struct gp_pool *pool, uint64_t addr);

/* A block that ceases to exist, or to be ours, leaves the address map. The program must not have it any more. */
static inline void gp_block_unmap_locked(struct gp_pool *pool, struct gp_block *block)
{
	gp_assert(gp_block_state(block) != GP_BLOCK_USED);
	if (block->flags & GP_BLOCK_MAPPED)
		gp_addrmap_remove_block(pool->options.map, block);
	block->flags &= (uint8_t)~GP_BLOCK_MAPPED;
}

static inline const struct gp_backend *gp_pool_backend(const struct gp_pool *pool)
{
	return &pool->options.backend;
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
 * The size of a block that is cut from something larger. A large block has large neighbours only, and all of them
 * consist of whole pages, so that each begins at a page: the driver exports nothing else as a dma-buf. Small blocks
 * would lose too much memory by that.
 */
static inline uint64_t gp_round_cut(const struct gp_pool *pool, uint64_t bytes)
{
	return gp_round_up(gp_max(bytes, 1), bytes <= GP_SMALL_MAX ? GP_ALIGN : pool->options.page_bytes);
}

/* The cache's count of what it holds, kept by the kinds. */
static inline void gp_cached_add(struct gp_pool *pool, struct gp_block *block)
{
	gp_block_set_state(block, GP_BLOCK_CACHED);
	pool->stats.cached_bytes += block->size;
	pool->stats.n_free_blocks++;
}

static inline void gp_cached_sub(struct gp_pool *pool, struct gp_block *block)
{
	pool->stats.cached_bytes -= block->size;
	pool->stats.n_free_blocks--;
}

/* Whether some scope holds flushes back. */
static inline bool gp_pool_is_deferring(const struct gp_pool *pool)
{
	const _Atomic unsigned *n = pool->options.n_defers;

	return n && gp_unlikely(atomic_load_explicit(n, memory_order_relaxed) != 0);
}

static inline uint64_t gp_pool_pending_max(const struct gp_pool *pool)
{
	return atomic_load_explicit(&pool->pending_bytes_max, memory_order_relaxed);
}

static inline bool gp_pool_is_flag(const _Atomic bool *flag)
{
	return atomic_load_explicit(flag, memory_order_relaxed);
}

static inline bool gp_pool_is_pressed(const struct gp_pool *pool)
{
	return gp_pool_is_flag(&pool->first->is_pressed);
}
