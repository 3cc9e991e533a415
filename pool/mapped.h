/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a pool of the kind vmm has mapped, for who has to see to it. Other kinds have nothing of that. */

#include "pool.h"

/*
 * After gp_pool_drop, once the driver has ended the context: what is mapped does not end with it, and goes back now.
 * What the driver refuses to unmap even then stays, and its range of addresses is given to nobody else.
 */
void gp_pool_unmap(struct gp_pool *pool);

/* Calls back for everything that is mapped, or about to be, while the pool lives; without the lock. 0 or -ENOMEM. */
int gp_pool_each_piece(struct gp_pool *pool, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg);
