/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Finds out what the driver can map and share: what it says of the device, and what it then does. */

#include "shim/context/context.h"

/* Returns 0 and the granule of sizes and addresses, or -ENOTSUP if the device cannot map memory. */
int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule);

/* Returns true if the driver says that memory of the device can be exported by file descriptors. */
bool gp_mapping_says_shareable(const struct gp_context *context);

/*
 * Finds out whether the driver can map memory for the context, by mapping the first chunk of the context's new pool of
 * the kind vmm. The growth of the allocation that is under way takes that chunk (first_chunk.h). Returns 0 or -ENOTSUP,
 * and sets the features of the context with which mapping works. To be called with context->is_shareable as the driver
 * says it.
 */
int gp_mapping_try(struct gp_context *context, const struct gp_pool *pool);

/*
 * Returns 0 if the driver exports mapped memory of the context by file descriptors, or its error. The first call tries
 * it with a chunk of its own, since a container or a virtual machine may forbid what the driver claims to support, and
 * later calls know the result. After an error that may pass the next call tries again; if memory was short, the result
 * is 0 until then.
 */
CUresult gp_mapping_try_export(struct gp_context *context);
