/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's pools that the program has made (cuMemPoolCreate). gpupool serves allocations from a pool of ordinary
 * device memory of any size that only its own device and process can reach, and counts them in an account of the device
 * (pool/account.h). The pool of the driver stays empty then, and keeps its attributes. The driver serves pools of other
 * kinds, all that a device has no account for, and one that the program opens to others, from then on.
 */

#include "shim/backend/async_left.h"
#include "shim/context/device.h"

struct gp_made_pool {
	CUmemoryPool handle;
	int device;              /* as in struct gp_unpooled */
	unsigned account;        /* of the device's accounts; or GP_ACCOUNT_NONE */
	enum gp_async_left left; /* why the driver serves it from now on; or GP_ASYNC_LEFT_NONE */
	bool is_served;          /* gpupool has served it */
};

/* To be called once the driver has made the pool, and before it destroys one, whose memory may stay in use. */
void gp_made_pool_add(CUmemoryPool handle, const CUmemPoolProps *properties);
bool gp_made_pool_begin_remove(CUmemoryPool handle);

/*
 * To be called with what the driver has answered, if gp_made_pool_begin_remove returned true: the program has made the
 * pool. If the driver has not destroyed it, it is as it was.
 */
void gp_made_pool_end_remove(CUmemoryPool handle, bool is_removed);

/* Returns false if the program has made no such pool, or has destroyed it. */
bool gp_made_pool_find(CUmemoryPool handle, struct gp_made_pool *ret_made);

/*
 * Notes that gpupool serves the pool. To be called before memory is taken for it, so that an access which the program
 * sets meanwhile covers that memory. Returns false if the driver serves the pool by now.
 */
bool gp_made_pool_serve(struct gp_made_pool *made);

/*
 * Returns the pool that has the account, also if it has been destroyed since, unless the driver has given its handle to
 * another pool.
 */
CUmemoryPool gp_made_pool_of(int device, unsigned account);

/*
 * To be called after the program has set access to a pool. Returns the device if gpupool has served the pool, so that
 * its memory has to be as open as the driver's; or NULL.
 */
struct gp_device *gp_made_pool_note_access(CUmemoryPool handle, const CUmemAccessDesc *access, size_t n);

/* True if the program has given the other device access to a pool of the owner that gpupool has served. */
static inline bool gp_made_pools_are_open_to(const struct gp_device *owner, CUdevice device)
{
	return device >= 0 && device < GP_DEVICES_MAX &&
	       atomic_load(&owner->made_pools_are_open_to) >> (unsigned)device & 1;
}
