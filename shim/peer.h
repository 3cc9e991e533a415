/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Peer access as the program has enabled it. What cuMemAlloc gives follows it by itself; what is mapped has to be told,
 * piece by piece.
 */

#include "context.h"

/* Work in the accessor, a context of that device, may touch the memory of the owner; or may not any more. */
void gp_peer_enabled(CUcontext accessor, CUdevice device, CUcontext owner);
void gp_peer_disabled(CUcontext accessor, CUcontext owner);

/* The context is gone, and what was enabled in it or for it. */
void gp_peer_forget_context(CUcontext handle);

/* The devices whose work may touch the owner's memory, a bit each; its own is not among them unless it was enabled. */
uint64_t gp_peer_devices(CUcontext owner);
