/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

struct gp_pool;

/*
 * Checks every invariant; returns what is broken, or NULL. For tests: slow, and no call may be under way in the pool.
 */
const char *gp_pool_check(struct gp_pool *pool);
