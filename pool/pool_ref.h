/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* References to a pool. gp_pool_put of pool.h drops one. */

struct gp_pool;

struct gp_pool *gp_pool_get(struct gp_pool *pool);
