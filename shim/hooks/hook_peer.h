/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Peer access that the program has in another way than by cuCtxEnablePeerAccess. */

#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

/*
 * Opens the memory that gpupool has served in place of the driver's pools to work in the device's primary context, if
 * the program has given the device access to these pools. Does nothing while that context is not active, so it is to be
 * called when the program has given access, and again when it has retained the context.
 */
void gp_peer_open_pools(CUdevice device);

/*
 * To be called when the driver has refused a copy on the stream. Opens the memory that gpupool has mapped on other
 * devices to the stream's device, since the driver would have copied memory of cuMemAlloc. Returns false if there was
 * nothing to open, so the copy would be refused again.
 */
bool gp_peer_open_to_copies(CUstream stream);
