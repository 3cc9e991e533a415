/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The memory of a block of the kind vmm, chunk by chunk, for a caller that passes it to another process. A pinned chunk
 * is neither moved nor given back, even if the program frees the block or ends the context, so its handle stays valid.
 */

#include "pool/pool.h"

struct gp_chunk;

struct gp_pin {
	struct gp_pool *pool;
	struct gp_chunk *chunk;
	uint64_t handle, bytes; /* of the chunk */
	uint64_t span_bytes;    /* of all chunks in which the block lies */
	uint64_t offset;        /* of the address in the first chunk */
};

/*
 * Pins the chunk at `at` bytes behind the start of the first chunk of a block. The block around the address must be in
 * use and have that serial number; with GPUPOOL_DEBUG the program's memory begins behind its start. 0, or GP_E_FOREIGN
 * if there is no such block or chunk. Waits for no driver call.
 */
int gp_pool_pin(struct gp_addrmap *map, uint64_t addr, uint64_t serial, uint64_t at, struct gp_pin *ret_pin);
void gp_pool_unpin(const struct gp_pin *pin);
