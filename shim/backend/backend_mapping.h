/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Virtual memory for the kind vmm. */

#include "shim/context/context.h"

/* Reservations begin at a multiple of this, and no chunk is smaller. */
#define GP_MAPPING_GRANULE (2 * GP_MIB)

extern const struct gp_mapping_ops gp_mapping_backend;

/* Returns a bit for the context's device, and for each that the program has given access to the context's memory. */
uint64_t gp_mapping_devices(const struct gp_context *context);

/* Gives the devices with a bit set access to mapped memory. Stops at the first call that fails. */
CUresult gp_mapping_allow(CUdeviceptr ptr, size_t bytes, uint64_t devices);

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
