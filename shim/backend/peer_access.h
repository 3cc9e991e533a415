/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Peer access (P2P): which devices can reach the memory of a context. The driver applies what the program enables to
 * memory of cuMemAlloc. For mapped memory gpupool must set the access of each chunk.
 *
 * A device that can reach the memory can do so until the owner ends, also if the program disables the access, or the
 * context ends that had it: copies that are under way, and those of graphs, need access to mapped memory, and none to
 * memory of cuMemAlloc (measured on two H200: a copy fails with error 719 if its access ends).
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
 * access to it (measured on two H200). So gpupool opens the owner's memory to copies by a device. are_open false: the
 * driver has refused to open it.
 */
void gp_peer_access_set_copies(CUdevice device, CUcontext owner, bool are_open);

/* True if the program has enabled the access. */
bool gp_peer_access_is_enabled(CUcontext accessor, CUcontext owner);

/* Note that the program has enabled or disabled access of the accessor, a context of that device. */
void gp_peer_access_enabled(CUcontext accessor, CUdevice device, CUcontext owner);
void gp_peer_access_disabled(CUcontext accessor, CUcontext owner);

/* Watches the ends of contexts. Access to the memory of a context ends with it. */
void gp_peer_access_start(void);

/*
 * Returns a bit for each device whose work may access the owner's memory. The bit of the owner's own device is set only
 * if the program enabled access from another context on that device.
 */
uint64_t gp_peer_access_devices(CUcontext owner);
