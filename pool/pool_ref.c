/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_ref.h"

#include "pool_impl.h"

struct gp_pool *gp_pool_get(struct gp_pool *pool)
{
	atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
	return pool;
}
