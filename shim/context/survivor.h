/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Survivors: blocks that the program allocated in stream order, and still held when their context ended. The
 * driver's pools belong to the device, and so does mapped memory: such a block keeps its address and its content until
 * the program frees it. It is in no pool any more. Its memory is charged, and goes back to the driver when it is freed.
 */

#include "device.h"
#include "pool/pool_query.h"

struct gp_context;
struct gp_survivor;

extern _Atomic unsigned gp_survivors; /* blocks that the program holds */

/* Drops a pool of device memory whose context ends. Blocks that the program holds in stream order become survivors. */
void gp_survivors_drop(struct gp_pool *pool);

/* To be called before that: the high-water marks of memory in stream order are the device's, too. */
void gp_survivors_note_highs(struct gp_context *context);

/* Finds the survivor around an address that the program holds. ret_device: NULL, or for the block's device. */
bool gp_survivor_find_slow(uint64_t addr, struct gp_block_info *ret_info, const struct gp_device **ret_device);

static inline bool gp_survivor_find(uint64_t addr, struct gp_block_info *ret_info, const struct gp_device **ret_device)
{
	return gp_unlikely(atomic_load_explicit(&gp_survivors, memory_order_acquire) != 0) &&
	       gp_survivor_find_slow(addr, ret_info, ret_device);
}

/*
 * Takes the survivor with that address from the program, which frees it. NULL: there is none. gp_survivor_end must
 * follow: it gives back the memory, which no work may use any more.
 */
struct gp_survivor *gp_survivor_take(uint64_t addr);
void gp_survivor_end(struct gp_survivor *survivor);
const struct gp_device *gp_survivor_device(const struct gp_survivor *survivor);
uint64_t gp_survivor_bytes(const struct gp_survivor *survivor);

/*
 * Calls back, without a lock, for each chunk in which the program holds survivors of a device, perhaps more than once.
 * 0 or -ENOMEM.
 */
int gp_survivor_each_chunk(
	const struct gp_device *device, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg);

/* Calls back for each survivor that the program holds, with a lock held. */
void gp_survivor_each(
	void (*fn)(void *arg, const struct gp_block_info *info, const struct gp_device *device), void *arg);
