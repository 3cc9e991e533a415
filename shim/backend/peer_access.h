/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Peer access (P2P) that the program has enabled. Memory of cuMemAlloc follows it by itself. For mapped memory access
 * must be set chunk by chunk.
 */

#include "shim/context/context.h"

/* Note that work in the accessor, a context of that device, may access the owner's memory, or no longer may. */
void gp_peer_access_enabled(CUcontext accessor, CUdevice device, CUcontext owner);
void gp_peer_access_disabled(CUcontext accessor, CUcontext owner);

/* Watches the ends of contexts, with which all peer access from and to them ends. */
void gp_peer_access_start(void);

/* Returns a bit for each device whose work may access the owner's memory, without its own unless that was enabled. */
uint64_t gp_peer_access_devices(CUcontext owner);
