/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Options that pools of device memory and of pinned memory have in common. */

#include "shim/base/state.h"
#include "shim/driver/submit.h"

/* Sets the options that all pools of the process have in common. */
void gp_backend_pool_options(struct gp_pool_options *options, uint64_t total_bytes, const struct gp_budget *budget);

/*
 * Returns the counter of submissions for a pool of that kind. With it a free needs no driver call if nothing was
 * submitted since the last fence. Returns NULL for pools that must call the driver at each free, since that call may be
 * the first one to return an error of the GPU.
 */
static inline struct gp_submissions *gp_backend_submissions(enum gp_kind kind)
{
	return kind == GP_KIND_NONE || gp_config_debug_is_on(&gp_state.config.debug) ? NULL : &gp_submitted;
}
