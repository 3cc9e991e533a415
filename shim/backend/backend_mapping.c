/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Virtual memory over the driver, for the kind vmm. Chunks belong to the device, not to the context, so unmap,
 * release and address_free work after the context's end, too. They do nothing at the end of the process, when the
 * driver must not be called. Memory is created, mapped, unmapped and released in the relaxed capture mode, since these
 * calls involve no stream.
 *
 * A new chunk is accessible to its own device and to the devices that the program has enabled so far.
 * hooks/hook_peer.c gives access to those that are enabled later.
 */

#include <errno.h>
#include <unistd.h>

#include "backend_mapping.h"
#include "backend_supply.h"
#include "peer_access.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"

static CUmemAllocationProp properties_of(const struct gp_context *context)
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
	if (!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		(void)gp_real.cuMemAddressFree(addr, bytes);
}

static int mapping_create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	struct gp_context *context = arg;
	CUmemAllocationProp properties = properties_of(context);
	struct gp_driver_scope scope;
	CUresult r;

	gp_libraries_look();
	if (gp_unlikely(atomic_load_explicit(&context->downgraded, memory_order_relaxed)))
		gp_backend_log_downgrades(context);
	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuMemCreate(ret_handle, bytes, &properties, 0);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	if (!r)
		gp_device_note_growth(context->device);
	return result_of(r);
}

static void mapping_release(void *arg, uint64_t handle, uint64_t bytes)
{
	struct gp_driver_relaxed relaxed;
	CUresult r;

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

CUresult gp_mapping_allow(CUdeviceptr ptr, size_t bytes, uint64_t devices)
{
	CUresult r = CUDA_SUCCESS;

	for (; !r && devices; devices &= devices - 1) {
		CUmemAccessDesc access = {
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, __builtin_ctzll(devices)},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};

		r = gp_real.cuMemSetAccess(ptr, bytes, &access, 1);
	}
	return r;
}

/* Returns the context's sticky error, if it has one. Mapping calls do not return it, since they involve no context. */
static CUresult error_of_context(void)
{
	size_t unused;

	return gp_real.cuMemGetInfo_v2(&unused, &unused);
}

static CUresult map_and_allow(
	struct gp_context *context, CUdeviceptr ptr, size_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	CUresult r = gp_real.cuMemMap(ptr, bytes, 0, handle, 0);

	if (r)
		return r;
	r = gp_mapping_allow(ptr, bytes, gp_mapping_devices(context));
	if (r && gp_real.cuMemUnmap(ptr, bytes))
		*ret_is_stuck = true;
	return r;
}

static int mapping_map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = error_of_context();
		if (!r)
			r = map_and_allow(context, addr, bytes, handle, ret_is_stuck);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
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

static bool has_functions(void)
{
	return gp_real.cuMemAddressReserve && gp_real.cuMemAddressFree && gp_real.cuMemCreate && gp_real.cuMemRelease &&
	       gp_real.cuMemMap && gp_real.cuMemUnmap && gp_real.cuMemSetAccess &&
	       gp_real.cuMemGetAllocationGranularity;
}

/*
 * Makes every mapping call once: the driver may claim support that a container or a virtual machine forbids. An export
 * takes 0.7 ms on an H200, so it is left to gp_mapping_can_export. Running out of memory does not show that mapping is
 * forbidden, so it counts as success.
 */
static bool can_map(struct gp_context *context, uint64_t granule)
{
	CUmemAllocationProp properties = properties_of(context);
	uint64_t addr, handle = 0;
	bool is_stuck = false;
	struct gp_driver_relaxed relaxed;
	CUresult r;

	if (mapping_address_reserve(context, granule, &addr))
		return false;
	relaxed = gp_driver_relax();
	r = gp_real.cuMemCreate(&handle, granule, &properties, 0);
	if (!r) {
		r = map_and_allow(context, addr, granule, handle, &is_stuck);
		if (!r)
			r = gp_real.cuMemUnmap(addr, granule);
		(void)gp_real.cuMemRelease(handle);
	}
	gp_driver_unrelax(&relaxed);
	mapping_address_free(context, addr, granule);
	return !r || r == CUDA_ERROR_OUT_OF_MEMORY;
}

/* Makes a chunk and exports it once. */
static CUresult try_export(const CUmemAllocationProp *properties, uint64_t granule)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	uint64_t handle;
	int fd = -1;
	CUresult r = gp_real.cuMemCreate(&handle, granule, properties, 0);

	if (!r) {
		r = gp_real.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		(void)gp_real.cuMemRelease(handle);
	}
	gp_driver_unrelax(&relaxed);
	if (fd >= 0)
		close(fd);
	return r;
}

/* Any other error may pass, for example when the process has no descriptor left. */
static bool is_refusal(CUresult r)
{
	return r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_PERMITTED || r == CUDA_ERROR_NOT_SUPPORTED;
}

bool gp_mapping_can_export(struct gp_context *context)
{
	CUmemAllocationProp properties = properties_of(context);
	int known = atomic_load(&context->export_state);
	uint64_t granule;
	CUresult r;

	if (known || !context->is_shareable || gp_mapping_granule(context, &granule))
		return known == GP_EXPORT_WORKS;
	r = try_export(&properties, granule);
	if (!r || is_refusal(r))
		atomic_store(&context->export_state, r ? GP_EXPORT_FAILS : GP_EXPORT_WORKS);
	return !r || r == CUDA_ERROR_OUT_OF_MEMORY;
}

int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule)
{
	CUmemAllocationProp properties = properties_of(context);
	size_t granule = 0;

	if (!has_functions() ||
		!gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
		gp_real.cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM))
		return -ENOTSUP;
	granule = gp_max(granule, GP_MAPPING_GRANULE);
	if (granule & (granule - 1))
		return -ENOTSUP;
	*ret_granule = granule;
	return 0;
}

/*
 * Finds the features with which the driver can map memory. A container or a virtual machine may forbid either, so
 * mapping without them is tried, too.
 */
static bool find_features(struct gp_context *context, uint64_t granule)
{
	bool is_rdma_capable =
		gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	bool is_shareable =
		gp_real.cuMemExportToShareableHandle &&
		gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);

	for (int i = 0; i < 4; i++) {
		context->is_rdma_capable = !(i & 1);
		context->is_shareable = !(i & 2);
		if ((context->is_rdma_capable && !is_rdma_capable) || (context->is_shareable && !is_shareable))
			continue;
		if (can_map(context, granule))
			return true;
	}
	return false;
}

int gp_mapping_setup(struct gp_context *context, uint64_t *ret_granule)
{
	uint64_t granule;

	if (gp_mapping_granule(context, &granule) || !find_features(context, granule))
		return -ENOTSUP;
	*ret_granule = granule;
	return 0;
}
