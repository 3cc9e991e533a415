/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Frameworks in this process that have a pool of their own (common/own_pools.def). A framework counts once its library
 * has asked gpupool for memory. For one whose code is compiled at run time, its library was loaded at the first
 * allocation. The switches in the environment at the first allocation decide whether the pool counts as on; calls of
 * the framework that change it later are not seen.
 *
 * All functions may be called at any time, also at exit: they take no lock. They compare the names of all calling
 * modules, so they are too slow for each allocation.
 */

#include "shim/base/json.h"

/* Reads the switches, and looks at the loaded libraries. To be called once, at the first allocation. */
void gp_frameworks_start(void);

/*
 * Returns the name of a framework that has asked for memory although its own pool is on, or NULL if none is known. One
 * whose pool can be turned off is preferred (gp_own_pool_remedy).
 */
const char *gp_frameworks_own_pool(void);

/* Writes the member "frameworks": an array of all frameworks that have asked for memory. */
void gp_frameworks_write(struct gp_json *out);
