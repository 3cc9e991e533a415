/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory that the program will seldom use: it is the first that goes to the host (spill.h). */

#include "pool/list.h"
#include "pool/pool.h"

struct gp_chunk;

/* A range that the program named as cold, while its block has that serial number. */
struct gp_cold {
	struct gp_list link; /* vm->cold */
	uint64_t addr, bytes, serial;
};

/*
 * Notes that the program will seldom use these bytes of a block that it holds, for as long as it holds it; 0 bytes:
 * up to the block's end. 0, GP_E_FOREIGN if they do not lie in a block in use, -ENOTSUP if the pool is of another kind,
 * or -ENOMEM.
 */
int gp_cold_note(struct gp_addrmap *map, uint64_t addr, uint64_t bytes);

/* The same for all memory of a pool, now and later. */
void gp_cold_set_all(struct gp_pool *pool, bool is_cold);

/* True if at least half of the chunk's content is cold. content: the bytes of it that are not free. */
bool gp_cold_is_locked(struct gp_pool *pool, const struct gp_chunk *chunk, uint64_t content);
