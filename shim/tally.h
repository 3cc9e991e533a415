/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The counters of all pools of a device, or of pinned memory, added up. No lock may be held. */

#include "../pool/stats.h"

struct gp_tally {
	int device; /* -1: pinned memory */
	bool asks_driver;
	uint64_t n_contexts;
	uint64_t n_broken; /* of these, contexts for which pooling has ended */
	int broken_by;	   /* the error that ended it for one of them; 0: there are none */
	struct gp_stats stats;
	uint64_t available_bytes; /* what the driver could give; UINT64_MAX: unknown */
};

/* asks_driver: for available_bytes, in a context that works. */
void gp_tally_device(struct gp_tally *tally, int device, bool asks_driver);
void gp_tally_pinned(struct gp_tally *tally);
