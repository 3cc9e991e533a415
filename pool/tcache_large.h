/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The large blocks of a thread cache. */

#include "tcache_impl.h"

/*
 * tcache_large.c: take and put blocks that are too large for a bin. No block, or false: the pool has to serve the call.
 */
struct gp_claim_token gp_tcache_take_large(struct gp_tcache *tc, uint64_t size, uint64_t bytes, uint32_t module);
bool gp_tcache_put_large(struct gp_tcache *tc, const struct gp_recent *recent, bool can_pool_grow);
