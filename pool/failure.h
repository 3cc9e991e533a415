/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For who has to explain an out-of-memory: what was tried, and what lies where. */

#include "pool.h"

/* Up to this a request is small: split serves it from slabs. The driver itself packs together what is up to 1 MiB. */
#define GP_SMALL_MAX GP_MIB

struct gp_failure {
	uint64_t bytes;	  /* asked for, as the pool rounds it */
	bool is_hopeless; /* more than there could ever be: nothing was tried */
	struct gp_round_stats rounds[GP_N_ROUNDS];
};

/* Of the last allocation that the pool, or the driver after the pool's rounds, could not serve. */
void gp_pool_last_failure(struct gp_pool *pool, struct gp_failure *ret_failure);

/* As gp_pool_each_used, for every block, segment by segment, in the order of their addresses within one. */
void gp_pool_each_block(struct gp_pool *pool, bool (*fn)(void *arg, const struct gp_block_info *info), void *arg);
