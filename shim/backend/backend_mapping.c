/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Virtual memory over the driver, for the kind vmm. Chunks belong to the device, not to the context, so unmap,
 * release and address_free work after the context's end, too. They do nothing at the end of the process, when the
 * driver must not be called. Memory is created, mapped, unmapped and released in the relaxed capture mode, since these
 * calls involve no stream.
 *
 * A new chunk is accessible to its own device and to the devices that have access so far (peer_access.h).
 * hooks/hook_peer.c gives access to those that are enabled later.
 */

#include <errno.h>

#include "backend_mapping.h"
#include "backend_supply.h"
#include "first_chunk.h"
#include "peer_access.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"

CUmemAllocationProp gp_mapping_properties(const struct gp_context *context)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->device->index},
		.requestedHandleTypes = context->is_shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
		.allocFlags = {.gpuDirectRDMACapable = context->is_rdma_capable},
	};
}

/* Errors other than out of memory reach the program unchanged, whose own call would have returned them. */
static int result_of(CUresult r)
{
	return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : r;
}

static int mapping_address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUdeviceptr ptr = 0;
	CUresult r;

	if (!gp_context_enter(context))
		return -ENOTSUP;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuMemAddressReserve(&ptr, bytes, GP_MAPPING_GRANULE, 0, 0);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	if (r)
		return -ENOTSUP;
	gp_context_make_room(&gp_state.device_map, ptr, bytes);
	*ret_addr = ptr;
	return 0;
}

static void mapping_address_free(void *arg, uint64_t addr, uint64_t bytes)
{
	gp_first_chunk_drop(arg);
	if (!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		(void)gp_real.cuMemAddressFree(addr, bytes);
}

static void mapping_release(void *arg, uint64_t handle, uint64_t bytes)
{
	struct gp_context *context = arg;
	struct gp_driver_relaxed relaxed;
	CUresult r;

	if (gp_first_chunk_is(context, handle))
		gp_first_chunk_unmap(context);
	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return;
	relaxed = gp_driver_relax();
	r = gp_real.cuMemRelease(handle);
	gp_driver_unrelax(&relaxed);
	/* The driver has shut down: the process is ending, and its memory with it. */
	if (r == CUDA_ERROR_DEINITIALIZED)
		gp_slow_path_add(GP_SLOW_PATH_BYPASS);
	else if (r)
		gp_log(GP_LOG_WARN, "the driver refused to take memory back: error %d", r);
}

static int mapping_create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	struct gp_context *context = arg;
	CUmemAllocationProp properties = gp_mapping_properties(context);
	bool is_first = gp_first_chunk_take(context, bytes, ret_handle);
	struct gp_driver_scope scope;
	CUresult r = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	gp_libraries_look();
	if (gp_unlikely(atomic_load_explicit(&context->downgraded, memory_order_relaxed)))
		gp_backend_log_downgrades(context);
	if (gp_context_enter(context)) {
		r = gp_driver_enter(&scope, context->handle);
		if (!r) {
			if (!is_first)
				r = gp_real.cuMemCreate(ret_handle, bytes, &properties, 0);
			gp_driver_leave(&scope);
		}
		gp_context_leave(context);
	}
	if (!r)
		gp_device_note_growth(context->device);
	else if (is_first)
		mapping_release(context, *ret_handle, bytes);
	return result_of(r);
}

static int mapping_unmap(void *arg, uint64_t addr, uint64_t bytes)
{
	struct gp_driver_relaxed relaxed;
	CUresult r;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return CUDA_ERROR_DEINITIALIZED;
	gp_debug_leave(addr, bytes, true);
	relaxed = gp_driver_relax();
	r = gp_real.cuMemUnmap(addr, bytes);
	gp_driver_unrelax(&relaxed);
	return result_of(r);
}

uint64_t gp_mapping_devices(const struct gp_context *context)
{
	return gp_peer_access_devices(context->handle) | UINT64_C(1) << context->device->index;
}

/* True if the memory is of use although another device has been refused access to it. */
static bool is_other_refused(const struct gp_context *context, CUdevice device, CUresult r)
{
	static _Atomic bool is_logged;

	if (!r || device == context->device->index || r == CUDA_ERROR_OUT_OF_MEMORY || r == CUDA_ERROR_DEINITIALIZED)
		return false;
	if (!atomic_exchange(&is_logged, true))
		gp_log(GP_LOG_WARN, "device %d has no access to pooled memory of device %d: driver error %d", device,
			context->device->index, r);
	return true;
}

CUresult gp_mapping_allow(const struct gp_context *context, CUdeviceptr ptr, size_t bytes, uint64_t devices)
{
	CUresult r = CUDA_SUCCESS;

	for (; !r && devices; devices &= devices - 1) {
		CUmemAccessDesc access = {
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, __builtin_ctzll(devices)},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};

		r = gp_real.cuMemSetAccess(ptr, bytes, &access, 1);
		if (is_other_refused(context, access.location.id, r))
			r = CUDA_SUCCESS;
	}
	return r;
}

/* Returns the context's sticky error, if it has one. Mapping calls do not return it, since they involve no context. */
static CUresult error_of_context(void)
{
	size_t unused;

	return gp_real.cuMemGetInfo_v2(&unused, &unused);
}

CUresult gp_mapping_map(struct gp_context *context, CUdeviceptr ptr, size_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	CUresult r = gp_real.cuMemMap(ptr, bytes, 0, handle, 0);

	if (r)
		return r;
	r = gp_mapping_allow(context, ptr, bytes, gp_mapping_devices(context));
	if (r && gp_real.cuMemUnmap(ptr, bytes))
		*ret_is_stuck = true;
	return r;
}

/* Finishes the map of the context's first chunk, which is mapped already, as a rule at the right address. */
static CUresult map_first(struct gp_context *context, CUdeviceptr ptr, uint64_t handle, bool *ret_is_stuck)
{
	const struct gp_first_chunk *first = &context->first_chunk;
	bool is_in_place = first->addr == ptr;
	CUresult r;

	if (!is_in_place) {
		r = gp_real.cuMemUnmap(first->addr, first->bytes);
		if (!r)
			r = gp_mapping_map(context, ptr, first->bytes, handle, ret_is_stuck);
	} else {
		r = gp_mapping_allow(context, ptr, first->bytes, gp_mapping_devices(context) & ~first->devices);
		if (r && gp_real.cuMemUnmap(ptr, first->bytes))
			*ret_is_stuck = true;
	}
	gp_first_chunk_done(context);
	return r;
}

static int mapping_map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUresult r = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	if (gp_context_enter(context)) {
		r = gp_driver_enter(&scope, context->handle);
		if (!r) {
			r = error_of_context();
			if (!r && gp_first_chunk_is(context, handle))
				r = map_first(context, addr, handle, ret_is_stuck);
			else if (!r)
				r = gp_mapping_map(context, addr, bytes, handle, ret_is_stuck);
			gp_driver_leave(&scope);
		}
		gp_context_leave(context);
	}
	/* Other threads wait for the first chunk, and its addresses are to be free. */
	if (r && gp_first_chunk_is(context, handle))
		gp_first_chunk_unmap(context);
	return result_of(r);
}

static int mapping_wait(void *arg)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_driver_wait_for_context();
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return result_of(r);
}

const struct gp_mapping_ops gp_mapping_backend = {
	.address_reserve = mapping_address_reserve,
	.address_free = mapping_address_free,
	.create = mapping_create,
	.release = mapping_release,
	.map = mapping_map,
	.unmap = mapping_unmap,
	.wait = mapping_wait,
};
