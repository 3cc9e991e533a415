/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_DEBUG=poison,guard finds writes to pool memory that the program does not own. Such writes cause no fault.
 *
 *   guard   A block is larger than requested. The bytes behind it, and in kinds that cut segments also the bytes before
 *           it, are filled when it is handed out and checked when it is freed.
 *   poison  The whole block is filled when it is freed. It is checked before it is handed out again and before it goes
 *           back to the driver.
 *
 * A free therefore waits for the same work as the driver's own free. No other call waits for the program's work.
 * Checks that are not possible, such as during a capture, are counted as skipped.
 *
 * While GPUPOOL_DEBUG is set, threads have no caches, and calls of the runtime are not served directly. So every
 * allocation and free goes through hooks/memory_calls.c. That file calls this code while the slow-path reason
 * GP_SLOW_PATH_WATCHED is set, which recording sets too.
 */

#include "pool/pool.h"
#include "shim/context/context.h"

static inline bool gp_debug_is_on(void)
{
	return gp_config_debug_is_on(&gp_state.config.debug);
}

/* Sets up the checks if GPUPOOL_DEBUG asks for them. To be called once the settings have been read. */
void gp_debug_start(void);

/*
 * Allocates a larger block with gp_scope_alloc, begins to watch its zone, and returns the address for the
 * program.
 */
int gp_debug_alloc(struct gp_pool *pool, bool is_pinned, uint64_t bytes, const struct gp_alloc_options *options,
	uint64_t *ret_addr);

typedef int gp_debug_release_fn(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * Frees an address for the program. is_waited: the free has waited for the context's work. Calls release, which works
 * like gp_pool_free, and returns its result. release gets the address that the pool knows for the block. If ptr is not
 * the address of a block, release gets an address that the pool refuses.
 */
int gp_debug_free(bool is_pinned, uint64_t ptr, bool is_waited, enum gp_free_mode mode, gp_debug_release_fn *release);

void gp_debug_adjust_slow(struct gp_block_info *info);

/* Changes the bounds of a block that the program holds from the pool's to the program's. */
static inline void gp_debug_adjust(struct gp_block_info *info)
{
	if (gp_unlikely(gp_debug_is_on()) && info->is_used)
		gp_debug_adjust_slow(info);
}

/* Translates the pool's address of a block to the program's. */
uint64_t gp_debug_ptr(uint64_t addr);

/* Works like gp_pool_info, with the bounds that the program knows. */
static inline int gp_debug_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info)
{
	int r = gp_pool_info(map, addr, ret_info);

	if (!r)
		gp_debug_adjust(ret_info);
	return r;
}

void gp_debug_leave_slow(uint64_t addr, uint64_t bytes, bool is_done);

/*
 * Checks memory that is about to go back to the driver: a whole driver allocation (bytes is 0), or a mapped range.
 * is_done: the GPU is done with the memory. If it is not, the checks are counted as skipped.
 */
static inline void gp_debug_leave(uint64_t addr, uint64_t bytes, bool is_done)
{
	if (gp_unlikely(gp_debug_is_on()))
		gp_debug_leave_slow(addr, bytes, is_done);
}

/* Counters since the start of the process. */
struct gp_debug_stats {
	uint64_t checks, skipped, errors, ns;
};
void gp_debug_stats(struct gp_debug_stats *ret);

/* The result of a check of all watched zones, which stops after a second. */
struct gp_debug_survey {
	uint64_t blocks, skipped, errors, ns; /* zones checked, zones that could not be checked, findings */
	bool is_truncated;
};
void gp_debug_check_all(struct gp_debug_survey *ret);
