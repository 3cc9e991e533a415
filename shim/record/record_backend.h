/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The recording layer between a pool and its backend. */

#include "pool/pool.h"

/*
 * Puts the layer between a new pool and its backend, so that the backend's answers are recorded. To be called before
 * gp_pool_new. pinned: 0 for device memory, otherwise 1 + the kind of pinned memory. Does nothing while nothing is
 * recorded.
 */
void gp_record_pool(struct gp_pool_options *options, int device, unsigned pinned);

/* Undoes gp_record_pool after gp_pool_new has failed. */
void gp_record_no_pool(struct gp_pool_options *options);

/* Called in a forked child: resets the lock, which a thread of the parent may have held. */
void gp_record_pools_after_fork_child(void);
