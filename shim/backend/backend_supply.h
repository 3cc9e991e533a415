/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's allocator that the context's segments come from. It is set up before another thread can see the context.
 * If the configured one is not available, the first allocation logs that.
 */

#include "shim/context/context.h"

enum { GP_AMISS_KIND = 1, GP_AMISS_BACKEND = 2 }; /* downgraded, and not yet logged */
void gp_backend_setup(struct gp_context *context);
void gp_backend_tell_slow(struct gp_context *context);

/* Makes the driver's call. To be called between gp_context_enter and gp_context_leave. */
CUresult gp_backend_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes);

/* Returns the user's name for the allocator. */
const char *gp_backend_name(enum gp_config_backend backend);

/* Returns the driver's allocator that the memory at an address in a pool came from. */
enum gp_config_backend gp_backend_of(uint64_t addr);
