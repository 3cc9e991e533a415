/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver may claim support that a container or a virtual machine forbids, so each claim is tried:
 *
 *   - mapping, and memory that can be exported, when a context gets its pool. Where the driver wrongly claims that
 *     memory can be exported, it refuses to create such memory: under WSL 2, with CUDA_ERROR_INVALID_VALUE.
 *   - the export itself, when the program asks for the first handle or whether there can be one. It takes the driver
 *     0.6 to 0.9 ms, and few programs ever need it.
 */

#include "mapping_setup.h"

#include <errno.h>
#include <unistd.h>

#include "backend_mapping.h"
#include "first_chunk.h"
#include "pool/vmm/first.h"
#include "shim/base/slow_path.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

/* Larger first chunks are not kept: they may be more than a limit allows, which only the pool's growth heeds. */
#define KEPT_MAX (20 * GP_MIB)

static bool has_functions(void)
{
	return gp_real.cuMemAddressReserve && gp_real.cuMemAddressFree && gp_real.cuMemCreate && gp_real.cuMemRelease &&
	       gp_real.cuMemMap && gp_real.cuMemUnmap && gp_real.cuMemSetAccess &&
	       gp_real.cuMemGetAllocationGranularity;
}

int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule)
{
	CUmemAllocationProp properties = gp_mapping_properties(context);
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

bool gp_mapping_says_shareable(const struct gp_context *context)
{
	return gp_real.cuMemExportToShareableHandle &&
	       gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/* Maps a chunk with the context's features. Keeps it if the allocation under way needs it, or else gives it back. */
static CUresult map_once(struct gp_context *context, uint64_t addr, uint64_t bytes, bool is_needed)
{
	CUmemAllocationProp properties = gp_mapping_properties(context);
	struct gp_first_chunk chunk = {.addr = addr, .bytes = bytes};
	bool is_stuck = false;
	CUresult r = gp_real.cuMemCreate(&chunk.handle, bytes, &properties, 0);

	if (r)
		return r;
	chunk.devices = gp_mapping_devices(context);
	r = gp_mapping_map(context, addr, bytes, chunk.handle, &is_stuck);
	if (!r && is_needed) {
		gp_first_chunk_keep(context, &chunk);
		return CUDA_SUCCESS;
	}
	if (!r)
		r = gp_real.cuMemUnmap(addr, bytes);
	(void)gp_real.cuMemRelease(chunk.handle);
	return r;
}

/* Running out of memory does not show that mapping is forbidden, so it counts as success. */
static bool can_map(struct gp_context *context, uint64_t addr, uint64_t bytes, bool is_needed)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	CUresult r = map_once(context, addr, bytes, is_needed);

	gp_driver_unrelax(&relaxed);
	return !r || r == CUDA_ERROR_OUT_OF_MEMORY;
}

/* A container or a virtual machine may forbid a feature that the driver claims, so mapping without it is tried, too. */
int gp_mapping_try(struct gp_context *context, const struct gp_pool *pool)
{
	bool is_rdma_capable =
		gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	bool is_shareable = context->is_shareable, is_needed = gp_first_chunks.expected_bytes != 0;
	uint64_t addr, bytes = gp_pool_first_chunk(pool, gp_first_chunks.expected_bytes, &addr);

	if (bytes > KEPT_MAX) {
		is_needed = false;
		bytes = gp_pool_first_chunk(pool, 0, &addr);
	}
	for (int i = 0; i < 4; i++) {
		context->is_rdma_capable = !(i & 1);
		context->is_shareable = !(i & 2);
		if ((context->is_rdma_capable && !is_rdma_capable) || (context->is_shareable && !is_shareable))
			continue;
		if (can_map(context, addr, bytes, is_needed))
			return 0;
	}
	return -ENOTSUP;
}

/* Makes a chunk and exports it once. */
static CUresult export_once(const CUmemAllocationProp *properties, uint64_t granule)
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
	return r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_FOUND || r == CUDA_ERROR_NOT_PERMITTED ||
	       r == CUDA_ERROR_NOT_SUPPORTED;
}

CUresult gp_mapping_try_export(struct gp_context *context)
{
	CUmemAllocationProp properties = gp_mapping_properties(context);
	int known = atomic_load(&context->export_result);
	uint64_t granule;
	CUresult r;

	if (known != GP_EXPORT_UNTRIED)
		return known;
	if (!context->is_shareable || gp_mapping_granule(context, &granule))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = export_once(&properties, granule);
	if (!r || is_refusal(r))
		atomic_store(&context->export_result, r);
	if (is_refusal(r))
		atomic_store(&context->device->export_error, r);
	return r == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : r;
}
