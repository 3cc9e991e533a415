/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Spilling: while the device is full, chunks of pools of the kind vmm have memory of the host, mapped at the same
 * addresses. Work of the GPU goes on using them, over the link to the host. They move back once there is room.
 *
 * The caller has made sure that the GPU is idle and that nothing can be submitted meanwhile (submission.h), and calls
 * these functions between gp_pool_sleep_enter and gp_pool_sleep_leave (sleep.h), for all pools of a context at once.
 *
 * A chunk moves as a whole. The new memory is mapped at spare addresses first and gets the content there. Only then
 * does it take the place of the old memory, which is kept until the new memory is mapped. So after an error each chunk
 * is where it was or where it was to go, with its content.
 *
 * Chunks that were exported, are stuck, asleep, or belong to an invalidated region never move. A chunk that was spilled
 * is not asleep when its pool falls asleep, since it has no device memory. It stays in the total of its pool, but not
 * in the budget. Its free blocks are handed out like others.
 */

#include "pool/pool.h"

/*
 * Moves chunks to the host: at least `bytes` bytes, but at most `most` bytes, the cold chunks first, and of those the
 * largest. Returns the bytes that were moved. Moves nothing if the chunks that may move are too few.
 * *ret_error becomes the error that ended it early: -ENOMEM (of the host), GP_E_DEAD, or the driver's error; or 0.
 */
uint64_t gp_spill_out(struct gp_pool *const *pools, unsigned n_pools, uint64_t bytes, uint64_t most, int *ret_error);

/*
 * Moves chunks of at most `most` bytes in all back to the device: the cold ones last, and none once `part` bytes have
 * come. So a chunk that is larger than a part comes alone. As gp_spill_out otherwise.
 */
uint64_t gp_spill_in(struct gp_pool *const *pools, unsigned n_pools, uint64_t most, uint64_t part, int *ret_error);

/* Moves all spilled chunks of the block at this address back. 0, -ENOMEM (of the device), or another error. */
int gp_spill_in_block(struct gp_pool *pool, uint64_t addr);

/* True if the block at this address lies in a spilled chunk, at least in part. For any thread, at any time. */
bool gp_spill_has(struct gp_addrmap *map, uint64_t addr);

/* True if this byte lies in a spilled chunk; likewise. */
bool gp_spill_is_at(struct gp_addrmap *map, uint64_t addr);
