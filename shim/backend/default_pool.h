/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's default pool of each device, in whose place gpupool serves allocations in stream order (GPUPOOL_ASYNC).
 * Calls of a device whose default pool the program has opened to other devices stay with the driver: memory of
 * cuMemAlloc cannot be opened one device at a time. hooks/made_pool.h has the pools that the program has made.
 */

#include "async_left.h"
#include "shim/context/context.h"

/*
 * Returns GP_ASYNC_LEFT_NONE if gpupool serves allocations of the device in place of its default pool, or else the
 * reason. is_current: the allocation is from the device's current pool, which the program may have replaced.
 */
enum gp_async_left gp_default_pool_why_left(struct gp_device *device, CUmemoryPool pool, bool is_current);

/* Returns the device's default pool, if it was asked for before; or NULL. */
static inline CUmemoryPool gp_default_pool(const struct gp_device *device)
{
	return atomic_load_explicit(&device->default_pool, memory_order_acquire);
}

/*
 * True if gpupool serves allocations of the device from its current pool, which is its default pool. False if that is
 * not known.
 */
static inline bool gp_default_pool_is_current(const struct gp_device *device)
{
	return gp_default_pool(device) &&
	       !atomic_load_explicit(&device->is_default_pool_shared, memory_order_relaxed) &&
	       !atomic_load_explicit(&device->is_default_pool_replaced, memory_order_relaxed);
}

/* Returns the device in use whose default pool this is, or NULL. */
struct gp_device *gp_default_pool_device(CUmemoryPool pool);

/* To be called after the program has made a pool the device's current one, or has destroyed a pool. */
void gp_default_pool_note_current(CUdevice device);
void gp_default_pool_note_destroyed(void);

/* To be called after the program has set access to a pool. Returns the device if it is a default pool, or NULL. */
struct gp_device *gp_default_pool_note_access(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n);

/* True if the program has given the other device access to the owner's default pool. */
static inline bool gp_default_pool_is_open_to(const struct gp_device *owner, CUdevice device)
{
	return device >= 0 && device < GP_DEVICES_MAX &&
	       atomic_load(&owner->default_pool_is_open_to) >> (unsigned)device & 1;
}
