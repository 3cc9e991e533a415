/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Peer access that the program gives in another way than by cuCtxEnablePeerAccess. */

#include "shim/driver/cuda_abi.h"

/*
 * Opens the memory that gpupool has served in place of the driver's pools to work in the device's primary context, if
 * the program has given the device access to these pools. Does nothing while that context is not active, so it is to be
 * called when the program has given access, and again when it has retained the context.
 */
void gp_peer_open_pools(CUdevice device);
