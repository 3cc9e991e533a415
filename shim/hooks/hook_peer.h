/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Peer access that the program gives in another way than by cuCtxEnablePeerAccess. */

#include "shim/context/context.h"

/*
 * Opens the memory that gpupool has served in place of the owner's default pool to work in the other device's primary
 * context. If that context is not active yet, it cannot, and logs a warning.
 */
void gp_peer_open(const struct gp_device *owner, CUdevice device);
