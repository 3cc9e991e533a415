/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Peer access (P2P): which devices can reach the memory of a context. The driver applies what the program enables to
 * memory of cuMemAlloc. For mapped memory gpupool must set the access of each chunk: where the program has enabled
 * access, or has opened a pool of the driver that gpupool serves, and where a copy needs access, as it does for mapped
 * memory alone (measured on two H200).
 *
 * A device that can reach the memory can do so until the owner ends, also if the program disables the access, or the
 * context ends that had it: copies that are under way, and those of graphs, need access to mapped memory, and none to
 * memory of cuMemAlloc (measured on two H200: a copy fails with error 719 if its access ends).
 */

#include "shim/context/context.h"

/* Note that the device has access to the owner's memory; and that it has none, since the driver has refused it. */
void gp_peer_access_add(CUdevice device, CUcontext owner);
void gp_peer_access_remove(CUdevice device, CUcontext owner);

/* Watches the ends of contexts. Access to the memory of a context ends with it. */
void gp_peer_access_start(void);

/*
 * Returns a bit for each device whose work may access the owner's memory. The bit of the owner's own device is set only
 * if the program enabled access from another context on that device.
 */
uint64_t gp_peer_access_devices(CUcontext owner);
