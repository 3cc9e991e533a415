/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Virtual memory for the kind vmm. */

#include "shim/context/context.h"

extern const struct gp_mapping_ops gp_mapping_backend;

/*
 * Finds out whether the driver can map memory for the context, by mapping a chunk once. Returns 0 and the granule of
 * sizes and addresses, or -ENOTSUP.
 */
int gp_mapping_setup(struct gp_context *context, uint64_t *ret_granule);

/* Returns the same as far as the driver reports it, without mapping memory. */
int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule);

/*
 * True if the driver exports mapped memory by file descriptors. The first call tries it with a chunk of its own, since
 * a container or a virtual machine may forbid what the driver claims to support, and later calls know the result.
 * After an error that may pass the next call tries again; if memory was short, the result is true until then.
 */
bool gp_mapping_can_export(struct gp_context *context);
