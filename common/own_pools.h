/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Frameworks with their own pool of GPU memory, and the switches that turn those pools off. Below such a pool gpupool
 * serves few and large allocations only, so its cache, its counters and its call sites say little.
 */

#include <stdbool.h>
#include <stddef.h>

enum {
#define OWN_POOL(...) +1
	GP_OWN_POOL_COUNT = 0
#include "own_pools.def"
};

enum gp_own_pool_seen { GP_OWN_POOL_CALLS, GP_OWN_POOL_LOADED };
enum gp_own_pool_when { GP_OWN_POOL_ALWAYS, GP_OWN_POOL_MAYBE, GP_OWN_POOL_DELAYS };
enum gp_own_pool_how { GP_OWN_POOL_VARIABLE, GP_OWN_POOL_PYTHON, GP_OWN_POOL_NEVER };

/* A row of own_pools.def. */
struct gp_own_pool {
	const char *framework, *module, *library;
	enum gp_own_pool_seen seen;
	enum gp_own_pool_when when;
	enum gp_own_pool_how how;
	const char *variable, *values;
};

extern const struct gp_own_pool gp_own_pools[GP_OWN_POOL_COUNT];

/*
 * Returns the end of a sentence about a framework's own pool: " (gpupool-run --own-pools=off turns it off)", or "" if
 * that option leaves it on.
 */
const char *gp_own_pool_remedy(const char *framework);

/* Returns true if the row is the first of its framework. */
bool gp_own_pool_is_first(const struct gp_own_pool *row);

/* Returns true if the value is one that turns the pool off. */
bool gp_own_pool_is_off(const struct gp_own_pool *row, const char *value);

/* Returns the length of the first of the values, which is the one to set. */
size_t gp_own_pool_value_length(const struct gp_own_pool *row);

/* Returns true if the path is that of the framework's library. */
bool gp_own_pool_is_library(const struct gp_own_pool *row, const char *path);
