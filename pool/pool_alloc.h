/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Hands blocks out and takes them back. */

#include "addrmap.h"
#include "retainer.h"
#include "stats.h"

/* The explanation of a failed request: its size, and what the pool tried for it. */
struct gp_failure {
	uint64_t bytes;   /* the requested size, rounded by the pool */
	bool is_mapped;   /* the pool is of the kind vmm */
	bool is_hopeless; /* more than the device or the limit could ever give: nothing was tried */
	struct gp_round_stats rounds[GP_N_ROUNDS];
};

enum gp_free_mode {
	GP_FREE_NORMAL,   /* the program's work so far may touch it */
	GP_FREE_UNFENCED, /* unfenced: likewise, but no fence may be recorded now, and no GPU wait made later */
	GP_FREE_SYNCED,   /* the caller has waited for the context: no GPU work touches it any more */
};

/* Positive results of requests and frees, which cannot collide with the driver's own codes. */
enum {
	GP_E_FOREIGN = 1 << 20, /* not a pointer of the pool: pass it to the driver */
	GP_E_INTERIOR,          /* inside a segment of a pool, but not the address of a block */
	GP_E_NOT_USED,          /* the block is free already */
	GP_E_DEAD,              /* the block's context is gone */
	GP_E_NOT_PERMITTED,     /* the thread may not call the driver: the program still holds the block */
	GP_E_ASLEEP,            /* the pool would have to grow, and its memory is asleep: to be tried again awake */
};

/*
 * Hands out a block of at least that many bytes (> 0) and stores the number of the calling module in it. The block is
 * aligned to GP_ALIGN, or to a page if it has more than GP_SMALL_MAX bytes. 0; -ENOMEM after all rounds failed;
 * -ENOBUFS if host memory ran out, or GP_E_DEAD: ask the driver instead; GP_E_ASLEEP; or the driver's error.
 */
int gp_pool_alloc(struct gp_pool *pool, uint64_t bytes, uint32_t module, uint64_t *ret_addr);

/* Options of one request; {0} is the default. */
struct gp_alloc_options {
	uint64_t stream;                /* the request is ordered on this stream; 0: on none (gp_pool_free_on) */
	unsigned account;               /* with a stream: the number of an account of the pool's options, or none */
	uint32_t module;                /* number of the calling module, stored in the block */
	enum gp_step first;             /* the steps of ladder.def before this one have been tried for the request */
	enum gp_step end;               /* do not enter this step or a later one: -ENOENT then; 0: enter all */
	struct gp_failure *ret_failure; /* set if the result is -ENOMEM; or NULL */
	const struct gp_capture_alloc *capture; /* while a stream captures (retain.h); or NULL */
};

/* As gp_pool_alloc. */
int gp_pool_alloc_with(
	struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr);

/* As gp_pool_alloc, but the block is a driver allocation of its own, which goes back once it is freed and completed. */
int gp_pool_alloc_uncached(
	struct gp_pool *pool, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr);

/*
 * Takes a block back, whichever pool of the map it belongs to. 0, one of the GP_E codes, or the driver's error from the
 * fence. After such an error the block is reused only once a later fence has completed.
 */
int gp_pool_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * As gp_pool_free with GP_FREE_UNFENCED, in stream order: all work that touches the block precedes the stream's work
 * from now on. A later request on the same stream may get the block at once, all others once it is completed. stream:
 * any number but 0 that stands for one stream of the pool's context, and is never used for another.
 */
int gp_pool_free_on(struct gp_addrmap *map, uint64_t addr, uint64_t stream);

/*
 * Returns the address of a block that was freed on the stream, or 0 if none has nearly that size. account: as in
 * gp_alloc_options.
 */
uint64_t gp_pool_take_on(struct gp_pool *pool, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account);

/* As gp_pool_free_on, for a block of the pool that the caller has claimed. */
int gp_pool_take_back_on(struct gp_pool *pool, struct gp_block *block, uint64_t stream);

/*
 * A free in two steps: the program no longer holds the block after the first, and the pool has it, unfenced, after the
 * second. Between them it belongs to the caller, and counts as used but not as requested. gp_pool_free_begin returns 0
 * or one of the GP_E codes. is_uncached: as gp_pool_free_uncached. capture: as in gp_pool_free_captured, of the time of
 * the first step.
 */
struct gp_claimed {
	struct gp_pool *pool;
	struct gp_block *block;
};
int gp_pool_free_begin(struct gp_addrmap *map, uint64_t addr, struct gp_claimed *ret_claimed);
void gp_pool_free_end(const struct gp_claimed *claimed, bool is_uncached, const struct gp_capture_free *capture);

/*
 * As gp_pool_free, but the memory is not kept. A block that is a driver allocation of its own goes back once it is
 * completed; the segment of any other block goes back as soon as nothing of it is used.
 */
int gp_pool_free_uncached(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * As gp_pool_free or gp_pool_free_uncached, while a stream captures: the block may be retained (retain.h), whatever the
 * mode. capture: NULL if no stream captures.
 */
int gp_pool_free_captured(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode, bool is_uncached,
	const struct gp_capture_free *capture);

/*
 * Runs the retry rounds for an allocation that is not pooled and has failed once. attempt() tries it again, after the
 * first round and after each round that gave something back, and returns what a backend's reserve would. Returns the
 * result of the last attempt, or GP_E_DEAD. ret_failure: as in gp_alloc_options.
 */
int gp_pool_rescue(
	struct gp_pool *pool, uint64_t bytes, int (*attempt)(void *arg), void *arg, struct gp_failure *ret_failure);

/*
 * As gp_pool_free with GP_FREE_NORMAL, but offers the claimed block to keep() first. keep() returns true if it has kept
 * the block, and in *ret_r what the free returns then. NULL: nothing keeps it.
 */
typedef bool gp_pool_keep_fn(void *arg, struct gp_block *block, int *ret_r);
int gp_pool_free_or_keep(struct gp_addrmap *map, uint64_t addr, gp_pool_keep_fn *keep, void *arg);

/* As gp_pool_free_or_keep for a block of the pool that the caller has claimed. */
int gp_pool_take_back(struct gp_pool *pool, struct gp_block *block, gp_pool_keep_fn *keep, void *arg);
