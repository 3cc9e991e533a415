/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Peer access (P2P) that the program has enabled. The driver applies it to memory of cuMemAlloc. For mapped memory
 * gpupool must set the access of each chunk.
 */

#include "shim/context/context.h"

/*
 * Access of a device to the memory that gpupool serves in place of the driver's pools (hook_async.c) is that of its
 * primary context to the owner's memory. The program has not enabled it, and does not know of it: access is open in
 * addition to what the program enables.
 */
void gp_peer_access_opened(CUcontext accessor, CUdevice device, CUcontext owner);
bool gp_peer_access_is_open(CUcontext accessor, CUcontext owner);

/*
 * The driver copies memory of cuMemAlloc on the streams of every device, but other memory only on those of devices with
 * access to it (measured on two H200). So gpupool opens the owner's memory to copies by a device. It stays open until
 * the owner ends, unless the driver refuses to open it.
 */
void gp_peer_access_set_copies(CUdevice device, CUcontext owner, bool are_open);

/* True if the program has enabled the access. */
bool gp_peer_access_is_enabled(CUcontext accessor, CUcontext owner);

/* Note that work in the accessor, a context of that device, may or may no longer access the owner's memory. */
void gp_peer_access_enabled(CUcontext accessor, CUdevice device, CUcontext owner);
void gp_peer_access_disabled(CUcontext accessor, CUcontext owner);

/* Watches the ends of contexts, with which all peer access from and to them ends. */
void gp_peer_access_start(void);

/*
 * Returns a bit for each device whose work may access the owner's memory. The bit of the owner's own device is set only
 * if the program enabled access from another context on that device.
 */
uint64_t gp_peer_access_devices(CUcontext owner);
