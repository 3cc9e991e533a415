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

/*
 * Gives the devices with a bit set access to mapped memory of the context. Stops at the first call that fails; that
 * another device than the context's is refused access does not count, unless memory was too short for it.
 */
CUresult gp_mapping_allow(const struct gp_context *context, CUdeviceptr ptr, size_t bytes, uint64_t devices);

/* Returns the properties of new memory of the context. */
CUmemAllocationProp gp_mapping_properties(const struct gp_context *context);

/*
 * Maps memory and gives access to gp_mapping_devices(context). *ret_is_stuck becomes true if that fails and the memory
 * stays mapped, since the driver refuses to unmap it.
 */
CUresult gp_mapping_map(struct gp_context *context, CUdeviceptr ptr, size_t bytes, uint64_t handle, bool *ret_is_stuck);
