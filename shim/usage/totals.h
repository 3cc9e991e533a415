/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The totals of all pools of a device, or of pinned memory. No lock may be held. */

#include "pool/stats.h"

struct gp_totals {
	int device; /* -1: pinned memory */
	bool asks_driver;
	uint64_t n_contexts;
	uint64_t n_broken; /* of these, contexts for which pooling has ended */
	int broken_by;     /* the error that ended pooling in one of them; 0: n_broken is 0 */
	struct gp_stats stats;
	uint64_t available_bytes; /* what the driver could still allocate; UINT64_MAX: unknown */
};

/* Add up the counters. asks_driver: also asks the driver for available_bytes, in a context that is not broken, unless
 * the process is deep asleep. */
void gp_totals_device(struct gp_totals *totals, int device, bool asks_driver);
void gp_totals_pinned(struct gp_totals *totals);
