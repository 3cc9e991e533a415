/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Peer access, enabled and disabled. The change is noted before the pieces that there are get to know of it: a piece
 * that is mapped meanwhile is either among them, or finds the note (backend_mapping.c).
 */

#include "../pool/mapped.h"
#include "async.h"
#include "backend.h"
#include "driver.h"
#include "green.h"
#include "log.h"
#include "peer.h"
#include "real.h"

struct change {
	struct gp_context *owner;
	CUmemAccessDesc access;
	CUresult result; /* of the last that failed */
};

static void tell_piece(void *arg, uint64_t addr, uint64_t bytes)
{
	struct change *change = arg;
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(change->owner))
		return;
	r = gp_driver_enter(&scope, change->owner->handle);
	if (!r) {
		r = gp_real.cuMemSetAccess(addr, bytes, &change->access, 1);
		gp_driver_leave(&scope);
	}
	gp_context_leave(change->owner);
	/* It may have gone meanwhile, or may not be there yet. */
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		change->result = r;
}

static void tell_pieces_of(void *arg, struct gp_pool *pool)
{
	struct change *change = arg;

	if (gp_pool_each_piece(pool, tell_piece, change))
		change->result = CUDA_ERROR_OUT_OF_MEMORY;
}

/* A pool of the driver's is told once for all of its memory. */
static void tell_async(struct change *change)
{
	if (!gp_backend_is(change->owner, GP_CONFIG_BACKEND_ASYNC) ||
		change->access.location.id == change->owner->device->index || !gp_context_enter(change->owner))
		return;
	change->result = gp_async_set_access(change->owner, change->access.location.id, change->access.flags);
	gp_context_leave(change->owner);
}

static void tell_pieces(CUcontext owner, CUdevice device, int flags)
{
	struct change change = {
		.owner = gp_table_find(owner, -1),
		.access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags},
	};

	if (!change.owner)
		return;
	tell_async(&change);
	gp_context_each_pool(change.owner, tell_pieces_of, &change);
	if (change.result)
		gp_log(GP_LOG_WARN, "device %d could not be told about its access to memory of device %d: error %d",
			device, change.owner->device->index, change.result);
	gp_context_put(change.owner);
}

/* Memory, and access to it, are those of the primary context that a green one is a share of. */
static CUcontext whole_of(CUcontext handle)
{
	CUcontext primary = gp_green_primary(handle);

	return primary ? primary : handle;
}

/* The current context, and its device. */
static bool find_accessor(CUcontext *ret_accessor, CUdevice *ret_device)
{
	CUcontext current = NULL;

	if (gp_real.cuCtxGetCurrent(&current) || gp_real.cuCtxGetDevice(ret_device))
		return false;
	*ret_accessor = whole_of(current);
	return true;
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUresult r = gp_real.cuCtxEnablePeerAccess(peer, flags);
	CUcontext accessor, owner = whole_of(peer);
	CUdevice device;

	/* If it has it already, that may be from before the peer was reset, and the note of it went with the peer. */
	if ((r && r != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) || !find_accessor(&accessor, &device))
		return r;
	gp_peer_enabled(accessor, device, owner);
	tell_pieces(owner, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return r;
}

/* Another context of the device may still have access: then the device has. */
CUresult hook_cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult r = gp_real.cuCtxDisablePeerAccess(peer);
	CUcontext accessor, owner = whole_of(peer);
	CUdevice device;

	if (r || !find_accessor(&accessor, &device))
		return r;
	gp_peer_disabled(accessor, owner);
	if (!(gp_peer_devices(owner) & UINT64_C(1) << device))
		tell_pieces(owner, device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	return r;
}
