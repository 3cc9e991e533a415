/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Pinned host memory, over the driver. Each pool belongs to the context that was current at its first allocation. */

#include "shim/context/context.h"

/* Returns the context's pool of pinned memory with these flags (0..7, or GP_PINNED_ALLOC_HOST), or NULL. */
struct gp_pool *gp_pinned_get(struct gp_context *context, unsigned kind);
