/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_DEBUG=poison,guard: finds writes to memory that is not the program's, though nothing faults.
 *
 * A block gets more than the program asks for: what lies behind it, and in a kind that cuts segments also before it, is
 * filled when it is handed out, and looked at when it is freed. Then all of it is filled, and looked at before anybody
 * has it again. For that a free waits for the work that the driver's own would have waited for; nobody else waits for
 * work of the program's. What cannot be looked at, during a capture say, is counted.
 *
 * While this is on, threads have no caches and nothing is served to runtimes, so every allocation and free comes by
 * hook_memory.c, which finds the way here by the flag that recording uses, too.
 */

#include "../pool/pool.h"
#include "context.h"

static inline bool gp_debug_is_on(void)
{
	return gp_config_debug_is_on(&gp_state.config.debug);
}

/* As gp_memory_alloc_plain, which it calls: a block as the program may know it, and that has a zone. */
int gp_debug_alloc(struct gp_pool *pool, bool is_pinned, uint64_t bytes, uint32_t caller, uint64_t *ret_addr);

typedef int gp_debug_release_fn(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode mode);

/*
 * The program frees that address, and its work has been waited for if is_waited. Returns what release does, as
 * gp_pool_free, with the address by which the pool knows the block, or with one that is as wrong to the pool.
 */
int gp_debug_free(
	bool is_pinned, uint64_t ptr, bool is_waited, enum gp_free_mode mode, gp_debug_release_fn *release);

void gp_debug_adjust_slow(struct gp_block_info *info);

/* A block as the program knows it, if it holds it. */
static inline void gp_debug_adjust(struct gp_block_info *info)
{
	if (gp_unlikely(gp_debug_is_on()) && info->is_used)
		gp_debug_adjust_slow(info);
}

/* Where the program has the block that the pool has there. */
uint64_t gp_debug_ptr(uint64_t addr);

/* gp_pool_info, for answers to the program. */
static inline int gp_debug_info(struct gp_addrmap *map, uint64_t addr, struct gp_block_info *ret_info)
{
	int r = gp_pool_info(map, addr, ret_info);

	if (!r)
		gp_debug_adjust(ret_info);
	return r;
}

void gp_debug_leave_slow(uint64_t addr, uint64_t bytes, bool is_done);

/*
 * Memory is about to leave: a driver allocation (bytes 0), or what is mapped there. is_done: the GPU is done with it.
 */
static inline void gp_debug_leave(uint64_t addr, uint64_t bytes, bool is_done)
{
	if (gp_unlikely(gp_debug_is_on()))
		gp_debug_leave_slow(addr, bytes, is_done);
}

/* What has been done so far. */
struct gp_debug_stats {
	uint64_t checks, skipped, errors, ns;
};
void gp_debug_stats(struct gp_debug_stats *ret);

/* A look at all that is watched, as far as there is time. */
struct gp_debug_survey {
	uint64_t blocks, skipped, errors, ns; /* looked at, not to be looked at, wrong */
	bool is_truncated;
};
void gp_debug_check_all(struct gp_debug_survey *ret);
