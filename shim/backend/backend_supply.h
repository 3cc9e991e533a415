/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's allocator that the context's segments come from. gp_backend_setup chooses it before another thread can
 * see the context. If the configured allocator is not available, the first segment's allocation logs that.
 */

#include "shim/context/context.h"

/*
 * Bits of gp_context.downgraded: what is not logged yet. The kind or backend is not the configured one, or
 * GPUPOOL_POOL=auto has chosen the kind.
 */
enum { GP_DOWNGRADED_KIND = 1, GP_DOWNGRADED_BACKEND = 2, GP_DOWNGRADED_SPILL = 4 };

void gp_backend_setup(struct gp_context *context);

/* Logs the context's downgrades, once each. */
void gp_backend_log_downgrades(struct gp_context *context);

/*
 * Allocates from the driver. To be called between gp_context_enter and gp_context_leave. *ret_available, unless NULL,
 * becomes what gp_backend_ask_available() returns after it.
 */
CUresult gp_backend_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes, uint64_t *ret_available);

/*
 * Returns the bytes that the driver has left on the device of the current context, or UINT64_MAX. To be called between
 * gp_driver_enter and gp_driver_leave.
 */
uint64_t gp_backend_ask_available(void);

/* Returns the name of the allocator as a value of GPUPOOL_BACKEND. */
const char *gp_backend_name(enum gp_config_backend backend);

/* Returns the driver's allocator that the memory at an address in a pool came from. */
enum gp_config_backend gp_backend_of(uint64_t addr);
