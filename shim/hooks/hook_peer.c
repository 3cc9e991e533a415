/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The hook that enables peer access. It notes access (peer_access.h) before it applies it to the mapped chunks, also of
 * other processes. So a chunk that is mapped meanwhile either is among these, or gets its access from the note
 * (backend_mapping.c, ipc_mapped.c). gpupool itself gives access where the program needs none: for pools that the
 * program has opened, and for copies.
 */

#include "hook_peer.h"

#include <errno.h>
#include <pthread.h>

#include "made_pool.h"
#include "shim/backend/async.h"
#include "shim/backend/default_pool.h"
#include "shim/backend/peer_access.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/context.h"
#include "shim/context/driver_call.h"
#include "shim/context/green.h"
#include "shim/context/survivor.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/ipc/ipc.h"
#include "shim/process.h"

/*
 * Threads take turns from the look at what a device may access until its access to the chunks is set, so that a thread
 * in its turn finds no access that another thread is about to set.
 */
static struct gp_mutex turns = GP_MUTEX_INIT(GP_RANK_PEERS);

struct turn {
	int cancel_state; /* of the thread, which would keep the lock if it were cancelled in the driver */
	CUresult failure; /* of the last call that failed to give access: to be logged after the turn */
	CUdevice device, owner;
};

static void begin_turn(struct turn *turn)
{
	turn->failure = CUDA_SUCCESS;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &turn->cancel_state);
	gp_mutex_lock(&turns);
}

static void end_turn(struct turn *turn)
{
	gp_mutex_unlock(&turns);
	pthread_setcancelstate(turn->cancel_state, NULL);
	if (turn->failure)
		gp_log(GP_LOG_WARN, "could not give device %d access to pooled memory of device %d: driver error %d",
			turn->device, turn->owner, turn->failure);
}

struct change {
	struct gp_context *owner;
	CUmemAccessDesc access;
	CUresult result; /* of the last call that failed */
};

static void give_access_to_chunk(void *arg, uint64_t addr, uint64_t bytes)
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
	/* CUDA_ERROR_INVALID_VALUE: the chunk is not mapped any more, or not yet. */
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		change->result = r;
}

static void give_access_to_pool(void *arg, struct gp_pool *pool)
{
	struct change *change = arg;

	if (gp_pool_each_chunk(pool, give_access_to_chunk, change))
		change->result = CUDA_ERROR_OUT_OF_MEMORY;
}

/* For a stream-ordered pool of the driver, one call sets the access to all of its memory. */
static void give_access_to_async(struct change *change)
{
	struct gp_driver_scope scope;

	if (!gp_context_backend_is(change->owner, GP_CONFIG_BACKEND_ASYNC) ||
		change->access.location.id == change->owner->device->index || !gp_context_enter(change->owner))
		return;
	change->result = gp_driver_enter(&scope, change->owner->handle);
	if (!change->result) {
		change->result = gp_async_set_access(change->owner, change->access.location.id, change->access.flags);
		gp_driver_leave(&scope);
	}
	gp_context_leave(change->owner);
}

/* Gives the device access to the mapped memory of the owner. Returns the last error of the driver. */
static CUresult give_access(struct turn *turn, CUcontext owner, CUdevice device)
{
	struct change change = {
		.owner = gp_table_find(owner, -1),
		.access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};

	if (!change.owner)
		return CUDA_SUCCESS;
	give_access_to_async(&change);
	gp_context_each_pool(change.owner, give_access_to_pool, &change);
	if (!gp_ipc_each_mapping(change.owner, give_access_to_chunk, &change))
		change.result = CUDA_ERROR_OUT_OF_MEMORY;
	if (change.result) {
		turn->failure = change.result;
		turn->device = device;
		turn->owner = change.owner->device->index;
	}
	gp_context_put(change.owner);
	return change.result;
}

/*
 * Returns the context that memory and peer access belong to: the primary context if the handle is a green context,
 * otherwise the context itself.
 */
static CUcontext owner_of(CUcontext handle)
{
	CUcontext primary = gp_green_primary(handle);

	return primary ? primary : handle;
}

static bool has_access(CUdevice device, CUcontext owner)
{
	return gp_peer_access_devices(owner) >> device & 1;
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUresult r = gp_real.cuCtxEnablePeerAccess(peer, flags);
	CUcontext owner = owner_of(peer);
	struct turn turn;
	CUdevice device;

	/* Access that is already enabled is noted again: a reset of the peer may have removed the note. */
	if ((r && r != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) || gp_real.cuCtxGetDevice(&device))
		return r;
	begin_turn(&turn);
	gp_peer_access_add(device, owner);
	(void)give_access(&turn, owner, device);
	end_turn(&turn);
	return r;
}

/* Gives the device access to a chunk. The driver needs no context for that. */
static void open_chunk(void *arg, uint64_t addr, uint64_t bytes)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	struct change *change = arg;
	CUresult r = gp_real.cuMemSetAccess(addr, bytes, &change->access, 1);

	gp_driver_unrelax(&relaxed);
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		change->result = r;
}

/* Gives the device access to memory of the owner that has outlived its context. */
static void open_survivors(const struct gp_device *owner, CUdevice device)
{
	struct change change = {
		.access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};
	struct turn turn;

	if (!atomic_load(&gp_survivors))
		return;
	begin_turn(&turn);
	if (gp_survivor_each_chunk(owner, open_chunk, &change))
		change.result = CUDA_ERROR_OUT_OF_MEMORY;
	if (change.result) {
		turn.failure = change.result;
		turn.device = device;
		turn.owner = owner->index;
	}
	end_turn(&turn);
}

struct opening {
	struct turn turn;
	CUdevice device, unreachable; /* a device with such memory to which `device` can have no access, or -1 */
	bool is_open;
};

static void note_mapping(void *arg, uint64_t addr, uint64_t bytes)
{
	*(bool *)arg = true;
}

/* True if gpupool has memory there that the driver copies only on devices with access to it. */
static bool has_memory_to_open(const struct gp_context *owner)
{
	bool is_imported = false;

	if (owner->regions.kind == GP_KIND_VMM || gp_context_backend_is(owner, GP_CONFIG_BACKEND_ASYNC))
		return true;
	(void)gp_ipc_each_mapping(owner, note_mapping, &is_imported);
	return is_imported;
}

static bool can_access(CUdevice device, CUdevice peer)
{
	int can = 0;

	return gp_real.cuDeviceCanAccessPeer && !gp_real.cuDeviceCanAccessPeer(&can, device, peer) && can;
}

/* Notes the access unless the owner has ended, since its end removes what is noted of it. */
static bool note_opened(CUdevice device, struct gp_context *owner)
{
	if (!gp_context_enter(owner))
		return false;
	gp_peer_access_add(device, owner->handle);
	gp_context_leave(owner);
	return true;
}

/* Notes that the device has access, and gives it. Returns false if the driver refuses, or the owner has ended. */
static bool open_to_device(struct turn *turn, CUdevice device, struct gp_context *owner)
{
	if (!note_opened(device, owner))
		return false;
	if (!give_access(turn, owner->handle, device))
		return true;
	/* The chunks that are open stay so, since copies of other threads may be under way there. */
	gp_peer_access_remove(device, owner->handle);
	return false;
}

struct opening_of_pools {
	const struct gp_device *owner;
	CUdevice device;
};

/* Opens the memory of the context, with what gpupool has served in place of the driver's pools. */
static void open_pools_of(void *arg, struct gp_context *owner)
{
	const struct opening_of_pools *opening = arg;
	struct turn turn;

	if (owner->device != opening->owner)
		return;
	begin_turn(&turn);
	if (!has_access(opening->device, owner->handle))
		(void)open_to_device(&turn, opening->device, owner);
	end_turn(&turn);
}

void gp_peer_open_pools(CUdevice device)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		struct opening_of_pools opening = {gp_device_if_used(i), device};

		if (!opening.owner || (!gp_default_pool_is_open_to(opening.owner, device) &&
					      !gp_made_pools_are_open_to(opening.owner, device)))
			continue;
		gp_submit_visit();
		open_survivors(opening.owner, device);
		gp_context_each(open_pools_of, &opening);
		gp_submit_end_visit();
	}
}

static void open_to_copies(void *arg, struct gp_context *owner)
{
	struct opening *opening = arg;
	CUdevice device = opening->device;

	if (owner->device->index == device || !has_memory_to_open(owner))
		return;
	if (has_access(device, owner->handle)) {
		opening->is_open = true; /* perhaps only since the driver has refused the copy */
		return;
	}
	if (!can_access(device, owner->device->index)) {
		opening->unreachable = owner->device->index;
		return;
	}
	opening->is_open |= open_to_device(&opening->turn, device, owner);
}

static uint64_t bit_of(CUdevice device)
{
	return device >= 0 && device < GP_DEVICES_MAX ? UINT64_C(1) << device : 0;
}

/* Opens the memory to copies by each of the devices. */
static bool open_to_devices(uint64_t devices)
{
	CUdevice unreachable = -1, from = -1;
	bool is_open = false;

	for (; devices; devices &= devices - 1) {
		struct opening opening = {.device = __builtin_ctzll(devices), .unreachable = -1};

		begin_turn(&opening.turn);
		gp_context_each(open_to_copies, &opening);
		end_turn(&opening.turn);
		is_open |= opening.is_open;
		if (opening.unreachable >= 0) {
			unreachable = opening.unreachable;
			from = opening.device;
		}
	}
	if (unreachable >= 0 && !is_open)
		gp_log(GP_LOG_WARN,
			"the driver has refused a copy, and device %d cannot have access to device %d: copies between "
			"them need GPUPOOL_POOL=split",
			from, unreachable);
	return is_open;
}

static uint64_t device_of_stream(void *stream)
{
	CUdevice device;

	return gp_driver_device_of(stream, &device) ? 0 : bit_of(device);
}

/* All devices that the program may work on. */
static uint64_t devices_in_use(void)
{
	uint64_t devices = 0;
	int n = 0;

	(void)gp_real.cuDeviceGetCount(&n);
	for (CUdevice device = 0; device < n; device++)
		if (gp_context_primary(device) || gp_device_if_used(device))
			devices |= bit_of(device);
	return devices;
}

/* The device of the context. NULL: all devices in use. The driver is not asked about a handle that is not known. */
static uint64_t devices_of_context(void *ctx)
{
	CUcontext handle = owner_of(ctx);
	CUdevice device;
	int n = 0;

	if (!ctx)
		return devices_in_use();
	for (device = 0; device < GP_DEVICES_MAX; device++)
		if (gp_context_seen_as_primary(device) == handle)
			return bit_of(device);
	if (gp_context_is_seen(handle))
		return gp_driver_device_of_context(handle, &device) ? 0 : bit_of(device);
	(void)gp_real.cuDeviceGetCount(&n);
	for (device = 0; device < n; device++)
		if (gp_context_primary(device) == handle)
			return bit_of(device);
	return 0;
}

static bool open_to(uint64_t (*find_devices)(void *handle), void *handle)
{
	int saved_errno = errno;
	bool is_open;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || !gp_process_is_on())
		return false;
	gp_submit_visit();
	is_open = open_to_devices(find_devices(handle));
	gp_submit_end_visit();
	errno = saved_errno;
	return is_open;
}

bool gp_peer_open_to_copies(CUstream stream)
{
	return open_to(device_of_stream, stream);
}

bool gp_peer_open_to_node(CUcontext ctx)
{
	return open_to(devices_of_context, ctx);
}
